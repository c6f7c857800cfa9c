//! copy_file_range(2). These tests need root and FUSE.
//!
//! That a hole comes out as one shows that the server has copied it: the kernel would write zeros.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FallocateFlags, fallocate};

use crate::mapping::Mapping;
use crate::support::*;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn copy(from: (&File, u64), to: (&File, u64), length: u64) -> io::Result<u64> {
    let (mut read_at, mut write_at) = (from.1, to.1);
    let (read_at, write_at) = (Some(&mut read_at), Some(&mut write_at));
    let done = rustix::fs::copy_file_range(from.0, read_at, to.0, write_at, length as usize)?;
    Ok(done as u64)
}

fn create(path: &Path) -> File {
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true);
    options.open(path).unwrap()
}

fn blocks(file: &File) -> u64 {
    file.metadata().unwrap().blocks()
}

/// An image that mke2fs makes with these options.
fn image(place: &Place, options: &[&str]) -> PathBuf {
    let image = place.path().join("image");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs
        .args(["-q", "-F"])
        .args(options)
        .stdout(Stdio::null());
    let made = run(mke2fs.arg(&image).arg("64M"));
    assert!(made.status.success(), "{made:?}");
    image
}

/// Data and holes, across the end of the source, of two files and of one.
fn copies(dir: &Path) {
    let (from, to) = (create(&dir.join("from")), create(&dir.join("to")));
    from.set_len(8 * MIB).unwrap();
    from.write_all_at(&[1; 10_000], 3 * MIB + 5).unwrap();
    from.sync_all().unwrap();
    // Stored through a mapping, and not written out yet.
    let mapping = Mapping::of(&from, 8 << 20).unwrap();
    mapping.store(5 * MIB, b"stored").unwrap();
    assert_eq!(copy((&from, 0), (&to, 0), 20 * MIB).unwrap(), 8 * MIB);
    let content = fs::read(dir.join("from")).unwrap();
    assert!(content[5 << 20..].starts_with(b"stored"));
    assert!(fs::read(dir.join("to")).unwrap() == content);
    from.sync_all().unwrap();
    to.sync_all().unwrap();
    assert!(blocks(&to) <= blocks(&from) + 64, "{}", blocks(&to));
    assert_eq!(copy((&from, 8 * MIB), (&to, 0), 10).unwrap(), 0);
    assert_eq!(copy((&from, 8 * MIB - 3), (&to, 9 * MIB), 10).unwrap(), 3);
    assert_eq!(to.metadata().unwrap().len(), 9 * MIB + 3);
    // A hole over data that is in the kernel's cache, and on the image.
    to.write_all_at(&[2; 20_000], 0).unwrap();
    assert_eq!(copy((&from, 0), (&to, 100), 15_000).unwrap(), 15_000);
    let mut expected = [2; 20_000];
    expected[100..15_100].fill(0);
    let mut found = [1; 20_000];
    to.read_exact_at(&mut found, 0).unwrap();
    assert!(found == expected);
    // In one file.
    let errno = |outcome: io::Result<u64>| outcome.unwrap_err().raw_os_error();
    let overlapping = copy((&from, 0), (&from, 5000), 5001);
    assert_eq!(errno(overlapping), Some(libc::EINVAL));
    let done = copy((&from, 3 * MIB), (&from, MIB + 1), 20_000).unwrap();
    assert_eq!(done, 20_000);
    let mut found = [0; 6];
    from.read_exact_at(&mut found, MIB + 5).unwrap();
    assert_eq!(found, [0, 1, 1, 1, 1, 1]);
    // How a file was opened counts.
    let read_only = File::open(dir.join("to")).unwrap();
    let mut options = File::options();
    let write_only = options.write(true).open(dir.join("from")).unwrap();
    let append = options.custom_flags(libc::O_APPEND);
    let append = append.open(dir.join("to")).unwrap();
    for (one, other) in [(&from, &read_only), (&write_only, &to), (&from, &append)] {
        assert_eq!(errno(copy((one, 0), (other, 0), 10)), Some(libc::EBADF));
    }
    assert_eq!(copy((&read_only, 0), (&from, 0), 10).unwrap(), 10);
    drop(mapping);
}

