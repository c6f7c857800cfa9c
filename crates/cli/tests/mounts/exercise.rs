//! Most of what a file system can do, done in a mount.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    XattrFlags,
};

/// Uses most of what a file system can do, below `root`, and checks what it sees.
pub fn exercise(root: &Path) {
    let file = root.join("file");
    fs::write(&file, b"hello").unwrap();
    let mut appended = OpenOptions::new().append(true).open(&file).unwrap();
    appended.write_all(b" world").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"hello world");
    appended.set_len(5).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), 5);
    let exclusive = OpenOptions::new().write(true).create_new(true).open(&file);
    assert_eq!(exclusive.unwrap_err().kind(), ErrorKind::AlreadyExists);

    // What has no name any more lives on while it is open.
    let mut open = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&file)
        .unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap_err().kind(), ErrorKind::NotFound);
    open.write_at(b"J", 0).unwrap();
    let mut content = String::new();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "Jello");
    assert_eq!(open.metadata().unwrap().nlink(), 0);

    names(root);
    attributes(root);
    access_times(root);
    holes(root);
    many_entries(root);
}

fn names(root: &Path) {
    let (a, b, link) = (root.join("a"), root.join("b"), root.join("link"));
    fs::write(&a, b"a").unwrap();
    fs::write(&b, b"b").unwrap();
    let refused = rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));
    rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"b");
    fs::rename(&a, &b).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"b");
    assert!(!a.exists());
    fs::hard_link(&b, &a).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().nlink(), 2);
    assert_eq!(
        fs::metadata(&a).unwrap().ino(),
        fs::metadata(&b).unwrap().ino()
    );
    symlink("b", &link).unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("b"));
    assert_eq!(fs::read(&link).unwrap(), b"b");

    let deep = root.join("d/e/f");
    fs::create_dir_all(&deep).unwrap();
    let error = fs::remove_dir(root.join("d")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    fs::rename(root.join("d/e"), root.join("g")).unwrap();
    assert!(root.join("g/f").is_dir());
    assert_eq!(fs::metadata(root.join("d")).unwrap().nlink(), 2);
    let device = rustix::fs::makedev(7, 300);
    let node = root.join("node");
    rustix::fs::mknodat(CWD, &node, FileType::BlockDevice, Mode::RUSR, device).unwrap();
    assert_eq!(fs::metadata(&node).unwrap().rdev(), device);
}

fn attributes(root: &Path) {
    let file = root.join("attributes");
    File::create(&file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6751)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o6751);
    std::os::unix::fs::chown(&file, Some(12), Some(34)).unwrap();
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (12, 34));
    assert_eq!(
        metadata.mode() & 0o6000,
        0,
        "a change of owner takes set-uid bits away"
    );

    // Before 1970, with nanoseconds: -1.75 s is (-2, 250_000_000).
    for (seconds, nanoseconds) in [(-2, 250_000_000), (0, 1), (4_000_000_000, 999_999_999)] {
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!(
            (metadata.mtime(), metadata.mtime_nsec()),
            (seconds, nanoseconds)
        );
        assert_eq!(
            (metadata.atime(), metadata.atime_nsec()),
            (seconds, nanoseconds)
        );
    }

    rustix::fs::setxattr(&file, "user.color", b"blue", XattrFlags::CREATE).unwrap();
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(&file, "user.color", &mut value).unwrap();
    assert_eq!(&value[..length], b"blue");
    let mut names = [0; 64];
    let length = rustix::fs::listxattr(&file, &mut names).unwrap();
    assert_eq!(&names[..length], b"user.color\0");
    rustix::fs::removexattr(&file, "user.color").unwrap();
    let missing = rustix::fs::getxattr(&file, "user.color", &mut value);
    assert_eq!(missing, Err(rustix::io::Errno::NODATA));
}

/// Reads are noted, except through what was opened with O_NOATIME; each time of something that the
/// kernel has not cached yet.
fn access_times(root: &Path) {
    let place = root.join("read");
    fs::create_dir(&place).unwrap();
    let long_ago = Timespec {
        tv_sec: 1_000_000,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: long_ago,
        last_modification: long_ago,
    };
    let age = |path: &Path| {
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    let is_noted = |path: &Path| fs::symlink_metadata(path).unwrap().atime() > long_ago.tv_sec;
    let link = place.join("link");
    symlink("target", &link).unwrap();
    age(&link);
    fs::read_link(&link).unwrap();
    assert!(is_noted(&link), "a symbolic link");
    for flags in [OFlags::empty(), OFlags::NOATIME] {
        let (dir, file) = (
            place.join(format!("dir-{}", flags.bits())),
            place.join(format!("file-{}", flags.bits())),
        );
        fs::create_dir(&dir).unwrap();
        fs::write(&file, [7; 4096]).unwrap();
        File::open(&file).unwrap().sync_all().unwrap();
        [&dir, &file].into_iter().for_each(|path| age(path));
        let open = |path, more| rustix::fs::open(path, flags | more, Mode::empty()).unwrap();
        let entries = rustix::fs::Dir::new(open(&dir, OFlags::DIRECTORY)).unwrap();
        assert_eq!(entries.count(), 2);
        // Not from the kernel's cache.
        let mut buffer = Aligned([0; 4096]);
        let length = rustix::io::pread(open(&file, OFlags::DIRECT), &mut buffer.0, 0).unwrap();
        assert_eq!((length, buffer.0[4095]), (4096, 7));
        assert_eq!(is_noted(&dir), flags.is_empty(), "a directory, {flags:?}");
        assert_eq!(is_noted(&file), flags.is_empty(), "a file, {flags:?}");
    }
}

/// What is read around the cache is read to a multiple of the page size.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

fn holes(root: &Path) {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(root.join("holes"))
        .unwrap();
    file.write_all_at(&[7; 65_536], 1 << 20).unwrap();
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert_eq!(data, 1 << 20);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, 1 << 20, 32_768).unwrap();
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert_eq!(data, (1 << 20) + 32_768);
    let mut bytes = vec![1; 65_536];
    file.seek(SeekFrom::Start(1 << 20)).unwrap();
    file.read_exact(&mut bytes).unwrap();
    assert!(bytes[..32_768].iter().all(|&byte| byte == 0));
    assert!(bytes[32_768..].iter().all(|&byte| byte == 7));
    file.sync_all().unwrap();
}

fn many_entries(root: &Path) {
    let directory = root.join("many");
    fs::create_dir(&directory).unwrap();
    let count = 700;
    for number in 0..count {
        fs::write(directory.join(format!("entry-{number}")), b"x").unwrap();
    }
    let list = || {
        let entries = fs::read_dir(&directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.dedup();
        names.len()
    };
    assert_eq!(list(), count);
    // The second time it comes from the kernel's cache, until something changes.
    assert_eq!(list(), count);
    fs::remove_file(directory.join("entry-0")).unwrap();
    assert_eq!(list(), count - 1);
}
