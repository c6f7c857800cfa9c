//! An ext3 file system that was given extents holds files of both kinds.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{AllocateMode, Caller, Error, Namespace, Options};

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
}

fn open(image: &Path) -> Namespace {
    let device = FileDevice::open(image, Access::ReadWrite).unwrap();
    let options = ExtOptions {
        is_read_only: false,
        ..ExtOptions::default()
    };
    let store = ExtStore::open(Arc::new(device), &options).unwrap();
    Namespace::without_thread(Arc::new(store), Options::default()).unwrap()
}

#[test]
fn a_block_mapped_file_gets_no_unwritten_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("old"), [7; 5000]).unwrap();
    let (image_name, source_name) = (image.to_str().unwrap(), source.to_str().unwrap());
    run(
        "mke2fs",
        &[
            "-q",
            "-t",
            "ext3",
            "-b",
            "1024",
            "-d",
            source_name,
            image_name,
            "32M",
        ],
    );
    run("tune2fs", &["-O", "extent", image_name]);

    let namespace = open(&image);
    let caller = Caller::root();
    let old = namespace
        .lookup(&caller, namespace.root(), b"old")
        .unwrap()
        .ino;
    let keep = AllocateMode::KeepSize;
    assert_eq!(
        namespace.allocate(old, keep, 0, 100_000),
        Err(Error::NotSupported)
    );
    namespace
        .allocate(old, AllocateMode::Extend, 0, 100_000)
        .unwrap();
    assert_eq!(
        namespace.write(old, 1 << 35, b"x"),
        Err(Error::FileTooLarge)
    );
    let new = namespace
        .create_file(&caller, namespace.root(), b"new", 0o644)
        .unwrap()
        .ino;
    namespace.allocate(new, keep, 0, 100_000).unwrap();
    namespace.write(new, 1 << 35, b"x").unwrap();
    namespace.shut_down().unwrap();
    drop(namespace);
    run("e2fsck", &["-fn", image_name]);

    let namespace = open(&image);
    let old = namespace.lookup(&caller, namespace.root(), b"old").unwrap();
    assert_eq!(old.size_bytes, 100_000);
    let mut content = vec![1; 100_000];
    assert_eq!(
        namespace.read(old.ino, 0, &mut content).unwrap(),
        content.len()
    );
    assert!(content[..5000].iter().all(|byte| *byte == 7));
    assert!(content[5000..].iter().all(|byte| *byte == 0));
}

/// Each block of a file that lies far from the others can take a pointer block of each level.
#[test]
fn a_block_mapped_file_reserves_its_pointer_blocks() {
    const BLOCK: u64 = 1024;
    let dir = tempfile::tempdir().unwrap();
    let (image, source) = (dir.path().join("image"), dir.path().join("source"));
    std::fs::create_dir(&source).unwrap();
    let names = ["a", "b", "c", "d"];
    for name in names {
        std::fs::write(source.join(name), b"old").unwrap();
    }
    let (image_name, source_name) = (image.to_str().unwrap(), source.to_str().unwrap());
    let made = ["-q", "-t", "ext3", "-b", "1024", "-m", "0", "-d"];
    run(
        "mke2fs",
        &[&made[..], &[source_name, image_name, "16M"]].concat(),
    );
    run("tune2fs", &["-O", "extent", image_name]);

    let namespace = open(&image);
    let (caller, root) = (Caller::root(), namespace.root());
    let new = namespace.create_file(&caller, root, b"new", 0o644);
    let new = new.unwrap().ino;
    let filled = (namespace.statfs().blocks_free - 2000) * BLOCK;
    let extend = AllocateMode::Extend;
    namespace.allocate(new, extend, 0, filled).unwrap();
    namespace.sync().unwrap();
    let old = names.map(|name| {
        let found = namespace.lookup(&caller, root, name.as_bytes());
        found.unwrap().ino
    });
    // A double indirect block of its own for each.
    let places = (1..=255_u64).flat_map(|place| old.map(|ino| (ino, place * 65_536 * BLOCK)));
    let mut written = 0;
    for (ino, place) in places {
        match namespace.write(ino, place, b"far") {
            Ok(_) => written += 1,
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                break;
            }
        }
    }
    assert!(written > 300, "{written}");
    namespace.sync().unwrap();
    namespace.shut_down().unwrap();
    drop(namespace);
    run("e2fsck", &["-fn", image_name]);
}
