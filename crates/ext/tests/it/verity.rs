//! Sealed files (`verity`): their trees and descriptors are made by fsverity-utils.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::image::{assert_clean, debugfs, run};
use crate::trial;
use finefs_ext::OnError;
use finefs_namespace::{
    AllocateMode, Caller, DataTimes, Error, Ino, Namespace, SealParameters, SetAttributes,
    SourceEnd,
};

/// An image with a sealed file "sealed", as the kernel lays it out, of so many bytes.
fn make(directory: &Path, length: usize, arguments: &[&str]) -> (PathBuf, Vec<u8>) {
    let data: Vec<u8> = (0..length).map(|i| (i * 31 + i / 777) as u8).collect();
    let path = |name: &str| directory.join(name);
    fs::write(path("data"), &data).unwrap();
    run(Command::new("fsverity")
        .arg("digest")
        .arg(path("data"))
        .args(arguments)
        .arg(format!("--out-merkle-tree={}", path("tree").display()))
        .arg(format!("--out-descriptor={}", path("descriptor").display())));
    // From the next 64 KiB on the tree, from the next block on the descriptor, its length last.
    let mut whole = data.clone();
    whole.resize(length.next_multiple_of(65536), 0);
    whole.extend(fs::read(path("tree")).unwrap());
    whole.resize(whole.len().next_multiple_of(4096), 0);
    let descriptor = fs::read(path("descriptor")).unwrap();
    whole.extend(&descriptor);
    whole.resize((whole.len() + 4).next_multiple_of(4096), 0);
    let end = whole.len();
    whole[end - 4..].copy_from_slice(&(descriptor.len() as u32).to_le_bytes());
    fs::write(path("whole"), &whole).unwrap();
    let image = path("image");
    run(Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "verity"])
        .arg(&image)
        .arg("32M"));
    let requests = format!(
        "write {} sealed\nsif sealed size {length}\nsif sealed flags 0x180000\n",
        path("whole").display()
    );
    fs::write(path("requests"), requests).unwrap();
    run(Command::new("debugfs")
        .args(["-w", "-f"])
        .arg(path("requests"))
        .arg(&image));
    assert_clean(&image);
    (image, data)
}

fn open(image: &Path) -> (Namespace, Ino) {
    let namespace = trial::open_with(image, OnError::Continue);
    let root = namespace.root();
    let found = namespace.lookup(&Caller::root(), root, b"sealed").unwrap();
    (namespace, found.ino)
}

