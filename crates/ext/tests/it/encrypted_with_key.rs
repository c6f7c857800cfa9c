//! Encrypted directories (`encrypt`) with their key: what the kernel wrote is read, what is written
//! the kernel reads. Needs root and a loop device; does nothing without.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::process::Command;

use crate::image::run;
use crate::keyed::{KEY, Policy, Seen, Tree, World, add_key, find, walk};
use crate::trial;
use finefs_block::Access;
use finefs_namespace::{
    AllocateMode, Caller, Error, FileFlags, FileKind, Ino, Namespace, RenameMode, Result,
    SetAttributes, XattrMode,
};

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| ((at * 7 + at / 251 + seed) % 256) as u8)
        .collect()
}

/// Names and contents of all sizes.
fn wanted() -> Tree {
    let mut tree = Tree::new();
    tree.insert(b"d/many".to_vec(), Seen::Directory);
    tree.insert(b"d/deep".to_vec(), Seen::Directory);
    tree.insert(b"d/deep/deeper".to_vec(), Seen::Directory);
    let lengths = [
        0, 1, 15, 16, 1000, 4095, 4096, 4097, 70_000, 300_001, 2_500_000,
    ];
    for (seed, length) in lengths.into_iter().enumerate() {
        let path = format!("d/deep/deeper/of {length}");
        tree.insert(path.into_bytes(), Seen::File(content(seed, length)));
    }
    for length in 1..=255 {
        let path = format!("d/{}", "n".repeat(length));
        tree.insert(path.into_bytes(), Seen::File(content(length, length)));
    }
    for number in 0..600 {
        let path = format!("d/many/name number {number}");
        tree.insert(path.into_bytes(), Seen::File(Vec::new()));
    }
    for length in [1, 13, 40, 58, 59, 60, 100, 1000] {
        let path = format!("d/deep/link of {length}");
        tree.insert(path.into_bytes(), Seen::Link(vec![b't'; length]));
    }
    tree
}

/// A file with a hole between two pieces.
const SPARSE: (&[u8], u64) = (b"d/deep/sparse", 5_000_000);

fn sparse() -> Seen {
    let mut bytes = content(3, 5000);
    bytes.resize(SPARSE.1 as usize, 0);
    bytes.extend(content(4, 9000));
    Seen::File(bytes)
}

fn make_by_kernel(world: &World, tree: &Tree) {
    make_by_kernel_alone(world, tree);
    let _mount = world.mount("loop,rw").unwrap();
    add_key(&world.place);
    let place = world.place.join(std::ffi::OsStr::from_bytes(SPARSE.0));
    let file = fs::File::create(place).unwrap();
    file.write_all_at(&content(3, 5000), 0).unwrap();
    file.write_all_at(&content(4, 9000), SPARSE.1).unwrap();
}

fn make_by_kernel_alone(world: &World, tree: &Tree) {
    let _mount = world.mount("loop,rw").unwrap();
    add_key(&world.place);
    let host = |path: &[u8]| world.place.join(std::ffi::OsStr::from_bytes(path));
    for (path, seen) in tree {
        match seen {
            Seen::Directory => fs::create_dir(host(path)).unwrap(),
            Seen::File(content) => fs::write(host(path), content).unwrap(),
            Seen::Link(target) => {
                symlink(std::ffi::OsStr::from_bytes(target), host(path)).unwrap();
            }
        }
    }
}

/// The directory of a path, and the name in it.
fn parted<'p>(namespace: &Namespace, path: &'p [u8]) -> (Ino, &'p [u8]) {
    let at = path.iter().rposition(|byte| *byte == b'/').unwrap();
    (find(namespace, &path[..at]), &path[at + 1..])
}

fn make_by_finefs(namespace: &Namespace, tree: &Tree) {
    let caller = Caller::root();
    for (path, seen) in tree {
        let (dir, name) = parted(namespace, path);
        let made = match seen {
            Seen::Directory => namespace.make_directory(&caller, dir, name, 0o755).unwrap(),
            Seen::Link(target) => namespace.make_symlink(&caller, dir, name, target).unwrap(),
            Seen::File(content) => {
                let made = namespace.create_file(&caller, dir, name, 0o644).unwrap();
                // In pieces that are not blocks.
                for (number, piece) in content.chunks(66_666).enumerate() {
                    let at = number as u64 * 66_666;
                    assert_eq!(namespace.write(made.ino, at, piece), Ok(piece.len()));
                }
                made
            }
        };
        namespace.forget(made.ino, 1);
    }
}

