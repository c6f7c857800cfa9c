//! What mounting for writing does by itself: marks that the image is in use, cleans up orphans,
//! marks that it was closed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::image::{assert_clean, debugfs, lookup, make, open, run, walk};
use crate::kernel_mount::KernelMount;
use finefs_block::{Access, BlockDevice, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Error, Store};

fn field(image: &Path, name: &str) -> String {
    let dump = Command::new("dumpe2fs")
        .arg("-h")
        .arg(image)
        .output()
        .unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    let line = dump.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {dump}"));
    line.split_once(':').unwrap().1.trim().to_owned()
}

#[test]
fn an_image_is_marked_while_it_is_in_use() {
    // With a journal the state stays clean: recovery is what it takes after a crash.
    for (options, marked) in [
        (&["-t", "ext2"][..], ("not clean", false)),
        (&["-t", "ext3"], ("clean", true)),
        (&["-t", "ext4"], ("clean", true)),
        (&["-t", "ext2", "-r", "0"], ("not clean", false)),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let image = make(directory.path(), "16M", options);
        assert_eq!(field(&image, "Filesystem state"), "clean");
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
        let mount_point = Some(b"/somewhere/else".to_vec());
        let store = ExtStore::open(
            device,
            &ExtOptions {
                is_read_only: false,
                mount_point,
                ..ExtOptions::default()
            },
        )
        .unwrap();
        assert_eq!(store.notes(), [""; 0], "{options:?}");
        let needs_recovery = || field(&image, "Filesystem features").contains("needs_recovery");
        let found = (&*field(&image, "Filesystem state"), needs_recovery());
        assert_eq!(found, marked, "{options:?}");
        assert_eq!(field(&image, "Mount count"), "1");
        assert_ne!(field(&image, "Last mount time"), "n/a");
        assert_eq!(field(&image, "Last mounted on"), "/somewhere/else");
        store.close().unwrap();
        drop(store);
        assert_eq!(field(&image, "Filesystem state"), "clean", "{options:?}");
        assert!(!needs_recovery(), "{options:?}");
        assert_clean(&image);
    }
}

#[test]
fn an_image_that_was_not_clean_stays_so() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "16M", &["-t", "ext2"]);
    drop(open(&image, false).unwrap());
    // Not closed: as after a crash.
    let store = open(&image, false).unwrap();
    assert!(
        store.notes().join("\n").contains("not unmounted cleanly"),
        "{:?}",
        store.notes()
    );
    assert!(!store.geometry().is_read_only);
    store.close().unwrap();
    drop(store);
    assert_eq!(field(&image, "Filesystem state"), "not clean");
    debugfs(&image, "set_super_value state 2\n");
    let store = open(&image, false).unwrap();
    assert!(
        store.notes().join("\n").contains("marked as damaged"),
        "{:?}",
        store.notes()
    );
    store.close().unwrap();
    drop(store);
    assert_eq!(field(&image, "Filesystem state"), "not clean with errors");
}

/// A directory of files to be made orphans, and an image that holds them.
fn image_with_files(directory: &Path, options: &[&str]) -> std::path::PathBuf {
    let tree = directory.join("tree");
    fs::create_dir_all(&tree).unwrap();
    for (name, blocks) in [("gone", 50), ("cut", 40), ("stays", 3)] {
        fs::write(tree.join(name), vec![1; blocks * 1024]).unwrap();
    }
    let mut all = vec!["-b", "1024"];
    all.extend(options);
    all.extend(["-d", tree.to_str().unwrap()]);
    make(directory, "16M", &all)
}

#[test]
fn orphans_of_the_list_are_cleaned_up() {
    for options in [&["-t", "ext2"][..], &["-t", "ext4"]] {
        let directory = tempfile::tempdir().unwrap();
        let image = image_with_files(directory.path(), options);
        let (gone, cut) = {
            let store = open(&image, true).unwrap();
            (
                lookup(&store, "gone").unwrap(),
                lookup(&store, "cut").unwrap(),
            )
        };
        // "gone" has no name and no links any more, "cut" was being truncated to 5 KiB.
        debugfs(
            &image,
            &format!(
                "unlink gone\nset_inode_field <{gone}> links_count 0\n\
                 set_inode_field <{gone}> dtime @{cut}\nset_inode_field <{cut}> size 5120\n\
                 set_inode_field <{cut}> dtime 0\nset_super_value last_orphan {gone}\n"
            ),
        );
        let before = fs::read(&image).unwrap();
        {
            let store = open(&image, true).unwrap();
            assert_eq!(store.load_inode(gone).unwrap_err(), Error::Stale);
            store.close().unwrap();
        }
        assert!(fs::read(&image).unwrap() == before);
        let store = open(&image, false).unwrap();
        assert_eq!(store.notes(), ["cleaned up 2 orphans"], "{options:?}");
        assert_eq!(store.load_inode(gone).unwrap_err(), Error::Stale);
        let extents = store.load_extents(cut).unwrap();
        assert_eq!(
            extents.iter().map(|extent| extent.length).sum::<u64>(),
            5,
            "{options:?}"
        );
        store.close().unwrap();
        drop(store);
        assert_clean(&image);
        let store = open(&image, false).unwrap();
        assert_eq!(store.notes(), [""; 0]);
        assert_eq!(walk(&store).objects.len(), 4);
    }
}

#[test]
fn a_damaged_list_of_orphans_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let image = image_with_files(directory.path(), &["-t", "ext4"]);
    debugfs(&image, "set_super_value last_orphan 999999\n");
    let store = open(&image, false).unwrap();
    assert!(
        store.notes().join("\n").contains("orphans"),
        "{:?}",
        store.notes()
    );
    store.close().unwrap();
    drop(store);
    assert_clean(&image);
}

/// An orphan that the kernel notes in the orphan file: an unlinked file that is still open. Needs
/// the right to mount; says so and passes without.
#[test]
fn orphans_of_the_kernel_are_cleaned_up() {
    for features in ["orphan_file", "^orphan_file"] {
        let directory = tempfile::tempdir().unwrap();
        let image = image_with_files(directory.path(), &["-t", "ext4", "-O", features]);
        let place = directory.path().join("mounted");
        let Some(mounted) = KernelMount::new(&image, &place, "loop") else {
            return;
        };
        let open_file = fs::File::open(place.join("gone"));
        let removed = fs::remove_file(place.join("gone"));
        run(Command::new("sync").arg("-f").arg(&place));
        let copy = directory.path().join("copy");
        let copied = fs::copy(&image, &copy);
        drop(open_file);
        drop(mounted);
        removed.unwrap();
        copied.unwrap();
        let store = open(&copy, false).unwrap();
        let notes = store.notes().join("\n");
        assert!(
            notes.contains("cleaned up one orphan"),
            "{features}: {notes}"
        );
        store.close().unwrap();
        drop(store);
        assert_clean(&copy);
    }
}