#[test]
fn sealed_files_are_read_and_not_changed() {
    for (length, arguments) in [
        (0, &[][..]),
        (5, &[]),
        (4096, &["--salt=aabb"]),
        (1_000_000, &["--hash-alg=sha512", "--salt=00112233"]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (image, data) = make(directory.path(), length, arguments);
        let (namespace, ino) = open(&image);
        let mut read = vec![0; length + 10];
        assert_eq!(namespace.read(ino, 0, &mut read), Ok(length), "{length}");
        assert!(read[..length] == data, "{length}");
        let denied = Err(Error::NotPermitted);
        let caller = Caller::root();
        assert_eq!(namespace.write(ino, 0, b"x").map(|_| ()), denied);
        assert_eq!(namespace.append(ino, b"x").map(|_| ()), denied);
        assert_eq!(
            namespace.allocate(ino, AllocateMode::KeepSize, 0, 9),
            denied
        );
        let cut = SetAttributes {
            size_bytes: Some(0),
            ..SetAttributes::default()
        };
        let cut = namespace.set_attributes(&caller, ino, &cut);
        assert_eq!(cut.map(|_| ()), denied);
        // All else can be changed, and its blocks are freed with it.
        let mode = SetAttributes {
            permissions: Some(0o600),
            ..SetAttributes::default()
        };
        namespace.set_attributes(&caller, ino, &mode).unwrap();
        namespace.sync().unwrap();
        namespace
            .remove_file(&caller, namespace.root(), b"sealed")
            .unwrap();
        namespace.forget(ino, 1);
        namespace.shut_down().unwrap();
        drop(namespace);
        assert_clean(&image);
    }
}

/// What `fsverity digest` prints, as bytes.
fn printed_digest(path: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new("fsverity");
    let output = command.args(["digest", "--compact"]).args(arguments);
    let text = String::from_utf8(output.arg(path).output().unwrap().stdout).unwrap();
    let pairs = text.trim().as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

#[test]
fn digests_are_those_of_fsverity() {
    for (length, algorithm, arguments) in [
        (0, 1, &[][..]),
        (300_000, 1, &["--salt=aabb"]),
        (4097, 2, &["--hash-alg=sha512"]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (image, _) = make(directory.path(), length, arguments);
        let (namespace, ino) = open(&image);
        let digest = namespace.verity_digest(ino).unwrap();
        assert_eq!(digest.algorithm, algorithm);
        let printed = printed_digest(&directory.path().join("data"), arguments);
        assert_eq!(digest.bytes, printed);
        // As well when its blocks lie elsewhere.
        namespace.defragment(ino).unwrap();
        assert_eq!(namespace.verity_digest(ino), Ok(digest));
        let other = namespace.create_file(&Caller::root(), namespace.root(), b"other", 0o600);
        let other = other.unwrap().ino;
        assert_eq!(namespace.verity_digest(other), Err(Error::NoAttribute));
        namespace.forget(ino, 1);
        namespace.forget(other, 1);
        namespace.shut_down().unwrap();
    }
}

#[test]
fn data_that_was_not_sealed_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let (image, _) = make(directory.path(), 300_000, &[]);
    let output = Command::new("debugfs")
        .args(["-R", "bmap sealed 60"])
        .arg(&image)
        .output()
        .unwrap();
    let block = String::from_utf8(output.stdout).unwrap();
    let block: usize = block.trim().parse().unwrap();
    let mut bytes = fs::read(&image).unwrap();
    bytes[block * 4096 + 99] ^= 1;
    fs::write(&image, bytes).unwrap();
    let (namespace, ino) = open(&image);
    let read = namespace.read(ino, 0, &mut [0; 100]);
    assert!(
        matches!(&read, Err(Error::Io(what)) if what.contains("verity")),
        "{read:?}"
    );
    namespace.forget(ino, 1);
    namespace.shut_down().unwrap();
}

/// Seals a file of so many bytes on a new image, which e2fsck finds clean then; it reads as before,
/// also by another mount, has the digest that fsverity computes, and changes no more.
fn seal_one(length: usize, features: &str, arguments: &[&str], parameters: &SealParameters<'_>) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let data: Vec<u8> = (0..length).map(|i| (i * 31 + i / 777) as u8).collect();
    fs::write(path("data"), &data).unwrap();
    let image = path("image");
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", features]);
    run(command.arg(&image).arg("64M"));
    let caller = Caller::root();
    let namespace = trial::open_with(&image, OnError::Continue);
    let root = namespace.root();
    let file = namespace
        .create_file(&caller, root, b"sealed", 0o600)
        .unwrap();
    let ino = file.ino;
    assert_eq!(namespace.write(ino, 0, &data).unwrap(), length);
    // What lies behind the end goes.
    let behind = AllocateMode::KeepSize;
    namespace
        .allocate(ino, behind, length as u64, 500_000)
        .unwrap();
    let other = Caller {
        uid: 7,
        checks: finefs_namespace::AccessChecks::Needed,
        ..Caller::root()
    };
    assert_eq!(
        namespace.seal(&other, ino, parameters),
        Err(Error::NotPermitted)
    );
    namespace.seal(&caller, ino, parameters).unwrap();
    let check = |namespace: &Namespace| {
        let mut read = vec![0; length + 10];
        assert_eq!(namespace.read(ino, 0, &mut read), Ok(length));
        assert!(read[..length] == data);
        let digest = namespace.verity_digest(ino).unwrap();
        assert_eq!(digest.bytes, printed_digest(&path("data"), arguments));
        let denied = Err(Error::NotPermitted);
        assert_eq!(namespace.write(ino, 0, b"x").map(|_| ()), denied);
        assert_eq!(namespace.seal(&caller, ino, parameters), Err(Error::Exists));
        assert_eq!(namespace.attributes(ino).unwrap().size_bytes, length as u64);
    };
    check(&namespace);
    let directories = namespace.seal(&caller, root, parameters);
    assert_eq!(directories, Err(Error::IsADirectory));
    namespace.forget(ino, 1);
    namespace.shut_down().unwrap();
    drop(namespace);
    assert_clean(&image);
    let (namespace, again) = open(&image);
    assert_eq!(again, ino);
    check(&namespace);
    namespace.forget(ino, 1);
    namespace.shut_down().unwrap();
}

#[test]
fn files_are_sealed() {
    let plain = SealParameters::default();
    for length in [0, 1, 4096, 65536, 65537, 1_000_000] {
        seal_one(length, "verity", &[], &plain);
    }
    let salted = SealParameters {
        algorithm: 2,
        block_bytes: 1024,
        salt: &[0xaa, 0xbb],
        ..plain
    };
    let words = ["--hash-alg=sha512", "--block-size=1024", "--salt=aabb"];
    seal_one(300_000, "verity", &words, &salted);
    seal_one(70_000, "verity,bigalloc", &[], &plain);
    seal_one(50, "verity,inline_data", &[], &plain);
    seal_one(5000, "verity,^has_journal", &[], &plain);
}

#[test]
fn what_cannot_be_sealed_stays_as_it_is() {
    for (features, expected) in [
        ("^verity", Error::NotSupported),
        ("verity,^extents,^64bit", Error::NotSupported),
        ("verity,bigalloc", Error::NotSupported),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", features]);
        if features.contains("bigalloc") {
            command.args(["-C", "131072"]);
        }
        run(command.arg(&image).arg("32M"));
        let (caller, namespace) = (Caller::root(), trial::open_with(&image, OnError::Continue));
        let root = namespace.root();
        let ino = namespace
            .create_file(&caller, root, b"file", 0o600)
            .unwrap()
            .ino;
        namespace.write(ino, 0, b"data").unwrap();
        let sealed = namespace.seal(&caller, ino, &SealParameters::default());
        assert_eq!(sealed, Err(expected), "{features}");
        assert_eq!(namespace.write(ino, 0, b"more"), Ok(4));
        namespace.forget(ino, 1);
        namespace.shut_down().unwrap();
        drop(namespace);
        assert_clean(&image);
    }
}

/// A file without data but for the descriptor of one of `size` bytes, in the block at `place`.
fn of_size(directory: &Path, size: u64, place: u64) -> PathBuf {
    let image = directory.join("image");
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "verity"]);
    run(command.arg(&image).arg("64M"));
    let (caller, namespace) = (Caller::root(), trial::open_with(&image, OnError::Continue));
    let root = namespace.root();
    let file = namespace.create_file(&caller, root, b"sealed", 0o600);
    let ino = file.unwrap().ino;
    let mut block = vec![0; 4096];
    block[..3].copy_from_slice(&[1, 1, 12]);
    block[8..16].copy_from_slice(&size.to_le_bytes());
    block[4092..].copy_from_slice(&256_u32.to_le_bytes());
    namespace.write(ino, place, &block).unwrap();
    namespace.forget(ino, 1);
    namespace.shut_down().unwrap();
    drop(namespace);
    let request = format!("sif sealed size {size}\nsif sealed flags 0x180000\n");
    debugfs(&image, &request);
    image
}

