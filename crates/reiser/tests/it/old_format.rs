//! Format 3.5, with each of the hashes: mkreiserfs makes the file system, this test puts files into
//! its root leaf, reiserfsck finds nothing wrong with it, and all of it is read.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::support::reiserfsck::reiserfsck;
use crate::support::{mount, walk};
use finefs_block::{Access, FileDevice};
use finefs_namespace::{
    Caller, Error, FileFlags, FileKind, Ino, Namespace, Options, SetAttributes, Store, XattrMode,
};
use finefs_reiser::{ReiserOptions, ReiserStore};
use finefs_reiser_disk::hash::NameHash;

const BLOCK: usize = 4096;
const INDIRECT: u32 = 0xffff_fffe;
const DIRECT: u32 = 0xffff_ffff;
const DIRECTORY: u32 = 500;

/// An item: its key, its count, its body.
struct Item {
    key: [u32; 4],
    count: u16,
    body: Vec<u8>,
}

/// Old stat data.
fn stat(key: [u32; 2], mode: u16, links: u16, size: u32, word: u32, first_direct: u32) -> Item {
    let mut body = Vec::new();
    for half in [mode, links, 1000, 100] {
        body.extend(half.to_le_bytes());
    }
    for whole in [size, 10, 0x8000_0000, 30, word, first_direct] {
        body.extend(whole.to_le_bytes());
    }
    Item {
        key: [key[0], key[1], 0, 0],
        count: 0xffff,
        body,
    }
}

