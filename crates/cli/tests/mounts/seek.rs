//! SEEK_DATA and SEEK_HOLE where the kernel has what the server has not seen yet. These tests need
//! root and FUSE.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use rustix::fs::{SeekFrom, seek};

use crate::mapping::Mapping;
use crate::support::*;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn data(file: &File, from: u64) -> Option<u64> {
    seek(file, SeekFrom::Data(from)).ok()
}

fn hole(file: &File, from: u64) -> Option<u64> {
    seek(file, SeekFrom::Hole(from)).ok()
}

#[test]
fn what_was_stored_through_a_mapping_is_data() {
    if !can_mount() {
        return;
    }
    for (ring, options) in [("N", "rw"), ("Y", "rw"), ("N", "writeback_cache")] {
        let switch = RingSwitch::set(ring);
        let place = Place::new();
        let image = place.image("ext4");
        mount(&image, &place.mount_point(), &["-o", options]);
        drop(switch);
        let path = place.mount_point().join("file");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.set_len(8 * MIB).unwrap();
        let mapping = Mapping::of(&file, 8 << 20).unwrap();
        mapping.store(MIB, b"stored").unwrap();
        assert_eq!(data(&file, 0), Some(MIB), "{options}");
        assert_eq!(hole(&file, 0), Some(0));
        // Behind what the server has, and behind what it has not.
        mapping.store(MIB + PAGE, b"stored").unwrap();
        assert_eq!(hole(&file, MIB), Some(MIB + 2 * PAGE));
        file.write_all_at(&[1; 2 * PAGE as usize], 2 * MIB).unwrap();
        mapping.store(2 * MIB + 2 * PAGE, b"stored").unwrap();
        file.write_all_at(&[1; PAGE as usize], 2 * MIB + 3 * PAGE)
            .unwrap();
        mapping.store(2 * MIB + 4 * PAGE, b"stored").unwrap();
        assert_eq!(hole(&file, 2 * MIB + 7), Some(2 * MIB + 5 * PAGE));
        mapping.store(8 * MIB - 1, b"x").unwrap();
        assert_eq!(data(&file, 3 * MIB), Some(8 * MIB - PAGE));
        assert_eq!(hole(&file, 8 * MIB - PAGE), Some(8 * MIB));
        assert_eq!(data(&file, 8 * MIB), None);
        // As a program copies it.
        mapping.store(5 * MIB, b"last").unwrap();
        let copy = place.mount_point().join("copy");
        succeed(
            Command::new("cp")
                .arg("--sparse=auto")
                .arg(&path)
                .arg(&copy),
        );
        assert!(fs::read(&copy).unwrap() == fs::read(&path).unwrap());
        assert!(fs::read(&copy).unwrap()[5 << 20..].starts_with(b"last"));
        drop((mapping, file));
        unmount(&place);
        check(&image);
    }
}

#[test]
fn a_file_ends_where_the_kernel_has_it_end() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &["-o", "writeback_cache"]);
    let path = place.mount_point().join("file");
    let mut file = File::create_new(&path).unwrap();
    file.write_all(&[1; 9000]).unwrap();
    assert_eq!(data(&file, 8999), Some(8999));
    file.write_all_at(&[1; 9000], 9000).unwrap();
    assert_eq!(hole(&file, 0), Some(18_000));
    assert_eq!(hole(&file, 18_000), None);
    drop(file);
    unmount(&place);
    check(&image);
}

/// Nobody waits for the thaw.
#[test]
fn a_frozen_file_has_no_holes() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    mount(&image, &place.mount_point(), &[]);
    let path = place.mount_point().join("file");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.set_len(8 * MIB).unwrap();
    // Started before there is a mapping: a child that gives its copy of one up writes it out.
    let mut thaw = Command::new("sh")
        .args(["-c", "read line; exec \"$0\" thaw \"$1\""])
        .arg(finefs().get_program())
        .arg(place.mount_point())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    succeed(finefs().arg("freeze").arg(place.mount_point()));
    let mapping = Mapping::of(&file, 8 << 20).unwrap();
    mapping.store(MIB, b"stored").unwrap();
    let found = [
        data(&file, MIB + 1),
        hole(&file, MIB + 1),
        data(&file, 8 * MIB),
    ];
    drop(thaw.stdin.take());
    assert!(thaw.wait().unwrap().success());
    assert_eq!(found, [Some(MIB + 1), Some(8 * MIB), None]);
    assert_eq!(data(&file, 0), Some(MIB));
    drop((mapping, file));
    unmount(&place);
    check(&image);
}
