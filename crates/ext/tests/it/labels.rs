//! Security attributes that things have from the start, on images.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Caller, Error, FileKind, Namespace, Options};

const NAME: &[u8] = b"security.selinux";

fn open(image: &Path) -> Namespace {
    let device = FileDevice::open(image, Access::ReadWrite).unwrap();
    let store = ExtStore::open(Arc::new(device), &ExtOptions::default()).unwrap();
    Namespace::without_thread(Arc::new(store), Options::default()).unwrap()
}

#[test]
fn labels_are_on_the_image() {
    let kinds = [
        "-t ext4",
        "-t ext4 -I 128",
        "-t ext2 -b 1024",
        "-t ext4 -O inline_data",
        "-t ext4 -O ea_inode",
    ];
    for kind in kinds {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q"]).args(kind.split(' ')).arg(&image);
        assert!(mke2fs.arg("16M").status().unwrap().success());
        // In the inode, in a block, in an inode of its own.
        let values = [b"a label\0".to_vec(), vec![b'x'; 500], vec![b'y'; 5000]];
        let names = |round: usize| ["file", "pipe", "dir", "link"].map(|n| format!("{n}{round}"));
        let target = [b't'; 200];
        let (caller, ns) = (Caller::root(), open(&image));
        for (round, value) in values.iter().enumerate() {
            let labels: [(&[u8], &[u8]); 1] = [(NAME, value)];
            let (labelled, root) = (ns.labelled(&labels), ns.root());
            let [file, pipe, dir, link] = names(round);
            let made = [
                labelled.create_file(&caller, root, file.as_bytes(), 0o644),
                labelled.make_node(&caller, root, pipe.as_bytes(), FileKind::Fifo, 0o644, 0),
                labelled.make_directory(&caller, root, dir.as_bytes(), 0o755),
                labelled.make_symlink(&caller, root, link.as_bytes(), &target),
                labelled.create_unnamed(&caller, root, 0o644),
            ];
            let fits = value.len() < 1000 || kind.ends_with("ea_inode");
            for made in made {
                assert_eq!(
                    made.err(),
                    (!fits).then_some(Error::NoSpace),
                    "{kind}, {round}"
                );
            }
        }
        ns.shut_down().unwrap();
        drop(ns);
        let e2fsck = Command::new("e2fsck").arg("-fn").arg(&image).output();
        let e2fsck = e2fsck.unwrap();
        assert!(e2fsck.status.success(), "{kind}: {e2fsck:?}");
        let ns = open(&image);
        for (round, value) in values.iter().enumerate() {
            for name in names(round) {
                let found = ns.lookup(&caller, ns.root(), name.as_bytes());
                if value.len() > 1000 && !kind.ends_with("ea_inode") {
                    assert_eq!(found, Err(Error::NotFound), "{kind}, {name}");
                    continue;
                }
                let found = ns.xattr(&caller, found.unwrap().ino, NAME);
                assert_eq!(found.as_ref(), Ok(value), "{kind}, {name}");
            }
        }
        ns.shut_down().unwrap();
    }
}
