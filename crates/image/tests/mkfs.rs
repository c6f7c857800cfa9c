//! File systems that were made here, judged by e2fsck, and used through the library: mounted in
//! process, filled to the last block. Beside mke2fs byte by byte: `crates/cli/tests/mkfs.rs` and
//! `cargo run -p xtask --release -- prove mkfs`.

use std::path::Path;
use std::process::Command;

use finefs::FileSystem;
use finefs_image::mkfs::{
    FsType, Made, MkfsError, Options, Place, make_at, make_in_memory, plan, plan_at,
};
use proptest::prelude::*;

fn options(fs_type: FsType, features: &str) -> Options {
    Options {
        fs_type,
        features: features
            .split(',')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect(),
        seed: Some("test".into()),
        ..Options::default()
    }
}

fn place(path: &Path, size_bytes: Option<u64>) -> Place {
    Place {
        path: path.to_owned(),
        size_bytes,
        offset_bytes: 0,
        may_overwrite: false,
    }
}

fn make(path: &Path, size_bytes: u64, options: &Options) -> Made {
    make_at(&place(path, Some(size_bytes)), options).unwrap()
}

fn check(image: &Path) {
    let output = Command::new("e2fsck").arg("-fn").arg(image).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}", image.display());
}

/// Writes files until there is no space, and says how many bytes fitted.
fn fill(image: &Path) -> u64 {
    let fs = FileSystem::open_image(image).unwrap();
    let mut bytes = 0;
    'all: for number in 0.. {
        let Ok(file) = fs.create(format!("file{number}")) else {
            break;
        };
        for at in 0..512 {
            let Ok(written) = file.write_at(&[number as u8; 4096], at * 4096) else {
                break 'all;
            };
            bytes += written as u64;
        }
    }
    fs.close().unwrap();
    bytes
}

#[test]
fn images_are_mounted_and_filled_to_the_last_block() {
    let dir = tempfile::tempdir().unwrap();
    let cases: &[(FsType, &str, u64)] = &[
        (FsType::Ext4, "", 24 << 20),
        (FsType::Ext4, "orphan_file,metadata_csum_seed", 24 << 20),
        (FsType::Ext4, "^has_journal,^flex_bg", 24 << 20),
        (FsType::Ext4, "^metadata_csum,uninit_bg,^64bit", 24 << 20),
        (FsType::Ext3, "", 24 << 20),
        (FsType::Ext2, "", 24 << 20),
        (FsType::Ext2, "none", 3 << 20),
    ];
    for (number, (fs_type, features, size)) in cases.iter().enumerate() {
        let image = dir.path().join(format!("image{number}"));
        let options = Options {
            reserved_percent: 0.0,
            ..options(*fs_type, features)
        };
        let made = make(&image, *size, &options);
        check(&image);
        let filled = fill(&image);
        let free = made.free_blocks * u64::from(made.block_size);
        // What maps the files takes the rest.
        assert!(filled <= free, "{made:?}");
        assert!(filled > free * 97 / 100, "{filled} of {free}: {made:?}");
        check(&image);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |name: &str, options: &Options| {
        let path = dir.path().join(name);
        make(&path, 5 << 20, options);
        std::fs::read(path).unwrap()
    };
    let seeded = options(FsType::Ext4, "orphan_file,metadata_csum_seed");
    let one = bytes("one", &seeded);
    assert!(one == bytes("two", &seeded));
    let (device, _) = make_in_memory(5 << 20, &seeded).unwrap();
    assert!(one == device.to_bytes());
    let timed = Options {
        seed: None,
        time: Some(1_700_000_000),
        ..seeded.clone()
    };
    assert!(bytes("three", &timed) == bytes("four", &timed));
    let random = Options {
        seed: None,
        ..seeded
    };
    assert!(bytes("five", &random) != bytes("six", &random));
}

#[test]
fn what_was_there_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (new, used) = (dir.path().join("new"), dir.path().join("used"));
    let wanted = options(FsType::Ext4, "");
    make(&new, 8 << 20, &wanted);
    for discards in [true, false] {
        // A file full of ones, without room for mistakes.
        std::fs::write(&used, vec![0xff; 8 << 20]).unwrap();
        let options = Options {
            discards,
            is_itable_lazy: false,
            ..wanted.clone()
        };
        let made = make_at(&place(&used, None), &options).unwrap();
        assert_eq!(made.size_bytes, 8 << 20);
        check(&used);
        if discards {
            assert!(std::fs::read(&new).unwrap() == std::fs::read(&used).unwrap());
        }
        fill(&used);
        check(&used);
    }
    // Inode tables that may stay as they are, and must be made by whoever uses them.
    std::fs::write(&used, vec![0xff; 40 << 20]).unwrap();
    let lazy = Options {
        discards: false,
        ..wanted.clone()
    };
    make_at(&place(&used, None), &lazy).unwrap();
    check(&used);
    fill(&used);
    check(&used);
}

#[test]
fn a_file_system_that_is_there_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let labelled = Options {
        label: b"precious".to_vec(),
        ..options(FsType::Ext4, "")
    };
    make(&image, 4 << 20, &labelled);
    let before = std::fs::read(&image).unwrap();
    let again = make_at(&place(&image, None), &labelled);
    let line = again.unwrap_err().to_string();
    assert!(line.contains("precious") && line.contains("-F"), "{line}");
    assert!(std::fs::read(&image).unwrap() == before);
    let forced = Place {
        may_overwrite: true,
        ..place(&image, None)
    };
    make_at(&forced, &labelled).unwrap();
    assert!(std::fs::read(&image).unwrap() == before);
}

