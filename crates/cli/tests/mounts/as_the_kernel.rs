//! What programs see in a mount is what they see on the kernel's ext4: limits, errors, marginal
//! values.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use crate::support::*;

/// Runs `check` in a mount of a new image.
fn in_mount(kind: &str, check: impl FnOnce(&std::path::Path)) {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image(kind), place.mount_point());
    mount(&image, &mount_point, &[]);
    check(&mount_point);
    unmount(&place);
    crate::support::check(&image);
}

#[test]
fn names_and_flags_of_extended_attributes() {
    in_mount("ext4", |mount_point| {
        let file = mount_point.join("f");
        fs::write(&file, b"").unwrap();
        let set = |name: &str, flags| rustix::fs::setxattr(&file, name, b"x", flags);
        for prefix in ["user.", "trusted.", "security."] {
            assert_eq!(
                set(prefix, XattrFlags::empty()),
                Err(Errno::INVAL),
                "{prefix}"
            );
            let got = rustix::fs::getxattr(&file, prefix, &mut [0_u8; 9]);
            assert_eq!(got, Err(Errno::INVAL), "{prefix}");
        }
        for name in ["system.other", "other.name", "other"] {
            assert_eq!(
                set(name, XattrFlags::empty()),
                Err(Errno::OPNOTSUPP),
                "{name}"
            );
            let got = rustix::fs::getxattr(&file, name, &mut [0_u8; 9]);
            assert_eq!(got, Err(Errno::OPNOTSUPP), "{name}");
        }
        let both = XattrFlags::CREATE | XattrFlags::REPLACE;
        assert_eq!(set("user.a", both), Err(Errno::NODATA));
        set("user.a", XattrFlags::CREATE).unwrap();
        assert_eq!(set("user.a", both), Err(Errno::EXIST));
    });
}

#[test]
fn a_chown_that_names_nobody_still_takes_set_id_bits() {
    in_mount("ext4", |mount_point| {
        let file = mount_point.join("f");
        fs::write(&file, b"").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
        let before = fs::metadata(&file).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        chown(&file, None, None).unwrap();
        let after = fs::metadata(&file).unwrap();
        assert_eq!(after.mode() & 0o7777, 0o755);
        let changed = |metadata: &fs::Metadata| (metadata.ctime(), metadata.ctime_nsec());
        assert!(changed(&after) > changed(&before));
        assert_eq!((after.uid(), after.mtime_nsec()), (0, before.mtime_nsec()));
    });
}

#[test]
fn the_first_and_last_second_have_no_nanoseconds() {
    in_mount("ext4", |mount_point| {
        let file = mount_point.join("f");
        fs::write(&file, b"").unwrap();
        let first = i64::from(i32::MIN);
        let last = first + (1 << 34) - 1;
        for (given, kept) in [
            ((first, 5), (first, 0)),
            ((first + 1, 5), (first + 1, 5)),
            ((last - 1, 999_999_999), (last - 1, 999_999_999)),
            ((last, 999_999_999), (last, 0)),
            ((last + 9, 7), (last, 0)),
        ] {
            let time = Timespec {
                tv_sec: given.0,
                tv_nsec: given.1,
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
            let metadata = fs::metadata(&file).unwrap();
            assert_eq!((metadata.mtime(), metadata.mtime_nsec()), kept);
        }
    });
}

#[test]
fn direct_io_must_be_aligned() {
    in_mount("ext4", |mount_point| {
        let path = mount_point.join("f");
        fs::write(&path, vec![1; 8192]).unwrap();
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let file = options.open(&path).unwrap();
        // Of which some part is aligned to 4,096 bytes.
        let mut space = vec![0_u8; 16_384];
        let start = space.as_ptr().align_offset(4096);
        let space = &mut space[start..start + 8192];
        let refused = |outcome: std::io::Result<usize>| {
            assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        };
        refused(file.read_at(&mut space[..512], 100));
        refused(file.read_at(&mut space[..100], 512));
        refused(file.write_at(&space[..512], 100));
        refused(file.write_at(&space[..100], 512));
        assert_eq!(file.read_at(space, 512).unwrap(), 7680);
        assert!(space[..7680].iter().all(|byte| *byte == 1));
        assert_eq!(file.write_at(&space[..512], 1024).unwrap(), 512);
        // What goes through the cache needs not be.
        assert_eq!(
            File::open(&path)
                .unwrap()
                .read_at(&mut space[..3], 7)
                .unwrap(),
            3
        );
    });
}

#[test]
fn the_largest_file_is_that_of_the_kernel() {
    for (kind, largest) in [
        ("ext2", 17_247_252_480_u64),
        ("ext4", (1 << 32) * 1024 - 1024),
    ] {
        in_mount(kind, |mount_point| {
            let file = File::create(mount_point.join("f")).unwrap();
            file.set_len(largest).unwrap();
            let error = file.set_len(largest + 1).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{kind}");
        });
    }
}

#[test]
fn times_change_with_a_truncate_to_the_same_size_and_not_with_an_attribute_of_the_same_value() {
    in_mount("ext4", |mount_point| {
        let file = mount_point.join("f");
        fs::write(&file, b"abc").unwrap();
        rustix::fs::setxattr(&file, "user.a", b"x", XattrFlags::empty()).unwrap();
        let times = || {
            let metadata = fs::metadata(&file).unwrap();
            (metadata.mtime_nsec(), metadata.ctime_nsec())
        };
        let later = || std::thread::sleep(std::time::Duration::from_millis(20));
        let before = times();
        later();
        rustix::fs::setxattr(&file, "user.a", b"x", XattrFlags::empty()).unwrap();
        assert_eq!(times(), before);
        OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(3)
            .unwrap();
        let after = times();
        assert!(after.0 != before.0 && after.1 != before.1);
    });
}

/// With its write-back cache the kernel keeps the times of a file. What it writes out of it later
/// does not move them, also where it has none to send, since they were the same before.
#[test]
fn what_is_written_back_does_not_move_times() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (image, mount_point) = (place.image("ext4"), place.mount_point());
    let names: Vec<String> = (0..100).map(|number| format!("f{number}")).collect();
    let times = || -> Vec<_> {
        let of = |name: &String| {
            let metadata = fs::metadata(mount_point.join(name)).unwrap();
            (
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.ctime_nsec(),
            )
        };
        names.iter().map(of).collect()
    };
    mount(&image, &mount_point, &["-o", "writeback_cache"]);
    for name in &names {
        let file = File::create(mount_point.join(name)).unwrap();
        for at in [0, 1, 5000] {
            // Mostly within a tick of the clock.
            file.write_all_at(b"x", at).unwrap();
            file.sync_data().unwrap();
        }
    }
    let kept = times();
    unmount(&place);
    mount(&image, &mount_point, &["-o", "writeback_cache"]);
    assert_eq!(times(), kept);
    unmount(&place);
    crate::support::check(&image);
}

#[test]
fn holes_end_where_the_kernel_ends_them() {
    in_mount("ext4", |mount_point| {
        use rustix::fs::{FallocateFlags, fallocate};
        let file = File::create(mount_point.join("f")).unwrap();
        file.write_all_at(&[7; 73_764], 0).unwrap();
        file.sync_all().unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The last block goes, too, as nothing is left in it.
        fallocate(&file, punch, 56_320, 20_480).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.blocks()), (73_764, 110));
        // Beyond the largest file.
        assert_eq!(fallocate(&file, punch, 1 << 44, 4104), Err(Errno::FBIG));
    });
}