/// A directory item of old entries, without anything between the names.
fn directory(key: [u32; 2], hash: NameHash, entries: &[(&[u8], [u32; 2])]) -> Item {
    let mut entries: Vec<_> = entries
        .iter()
        .map(|(name, object)| (hash.entry_offset(name), *name, *object))
        .collect();
    entries.sort();
    let names: usize = entries.iter().map(|(_, name, _)| name.len()).sum();
    let mut body = vec![0; 16 * entries.len() + names];
    let mut end = body.len();
    for (number, (offset, name, object)) in entries.iter().enumerate() {
        end -= name.len();
        body[end..end + name.len()].copy_from_slice(name);
        let head = &mut body[number * 16..][..16];
        for (at, word) in [(0, *offset), (4, object[0]), (8, object[1])] {
            head[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        head[12..14].copy_from_slice(&(end as u16).to_le_bytes());
        head[14] = 4;
    }
    Item {
        key: [key[0], key[1], 1, DIRECTORY],
        count: entries.len() as u16,
        body,
    }
}

fn leaf(items: &[Item]) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    (block[0], block[2]) = (1, items.len() as u8);
    let mut end = BLOCK;
    for (number, item) in items.iter().enumerate() {
        end -= item.body.len();
        block[end..end + item.body.len()].copy_from_slice(&item.body);
        let head = &mut block[24 + number * 24..][..24];
        for (word, bytes) in item.key.iter().zip(head.chunks_exact_mut(4)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        for (at, half) in [
            (16, item.count),
            (18, item.body.len() as u16),
            (20, end as u16),
        ] {
            head[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
    }
    let free = (end - 24 - 24 * items.len()) as u16;
    block[4..6].copy_from_slice(&free.to_le_bytes());
    block
}

const NAMES: [&[u8]; 4] = [
    b"tail",
    b"blocks",
    b"caf\xe9\xff",
    b"a name of many letters, longer than forty",
];
const TAIL: &[u8] = b"the bytes of a small file";

/// The file system's items. `data` is the first of three blocks of a file.
fn items(hash: NameHash, data: u32) -> Vec<Item> {
    let root = [1, 2];
    let object = |number| [2, number];
    let pointers = [data, data + 1, 0, data + 2];
    let mut items = vec![
        stat(root, 0o40755, 4, 0, 1, u32::MAX),
        directory(
            root,
            hash,
            &[
                (b".", root),
                (b"..", [0, 1]),
                (NAMES[0], object(10)),
                (NAMES[1], object(11)),
                (NAMES[2], object(12)),
                (NAMES[3], object(13)),
                (b"disk", object(14)),
                (b"dir", object(15)),
            ],
        ),
        stat(object(10), 0o100_644, 1, TAIL.len() as u32, 8, 1),
        Item {
            key: [2, 10, 1, DIRECT],
            count: 0xffff,
            body: TAIL.to_vec(),
        },
        stat(
            object(11),
            0o100_600,
            2,
            4 * BLOCK as u32 - 96,
            24,
            u32::MAX,
        ),
        Item {
            key: [2, 11, 1, INDIRECT],
            count: 96,
            body: pointers
                .iter()
                .flat_map(|pointer: &u32| pointer.to_le_bytes())
                .collect(),
        },
        stat(object(12), 0o120_777, 1, 7, 8, 1),
        Item {
            key: [2, 12, 1, DIRECT],
            count: 0xffff,
            body: b"/target".to_vec(),
        },
        stat(object(13), 0o100_644, 1, 0, 0, u32::MAX),
        stat(object(14), 0o60_640, 1, 0, 0x0010_3405, u32::MAX),
        stat(object(15), 0o40_700, 2, 0, 1, u32::MAX),
        directory(
            object(15),
            hash,
            &[(b".", object(15)), (b"..", root), (b"again", object(11))],
        ),
    ];
    for number in [0, 10] {
        let size = items[number + 1].body.len() as u32;
        items[number].body[8..12].copy_from_slice(&size.to_le_bytes());
    }
    items
}

/// Makes a file system, and gives its bytes and the first block of the file. In format 3.6 its
/// objects are those of one that was 3.5.
fn make(path: &Path, format: &str, hash: NameHash) -> (Vec<u8>, u32) {
    std::fs::write(path, vec![0; 40 << 20]).expect("there is room");
    let made = Command::new("mkreiserfs")
        .args([
            "-q",
            "-q",
            "-f",
            "-f",
            "--format",
            format,
            "--hash",
            hash.name(),
        ])
        .arg(path)
        .output()
        .expect("mkreiserfs runs");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut image = std::fs::read(path).expect("it is there");
    let word = |image: &[u8], at: usize| {
        u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes"))
    };
    let superblock = 65536;
    let root = word(&image, superblock + 8);
    let data = root + 1;
    let leaf_at = root as usize * BLOCK;
    image[leaf_at..leaf_at + BLOCK].copy_from_slice(&leaf(&items(hash, data)));
    for number in 0..3 {
        let block = data as usize + number;
        image[block * BLOCK..][..BLOCK].fill(b'a' + number as u8);
        image[17 * BLOCK + block / 8] |= 1 << (block % 8);
    }
    // Behind its end a block is zeros.
    let end = (data as usize + 3) * BLOCK;
    image[end - 96..end].fill(0);
    let free = word(&image, superblock + 4) - 3;
    image[superblock + 4..superblock + 8].copy_from_slice(&free.to_le_bytes());
    // Numbers up to 2, and from 10 to 15, are in use.
    for (at, number) in [1_u32, 3, 10, 16].into_iter().enumerate() {
        let map = if format == "3.5" { 76 } else { 204 };
        let at = superblock + map + at * 4;
        image[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    image[superblock + 48] = 4;
    (image, data)
}

#[test]
fn old_images_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    for hash in [NameHash::R5, NameHash::Tea, NameHash::Rupasov] {
        let (image, data) = make(&path, "3.5", hash);
        std::fs::write(&path, &image).expect("there is room");
        reiserfsck(&path);
        let store = mount(&image).expect("it mounts");
        read_all(&store);
        let extents = store.load_extents(Ino(11)).expect("it is sound");
        let extents: Vec<_> = extents
            .iter()
            .map(|it| (it.logical.0, it.physical.0, it.length))
            .collect();
        let data = u64::from(data);
        assert_eq!(extents, [(0, data, 2), (3, data + 2, 1)]);
    }
}

fn read_all(store: &finefs_reiser::ReiserStore) {
    let seen = walk(store);
    let of = |name: &[u8]| {
        let found = seen.get(&[b"./", name].concat()).expect("it has a name");
        found.as_ref().expect("it is sound")
    };
    assert_eq!(seen.len(), 8);
    assert_eq!(of(NAMES[0]).1, TAIL);
    let (blocks, content) = of(NAMES[1]);
    assert_eq!(content.len(), 4 * BLOCK - 96);
    for (number, byte) in [b'a', b'b', 0, b'c'].into_iter().enumerate() {
        let part = &content[number * BLOCK..content.len().min((number + 1) * BLOCK)];
        assert!(part.iter().all(|it| *it == byte), "block {number}");
    }
    assert_eq!((blocks.uid, blocks.gid, blocks.link_count), (1000, 100, 2));
    assert_eq!((blocks.sectors, blocks.generation), (24, 2));
    // Times have no sign.
    assert_eq!(blocks.times.modified.seconds(), 1 << 31);
    let (link, target) = of(NAMES[2]);
    assert_eq!(
        (link.kind, &target[..]),
        (FileKind::Symlink, &b"/target"[..])
    );
    assert_eq!(of(NAMES[3]).1, b"");
    let (disk, _) = of(b"disk");
    assert_eq!(
        (disk.kind, disk.device),
        (FileKind::BlockDevice, libc::makedev(0x34, 0x105))
    );
    assert_eq!(of(b"dir/again").0, *blocks);
    assert_eq!(
        store.load_directory(Ino(15)).expect("it is sound").parent,
        Ino(2)
    );
    assert_eq!(store.load_inode(Ino(9)).map(|_| ()), Err(Error::Stale));
    assert_eq!(store.load_xattrs(Ino(10)), Ok(Vec::new()));
}

#[test]
fn damage_names_block_and_item() {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, _) = make(&dir.path().join("image"), "3.5", NameHash::R5);
    let root = u32::from_le_bytes(image[65544..65548].try_into().expect("four bytes"));
    let at = root as usize * BLOCK;
    // The pointers of the file: the item with number 5.
    let body = at
        + usize::from(u16::from_le_bytes([
            image[at + 24 * 6 + 20],
            image[at + 24 * 6 + 21],
        ]));
    for (bad, what) in [
        (17_u32, "bitmap"),
        (20, "journal"),
        (1 << 20, "past the end"),
    ] {
        let mut image = image.clone();
        image[body..body + 4].copy_from_slice(&bad.to_le_bytes());
        let store = mount(&image).expect("it mounts");
        let error = store.load_extents(Ino(11)).expect_err(what);
        assert_eq!(
            error,
            Error::corrupt(format_args!("block {root}, item 5: data in block {bad}"))
        );
        // Others are as good as before.
        assert!(store.load_directory(Ino(2)).is_ok());
    }
}

/// The file system that `make` makes, mounted to write.
fn writable(path: &Path, format: &str) -> Namespace {
    let (image, _) = make(path, format, NameHash::R5);
    std::fs::write(path, &image).expect("there is room");
    open(path)
}

fn open(path: &Path) -> Namespace {
    let device = FileDevice::open(path, Access::ReadWrite).expect("it opens");
    let store = ReiserStore::open(Arc::new(device), &ReiserOptions::default()).expect("it mounts");
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    Namespace::without_thread(Arc::new(store), Options::default()).expect("it is")
}

fn close(namespace: Namespace, path: &Path) {
    namespace.shut_down().expect("it is durable");
    drop(namespace);
    reiserfsck(path);
}

fn ino_of(namespace: &Namespace, name: &[u8]) -> Ino {
    let found = namespace.lookup(&Caller::root(), namespace.root(), name);
    found.expect("it has a name").ino
}

/// What the commit could only find out, the operation says.
#[test]
fn old_files_in_a_newer_file_system_stay_small() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    let namespace = writable(&path, "3.6");
    let caller = &Caller::root();
    let old = ino_of(&namespace, NAMES[0]);
    let new = namespace.create_file(caller, namespace.root(), b"new", 0o600);
    let new = new.expect("there is room").ino;
    let most = i32::MAX as u64;
    let grow = |ino, to| namespace.set_attributes(caller, ino, &size(to)).map(drop);
    assert_eq!(grow(old, most + 1), Err(Error::FileTooLarge));
    assert_eq!(namespace.write(old, most, b"x"), Err(Error::FileTooLarge));
    assert_eq!(namespace.write(new, most, b"x"), Ok(1));
    assert_eq!(grow(new, 1 << 34), Ok(()));
    assert_eq!(namespace.write(old, most - 1, b"x"), Ok(1));
    namespace.sync().expect("it is durable");
    assert_eq!(grow(new, 0), Ok(()));
    namespace.forget(old, 1);
    namespace.forget(new, 1);
    close(namespace, &path);
}

/// A number that is free in the map and has an object all the same is found before it is given to a
/// second one.
#[test]
fn numbers_in_use_are_not_given_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    let (mut image, _) = make(&path, "3.6", NameHash::R5);
    // The third word: in use from 10 on, where the first file has its number.
    let at = 65_536 + 204 + 2 * 4;
    image[at..at + 4].copy_from_slice(&11_u32.to_le_bytes());
    std::fs::write(&path, &image).expect("there is room");
    let namespace = open(&path);
    let (caller, root) = (&Caller::root(), namespace.root());
    let old = ino_of(&namespace, NAMES[0]);
    assert_eq!(old, Ino(10));
    // Each CPU takes some numbers at a time, and a thread alone may stay on one.
    let namespace = &namespace;
    let make = |maker| {
        (0..2500).find_map(|number| {
            let name = format!("new {maker} {number}");
            let made = namespace.create_file(caller, root, name.as_bytes(), 0o600);
            made.err()
        })
    };
    let refused = std::thread::scope(|scope| {
        let makers = [0, 1, 2, 3].map(|maker| scope.spawn(move || make(maker)));
        makers.map(|maker| maker.join().expect("it ends"))
    });
    // The others find that nothing is changed any more.
    let found = |error: &Error| error.to_string().contains("object 10");
    assert!(refused.iter().flatten().any(found), "{refused:?}");
    let mut content = [0; 4];
    assert_eq!(namespace.read(old, 0, &mut content), Ok(4));
    assert_eq!(&content, b"the ");
}

fn size(size_bytes: u64) -> SetAttributes {
    SetAttributes {
        size_bytes: Some(size_bytes),
        ..SetAttributes::default()
    }
}

/// What an old object has no room for is refused by the operation: numbers of owners with more than
/// 16 bits, attributes, flags, large sizes.
fn refuses_what_is_new(namespace: &Namespace, ino: Ino) {
    let caller = &Caller::root();
    let before = namespace.attributes(ino);
    let owners = [(Some(65_536), None), (None, Some(70_000))];
    for (uid, gid) in owners {
        let change = SetAttributes {
            uid,
            gid,
            ..SetAttributes::default()
        };
        let changed = namespace.set_attributes(caller, ino, &change).map(drop);
        assert_eq!(changed, Err(Error::Invalid));
    }
    let set = namespace.set_xattr(caller, ino, b"security.a", b"1", XattrMode::Set);
    assert_eq!(set, Err(Error::NotSupported));
    let acl = [2, 0, 0, 0];
    let set = namespace.set_xattr(
        caller,
        ino,
        b"system.posix_acl_access",
        &acl,
        XattrMode::Set,
    );
    assert_eq!(set, Err(Error::NotSupported));
    let flagged = namespace.set_flags(caller, ino, |flags| flags | FileFlags::IMMUTABLE);
    assert_eq!(flagged, Err(Error::NotSupported));
    assert_eq!(namespace.list_xattrs(caller, ino), Ok(Vec::new()));
    assert_eq!(namespace.attributes(ino), before);
}

#[test]
fn old_objects_in_a_newer_file_system_stay_old() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    let namespace = writable(&path, "3.6");
    let caller = &Caller::root();
    for name in [NAMES[0], b"dir", b"disk"] {
        let old = ino_of(&namespace, name);
        refuses_what_is_new(&namespace, old);
        namespace.forget(old, 1);
    }
    // In an old directory too, what is made is new.
    let old = ino_of(&namespace, b"dir");
    let new = namespace.create_file(caller, old, b"new", 0o600);
    let new = new.expect("there is room").ino;
    let change = SetAttributes {
        uid: Some(70_000),
        ..SetAttributes::default()
    };
    namespace
        .set_attributes(caller, new, &change)
        .expect("there is room");
    let set = namespace.set_xattr(caller, new, b"security.a", b"1", XattrMode::Set);
    assert_eq!(set, Ok(()));
    namespace.forget(new, 1);
    namespace.forget(old, 1);
    close(namespace, &path);
}

#[test]
fn the_old_format_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    let namespace = writable(&path, "3.5");
    let (caller, root) = (&Caller::root(), namespace.root());
    let stranger = &Caller {
        uid: 70_000,
        ..Caller::root()
    };
    let wide = namespace.set_attributes(caller, root, &mode(0o777));
    wide.expect("there is room");
    let refused = namespace.create_file(stranger, root, b"theirs", 0o600);
    assert_eq!(refused.map(drop), Err(Error::Invalid));
    let file = namespace.create_file(caller, root, b"file", 0o640);
    let file = file.expect("there is room").ino;
    refuses_what_is_new(&namespace, file);
    let most = i32::MAX as u64;
    assert_eq!(namespace.write(file, most, b"x"), Err(Error::FileTooLarge));
    assert_eq!(namespace.write(file, 5000, b"five"), Ok(4));
    let change = SetAttributes {
        uid: Some(65_535),
        gid: Some(65_534),
        ..SetAttributes::default()
    };
    let owned = namespace.set_attributes(caller, file, &change);
    owned.expect("there is room");
    // An old tail becomes a block.
    let tail = ino_of(&namespace, NAMES[0]);
    assert_eq!(namespace.write(tail, 4, b"BYTES"), Ok(5));
    let sub = namespace.make_directory(caller, root, b"sub", 0o750);
    let sub = sub.expect("there is room").ino;
    // Seven bytes, and so the item has.
    let link = namespace.make_symlink(caller, sub, b"link", b"./there");
    let device = libc::makedev(0x34, 0x105);
    let node = namespace.make_node(caller, sub, b"disk", FileKind::BlockDevice, 0o600, device);
    let inos = [
        file,
        tail,
        sub,
        link.expect("room").ino,
        node.expect("room").ino,
    ];
    inos.iter().for_each(|ino| namespace.forget(*ino, 1));
    close(namespace, &path);

    let bytes = std::fs::read(&path).expect("it is there");
    let store = mount(&bytes).expect("it mounts");
    let seen = walk(&store);
    let of = |name: &str| {
        let found = seen.get(name.as_bytes()).expect("it has a name");
        found.as_ref().expect("it is sound")
    };
    let (file, content) = of("./file");
    assert_eq!(
        (file.uid, file.gid, file.size_bytes),
        (65_535, 65_534, 5004)
    );
    assert_eq!((content[4999], &content[5000..]), (0, &b"five"[..]));
    // As the kernel makes it up: the directory that it was made in.
    assert_eq!(file.generation, 2);
    assert_eq!(of("./tail").1, b"the BYTES of a small file");
    assert_eq!(of("./sub/link").1, b"./there");
    assert_eq!(
        (of("./sub/disk").0.device, of("./sub").0.link_count),
        (device, 2)
    );
    assert_eq!(of(".").0.permissions, 0o777);
    fills_up_and_empties(&path);
}

/// The free list is whole: the file system fills up, and is emptied, as before.
fn fills_up_and_empties(path: &Path) {
    let namespace = open(path);
    let (caller, root) = (&Caller::root(), namespace.root());
    let before = namespace.statfs().blocks_free;
    let file = namespace.create_file(caller, root, b"large", 0o640);
    let file = file.expect("there is room").ino;
    let block = [7; BLOCK];
    let blocks = (0..).take_while(|number| {
        let at = number * BLOCK as u64;
        namespace.write(file, at, &block).is_ok()
    });
    assert!(blocks.count() as u64 > before / 2);
    namespace.forget(file, 1);
    namespace
        .remove_file(caller, root, b"large")
        .expect("it has a name");
    namespace.sync().expect("it is durable");
    assert_eq!(namespace.statfs().blocks_free, before);
    close(namespace, path);
}

fn mode(permissions: u32) -> SetAttributes {
    SetAttributes {
        permissions: Some(permissions),
        ..SetAttributes::default()
    }
}