/// Two files that change at random, beside what must be in them.
fn exercise(dir: &Path, rounds: u64) {
    const LARGE: u64 = 30 * PAGE;
    let paths = ["one", "two"].map(|name| dir.join(name));
    let files = paths.each_ref().map(|path| create(path));
    let mut models = [Vec::<u8>::new(), Vec::new()];
    let mut state = 1_u64;
    let mut below = move |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for round in 0..rounds {
        // What lies in the inode, if it can, is soon too large for that.
        let space = if round < rounds / 3 { 150 } else { LARGE };
        let (which, at) = (below(2) as usize, below(space));
        let (file, length) = (&files[which], 1 + below(space / 5));
        let data = vec![1 + (round % 255) as u8; length as usize];
        let size = models[which].len() as u64;
        match below(8) {
            0 => {
                file.write_all_at(&data, at).unwrap();
                put(&mut models[which], at, &data);
            }
            1 if at + length <= size => {
                let mapping = Mapping::of(file, size as usize).unwrap();
                mapping.store(at, &data).unwrap();
                put(&mut models[which], at, &data);
            }
            2 if at < size => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, mode, at, length).unwrap();
                let zeros = vec![0; length.min(size - at) as usize];
                put(&mut models[which], at, &zeros);
            }
            3 if round % 3 == 0 => {
                file.set_len(at).unwrap();
                models[which].resize(at as usize, 0);
            }
            4 if round % 3 == 0 => file.sync_all().unwrap(),
            _ => {
                let (to, there) = (below(2) as usize, below(space));
                let outcome = copy((file, at), (&files[to], there), length);
                let start = size.min(at) as usize;
                let end = size.min(at + length) as usize;
                let data = models[which][start..end].to_vec();
                if which == to && at.abs_diff(there) < data.len() as u64 {
                    assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EINVAL));
                    continue;
                }
                assert_eq!(outcome.unwrap(), data.len() as u64, "round {round}");
                if !data.is_empty() {
                    put(&mut models[to], there, &data);
                }
            }
        }
        for (path, model) in paths.iter().zip(&models) {
            assert!(fs::read(path).unwrap() == *model, "round {round}");
        }
    }
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    for (path, model) in paths.iter().zip(&models) {
        assert!(fs::read(path).unwrap() == *model, "without caches");
    }
}

fn put(model: &mut Vec<u8>, at: u64, data: &[u8]) {
    let end = at as usize + data.len();
    model.resize(model.len().max(end), 0);
    model[at as usize..end].copy_from_slice(data);
}

/// All of it in one directory of a mount.
fn in_directory(dir: &Path) {
    copies(dir);
    exercise(dir, 600);
}

#[test]
fn ranges_are_copied_on_images() {
    if !can_mount() {
        return;
    }
    let kinds: [&[&str]; 5] = [
        &["-t", "ext4"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext4", "-O", "inline_data", "-I", "512"],
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
        &["-t", "ext4", "-O", "^extent,^64bit", "-b", "1024"],
    ];
    for kind in kinds {
        let place = Place::new();
        let image = image(&place, kind);
        mount(&image, &place.mount_point(), &[]);
        in_directory(&place.mount_point());
        unmount(&place);
        check(&image);
    }
}

#[test]
fn ranges_are_copied_in_each_kind_of_mount() {
    if !can_mount() {
        return;
    }
    for (ring, options) in [("N", "threads=1"), ("Y", "rw"), ("Y", "writeback_cache")] {
        let switch = RingSwitch::set(ring);
        let place = Place::new();
        let image = place.image("ext4");
        mount(&image, &place.mount_point(), &["-o", options]);
        drop(switch);
        in_directory(&place.mount_point());
        unmount(&place);
        check(&image);
    }
    let place = Place::new();
    mount_memory(&place, &[]);
    in_directory(&place.mount_point());
    unmount(&place);
}

#[test]
fn ranges_are_copied_between_encrypted_files() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = image(&place, &["-t", "ext4", "-O", "encrypt"]);
    let key = place.path().join("key");
    fs::write(&key, [9; 64]).unwrap();
    let option = format!("key={}", key.display());
    mount(&image, &place.mount_point(), &["-o", &option]);
    let path = place.mount_point().join("d");
    fs::create_dir(&path).unwrap();
    let dir = File::open(&path).unwrap();
    let flags = rustix::fs::ioctl_getflags(&dir).unwrap().bits();
    let encrypted = rustix::fs::IFlags::from_bits_retain(flags | 0x800);
    rustix::fs::ioctl_setflags(&dir, encrypted).unwrap();
    drop(dir);
    in_directory(&path);
    // From what is encrypted to what is not, and back.
    let plain = create(&place.mount_point().join("plain"));
    let (one, two) = (path.join("one"), path.join("back"));
    let length = fs::metadata(&one).unwrap().len();
    assert_eq!(
        copy((&File::open(&one).unwrap(), 0), (&plain, 0), length).unwrap(),
        length
    );
    assert_eq!(
        copy((&plain, 0), (&create(&two), 0), length).unwrap(),
        length
    );
    assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap());
    drop(plain);
    unmount(&place);
    check(&image);
}

