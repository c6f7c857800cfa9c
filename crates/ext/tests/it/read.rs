//! What is read from images that mke2fs filled equals what it filled them from, in many sets of
//! features.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::image::{self, Object, lookup, make, open, read_file, run, walk};
use finefs_namespace::{Error, ExtentState, FileKind, Store};

/// Makes a tree with something of everything.
fn make_tree(root: &Path) {
    let bytes = |length: usize, seed: usize| -> Vec<u8> {
        (0..length)
            .map(|i| ((i * 31 + seed) ^ (i >> 8)) as u8)
            .collect()
    };
    for (name, length) in [
        ("empty", 0),
        ("tiny", 7),
        ("inline", 120),
        ("block", 4096),
        ("large", 3_000_000),
    ] {
        fs::write(root.join(name), bytes(length, name.len())).unwrap();
    }
    // Data, a hole of 5 MiB, data.
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    use std::os::unix::fs::FileExt;
    sparse.write_all_at(b"start", 0).unwrap();
    sparse.write_all_at(b"end", 5 << 20).unwrap();
    fs::hard_link(root.join("tiny"), root.join("hard link")).unwrap();
    symlink("tiny", root.join("short link")).unwrap();
    symlink("x".repeat(59), root.join("link59")).unwrap();
    symlink("y".repeat(60), root.join("link60")).unwrap();
    symlink("z/".repeat(400), root.join("long link")).unwrap();
    run(Command::new("mkfifo").arg(root.join("fifo")));
    // Needs privileges; the comparison takes what is there.
    let _ = Command::new("mknod")
        .arg(root.join("device"))
        .args(["c", "259", "70000"])
        .status();
    fs::create_dir(root.join("many")).unwrap();
    for number in 0..700 {
        let name = format!("file number {number:05} with a rather long name");
        fs::write(root.join("many").join(name), number.to_string()).unwrap();
    }
    fs::create_dir_all(root.join("deep/deeper/deepest/\u{e4}\u{f6}\u{fc}")).unwrap();
    fs::create_dir(root.join("few")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(root.join("few").join(name), name).unwrap();
    }
    run(Command::new("chmod").arg("4751").arg(root.join("block")));
    run(Command::new("touch")
        .args(["-d", "2001-02-03 04:05:06.789012345"])
        .arg(root.join("tiny")));
    run(Command::new("touch")
        .args(["-d", "1960-01-01 00:00:00"])
        .arg(root.join("empty")));
    let attribute = |file: &str, name: &str, value: &str| {
        run(Command::new("setfattr")
            .args(["-n", name, "-v", value])
            .arg(root.join(file)));
    };
    attribute("tiny", "user.small", "value");
    attribute("tiny", "user.empty", "");
    attribute("block", "user.large", &"L".repeat(900));
    attribute("few", "user.of.directory", "yes");
}

/// The same tree as the host shows it.
fn host_tree(root: &Path) -> BTreeMap<String, Object> {
    let mut objects = BTreeMap::new();
    let mut todo = vec![(String::new(), root.to_owned())];
    while let Some((path, place)) = todo.pop() {
        let metadata = fs::symlink_metadata(&place).unwrap();
        let file_type = metadata.file_type();
        let (kind, content) = if file_type.is_dir() {
            for entry in fs::read_dir(&place).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                todo.push((format!("{path}/{name}"), entry.path()));
            }
            (FileKind::Directory, Vec::new())
        } else if file_type.is_symlink() {
            let target = fs::read_link(&place).unwrap();
            (
                FileKind::Symlink,
                target.into_os_string().into_encoded_bytes(),
            )
        } else if file_type.is_fifo() {
            (FileKind::Fifo, Vec::new())
        } else if file_type.is_char_device() {
            (FileKind::CharDevice, Vec::new())
        } else {
            (FileKind::Regular, fs::read(&place).unwrap())
        };
        let is_counted = !matches!(kind, FileKind::Directory);
        objects.insert(
            path,
            Object {
                kind,
                permissions: metadata.mode() & 0o7777,
                link_count: metadata.nlink() as u32,
                uid: metadata.uid(),
                gid: metadata.gid(),
                modified: (metadata.mtime(), metadata.mtime_nsec() as u32),
                size_bytes: if is_counted { metadata.size() } else { 0 },
                device: if kind == FileKind::CharDevice {
                    metadata.rdev()
                } else {
                    0
                },
                content,
                xattrs: xattrs_of(&place),
            },
        );
    }
    objects
}

fn xattrs_of(place: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::llistxattr(place, &mut names[..]) else {
        return BTreeMap::new();
    };
    names[..length]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 70_000];
            let length = rustix::fs::lgetxattr(place, name, &mut value[..]).unwrap();
            (name.to_vec(), value[..length].to_vec())
        })
        .collect()
}

