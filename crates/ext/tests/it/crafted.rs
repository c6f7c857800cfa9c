//! Images that no tool makes: each would once have led to wrong content, an endless search or a
//! failed commit.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::image::{assert_clean, debugfs, lookup, make, open, run};
use crate::trial::open_with;
use finefs_ext::OnError;
use finefs_namespace::{
    Caller, Error, FileFlags, Ino, Namespace, RenameMode, SetAttributes, Store,
};

/// The numbers that a command of debugfs prints.
fn numbers(image: &Path, command: &str) -> Vec<u64> {
    let text = run(Command::new("debugfs").args(["-R", command]).arg(image));
    let words = text.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

fn patch(image: &Path, offset: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(image).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn writable(image: &Path) -> Namespace {
    open_with(image, OnError::Continue)
}

fn create(namespace: &Namespace, dir: finefs_namespace::Ino, name: &[u8]) -> Result<(), Error> {
    let made = namespace.create_file(&Caller::root(), dir, name, 0o644);
    made.map(|made| namespace.forget(made.ino, 1))
}

/// A block map has pointers of 32 bits.
#[test]
fn a_block_map_gets_no_blocks_where_it_cannot_reach_all() {
    let directory = tempfile::tempdir().unwrap();
    let options = "-t ext4 -b 1024 -C 1048576 -O bigalloc,^metadata_csum,^has_journal -N 10000";
    let options: Vec<&str> = options.split_whitespace().collect();
    let image = make(directory.path(), "5T", &options);
    debugfs(&image, "mkdir dir\n");
    let block = numbers(&image, "blocks dir")[0];
    let others = (1..12).map(|word| word.to_string());
    let others = others.chain(["IND", "DIND", "TIND"].map(str::to_owned));
    let words: String = others
        .map(|word| format!("sif dir block[{word}] 0\n"))
        .collect();
    debugfs(
        &image,
        &format!("sif dir flags 0\nsif dir block[0] {block}\n{words}"),
    );
    let store = open(&image, false).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    assert_eq!(store.geometry().old_form.size_max_bytes, 0);
    let dir = lookup(&store, "dir").unwrap();
    assert_eq!(
        store.load_directory(dir).unwrap().damage,
        Some(Error::FileTooLarge)
    );
    drop(store);
    let namespace = writable(&image);
    let root = namespace.root();
    assert_eq!(create(&namespace, dir, b"name"), Err(Error::FileTooLarge));
    create(&namespace, root, b"name").unwrap();
    namespace.shut_down().unwrap();
}

/// An image with a directory of an index and some forty leaves.
fn indexed(directory: &Path, features: &str) -> PathBuf {
    let options = ["-t", "ext4", "-b", "1024", "-O", features, "-N", "4096"];
    let image = make(directory, "32M", &options);
    let namespace = writable(&image);
    let caller = Caller::root();
    let made = namespace.make_directory(&caller, namespace.root(), b"dir", 0o755);
    let dir = made.unwrap().ino;
    for number in 0..1500 {
        create(&namespace, dir, format!("name {number}").as_bytes()).unwrap();
    }
    namespace.shut_down().unwrap();
    image
}

#[test]
fn a_large_directory_is_as_large_as_what_is_mapped() {
    let directory = tempfile::tempdir().unwrap();
    let image = indexed(directory.path(), "large_dir");
    let store = open(&image, false).unwrap();
    let dir = lookup(&store, "dir").unwrap();
    assert!(store.open_large_directory(dir, 100).unwrap().is_some());
    drop(store);
    let size = numbers(&image, "blocks dir").len() * 1024;
    for wrong in [1 << 44, size + 1024, size - 1024] {
        debugfs(&image, &format!("sif dir size {wrong}\n"));
        let store = open(&image, false).unwrap();
        assert_eq!(store.open_large_directory(dir, 100), Ok(None), "{wrong}");
        drop(store);
    }
    debugfs(
        &image,
        &format!("sif dir size {size}\nfeature -dir_index\n"),
    );
    let store = open(&image, false).unwrap();
    assert_eq!(store.open_large_directory(dir, 100), Ok(None));
}

#[test]
fn an_index_that_leads_to_one_leaf_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let image = indexed(directory.path(), "^metadata_csum");
    let root = numbers(&image, "blocks dir")[0] * 1024;
    let mut bytes = vec![0; 1024];
    let file = fs::File::open(&image).unwrap();
    file.read_exact_at(&mut bytes, root).unwrap();
    assert_eq!(bytes[0x1e], 0, "no levels below the root");
    let count = usize::from(u16::from_le_bytes([bytes[0x22], bytes[0x23]]));
    assert!(count > 30, "{count}");
    for entry in bytes[0x28..][..(count - 1) * 8].chunks_exact_mut(8) {
        entry[0] |= 1;
        entry[4..].copy_from_slice(&1_u32.to_le_bytes());
    }
    patch(&image, root, &bytes);
    let store = open(&image, true).unwrap();
    let dir = lookup(&store, "dir").unwrap();
    let mut found = Vec::new();
    let listed = store.names_from(dir, 0, &mut found);
    assert!(
        matches!(&listed, Err(Error::Corrupt(what)) if what.contains("twice")),
        "{listed:?}"
    );
    assert!(found.len() < 200, "{}", found.len());
}

#[test]
fn the_rest_of_a_cluster_may_be_the_file_systems_own() {
    let directory = tempfile::tempdir().unwrap();
    let options = "-t ext4 -b 1024 -C 16384 -O bigalloc,^metadata_csum,^has_journal";
    let options: Vec<&str> = options.split_whitespace().collect();
    let image = make(directory.path(), "64M", &options);
    let data = directory.path().join("data");
    fs::write(&data, vec![7; 10 << 10]).unwrap();
    debugfs(&image, &format!("write {} file\n", data.display()));
    // Block 0 is the superblock's cluster; the blocks of a table end somewhere in theirs.
    let table = numbers_of(&image, "Inode table at ");
    let (start, end) = (table[0], table[1] + 1);
    assert!(end % 16 != 0 && start / 16 <= end / 16, "{start} {end}");
    let within = end % 16;
    debugfs(
        &image,
        &format!(
            "sif file block[3] {within}\nsif file block[4] 1\nsif file block[5] {end}\n\
             sif file size {}\n",
            (within + 1) * 1024
        ),
    );
    let store = open(&image, false).unwrap();
    let file = lookup(&store, "file").unwrap();
    let extents = store.load_extents(file);
    assert!(
        matches!(&extents, Err(Error::Corrupt(what)) if what.contains("cluster")),
        "{extents:?}"
    );
}

/// The two numbers of a range that dumpe2fs prints of the first group.
fn numbers_of(image: &Path, what: &str) -> Vec<u64> {
    let text = run(Command::new("dumpe2fs").arg(image));
    let rest = text.split(what).nth(1).unwrap();
    let range = rest.split([' ', '\n']).next().unwrap();
    range
        .split('-')
        .map(|number| number.parse().unwrap())
        .collect()
}

#[test]
fn a_quota_file_whose_header_cannot_be() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(
        directory.path(),
        "16M",
        &["-t", "ext4", "-b", "1024", "-O", "quota"],
    );
    let header = numbers(&image, "blocks <3>")[0] * 1024;
    let mut sound = vec![0; 32];
    let file = fs::File::open(&image).unwrap();
    file.read_exact_at(&mut sound, header).unwrap();
    drop(open(&image, false).unwrap());
    // The number of blocks, the first free block, the first block with room.
    for (place, wrong) in [
        (20, 1000_u32),
        (24, 1),
        (24, 5),
        (24, 77),
        (28, 1),
        (28, 2),
        (28, 77),
    ] {
        patch(&image, header + place, &wrong.to_le_bytes());
        let store = open(&image, false).unwrap();
        let notes = store.notes().join("\n");
        assert!(store.geometry().is_read_only, "{place}: {wrong}");
        assert!(
            notes.contains("quota file (inode 3)") && notes.contains("tune2fs -O ^quota"),
            "{place}: {wrong}: {notes}"
        );
        drop(store);
        patch(&image, header, &sound);
    }
    let store = open(&image, false).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
}

