//! Encrypted directories (`encrypt`) without their key, beside the kernel, which makes them with
//! one. Needs root and a loop device; does nothing without.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::image::{assert_clean, run};
use crate::kernel_mount::KernelMount;
use crate::keyed::add_key;
use crate::trial;
use finefs_ext::OnError;
use finefs_namespace::{Caller, Error, FileKind, Namespace, RenameMode};

/// What is seen of a name: its inode, size, and a link's target.
type Seen = (u64, u64, Vec<u8>);

fn seen_by_kernel(dir: &Path) -> BTreeMap<Vec<u8>, Seen> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let target = fs::read_link(&path).map_or_else(
            |_| Vec::new(),
            |target| target.as_os_str().as_bytes().to_vec(),
        );
        let name = path.file_name().unwrap().as_bytes().to_vec();
        let size = if meta.is_dir() { 0 } else { meta.size() };
        (name, (meta.ino(), size, target))
    });
    entries.collect()
}

fn seen_by_finefs(namespace: &Namespace) -> BTreeMap<Vec<u8>, Seen> {
    let dir = find(namespace, b"d");
    let mut names = Vec::new();
    let listed = namespace.read_directory(dir, 2, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        true
    });
    listed.unwrap();
    names.retain(|(name, _)| name != b"." && name != b"..");
    let seen = names.into_iter().map(|(name, ino)| {
        let attributes = namespace.attributes(ino).unwrap();
        let (size, target) = match attributes.kind {
            FileKind::Directory => (0, Vec::new()),
            FileKind::Symlink => (attributes.size_bytes, namespace.read_symlink(ino).unwrap()),
            _ => (attributes.size_bytes, Vec::new()),
        };
        (name, (ino.0, size, target))
    });
    seen.collect()
}

fn find(namespace: &Namespace, name: &[u8]) -> finefs_namespace::Ino {
    let root = namespace.root();
    let ino = namespace.lookup(&Caller::root(), root, name).unwrap().ino;
    namespace.forget(ino, 1);
    ino
}

fn without_the_key(arguments: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (image, place) = (
        directory.path().join("image"),
        directory.path().join("mount"),
    );
    run(Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-O", "encrypt"])
        .args(arguments.split_whitespace())
        .arg(&image)
        .arg("32M"));
    let Some(mount) = KernelMount::new(&image, &place, "loop,rw") else {
        return;
    };
    let dir = place.join("d");
    fs::create_dir(&dir).unwrap();
    let policy = format!("set_encpolicy -v 2 {}", add_key(&place));
    run(Command::new("xfs_io").args(["-c", &policy]).arg(&dir));
    for number in 0..60_usize {
        // Up to 242 bytes: the long ones are shown with a digest.
        let name = format!("{}{number}", "n".repeat(number * 4));
        fs::write(dir.join(name), vec![1; number * 100]).unwrap();
    }
    symlink("target", dir.join("link")).unwrap();
    symlink("long".repeat(40), dir.join("long link")).unwrap();
    fs::create_dir(dir.join("inner")).unwrap();
    drop(mount);
    let Some(mount) = KernelMount::new(&image, &place, "loop,ro") else {
        return;
    };
    let expected = seen_by_kernel(&dir);
    drop(mount);

    let namespace = trial::open_with(&image, OnError::Continue);
    let seen = seen_by_finefs(&namespace);
    assert_eq!(seen.len(), 63);
    assert_eq!(seen, expected, "{arguments}");
    let (caller, root, d) = (Caller::root(), namespace.root(), find(&namespace, b"d"));
    let no_key = |outcome: finefs_namespace::Result<()>| assert_eq!(outcome, Err(Error::NoKey));
    no_key(namespace.create_file(&caller, d, b"new", 0o644).map(|_| ()));
    no_key(
        namespace
            .make_directory(&caller, d, b"new", 0o755)
            .map(|_| ()),
    );
    no_key(namespace.create_unnamed(&caller, d, 0o644).map(|_| ()));
    let (name, (ino, ..)) = seen.iter().find(|(_, seen)| seen.1 == 5900).unwrap();
    let ino = finefs_namespace::Ino(*ino);
    no_key(
        namespace
            .rename(&caller, (d, name), (root, b"x"), RenameMode::Replace)
            .map(|_| ()),
    );
    no_key(namespace.make_link(&caller, ino, d, b"x").map(|_| ()));
    no_key(namespace.read(ino, 0, &mut [0; 9]).map(|_| ()));
    no_key(namespace.write(ino, 0, b"x").map(|_| ()));
    for (number, (name, (ino, ..))) in seen.iter().enumerate() {
        let attributes = namespace.attributes(finefs_namespace::Ino(*ino)).unwrap();
        match attributes.kind {
            FileKind::Directory => namespace.remove_directory(&caller, d, name).unwrap(),
            _ if number % 3 == 0 => namespace.remove_file(&caller, d, name).unwrap(),
            _ => continue,
        }
    }
    let left = seen_by_finefs(&namespace);
    namespace.shut_down().unwrap();
    drop(namespace);
    assert_clean(&image);
    let Some(mount) = KernelMount::new(&image, &place, "loop,rw") else {
        return;
    };
    assert_eq!(seen_by_kernel(&dir), left, "{arguments}");
    add_key(&place);
    let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap());
    let readable = names.filter(|entry| fs::read(entry.path()).is_ok());
    assert!(readable.count() >= 38, "{arguments}");
    drop(mount);
}

#[test]
fn names_contents_and_what_can_be_done() {
    for arguments in ["-b 4096", "-b 1024", "-b 1024 -O ^metadata_csum,^dir_index"] {
        without_the_key(arguments);
    }
}