/// Compares an image made from `tree` with it.
fn compare(tree: &Path, size: &str, options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let mut all: Vec<&str> = options.to_vec();
    let source = tree.to_str().unwrap();
    all.extend(["-d", source]);
    let image = make(directory.path(), size, &all);
    let store = open(&image, true).unwrap();
    let mut walked = walk(&store);
    assert!(walked.errors.is_empty(), "{options:?}: {:?}", walked.errors);
    let mut expected = host_tree(tree);
    assert!(
        walked.objects.remove("/lost+found").is_some(),
        "{options:?}"
    );
    // mke2fs gives the root its own times, and counts lost+found.
    walked.objects.remove("");
    expected.remove("");
    let names: Vec<&String> = walked.objects.keys().collect();
    assert_eq!(names, expected.keys().collect::<Vec<_>>(), "{options:?}");
    let small_inodes = !store.geometry().has_fine_times;
    for (path, mut object) in walked.objects {
        let mut wanted = expected.remove(&path).unwrap();
        if object.kind == FileKind::Directory {
            object.size_bytes = 0;
        }
        // mke2fs copies no nanoseconds (1.47), and what it does with the time before 1970 of an
        // inode that has no room for it is its own affair.
        object.modified.1 = 0;
        wanted.modified.1 = 0;
        if options.contains(&"-r") {
            // Revision 0 has no attributes.
            wanted.xattrs.clear();
        }
        assert_eq!(
            object, wanted,
            "{options:?}, small inodes {small_inodes}: {path}"
        );
    }
}

#[test]
fn trees_in_many_sets_of_features() {
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    for options in [
        &["-t", "ext2"][..],
        &[
            "-t",
            "ext2",
            "-b",
            "1024",
            "-O",
            "^dir_index,^filetype",
            "-I",
            "128",
        ],
        &["-t", "ext2", "-r", "0"],
        &["-t", "ext3", "-b", "2048"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "2048", "-O", "^has_journal"],
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "metadata_csum_seed,orphan_file",
        ],
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
        &["-t", "ext4", "-O", "^64bit,^flex_bg,^extent"],
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "128",
            "-O",
            "^metadata_csum",
        ],
        &["-t", "ext4", "-O", "inline_data"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "1024",
            "-O",
            "inline_data",
        ],
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
        &["-t", "ext4", "-O", "ea_inode,large_dir"],
        &["-t", "ext4", "-O", "sparse_super2"],
        &["-t", "ext4", "-F", "-b", "65536"],
        &["-t", "ext4", "-O", "quota,project"],
        &["-t", "ext4", "-O", "casefold,encrypt,verity,stable_inodes"],
    ] {
        let size = if options.contains(&"65536") {
            "512M"
        } else {
            "64M"
        };
        compare(tree.path(), size, options);
    }
}

/// Indexed directories, as `e2fsck -D` makes them, also where they may be written.
#[test]
fn indexed_directories() {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..4000 {
        let name = format!("{number:04} {}", "n".repeat(number % 100));
        fs::write(tree.path().join(name), "").unwrap();
    }
    for options in [
        &["-t", "ext3", "-b", "1024"][..],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut all = options.to_vec();
        all.extend(["-N", "5000", "-d", tree.path().to_str().unwrap()]);
        let image = make(directory.path(), "64M", &all);
        let fixed = Command::new("e2fsck")
            .args(["-fyD"])
            .arg(&image)
            .output()
            .unwrap();
        assert!(fixed.status.code().is_some_and(|code| code <= 1));
        for is_read_only in [true, false] {
            let store = open(&image, is_read_only).unwrap();
            let root = store.load_directory(store.geometry().root).unwrap();
            assert_eq!(root.entries.len(), 4001, "{options:?}");
            assert_eq!(root.parent, store.geometry().root);
            store.close().unwrap();
        }
        // A pointer of the root leads out of the directory: the leaves can still be read, but
        // nothing can be written.
        let output = Command::new("debugfs")
            .args(["-R", "blocks /"])
            .arg(&image)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let first: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
        let block_size = u64::from(open(&image, true).unwrap().geometry().block_size_bytes);
        let file = fs::File::options().write(true).open(&image).unwrap();
        use std::os::unix::fs::FileExt;
        file.write_all_at(&[0xff, 0xff, 0], first * block_size + 0x28 + 4)
            .unwrap();
        let store = open(&image, true).unwrap();
        assert_eq!(
            store
                .load_directory(store.geometry().root)
                .unwrap()
                .entries
                .len(),
            4001
        );
        drop(store);
        let store = open(&image, false).unwrap();
        let loaded = store.load_directory(store.geometry().root).unwrap();
        assert_eq!(loaded.entries.len(), 4001);
        assert!(
            matches!(loaded.damage, Some(Error::Corrupt(_))),
            "{options:?}: {:?}",
            loaded.damage
        );
    }
}

#[test]
fn attributes_too_large_for_a_block_lie_in_inodes() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(
        directory.path(),
        "16M",
        &["-t", "ext4", "-b", "4096", "-O", "ea_inode"],
    );
    let value = directory.path().join("value");
    // debugfs takes no more than a block, which with its header does not fit in one.
    let expected: Vec<u8> = (0..4096).map(|i| (i % 251) as u8).collect();
    fs::write(&value, &expected).unwrap();
    let commands = format!(
        "write {} file\nea_set -f {} file user.huge\nea_set file user.small tiny\n",
        value.display(),
        value.display()
    );
    image::debugfs(&image, &commands);
    let store = open(&image, true).unwrap();
    let ino = lookup(&store, "file").unwrap();
    let xattrs: BTreeMap<_, _> = store.load_xattrs(ino).unwrap().into_iter().collect();
    assert_eq!(xattrs.len(), 2);
    assert!(xattrs[&b"user.huge"[..]] == expected);
    assert_eq!(xattrs[&b"user.small"[..]], b"tiny");
    assert!(read_file(&store, &store.load_inode(ino).unwrap(), 1 << 20).unwrap() == expected);
}