#[test]
fn a_project_that_an_inode_has_no_room_for_is_refused() {
    let old = |value_bytes| {
        let value = "v".repeat(value_bytes);
        format!("sif file extra_isize 28\nea_set file user.x {value}\n")
    };
    for (options, command, is_possible) in [
        ("-I 128", "feature project\n", false),
        ("-I 256 -O project", "sif file extra_isize 28\n", true),
        // The fields that come move the attributes.
        ("-I 256 -O project", &old(68), true),
        ("-I 256 -O project", &old(69), false),
        ("-I 256 -O project", "", true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let all = ["-t", "ext4", "-b", "1024"].into_iter();
        let all: Vec<&str> = all.chain(options.split_whitespace()).collect();
        let image = make(directory.path(), "8M", &all);
        debugfs(&image, &format!("write /dev/null file\n{command}"));
        let namespace = writable(&image);
        let caller = Caller::root();
        let file = namespace
            .lookup(&caller, namespace.root(), b"file")
            .unwrap();
        let set = |project| {
            let same = |flags: FileFlags| flags;
            namespace.set_flags_and_project(&caller, file.ino, same, Some(project))
        };
        assert_eq!(set(0), Ok(()));
        assert_eq!(set(u32::MAX), Err(Error::Invalid));
        let expected = match is_possible {
            true => Ok(()),
            false => Err(Error::NotSupported),
        };
        assert_eq!(set(5), expected, "{options} {command}");
        namespace.forget(file.ino, 1);
        namespace.shut_down().unwrap();
        drop(namespace);
        assert_clean(&image);
        let namespace = writable(&image);
        let file = namespace
            .lookup(&caller, namespace.root(), b"file")
            .unwrap();
        let wanted = if is_possible { 5 } else { 0 };
        assert_eq!(file.project, wanted, "{options} {command}");
        let value = namespace.xattr(&caller, file.ino, b"user.x");
        let length = command.matches('v').count();
        assert_eq!(value.map_or(0, |value| value.len()), length, "{command}");
        namespace.forget(file.ino, 1);
        namespace.shut_down().unwrap();
    }
}

#[test]
fn the_rest_of_the_last_block_of_an_orphan_is_zeroed() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(
        directory.path(),
        "8M",
        &["-t", "ext4", "-b", "4096", "-I", "256"],
    );
    let data = directory.path().join("data");
    fs::write(&data, vec![7; 20_000]).unwrap();
    debugfs(
        &image,
        &format!(
            "write {} file\nsif file size 5000\nssv last_orphan 12\n",
            data.display()
        ),
    );
    let block = numbers(&image, "blocks file")[1];
    writable(&image).shut_down().unwrap();
    assert_clean(&image);
    let mut bytes = vec![1; 4096];
    let file = fs::File::open(&image).unwrap();
    file.read_exact_at(&mut bytes, block * 4096).unwrap();
    let (kept, rest) = bytes.split_at(5000 - 4096);
    assert!(kept.iter().all(|byte| *byte == 7));
    assert!(rest.iter().all(|byte| *byte == 0));
}