/// The kernel's write-back cache has the end of a file before the server has.
#[test]
fn what_lies_before_the_end_that_the_kernel_knows_is_copied() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &["-o", "writeback_cache"]);
    let dir = place.mount_point();
    let (from, to) = (create(&dir.join("from")), create(&dir.join("to")));
    from.write_all_at(b"end", MIB).unwrap();
    assert_eq!(copy((&from, 0), (&to, 7), 5000).unwrap(), 5000);
    assert_eq!(fs::read(dir.join("to")).unwrap(), [0; 5007]);
    assert_eq!(copy((&from, MIB - 2), (&to, 0), 100).unwrap(), 5);
    assert!(fs::read(dir.join("to")).unwrap().starts_with(b"\0\0end\0"));
    drop((from, to));
    unmount(&place);
    check(&image);
}

/// It waits for the thaw, as a write does.
#[test]
fn a_copy_waits_for_the_thaw() {
    if !can_mount() {
        return;
    }
    for ring in ["N", "Y"] {
        let switch = RingSwitch::set(ring);
        let place = Place::new();
        let image = place.image("ext4");
        mount(&image, &place.mount_point(), &[]);
        drop(switch);
        let dir = place.mount_point();
        let (from, to) = (create(&dir.join("from")), create(&dir.join("to")));
        from.write_all_at(&[1; 100_000], 0).unwrap();
        succeed(finefs().arg("freeze").arg(&dir));
        let copying = std::thread::spawn(move || copy((&from, 0), (&to, 0), 100_000));
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!copying.is_finished());
        succeed(finefs().arg("thaw").arg(&dir));
        assert_eq!(copying.join().unwrap().unwrap(), 100_000);
        assert_eq!(fs::read(dir.join("to")).unwrap(), [1; 100_000]);
        unmount(&place);
        check(&image);
    }
}

/// With `-o writeback_cache` a range may go beyond the end that the server knows, to where there is
/// nothing but a hole; but where the source is cut while it is copied, the copy ends.
#[test]
fn a_source_that_is_cut_meanwhile_ends_the_copy() {
    if !can_mount() {
        return;
    }
    const LENGTH: u64 = 24 * MIB;
    let place = Place::new();
    let image = image(&place, &["-t", "ext4"]);
    mount(&image, &place.mount_point(), &["-o", "writeback_cache"]);
    let dir = place.mount_point();
    let (from, to) = (create(&dir.join("from")), create(&dir.join("to")));
    let data = vec![1; LENGTH as usize];
    let start = std::time::Instant::now();
    let (mut were_cut, mut pause) = (0, std::time::Duration::from_millis(4));
    while were_cut < 5 && start.elapsed() < PATIENCE {
        to.set_len(0).unwrap();
        from.write_all_at(&data, 0).unwrap();
        // What the kernel has to write out first is no part of the race.
        from.sync_data().unwrap();
        let copied = std::thread::scope(|scope| {
            let copying = scope.spawn(|| copy((&from, 0), (&to, 0), LENGTH).unwrap());
            std::thread::sleep(pause);
            from.set_len(0).unwrap();
            copying.join().unwrap()
        });
        let content = fs::read(dir.join("to")).unwrap();
        assert_eq!(content.len() as u64, copied);
        let found = content.iter().take_while(|byte| **byte == 1).count() as u64;
        // Cut before the server has looked at it, it is one of which the kernel knows more.
        assert!([0, copied].contains(&found), "{found} of {copied}");
        assert!(content[found as usize..].iter().all(|byte| *byte == 0));
        pause = match found {
            // It came too soon.
            0 => pause * 5 / 4,
            found if found < LENGTH => {
                were_cut += 1;
                pause
            }
            _ => pause * 3 / 4,
        };
    }
    assert!(were_cut > 0, "no copy was cut");
    drop((from, to));
    unmount(&place);
    check(&image);
}