#[test]
fn an_offset_leaves_the_rest_alone() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::write(&image, vec![7; 10 << 20]).unwrap();
    let place = Place {
        offset_bytes: 1 << 20,
        size_bytes: Some(8 << 20),
        ..place(&image, None)
    };
    let made = make_at(&place, &options(FsType::Ext4, "")).unwrap();
    assert_eq!(made.size_bytes, 8 << 20);
    let bytes = std::fs::read(&image).unwrap();
    assert_eq!(bytes.len(), 10 << 20);
    assert!(bytes[..1 << 20].iter().all(|byte| *byte == 7));
    assert!(bytes[9 << 20..].iter().all(|byte| *byte == 7));
    let part = dir.path().join("part");
    std::fs::write(&part, &bytes[1 << 20..9 << 20]).unwrap();
    check(&part);
}

#[test]
fn a_failure_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    for (size, features) in [
        (20 << 10, ""),
        (8 << 20, "bigalloc,^extent"),
        (8 << 20, "^extent"),
    ] {
        let made = make_at(&place(&image, Some(size)), &options(FsType::Ext4, features));
        assert!(made.is_err());
        assert!(!image.exists());
    }
    let missing = make_at(&place(&image, None), &options(FsType::Ext4, ""));
    assert!(matches!(missing, Err(MkfsError::NoSize(_))));
    let planned = plan_at(&place(&image, Some(8 << 20)), &options(FsType::Ext4, ""));
    assert!(planned.is_ok() && !image.exists());
}

#[test]
fn twenty_gib_are_planned_in_five_mib() {
    let made = plan(20 << 30, &options(FsType::Ext4, "")).unwrap();
    assert!(made.written_bytes < 5 << 20, "{}", made.written_bytes);
    assert_eq!(made.journal_blocks, 32_768);
}

#[test]
fn large_file_systems_are_planned() {
    // 20 TiB: more than 2^32 blocks, where there is no resize inode.
    let made = plan(20 << 40, &options(FsType::Ext4, "")).unwrap();
    assert_eq!(made.blocks, 20 << 28);
    assert!(!made.features.iter().any(|name| name == "resize_inode"));
    let refused = plan(20 << 40, &options(FsType::Ext2, ""));
    assert!(refused.unwrap_err().to_string().contains("64bit"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever size and block size: an error, or a file system that e2fsck finds nothing in.
    #[test]
    fn all_sizes(
        kib in prop_oneof![20u64..400, 400u64..40_000],
        block_bits in 10u32..17,
        type_number in 0usize..3,
        features in prop::sample::select(vec![
            "", "^resize_inode", "^flex_bg", "sparse_super2", "meta_bg,^resize_inode",
            "^has_journal", "orphan_file", "bigalloc",
        ]),
        has_small_groups in any::<bool>(),
        inodes in prop::option::of(1u32..3000),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let options = Options {
            block_size: Some(1 << block_bits),
            blocks_per_group: has_small_groups.then_some(512),
            inodes,
            ..options([FsType::Ext2, FsType::Ext3, FsType::Ext4][type_number], features)
        };
        match make_at(&place(&image, Some(kib << 10)), &options) {
            Ok(made) => {
                check(&image);
                prop_assert!(made.size_bytes <= kib << 10);
            }
            Err(error) => {
                let is_told = !matches!(error, MkfsError::Disk(_) | MkfsError::Io { .. });
                prop_assert!(is_told, "{error}");
                prop_assert!(!image.exists());
            }
        }
    }
}

/// A device with blocks of 1 KiB that nobody can read.
struct Worn {
    whole: finefs_block::FileDevice,
    bad: Vec<u64>,
}

impl finefs_block::BlockDevice for Worn {
    fn len_bytes(&self) -> u64 {
        self.whole.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let blocks = offset_bytes / 1024..(offset_bytes + buffer.len() as u64).div_ceil(1024);
        match self.bad.iter().any(|bad| blocks.contains(bad)) {
            true => Err(std::io::Error::other("worn")),
            false => self.whole.read_at(offset_bytes, buffer),
        }
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.whole.write_at(offset_bytes, data)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
        self.whole.write_zeros_at(offset_bytes, length_bytes)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.whole.flush()
    }

    fn describe(&self) -> String {
        self.whole.describe()
    }
}

#[test]
fn blocks_that_cannot_be_read_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    let worn = |bad: &[u64]| Worn {
        whole: finefs_block::FileDevice::open(&image, finefs_block::Access::ReadWrite).unwrap(),
        bad: bad.to_vec(),
    };
    let options = Options {
        checks_blocks: true,
        ..options(FsType::Ext4, "")
    };
    let made = finefs_image::mkfs::make(&worn(&[300, 5000, 9001]), false, &options).unwrap();
    assert_eq!(made.notes, ["3 blocks cannot be read, and are left out"]);
    check(&image);
    let shown = Command::new("dumpe2fs")
        .arg("-b")
        .arg(&image)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "300\n5000\n9001\n");
    let refused = finefs_image::mkfs::make(&worn(&[2]), false, &options).unwrap_err();
    assert!(refused.to_string().contains("superblock"), "{refused}");
    let all: Vec<u64> = (0..16 << 10).collect();
    let refused = finefs_image::mkfs::make(&worn(&all), false, &options).unwrap_err();
    assert!(
        refused.to_string().contains("nothing of it can be read"),
        "{refused}"
    );
}