/// What a read costs goes by what is on the image.
#[test]
fn a_size_whose_tree_is_not_there_is_no_work() {
    let (many, tree) = (1 << 42, (1 << 35) + (1 << 29));
    for (size, place) in [(1 << 62, 0), (1 << 62, 65536), (many, many + tree)] {
        let directory = tempfile::tempdir().unwrap();
        let image = of_size(directory.path(), size, place);
        let (namespace, ino) = open(&image);
        let read = namespace.read(ino, 0, &mut [0; 100]);
        let named = format!("inode {ino}: verity");
        assert!(
            matches!(&read, Err(Error::Io(what)) if what.contains(&named)),
            "{size} {place}: {read:?}"
        );
        namespace.forget(ino, 1);
        namespace.shut_down().unwrap();
    }
}

#[test]
fn what_seals_a_file_must_have_room_before_anything_is_hashed() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "verity"]);
    run(command.arg(&image).arg("64M"));
    let (caller, namespace) = (Caller::root(), trial::open_with(&image, OnError::Continue));
    let root = namespace.root();
    let file = namespace.create_file(&caller, root, b"sparse", 0o600);
    let ino = file.unwrap().ino;
    let sized = |size| SetAttributes {
        size_bytes: Some(size),
        ..SetAttributes::default()
    };
    let large = sized(1 << 42);
    namespace.set_attributes(&caller, ino, &large).unwrap();
    let parameters = SealParameters::default();
    let sealed = namespace.seal(&caller, ino, &parameters);
    assert_eq!(sealed, Err(Error::NoSpace));
    let small = sized(1 << 24);
    namespace.set_attributes(&caller, ino, &small).unwrap();
    namespace.seal(&caller, ino, &parameters).unwrap();
    namespace.forget(ino, 1);
    namespace.shut_down().unwrap();
    drop(namespace);
    assert_clean(&image);
}