fn make_sparse(namespace: &Namespace) {
    let (dir, name) = parted(namespace, SPARSE.0);
    let made = namespace
        .create_file(&Caller::root(), dir, name, 0o644)
        .unwrap();
    namespace.write(made.ino, 0, &content(3, 5000)).unwrap();
    namespace
        .write(made.ino, SPARSE.1, &content(4, 9000))
        .unwrap();
    namespace.forget(made.ino, 1);
}

fn assert_same(seen: &Tree, expected: &Tree, what: &str) {
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(seen), names(expected), "{what}");
    for (path, seen) in seen {
        let path_text = String::from_utf8_lossy(path);
        assert!(
            expected.get(path) == Some(seen),
            "{what}: {path_text}: {seen:?}"
        );
    }
}

/// Options of mke2fs, flags of the policy (padding, and how keys are made), and the modes for
/// contents and for names.
type Format = (&'static str, u8, (u8, u8));

const AES_256: (u8, u8) = (1, 4);
const AES_256_HCTR2: (u8, u8) = (1, 10);
const AES_128: (u8, u8) = (5, 6);
const ADIANTUM: (u8, u8) = (9, 9);
const SM4: (u8, u8) = (7, 8);
const DIRECT_KEY: u8 = 4;

const FORMATS: [Format; 15] = [
    ("-b 4096", 3, AES_256),
    ("-b 1024", 0, AES_256),
    (
        "-b 1024 -O ^metadata_csum,^dir_index,^extents,^64bit",
        1,
        AES_256,
    ),
    ("-b 4096 -O inline_data", 2, AES_256),
    ("-b 1024 -O bigalloc -C 8192", 3, AES_256),
    ("-b 4096 -O stable_inodes", 0x08, AES_256),
    ("-b 4096 -O stable_inodes", 0x10 | 3, AES_256),
    ("-b 4096", 3, AES_256_HCTR2),
    ("-b 1024 -O inline_data", 0, AES_256_HCTR2),
    ("-b 4096 -O stable_inodes", 0x08, AES_256_HCTR2),
    ("-b 4096", 3, AES_128),
    ("-b 1024", 1, AES_128),
    ("-b 4096", 3, ADIANTUM),
    ("-b 1024 -O inline_data", 0, ADIANTUM),
    ("-b 4096", DIRECT_KEY | 2, ADIANTUM),
];

/// The images that the kernel can make.
fn worlds() -> impl Iterator<Item = (World, String)> {
    FORMATS.into_iter().filter_map(|(arguments, flags, modes)| {
        let world = World::with_modes(arguments, flags, modes)?;
        Some((world, format!("{arguments}, {modes:?}, flags {flags:#x}")))
    })
}

#[test]
fn what_the_kernel_wrote_is_read() {
    for (world, format) in worlds() {
        let mut tree = wanted();
        make_by_kernel(&world, &tree);
        tree.insert(SPARSE.0.to_vec(), sparse());
        assert_same(&world.seen_by_finefs(), &tree, &format);
    }
}

#[test]
fn what_is_written_the_kernel_reads() {
    for (world, format) in worlds() {
        let mut tree = wanted();
        let namespace = world.open(Access::ReadWrite, &[&KEY]);
        make_by_finefs(&namespace, &tree);
        make_sparse(&namespace);
        namespace.shut_down().unwrap();
        drop(namespace);
        world.check();
        tree.insert(SPARSE.0.to_vec(), sparse());
        assert_same(&world.seen_by_kernel(), &tree, &format);
        assert_same(&world.seen_by_finefs(), &tree, &format);
    }
}

/// Overwrites parts of files that the kernel wrote, cuts and grows them, renames and removes.
fn change(namespace: &Namespace, tree: &mut Tree) {
    let caller = Caller::root();
    let path = b"d/deep/deeper/of 300001".to_vec();
    let ino = find(namespace, &path);
    let Some(Seen::File(bytes)) = tree.get_mut(&path) else {
        panic!("it is there");
    };
    let pieces = [
        (5, 3),
        (4090, 10),
        (8192, 4096),
        (10_000, 150_000),
        (299_990, 500),
    ];
    for (at, length) in pieces {
        let piece = content(at, length);
        namespace.write(ino, at as u64, &piece).unwrap();
        bytes.resize(bytes.len().max(at + length), 0);
        bytes[at..at + length].copy_from_slice(&piece);
    }
    let punched = (20_000, 30_000);
    namespace
        .allocate(ino, AllocateMode::PunchHole, punched.0, punched.1)
        .unwrap();
    bytes[20_000..50_000].fill(0);
    namespace
        .allocate(ino, AllocateMode::ZeroRangeKeepSize, 60_001, 9_999)
        .unwrap();
    bytes[60_001..70_000].fill(0);
    let path = b"d/deep/deeper/of 70000".to_vec();
    let ino = find(namespace, &path);
    for size_bytes in [33_333, 44_444] {
        let size = SetAttributes {
            size_bytes: Some(size_bytes),
            ..SetAttributes::default()
        };
        namespace.set_attributes(&caller, ino, &size).unwrap();
    }
    namespace.append(ino, b"the end").unwrap();
    let Some(Seen::File(bytes)) = tree.get_mut(&path) else {
        panic!("it is there");
    };
    bytes.truncate(33_333);
    bytes.resize(44_444, 0);
    bytes.extend_from_slice(b"the end");
    for number in (0..600).step_by(2) {
        let path = format!("d/many/name number {number}").into_bytes();
        let (dir, name) = parted(namespace, &path);
        let seen = tree.remove(&path).unwrap();
        if number % 3 == 0 {
            namespace.remove_file(&caller, dir, name).unwrap();
            continue;
        }
        let to = format!("d/deep/moved {number}").into_bytes();
        let (to_dir, to_name) = parted(namespace, &to);
        let to_name = (to_dir, to_name);
        namespace
            .rename(&caller, (dir, name), to_name, RenameMode::Replace)
            .unwrap();
        tree.insert(to, seen);
    }
    for path in [&b"d/deep/deeper/of 300001"[..], SPARSE.0] {
        namespace.defragment(find(namespace, path)).unwrap();
    }
    let linked = find(namespace, b"d/n");
    let dir = find(namespace, b"d/many");
    let made = namespace
        .make_link(&caller, linked, dir, b"another name")
        .unwrap();
    namespace.forget(made.ino, 1);
    tree.insert(
        b"d/many/another name".to_vec(),
        tree[&b"d/n".to_vec()].clone(),
    );
}

#[test]
fn what_the_kernel_wrote_is_changed() {
    for (world, format) in worlds() {
        let mut tree = wanted();
        make_by_kernel(&world, &tree);
        let namespace = world.open(Access::ReadWrite, &[&[7; 32], &KEY]);
        change(&namespace, &mut tree);
        namespace.shut_down().unwrap();
        drop(namespace);
        world.check();
        tree.insert(SPARSE.0.to_vec(), sparse());
        assert_same(&world.seen_by_kernel(), &tree, &format);
    }
}

/// The names of the directory `d`, as they are shown with these keys, and what a read of its
/// files comes to.
fn shown(world: &World, keys: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<Result<usize>>) {
    let namespace = world.open(Access::ReadOnly, keys);
    let mut names = Vec::new();
    let listed = namespace.read_directory(find(&namespace, b"d"), 2, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        true
    });
    listed.unwrap();
    names.retain(|(name, _)| name != b"." && name != b"..");
    let read = names
        .iter()
        .map(|(_, ino)| namespace.read(*ino, 0, &mut [0; 9]));
    let read = read.collect();
    (names.into_iter().map(|(name, _)| name).collect(), read)
}

