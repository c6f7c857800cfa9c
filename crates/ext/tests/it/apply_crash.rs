//! A crash in the middle of a commit. Without a journal e2fsck repairs the image, with one there is
//! nothing to repair; what earlier commits made durable is still there.

use std::process::Command;
use std::sync::Arc;

use crate::apply_world::{World, assert_clean, make_image, open, open_on, pattern, sized};
use finefs_namespace::{BlockNo, ExtentState, FileKind, Store};
use finefs_sim::{RecordingDevice, Request};

fn crash_points(arguments: &str, has_journal: bool) {
    let directory = tempfile::tempdir().unwrap();
    let path = make_image(directory.path(), arguments, "16M");
    let device = Arc::new(RecordingDevice::new(std::fs::read(&path).unwrap()));
    let mut world = World::new(open_on(device.clone()));
    let root = world.root;
    let dir = world
        .create(root, b"synced", FileKind::Directory, None)
        .unwrap();
    for i in 0..60u64 {
        let name = format!("file {i}");
        let ino = world
            .create(dir, name.as_bytes(), FileKind::Regular, None)
            .unwrap();
        world.fill(ino, 0, 1 + i % 5, ExtentState::Written).unwrap();
    }
    world.commit().unwrap();
    let synced = device.request_count();
    let expected = world.nodes.clone();
    // What comes now may be torn: much of it in the same directory and in the same tables.
    let other = world
        .create(root, b"other", FileKind::Directory, None)
        .unwrap();
    for i in 0..80u64 {
        let name = format!("new {i}");
        let place = if i % 2 == 0 { dir } else { other };
        let ino = world
            .create(place, name.as_bytes(), FileKind::Regular, None)
            .unwrap();
        world.fill(ino, i, 2, ExtentState::Written).unwrap();
    }
    world.commit().unwrap();
    for i in (0..80u64).step_by(3) {
        let place = if i % 2 == 0 { dir } else { other };
        world.unlink(place, format!("new {i}").as_bytes(), false);
    }
    world.commit().unwrap();
    let recorded = device.recorded();
    drop(world);
    let writes: Vec<usize> = (synced..recorded.requests.len())
        .filter(|i| !matches!(recorded.requests[*i], Request::Flush))
        .collect();
    let (mut repaired, points) = (0, sized(30, 100));
    for point in writes.iter().step_by(writes.len().div_ceil(points)) {
        std::fs::write(&path, recorded.image_after(*point).to_bytes()).unwrap();
        let output = Command::new("e2fsck")
            .args(["-f", "-y"])
            .arg(&path)
            .output()
            .unwrap();
        let code = output.status.code().unwrap_or(99);
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(code <= 1, "after request {point}: {report}");
        repaired += u32::from(report.contains("Fix? yes"));
        assert_clean(&path);
        let store = open(&path);
        let entries = store.load_directory(dir).unwrap().entries;
        for (name, (ino, _)) in &expected[&dir].entries {
            let found = entries.iter().find(|entry| entry.name == *name);
            assert_eq!(
                found.map(|entry| entry.ino),
                Some(*ino),
                "after request {point}: {report}"
            );
            let block_size = u64::from(store.geometry().block_size_bytes);
            for extent in store.load_extents(*ino).unwrap() {
                for i in 0..extent.length {
                    let mut buffer = vec![0; block_size as usize];
                    store
                        .read(BlockNo(extent.physical.0 + i), 0, &mut buffer)
                        .unwrap();
                    assert!(buffer == pattern(*ino, extent.logical.0 + i, block_size));
                }
            }
            let size = store.load_inode(*ino).unwrap().attributes.size_bytes;
            assert_eq!(size, expected[ino].attributes.size_bytes);
        }
    }
    if has_journal {
        assert_eq!(repaired, 0, "the journal did not hold everything");
    } else {
        assert!(repaired > 0, "no commit was torn");
    }
}

#[test]
fn crashes_of_ext2() {
    crash_points("-t ext2 -b 1024 -N 512", false);
}

#[test]
fn crashes_of_ext4_without_journal() {
    crash_points("-t ext4 -b 1024 -N 512 -O ^has_journal", false);
}

#[test]
fn crashes_of_ext3() {
    crash_points("-t ext3 -b 1024 -N 512", true);
}

#[test]
fn crashes_of_ext4() {
    crash_points("-t ext4 -b 1024 -N 512", true);
}

/// Checksums of the second version, as older e2fsprogs made them, and none.
#[test]
fn crashes_of_ext4_without_checksums() {
    crash_points("-t ext4 -b 1024 -N 512 -O ^metadata_csum,^64bit", true);
}