/// A change that waits while a file is sealed comes too late, whatever it is.
#[test]
fn what_waits_for_a_seal_is_refused() {
    const LENGTH: usize = 16 << 20;
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "verity"]);
    run(command.arg(&image).arg("128M"));
    let namespace = trial::open_with(&image, OnError::Continue);
    let (caller, root) = (Caller::root(), namespace.root());
    let made = namespace.create_file(&caller, root, b"sealed", 0o600);
    let ino = made.unwrap().ino;
    let piece: Vec<u8> = (0..65536_u32).map(|at| (at * 7 + at / 300) as u8).collect();
    for at in (0..LENGTH).step_by(piece.len()) {
        namespace.write(ino, at as u64, &piece).unwrap();
    }
    let size = SetAttributes {
        size_bytes: Some(LENGTH as u64 - 5000),
        ..SetAttributes::default()
    };
    let source = namespace
        .create_file(&caller, root, b"hole", 0o600)
        .unwrap();
    let grown = SetAttributes {
        size_bytes: Some(100_000),
        ..SetAttributes::default()
    };
    namespace
        .set_attributes(&caller, source.ino, &grown)
        .unwrap();
    type Change<'a> = Box<dyn Fn() -> Result<(), Error> + Sync + 'a>;
    let ns = &namespace;
    let changes: [Change<'_>; 6] = [
        Box::new(|| ns.write(ino, 70_000, b"changed").map(drop)),
        Box::new(|| ns.append(ino, b"more").map(drop)),
        Box::new(|| ns.set_attributes(&caller, ino, &size).map(drop)),
        Box::new(|| ns.allocate(ino, AllocateMode::PunchHole, 8192, 8192)),
        Box::new(|| {
            ns.write_back(ino, 4096, &piece[9..4105], DataTimes::Set)
                .map(drop)
        }),
        Box::new(|| {
            ns.copy_range((source.ino, 0), (ino, 65536), 90_000, SourceEnd::Size)
                .map(drop)
        }),
    ];
    std::thread::scope(|scope| {
        for change in &changes {
            scope.spawn(move || {
                let end = Instant::now() + Duration::from_secs(120);
                while change() == Ok(()) && Instant::now() < end {}
                assert_eq!(change(), Err(Error::NotPermitted));
            });
        }
        namespace
            .seal(&caller, ino, &SealParameters::default())
            .unwrap();
    });
    drop(changes);
    namespace.forget(ino, 1);
    namespace.forget(source.ino, 1);
    namespace.shut_down().unwrap();
    drop(namespace);
    assert_clean(&image);
    let (namespace, ino) = open(&image);
    let length = namespace.attributes(ino).unwrap().size_bytes as usize;
    let mut read = vec![0; length];
    assert_eq!(namespace.read(ino, 0, &mut read), Ok(length));
    namespace.forget(ino, 1);
    namespace.shut_down().unwrap();
}