#[test]
fn another_key_is_none() {
    let Some(world) = World::new("-b 4096", 3) else {
        return;
    };
    let mut tree = Tree::new();
    tree.insert(b"d/name".to_vec(), Seen::File(content(1, 10)));
    make_by_kernel_alone(&world, &tree);
    let (without, read) = shown(&world, &[]);
    assert_eq!(read, [Err(Error::NoKey)]);
    assert_eq!(shown(&world, &[&[7; 64]]), (without, read));
    assert_eq!(
        shown(&world, &[&[7; 64], &KEY]),
        (vec![b"name".to_vec()], vec![Ok(9)])
    );
    let namespace = world.open(Access::ReadWrite, &[&[7; 64]]);
    let (caller, d) = (Caller::root(), find(&namespace, b"d"));
    let made = namespace.create_file(&caller, d, b"new", 0o644);
    assert_eq!(made.map(|_| ()), Err(Error::NoKey));
}

/// A directory that is given a key here has another policy than that of the kernel.
#[test]
fn files_stay_where_their_policy_is() {
    for arguments in ["-b 4096", "-b 4096 -O inline_data", "-b 1024"] {
        let Some(world) = World::new(arguments, 0) else {
            return;
        };
        let namespace = world.open(Access::ReadWrite, &[&KEY]);
        let (caller, root, d) = (Caller::root(), namespace.root(), find(&namespace, b"d"));
        let plain = find(&namespace, b"plain");
        let encrypt = |ino| namespace.set_flags(&caller, ino, |was| was | FileFlags::ENCRYPTED);
        assert_eq!(encrypt(root), Err(Error::NotPermitted));
        let file = namespace
            .create_file(&caller, plain, b"file", 0o644)
            .unwrap()
            .ino;
        assert_eq!(encrypt(plain), Err(Error::NotEmpty));
        let other = namespace
            .make_directory(&caller, root, b"other", 0o755)
            .unwrap()
            .ino;
        encrypt(other).unwrap();
        encrypt(other).unwrap();
        let kept = |ino| namespace.attributes(ino).unwrap().flags & FileFlags::ENCRYPTED;
        assert_eq!(
            (kept(other), kept(file)),
            (FileFlags::ENCRYPTED, FileFlags::empty())
        );
        let inner = namespace
            .create_file(&caller, other, b"inner", 0o644)
            .unwrap()
            .ino;
        namespace.write(inner, 0, b"what is in it").unwrap();
        let fifo = namespace.make_node(&caller, plain, b"fifo", FileKind::Fifo, 0o644, 0);
        namespace
            .rename(
                &caller,
                (plain, b"fifo"),
                (other, b"fifo"),
                RenameMode::Replace,
            )
            .unwrap();
        fifo.unwrap();
        for dir in [d, other] {
            let moved =
                namespace.rename(&caller, (plain, b"file"), (dir, b"x"), RenameMode::Replace);
            assert_eq!(moved.map(|_| ()), Err(Error::CrossesFileSystems));
            let linked = namespace.make_link(&caller, file, dir, b"x");
            assert_eq!(linked.map(|_| ()), Err(Error::CrossesFileSystems));
        }
        let moved = namespace.rename(&caller, (other, b"inner"), (d, b"x"), RenameMode::Replace);
        assert_eq!(moved.map(|_| ()), Err(Error::CrossesFileSystems));
        // Out of it is no matter.
        namespace
            .rename(
                &caller,
                (other, b"inner"),
                (plain, b"in"),
                RenameMode::Replace,
            )
            .unwrap();
        let unnamed = namespace.create_unnamed(&caller, other, 0o644).unwrap().ino;
        namespace.write(unnamed, 0, &content(2, 9000)).unwrap();
        namespace
            .make_link(&caller, unnamed, other, b"named")
            .unwrap();
        namespace.shut_down().unwrap();
        drop(namespace);
        world.check();
        let _mount = world.mount("loop,ro").unwrap();
        add_key(&world.place);
        let at = |path: &str| world.place.join(path);
        assert_eq!(fs::read(at("plain/in")).unwrap(), b"what is in it");
        assert_eq!(fs::read(at("other/named")).unwrap(), content(2, 9000));
        assert!(fs::symlink_metadata(at("other/fifo")).is_ok());
        assert_eq!(fs::read_dir(at("other")).unwrap().count(), 2);
    }
}

