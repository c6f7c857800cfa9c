//! Damage: every image is refused in one line, or mounts read-only and survives a walk that reads
//! everything; nothing is written, and memory stays bounded.

mod image;

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use finefs_block::{Access, BlockDevice, FileDevice, MemoryDevice};
use finefs_ext::{ExtOptions, ExtStore, ImageInfo};
use finefs_namespace::Store;
use image::{debugfs, make, packed_images, unpack, walk_with};

fn fingerprint(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut file = fs::File::open(path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => return hasher.finish(),
            length => hasher.write(&buffer[..length]),
        }
    }
}

/// The most memory that this process ever used.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[test]
fn damaged_and_unusual_images() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let (mut mounted, mut refused) = (0, 0);
    let packed_images = packed_images();
    for packed in &packed_images {
        let name = packed.file_name().unwrap().to_string_lossy().into_owned();
        let _ = fs::remove_file(&path);
        if unpack(packed, &path).is_none() {
            eprintln!("skipped: {name}");
            continue;
        }
        let before = fingerprint(&path);
        let started = Instant::now();
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&path, Access::ReadOnly).unwrap());
        match ImageInfo::gather(device.clone()) {
            Ok(info) => assert!(info.to_string().lines().count() > 20, "{name}"),
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{name}"),
        }
        match ExtStore::open(
            device,
            &ExtOptions {
                is_read_only: true,
                ..ExtOptions::default()
            },
        ) {
            Ok(store) => {
                let walked = walk_with(&store, false);
                assert!(walked.objects.contains_key(""), "{name}: {walked:?}");
                store.statfs();
                store.close().unwrap();
                mounted += 1;
                println!(
                    "{name}: {} objects, {} errors; {:?}; {:?}",
                    walked.objects.len(),
                    walked.errors.len(),
                    store.notes(),
                    walked.errors.iter().take(3).collect::<Vec<_>>()
                );
            }
            Err(error) => {
                let line = error.to_string();
                assert!(
                    !line.contains('\n') && line.contains(&*path.to_string_lossy()),
                    "{line}"
                );
                refused += 1;
                println!("{name}: refused: {line}");
            }
        }
        let took = started.elapsed();
        assert!(took < Duration::from_secs(60), "{name}: took {took:?}");
        assert_eq!(fingerprint(&path), before, "{name}: was written");
        assert!(
            peak_bytes() < 512 << 20,
            "{name}: used {} bytes",
            peak_bytes()
        );
    }
    println!("{mounted} mounted, {refused} refused");
    let count = packed_images.len();
    assert!(
        mounted >= count / 2,
        "{mounted} of {count} could be mounted"
    );
}

/// An image with a bit of everything, in memory.
fn good_image(options: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    for number in 0..120 {
        let place = tree.join(format!("a/file with a long enough name {number}"));
        fs::write(place, vec![number as u8; 50 + 211 * number]).unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(100), tree.join("a/link")).unwrap();
    fs::write(tree.join("a/big"), vec![3; 700_000]).unwrap();
    let mut all = vec!["-b", "1024", "-N", "256"];
    all.extend(options);
    all.extend(["-d", tree.to_str().unwrap()]);
    let path = make(directory.path(), "4M", &all);
    // An index over the directory, and an attribute block.
    let value = directory.path().join("value");
    fs::write(&value, vec![b'v'; 500]).unwrap();
    debugfs(
        &path,
        &format!("ea_set -f {} a/big user.name\n", value.display()),
    );
    let fixed = Command::new("e2fsck")
        .args(["-fyD"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(fixed.status.code().is_some_and(|code| code <= 1));
    fs::read(&path).unwrap()
}

/// A block of pointers that points at itself: found at once, and only that file is concerned.
#[test]
fn a_map_that_loops() {
    let directory = tempfile::tempdir().unwrap();
    let path = make(directory.path(), "16M", &["-t", "ext2", "-b", "1024"]);
    let data = directory.path().join("data");
    fs::write(&data, vec![7; 20 << 10]).unwrap();
    debugfs(
        &path,
        &format!(
            "write {} file\nwrite {} other\n",
            data.display(),
            data.display()
        ),
    );
    let output = Command::new("debugfs")
        .args(["-R", "stat file"])
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let map_block: u64 = text
        .split("(IND):")
        .nth(1)
        .unwrap()
        .split([',', '\n'])
        .next()
        .unwrap()
        .parse()
        .unwrap();
    debugfs(
        &path,
        &format!(
            "set_inode_field file block[IND] 0\nset_inode_field file block[TIND] {map_block}\n"
        ),
    );
    let pointers: Vec<u8> = (0..256)
        .flat_map(|_| (map_block as u32).to_le_bytes())
        .collect();
    let image = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &pointers, map_block * 1024).unwrap();
    let store = image::open(&path, true).unwrap();
    let walked = walk_with(&store, false);
    let errors: Vec<_> = walked
        .errors
        .iter()
        .map(|(p, e)| format!("{p}: {e}"))
        .collect();
    assert!(
        errors.len() == 1 && errors[0].starts_with("/file:"),
        "{errors:?}"
    );
    assert!(errors[0].contains("used twice"), "{errors:?}");
}

/// Random damage to metadata, checksums or not. Nothing may panic, hang or grow.
#[test]
fn random_damage() {
    for options in [
        &["-t", "ext2"][..],
        &["-t", "ext4", "-O", "^metadata_csum,^has_journal"],
        &[
            "-t",
            "ext4",
            "-J",
            "size=1",
            "-O",
            "inline_data,^metadata_csum",
        ],
        &["-t", "ext4", "-J", "size=1"],
    ] {
        let good = good_image(options);
        let mut seed = 0x1234_5678_9abc_def1_u64;
        let mut random = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as usize % below
        };
        // Metadata is in few blocks; damage elsewhere would say nothing.
        let blocks: Vec<usize> = (0..good.len() / 1024)
            .filter(|block| {
                let bytes = &good[block * 1024..][..1024];
                bytes.iter().any(|&b| b != 0)
                    && !bytes.windows(600).any(|w| w.iter().all(|b| *b == w[0]))
                    || *block < 60
            })
            .collect();
        let mut opened = 0;
        for _ in 0..400 {
            let mut bytes = good.clone();
            for _ in 0..1 + random(12) {
                let at = blocks[random(blocks.len())] * 1024 + random(1024);
                bytes[at] = match random(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => bytes[at] ^ 1 << random(8),
                    _ => random(256) as u8,
                };
            }
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
            let _ = ImageInfo::gather(device.clone()).map(|info| info.to_string());
            let options = ExtOptions {
                is_read_only: true,
                ..ExtOptions::default()
            };
            if let Ok(store) = ExtStore::open(device.clone(), &options) {
                walk_with(&store, false);
                opened += 1;
            }
            // Writing: mounting, cleaning up, closing.
            let options = ExtOptions {
                is_read_only: false,
                ..ExtOptions::default()
            };
            if let Ok(store) = ExtStore::open(device, &options) {
                walk_with(&store, false);
                store.close().unwrap();
            }
        }
        assert!(
            opened > 100,
            "{options:?}: only {opened} of 400 could be opened"
        );
        assert!(peak_bytes() < 512 << 20, "used {} bytes", peak_bytes());
    }
}
