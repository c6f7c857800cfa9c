//! An image that Linux 6.1 has filled and that was being changed when the power failed, against
//! what that kernel showed of it after its replay. (`prove reiserfs --long --keep DIR` makes more.)

use std::collections::BTreeMap;

use crate::support::{mount, unpacked, walk};
use finefs_namespace::{Attributes, FileKind, Store};
use sha2::{Digest, Sha256};

/// Lines of the manifest that `proof/xtask/src/reiserfs/manifest.sh` makes, by its first part and
/// the checksums in it: the name as GNU's `stat %N` shows it is the key of the former.
fn line(path: &str, attributes: &Attributes, content: &[u8]) -> String {
    let it = attributes;
    let name = match it.kind {
        FileKind::Symlink => format!("'{path}' -> '{}'", String::from_utf8_lossy(content)),
        _ => path.to_owned(),
    };
    let mode = it.kind.mode_bits() | it.permissions;
    let (major, minor) = (libc_major(it.device), libc_minor(it.device));
    format!(
        "{name} {mode:x} {} {} {} {} {} {} {} {major:x}:{minor:x}",
        it.uid,
        it.gid,
        it.link_count,
        it.size_bytes,
        it.sectors,
        it.times.modified.seconds(),
        it.times.changed.seconds(),
    )
}

fn libc_major(device: u64) -> u64 {
    device >> 8 & 0xfff | device >> 32 & !0xfff
}

fn libc_minor(device: u64) -> u64 {
    device & 0xff | device >> 12 & !0xff
}

#[test]
fn the_kernel_shows_the_same() {
    let store = mount(&unpacked("killed.img.xz")).expect("it mounts");
    assert!(
        store.notes().iter().any(|note| note.contains("replayed")),
        "{:?}",
        store.notes()
    );
    let manifest = String::from_utf8_lossy(&unpacked("killed.manifest.xz")).into_owned();
    let mut checksums = BTreeMap::new();
    let mut lines = 0;
    let seen = walk(&store);
    for line in manifest.lines() {
        match line.split_once("  ") {
            Some((sum, path)) if sum.len() == 64 => {
                checksums.insert(path.to_owned(), sum.to_owned());
            }
            _ => {}
        }
    }
    for (path, found) in &seen {
        let path = String::from_utf8_lossy(path).into_owned();
        let (attributes, content) = found.as_ref().expect("it is sound");
        let expected = line(&path, attributes, content);
        assert!(
            manifest.lines().any(|line| line == expected),
            "not in the manifest: {expected}"
        );
        lines += 1;
        if attributes.kind == FileKind::Regular {
            let sum = Sha256::digest(content);
            let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(checksums.get(&path), Some(&sum), "{path}");
        }
    }
    let shown = manifest
        .lines()
        .filter(|line| line.starts_with("./") && line.contains(':'));
    let shown = shown.filter(|line| line.split(' ').count() >= 10).count();
    assert!(lines > 150 && lines >= shown, "{lines} of {shown}");
}

#[test]
fn attributes_are_found_by_their_hashes() {
    let store = mount(&unpacked("killed.img.xz")).expect("it mounts");
    let find = |directory, name: &[u8]| {
        let entries = store
            .load_directory(directory)
            .expect("it is sound")
            .entries;
        let entry = entries.into_iter().find(|entry| entry.name == name);
        entry.expect("it is there").ino
    };
    let attributes = find(store.geometry().root, b"attributes");
    let mut xattrs = store
        .load_xattrs(find(attributes, b"file"))
        .expect("they are sound");
    xattrs.sort();
    let names: Vec<&[u8]> = xattrs.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(
        names,
        [&b"system.posix_acl_access"[..], b"user.empty", b"user.text"]
    );
    assert_eq!(xattrs[2].1, b"hello");
    let long = store
        .load_xattrs(find(attributes, b"more"))
        .expect("they are sound");
    let long = long
        .iter()
        .find(|(name, _)| name == b"user.long")
        .expect("it is there");
    assert_eq!(long.1.len(), 20_000);
    // Whoever has a number alone (an NFS client) finds it too.
    let fresh = mount(&unpacked("killed.img.xz")).expect("it mounts");
    let file = find(attributes, b"file");
    assert_eq!(
        fresh.load_inode(file).expect("it is found").attributes,
        store.load_inode(file).expect("it is found").attributes
    );
    assert!(fresh.load_inode(finefs_namespace::Ino(1 << 30)).is_err());
}