/// Attributes beside the context: in the inode, and where they do not fit there.
#[test]
fn attributes_have_room_beside_the_context() {
    let Some(world) = World::new("-b 1024", 0) else {
        return;
    };
    let namespace = world.open(Access::ReadWrite, &[&KEY]);
    let (caller, root) = (Caller::root(), namespace.root());
    let value = |length| vec![b'v'; length];
    let set = |ino, name: &[u8], length| {
        namespace.set_xattr(&caller, ino, name, &value(length), XattrMode::Set)
    };
    let mut made = Vec::new();
    for length in [1, 20, 50, 90, 400, 800, 900, 1000] {
        let name = format!("of {length}").into_bytes();
        let dir = namespace
            .make_directory(&caller, root, &name, 0o755)
            .unwrap()
            .ino;
        if set(dir, b"user.before", length).is_err() {
            continue;
        }
        let encrypted = namespace.set_flags(&caller, dir, |was| was | FileFlags::ENCRYPTED);
        encrypted.unwrap();
        let file = namespace
            .create_file(&caller, dir, b"file", 0o644)
            .unwrap()
            .ino;
        let _ = set(file, b"user.after", length);
        namespace.write(file, 0, b"content").unwrap();
        made.push(length);
    }
    assert!(made.len() > 4, "{made:?}");
    namespace.shut_down().unwrap();
    drop(namespace);
    world.check();
    let _mount = world.mount("loop,ro").unwrap();
    add_key(&world.place);
    for length in made {
        let file = world.place.join(format!("of {length}/file"));
        assert_eq!(fs::read(file).unwrap(), b"content");
    }
}