#[test]
fn holes_and_unwritten_extents_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "16M", &["-t", "ext4", "-b", "1024"]);
    let data = directory.path().join("data");
    fs::write(&data, vec![7; 10 << 10]).unwrap();
    let commands = format!(
        "write {} file\nfallocate file 20 29\nset_inode_field file size 40960\n\
         punch file 3 5\n",
        data.display()
    );
    image::debugfs(&image, &commands);
    let store = open(&image, true).unwrap();
    let extents = store.load_extents(lookup(&store, "file").unwrap()).unwrap();
    let shape: Vec<_> = extents
        .iter()
        .map(|e| (e.logical.0, e.length, e.state))
        .collect();
    assert_eq!(
        shape,
        [
            (0, 3, ExtentState::Written),
            (6, 4, ExtentState::Written),
            (20, 10, ExtentState::Unwritten)
        ]
    );
}

#[test]
fn files_of_terabytes_and_deep_trees() {
    let directory = tempfile::tempdir().unwrap();
    // Many extents: every second block of a file is punched out.
    let image = make(directory.path(), "64M", &["-t", "ext4", "-b", "1024"]);
    let data = directory.path().join("data");
    fs::write(&data, vec![9; 4000 << 10]).unwrap();
    let mut commands = format!("write {} file\n", data.display());
    for block in (1..4000).step_by(2) {
        commands.push_str(&format!("punch file {block} {block}\n"));
    }
    image::debugfs(&image, &commands);
    let store = open(&image, true).unwrap();
    let extents = store.load_extents(lookup(&store, "file").unwrap()).unwrap();
    assert_eq!(extents.len(), 2000);
    assert!(
        extents
            .iter()
            .zip((0..).step_by(2))
            .all(|(e, at)| e.logical.0 == at && e.length == 1)
    );
    drop(store);

    let image = make(directory.path(), "64M", &["-t", "ext4"]);
    let far = (1_u64 << 43) / 4096 - 1;
    let data = directory.path().join("data");
    fs::write(&data, vec![9; 100]).unwrap();
    let commands = format!(
        "write {} file\nfallocate file {far} {far}\nset_inode_field file size {}\n",
        data.display(),
        1_u64 << 43
    );
    image::debugfs(&image, &commands);
    let store = open(&image, true).unwrap();
    let ino = lookup(&store, "file").unwrap();
    assert_eq!(
        store.load_inode(ino).unwrap().attributes.size_bytes,
        1 << 43
    );
    assert_eq!(
        store.load_extents(ino).unwrap().last().unwrap().logical.0,
        far
    );
}

#[test]
fn what_is_not_there_is_stale() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "16M", &["-t", "ext4"]);
    let store = open(&image, true).unwrap();
    for number in [0, 12, 4096, 4_000_000, u64::MAX] {
        let outcome = store.load_inode(finefs_namespace::Ino(number));
        assert_eq!(outcome.unwrap_err(), Error::Stale, "inode {number}");
    }
    // The journal has no name.
    assert!(matches!(
        store.load_inode(finefs_namespace::Ino(8)),
        Err(Error::Corrupt(_))
    ));
    let root = store.geometry().root;
    assert_eq!(store.load_extents(root).unwrap_err(), Error::Invalid);
    assert_eq!(store.load_symlink(root).unwrap_err(), Error::Invalid);
    let statfs = store.statfs();
    assert_eq!(statfs.inodes_free, 4096 - 11);
    assert!(statfs.blocks_free < statfs.blocks && statfs.blocks_available < statfs.blocks_free);
}

/// As the kernel says it of these images (`f_bfree - f_bavail`): the superuser's share, and where
/// there are extents 2 % of the clusters, which finefs keeps back without them, too, to write.
#[test]
fn the_space_for_all_is_that_of_the_kernel() {
    for (options, kernel, writable) in [
        (&["-t", "ext2"][..], 2457, 2457 + 983),
        (&["-t", "ext3"], 2457, 2457 + 983),
        (&["-t", "ext4"], 2457 + 983, 2457 + 983),
        (&["-t", "ext4", "-m", "0"], 983, 983),
        (
            &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
            2457 + 976,
            2457 + 976,
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let image = make(
            directory.path(),
            "48M",
            &[options, &["-b", "1024"]].concat(),
        );
        for (is_read_only, kept) in [(true, kernel), (false, writable)] {
            let space = open(&image, is_read_only).unwrap().statfs();
            let has = space.blocks_free - space.blocks_available;
            assert_eq!(has, kept, "{options:?}, read-only: {is_read_only}");
        }
    }
}