/// A file system of the first revision has no features.
#[test]
fn a_feature_raises_the_revision() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-t", "ext2", "-b", "1024", "-r", "0"];
    let image = make(directory.path(), "8M", &options);
    let revision = || run(Command::new("dumpe2fs").arg("-h").arg(&image));
    assert!(revision().contains("revision #:    0"), "{}", revision());
    let namespace = writable(&image);
    let root = namespace.root();
    create(&namespace, root, b"file").unwrap();
    namespace.shut_down().unwrap();
    drop(namespace);
    assert!(revision().contains("revision #:    0"), "{}", revision());
    let namespace = writable(&image);
    let caller = Caller::root();
    let file = namespace.lookup(&caller, root, b"file").unwrap();
    let change = SetAttributes {
        size_bytes: Some(3 << 30),
        ..SetAttributes::default()
    };
    namespace
        .set_attributes(&caller, file.ino, &change)
        .unwrap();
    namespace.forget(file.ino, 1);
    namespace.shut_down().unwrap();
    drop(namespace);
    assert!(revision().contains("revision #:    1"), "{}", revision());
    assert_clean(&image);
}

/// What a rename gives, which must end.
fn rename_in_time(
    namespace: Namespace,
    from: (Ino, &'static [u8]),
    to: (Ino, &'static [u8]),
) -> (Namespace, Result<(), Error>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let renamed = namespace.rename(&Caller::root(), from, to, RenameMode::Replace);
        let _ = sender.send((namespace, renamed));
    });
    let limit = std::time::Duration::from_secs(120);
    receiver.recv_timeout(limit).expect("the rename ends")
}

/// Two directories that are each other's parents.
#[test]
fn a_circle_of_parents_ends_a_rename() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    let image = make(directory.path(), "8M", &options);
    debugfs(&image, "mkdir a\nmkdir b\nmkdir c\n");
    let store = open(&image, false).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| lookup(&store, name).unwrap());
    let root = store.geometry().root;
    drop(store);
    for (name, parent) in [("a", b), ("b", a)] {
        let block = numbers(&image, &format!("blocks {name}"))[0];
        // The second entry, behind one of twelve bytes.
        let number = u32::try_from(parent.0).unwrap();
        patch(&image, block * 1024 + 12, &number.to_le_bytes());
    }
    let (namespace, renamed) = rename_in_time(writable(&image), (root, b"c"), (a, b"c"));
    assert!(matches!(renamed, Err(Error::Corrupt(_))), "{renamed:?}");
    let found = namespace.lookup(&Caller::root(), root, b"c").unwrap().ino;
    assert_eq!(found, c);
    namespace.shut_down().unwrap();
}

/// A directory with an entry that names it.
#[test]
fn an_entry_that_names_its_directory_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-t", "ext4", "-b", "1024"];
    let image = make(directory.path(), "8M", &options);
    debugfs(&image, "mkdir v\nmkdir v/y\nlink v v/x\n");
    let store = open(&image, false).unwrap();
    let dir = lookup(&store, "v").unwrap();
    drop(store);
    let (namespace, renamed) = rename_in_time(writable(&image), (dir, b"y"), (dir, b"x"));
    assert!(matches!(renamed, Err(Error::Corrupt(_))), "{renamed:?}");
    let removed = namespace.remove_directory(&Caller::root(), dir, b"x");
    assert!(matches!(removed, Err(Error::Corrupt(_))), "{removed:?}");
    namespace.shut_down().unwrap();
}