/// A policy of other modes than are known is as one without its key.
#[test]
fn other_modes_are_told() {
    let Some(world) = World::new("-b 4096", 3) else {
        return;
    };
    let mount = world.mount("loop,rw").unwrap();
    let dir = world.place.join("other");
    fs::create_dir(&dir).unwrap();
    let key = add_key(&world.place);
    let (modes, flags) = (SM4, 3);
    let output = Policy { modes, flags }.set(&dir, &key);
    if !output.stderr.is_empty() {
        eprintln!("passed over: the kernel has no SM4: {output:?}");
        return;
    }
    // Where it has the cipher, too.
    let _ = fs::write(dir.join("name"), b"x");
    drop(mount);
    let namespace = world.open(Access::ReadWrite, &[&KEY]);
    let (caller, dir) = (Caller::root(), find(&namespace, b"other"));
    let found = namespace.lookup(&caller, dir, b"name").map(|_| ());
    assert_eq!(found, Err(Error::NotFound));
    let made = namespace
        .create_file(&caller, dir, b"new", 0o644)
        .map(|_| ());
    assert_eq!(made, Err(Error::NoKey));
    let told = trial::messages_with("encryption modes 7 and 8 are not known");
    assert_eq!(told.len(), 1, "{told:?}");
}

/// Lengths at the limits: the kernel and finefs refuse the same.
#[test]
fn limits_are_the_kernels() {
    let formats = [
        ("-b 4096", 3, AES_256),
        ("-b 1024", 0, AES_256),
        ("-b 4096", 3, AES_256_HCTR2),
        ("-b 1024", 0, ADIANTUM),
    ];
    for (arguments, flags, modes) in formats {
        let Some(world) = World::with_modes(arguments, flags, modes) else {
            continue;
        };
        let lengths = [
            255, 256, 1000, 1020, 1021, 1022, 1023, 4080, 4092, 4093, 4094, 4095,
        ];
        let dir = world.place.join("d");
        let mount = world.mount("loop,rw").unwrap();
        add_key(&world.place);
        let by_kernel = lengths.map(|length| {
            let target = "t".repeat(length);
            symlink(target, dir.join(format!("kernel {length}"))).is_ok()
        });
        assert!(fs::write(dir.join("n".repeat(255)), b"").is_ok());
        assert!(fs::write(dir.join("n".repeat(256)), b"").is_err());
        drop(mount);
        let namespace = world.open(Access::ReadWrite, &[&KEY]);
        let (caller, d) = (Caller::root(), find(&namespace, b"d"));
        let by_finefs = lengths.map(|length| {
            let (name, target) = (format!("finefs {length}"), vec![b't'; length]);
            let made = namespace.make_symlink(&caller, d, name.as_bytes(), &target);
            assert!(matches!(made, Ok(_) | Err(Error::NameTooLong)));
            made.is_ok()
        });
        assert_eq!(by_finefs, by_kernel, "{arguments}");
        namespace.shut_down().unwrap();
        drop(namespace);
        world.check();
        let tree = world.seen_by_kernel();
        assert_same(&world.seen_by_finefs(), &tree, arguments);
    }
}

/// An image with an empty directory that is encrypted and folds case, which the kernel need not
/// know.
fn folding_world(arguments: &str) -> Option<World> {
    let world = World::new(arguments, 3)?;
    for request in ["feature casefold", "ssv encoding 1"] {
        let mut debugfs = Command::new("debugfs");
        run(debugfs.args(["-w", "-R", request]).arg(&world.image));
    }
    let namespace = world.open(Access::ReadWrite, &[&KEY]);
    let dir = namespace.make_directory(&Caller::root(), namespace.root(), b"folding", 0o755);
    let dir = dir.unwrap().ino;
    // In either order, as by `chattr +F` and `chattr +E`.
    let flags = match arguments.contains("1024") {
        true => [FileFlags::CASEFOLD, FileFlags::ENCRYPTED],
        false => [FileFlags::ENCRYPTED, FileFlags::CASEFOLD],
    };
    for flag in flags {
        namespace
            .set_flags(&Caller::root(), dir, |was| was | flag)
            .unwrap();
    }
    namespace.shut_down().unwrap();
    Some(world)
}

/// Names that are found whatever their case, in an encrypted directory: made, found, renamed and
/// removed, in plain directories and in indexed ones of one level and of two.
#[test]
fn folded_case_is_written() {
    for (arguments, count) in [("-b 4096", 20), ("-b 1024", 1000), ("-b 1024", 6000)] {
        let Some(world) = folding_world(arguments) else {
            return;
        };
        let caller = Caller::root();
        let namespace = world.open(Access::ReadWrite, &[&KEY]);
        let dir = find(&namespace, b"folding");
        for number in 0..count {
            let name = format!("Name {number} \u{c4}");
            let made = namespace.create_file(&caller, dir, name.as_bytes(), 0o644);
            namespace.forget(made.unwrap().ino, 1);
        }
        let deep = namespace
            .make_directory(&caller, dir, b"Deep", 0o755)
            .unwrap();
        let inner = namespace.create_file(&caller, deep.ino, b"Inner", 0o644);
        inner.unwrap();
        namespace.shut_down().unwrap();
        drop(namespace);
        // e2fsck takes index nodes as the kernel writes them there for leaves.
        if count < 6000 {
            world.check();
        }
        let namespace = world.open(Access::ReadWrite, &[&KEY]);
        let dir = find(&namespace, b"folding");
        find(&namespace, b"folding/dEEP/iNNER");
        for number in 0..count {
            let name = format!("nAME {number} a\u{308}");
            let path = format!("folding/{name}");
            find(&namespace, path.as_bytes());
            if number % 2 == 0 {
                let removed = namespace.remove_file(&caller, dir, name.as_bytes());
                removed.unwrap();
            } else {
                let to = format!("Renamed {number}");
                let mode = RenameMode::Replace;
                let (from, to) = ((dir, name.as_bytes()), (dir, to.as_bytes()));
                namespace.rename(&caller, from, to, mode).unwrap();
            }
        }
        namespace.shut_down().unwrap();
        drop(namespace);
        if count < 6000 {
            world.check();
        }
        let namespace = world.open(Access::ReadOnly, &[&KEY]);
        let mut tree = Tree::new();
        walk(&namespace, find(&namespace, b"folding"), b"", &mut tree);
        let mut expected: Vec<Vec<u8>> = (1..count)
            .step_by(2)
            .map(|number| format!("/Renamed {number}").into())
            .collect();
        expected.extend([b"/Deep".to_vec(), b"/Deep/Inner".to_vec()]);
        expected.sort();
        assert_eq!(tree.into_keys().collect::<Vec<_>>(), expected);
    }
}

/// Without the key names go by what is shown of them; with it, names whose hash is that of another
/// make a directory that is not changed.
#[test]
fn folded_case_without_key_and_with_damage() {
    let Some(world) = folding_world("-b 4096") else {
        return;
    };
    let caller = Caller::root();
    let namespace = world.open(Access::ReadWrite, &[&KEY]);
    let dir = find(&namespace, b"folding");
    for name in ["First", "Second"] {
        let made = namespace.create_file(&caller, dir, name.as_bytes(), 0o644);
        made.unwrap();
    }
    namespace.shut_down().unwrap();
    drop(namespace);
    let namespace = world.open(Access::ReadWrite, &[]);
    let mut names = Vec::new();
    let listed = namespace.read_directory(find(&namespace, b"folding"), 2, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    });
    listed.unwrap();
    names.retain(|name| name != b"." && name != b"..");
    assert_eq!(names.len(), 2);
    let dir = find(&namespace, b"folding");
    namespace.remove_file(&caller, dir, &names[0]).unwrap();
    let made = namespace.create_file(&caller, dir, b"new", 0o644);
    assert_eq!(made.map(|_| ()), Err(Error::NoKey));
    namespace.shut_down().unwrap();
    drop(namespace);
    world.check();
    let block = Command::new("debugfs")
        .args(["-R", "blocks folding"])
        .arg(&world.image)
        .output();
    let block = String::from_utf8(block.unwrap().stdout).unwrap();
    let at = block.trim().parse::<u64>().unwrap() * 4096;
    let image = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&world.image);
    let image = image.unwrap();
    let mut bytes = vec![0; 4096];
    image.read_exact_at(&mut bytes, at).unwrap();
    // Behind `..`, which may have the space of the name that went, the entry of a name of 32 bytes,
    // and its hash.
    let entry = 12 + usize::from(u16::from_le_bytes([bytes[16], bytes[17]]));
    assert_eq!(bytes[entry + 6], 32);
    bytes[entry + 8 + 32] ^= 2;
    image.write_all_at(&bytes, at).unwrap();
    run(Command::new("debugfs")
        .args(["-w", "-R", "feature ^metadata_csum"])
        .arg(&world.image));
    let namespace = world.open(Access::ReadWrite, &[&KEY]);
    let dir = find(&namespace, b"folding");
    let made = namespace.create_file(&caller, dir, b"new", 0o644);
    assert!(matches!(made, Err(Error::Corrupt(_))), "{made:?}");
    let told = trial::messages_with("has the hash of another name");
    assert_eq!(told.len(), 1, "{told:?}");
}

/// A sealed file (`verity`), laid out as the kernel does it: tree and descriptor are encrypted too.
#[test]
fn sealed_files_are_verified() {
    let Some(world) = World::new("-b 4096", 3) else {
        return;
    };
    let host = |name: &str| world.image.with_file_name(name);
    let data = content(9, 200_000);
    fs::write(host("data"), &data).unwrap();
    run(Command::new("fsverity")
        .arg("digest")
        .arg(host("data"))
        .arg(format!("--out-merkle-tree={}", host("tree").display()))
        .arg(format!("--out-descriptor={}", host("descriptor").display())));
    let mut whole = data.clone();
    whole.resize(data.len().next_multiple_of(65536), 0);
    whole.extend(fs::read(host("tree")).unwrap());
    whole.resize(whole.len().next_multiple_of(4096), 0);
    let descriptor = fs::read(host("descriptor")).unwrap();
    whole.extend(&descriptor);
    whole.resize((whole.len() + 4).next_multiple_of(4096), 0);
    let end = whole.len();
    whole[end - 4..].copy_from_slice(&(descriptor.len() as u32).to_le_bytes());
    let mut broken = whole.clone();
    broken[100_000] ^= 1;
    let mut tree = Tree::new();
    tree.insert(b"d/broken".to_vec(), Seen::File(broken));
    tree.insert(b"d/sealed".to_vec(), Seen::File(whole));
    let namespace = world.open(Access::ReadWrite, &[&KEY]);
    make_by_finefs(&namespace, &tree);
    let inodes = [b"d/sealed", b"d/broken"].map(|path| find(&namespace, path));
    namespace.shut_down().unwrap();
    drop(namespace);
    let mut requests = vec!["feature verity".to_owned()];
    for ino in inodes {
        requests.push(format!("sif <{ino}> size {}", data.len()));
        requests.push(format!("sif <{ino}> flags 0x180800"));
    }
    for request in requests {
        run(Command::new("debugfs")
            .args(["-w", "-R", &request])
            .arg(&world.image));
    }
    let namespace = world.open(Access::ReadOnly, &[&KEY]);
    let mut read = vec![0; data.len()];
    assert_eq!(namespace.read(inodes[0], 0, &mut read), Ok(data.len()));
    assert!(read == data);
    let refused = namespace.read(inodes[1], 0, &mut read);
    assert!(matches!(refused, Err(Error::Io(_))), "{refused:?}");
}
