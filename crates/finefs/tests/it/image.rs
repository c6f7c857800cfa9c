//! Images through the embedding API: what is written is there after a close, to finefs and e2fsck.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use finefs::{
    AllocateMode, FileKind, FileSystem, FileTimes, ImageOptions, LastLink, OpenOptions,
    Permissions, XattrMode,
};

fn make(directory: &Path, kind: &str) -> PathBuf {
    let image = directory.join("image");
    let made = Command::new("mke2fs")
        .args(["-q", "-t", kind, "-E", "root_owner=0:0"])
        .arg(&image)
        .arg("64M")
        .status()
        .unwrap();
    assert!(made.success());
    image
}

fn assert_clean(image: &Path) {
    let output = Command::new("e2fsck")
        .args(["-fn"])
        .arg(image)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

fn fill(fs: &FileSystem) {
    let when = SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000, 500_000_000);
    fs.create_dir_all("usr/share/doc").unwrap();
    let mut file = fs.create("usr/share/doc/readme").unwrap();
    file.write_all(b"first line\n").unwrap();
    file.seek(SeekFrom::Start(1 << 20)).unwrap();
    file.write_all(b"after a hole").unwrap();
    file.set_times(FileTimes::new().modified(when)).unwrap();
    fs.symlink("share/doc", "usr/doc").unwrap();
    fs.hard_link("usr/doc/readme", "readme").unwrap();
    fs.make_node("console", FileKind::CharDevice, 0o600, libc::makedev(5, 1))
        .unwrap();
    fs.set_xattr("readme", "user.note", b"kept", XattrMode::Create)
        .unwrap();
    fs.write("suid", "#!").unwrap();
    fs.set_permissions("suid", Permissions::from_mode(0o4755))
        .unwrap();
    fs.set_owner("usr/doc", Some(7), Some(8), LastLink::Keep)
        .unwrap();
    let unnamed = OpenOptions::new()
        .write(true)
        .open_unnamed(fs, "usr")
        .unwrap();
    unnamed.append(b"named late").unwrap();
    fs.link(&unnamed, "usr/late").unwrap();
    let lost = OpenOptions::new()
        .write(true)
        .open_unnamed(fs, "/")
        .unwrap();
    lost.append(&[1; 100_000]).unwrap();
}

fn check(fs: &FileSystem) {
    let when = SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000, 0);
    let mut file = fs.open("/usr/doc/../doc/readme").unwrap();
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).unwrap();
    assert_eq!(contents.len(), (1 << 20) + 12);
    assert!(contents.starts_with(b"first line\n\0") && contents.ends_with(b"\0after a hole"));
    assert!(file.seek_hole(0).unwrap() < 1 << 20);
    assert_eq!(file.seek_data(65_536).unwrap(), 1 << 20);
    let metadata = file.metadata().unwrap();
    assert_eq!(
        (metadata.nlink(), metadata.permissions().mode()),
        (2, 0o644)
    );
    let age = metadata.modified().duration_since(when).unwrap();
    assert!(age < Duration::from_secs(1));
    assert_eq!(fs.get_xattr("readme", "user.note").unwrap(), b"kept");
    assert_eq!(fs.list_xattrs("readme").unwrap(), ["user.note"]);
    let console = fs.metadata("console").unwrap();
    assert!(console.file_type().is_char_device());
    assert_eq!(console.rdev(), libc::makedev(5, 1));
    assert_eq!(fs.metadata("suid").unwrap().permissions().mode(), 0o4755);
    let link = fs.symlink_metadata("usr/doc").unwrap();
    assert_eq!((link.uid(), link.gid()), (7, 8));
    assert_eq!(fs.read_link("usr/doc").unwrap(), Path::new("share/doc"));
    assert_eq!(fs.read("usr/late").unwrap(), b"named late");
    assert_eq!(
        fs.canonicalize("usr/doc/readme").unwrap(),
        Path::new("/usr/share/doc/readme")
    );
}

#[test]
fn what_is_written_is_there_after_a_close() {
    for kind in ["ext2", "ext3", "ext4"] {
        let directory = tempfile::tempdir().unwrap();
        let image = make(directory.path(), kind);
        let fs = FileSystem::open_image(&image).unwrap();
        fill(&fs);
        check(&fs);
        fs.close().unwrap();
        assert_clean(&image);

        let fs = ImageOptions::new().read_only(true).open(&image).unwrap();
        check(&fs);
        assert!(fs.is_read_only());
        let refused = fs.write("new", "").unwrap_err();
        assert_eq!(refused.errno(), libc::EROFS);
        let opened = OpenOptions::new().read(true).write(true).open(&fs, "suid");
        assert_eq!(opened.unwrap_err().errno(), libc::EROFS);
        fs.close().unwrap();

        let fs = FileSystem::open_image(&image).unwrap();
        fs.remove_dir_all("usr").unwrap();
        assert!(!fs.try_exists("usr").unwrap());
        assert_eq!(fs.metadata("readme").unwrap().nlink(), 1);
        // Without a close: the last handle that goes ends it.
        drop(fs);
        assert_clean(&image);
        let fs = FileSystem::open_image(&image).unwrap();
        assert!(!fs.try_exists("usr").unwrap());
    }
}

#[test]
fn handles_fail_after_a_close_and_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "ext4");
    let fs = FileSystem::open_image(&image).unwrap();
    let file = fs.create("file").unwrap();
    let dir = fs.open_dir("lost+found").unwrap();
    fs.remove_file("file").unwrap();
    file.append(b"nobody will see this").unwrap();
    fs.clone().close().unwrap();
    assert_eq!(file.append(b"more").unwrap_err().errno(), libc::EIO);
    assert_eq!(dir.create("x").unwrap_err().errno(), libc::EIO);
    // Others may have the image, though the handles are still there.
    let again = FileSystem::open_image(&image).unwrap();
    assert_eq!(
        FileSystem::open_image(&image).unwrap_err().errno(),
        libc::EBUSY
    );
    drop((file, dir, fs));
    assert_eq!(
        FileSystem::open_image(&image).unwrap_err().errno(),
        libc::EBUSY
    );
    again.close().unwrap();
    assert_clean(&image);
}

#[test]
fn full_is_told_and_can_be_undone() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "ext4");
    let fs = FileSystem::open_image(&image).unwrap();
    let file = fs.create("big").unwrap();
    let full = file.allocate(AllocateMode::Extend, 0, 1 << 30).unwrap_err();
    assert_eq!(full.errno(), libc::ENOSPC);
    assert!(
        full.to_string().contains("allocate of open inode"),
        "{full}"
    );
    file.allocate(AllocateMode::Extend, 0, 8 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8 << 20);
    drop(file);
    fs.remove_file("big").unwrap();
    fs.close().unwrap();
    assert_clean(&image);
}

/// Directories on the way to a name are not referenced. While inodes come and go from memory at
/// every commit, no name that was made may be lost.
#[test]
fn names_survive_eviction_of_their_directories() {
    const THREADS: usize = 4;
    const DIRECTORIES: usize = 40;
    const FILES: usize = 30;
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "ext4");
    let fs = ImageOptions::new().cache(0).open(&image).unwrap();
    for number in 0..DIRECTORIES {
        fs.create_dir_all(format!("a/d{number}")).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let commits = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs.create("churn").unwrap();
                fs.sync().unwrap();
            }
        });
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || {
                    for file in 0..FILES {
                        for number in 0..DIRECTORIES {
                            let path = format!("a/d{number}/t{thread}-{file}");
                            drop(fs.create(&path).unwrap());
                            let moved = format!("a/d{number}/m{thread}-{file}");
                            fs.rename(&path, &moved).unwrap();
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        commits.join().unwrap();
        assert!(results.iter().all(Result::is_ok));
    });
    fs.close().unwrap();
    assert_clean(&image);
    let fs = FileSystem::open_image(&image).unwrap();
    for number in 0..DIRECTORIES {
        let count = fs.read_dir(format!("a/d{number}")).unwrap().count();
        assert_eq!(count, THREADS * FILES, "in a/d{number}");
    }
}

/// When nothing has changed for a while, once.
#[test]
fn it_is_told_that_an_image_is_quiet() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let interval = Duration::from_millis(20);
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "ext4");
    let options = ImageOptions::new()
        .commit_interval(interval)
        .when_quiet(|| {
            TOLD.fetch_add(1, Ordering::Relaxed);
        });
    let fs = options.open(&image).unwrap();
    for round in 1..4 {
        fs.create_dir(format!("{round}")).unwrap();
        let begin = Instant::now();
        while TOLD.load(Ordering::Relaxed) < round {
            assert!(begin.elapsed() < 1000 * interval, "nobody was told");
            std::thread::sleep(interval);
        }
        std::thread::sleep(10 * interval);
        assert_eq!(TOLD.load(Ordering::Relaxed), round);
    }
    fs.close().unwrap();
}

/// Never and at once are no intervals: the one is long, the other is the usual one.
#[test]
fn any_interval_between_commits_will_do() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "ext4");
    for (name, interval) in [("never", Duration::MAX), ("at once", Duration::ZERO)] {
        let options = ImageOptions::new().commit_interval(interval);
        let fs = options.open(&image).unwrap();
        fs.write(name, "text").unwrap();
        fs.sync().unwrap();
        fs.close().unwrap();
    }
    assert_clean(&image);
}

/// df(1) counts what was removed at once, whether or not a commit has given it back; and not twice
/// after that.
#[test]
fn removed_space_is_free_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "ext4");
    let options = ImageOptions::new().commit_interval(Duration::from_secs(3600));
    let fs = options.open(&image).unwrap();
    let free = || {
        (
            fs.statfs().blocks_free,
            fs.statfs().blocks_available,
            fs.statfs().inodes_free,
        )
    };
    fs.write("other", [1; 5000]).unwrap();
    fs.sync().unwrap();
    let empty = free();
    type Change = fn(&FileSystem);
    let changes: [(&str, Change); 4] = [
        ("removal", |fs| fs.remove_file("big").unwrap()),
        ("truncation", |fs| fs.open_rw("big").set_len(0).unwrap()),
        ("hole", |fs| {
            fs.open_rw("big").punch_hole(0, 8 << 20).unwrap()
        }),
        ("replacement", |fs| fs.rename("other", "big").unwrap()),
    ];
    for (what, change) in changes {
        for is_synced in [true, false] {
            fs.write("big", vec![1; 8 << 20]).unwrap();
            if is_synced {
                fs.sync().unwrap();
            }
            let blocks = (8 << 20) / u64::from(fs.statfs().block_size_bytes);
            assert!(empty.0 - free().0 >= blocks, "{what}: before");
            change(&fs);
            assert_eq!((free().0, free().1), (empty.0, empty.1), "{what}: at once");
            fs.sync().unwrap();
            assert_eq!(
                (free().0, free().1),
                (empty.0, empty.1),
                "{what}: after a commit"
            );
            if what == "replacement" {
                fs.rename("big", "other").unwrap();
            } else {
                let _ = fs.remove_file("big");
            }
            fs.sync().unwrap();
            assert_eq!(free(), empty, "{what}: in the end");
        }
    }
    fs.close().unwrap();
    assert_clean(&image);
}

trait OpenForWriting {
    fn open_rw(&self, path: &str) -> finefs::File;
}

impl OpenForWriting for FileSystem {
    fn open_rw(&self, path: &str) -> finefs::File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self, path)
            .unwrap()
    }
}

/// With dir_nlink a directory of more than 65,000 links counts none, as the kernel shows it, at
/// once and later.
#[test]
fn a_directory_with_very_many_subdirectories_shows_one_link() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let made = Command::new("mke2fs")
        .args([
            "-q",
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "70000",
            "-E",
            "root_owner=0:0",
        ])
        .arg(&image)
        .arg("160M")
        .output()
        .unwrap();
    assert!(made.status.success());
    let fs = FileSystem::open_image(&image).unwrap();
    fs.create_dir("many").unwrap();
    let links = |fs: &FileSystem| fs.metadata("many").unwrap().nlink();
    for number in 0..64_998 {
        fs.create_dir(format!("many/{number}")).unwrap();
    }
    assert_eq!(links(&fs), 65_000);
    fs.create_dir("many/one more").unwrap();
    assert_eq!(links(&fs), 1);
    fs.sync().unwrap();
    fs.remove_dir("many/7").unwrap();
    assert_eq!(links(&fs), 1);
    fs.close().unwrap();
    assert_clean(&image);
    assert_eq!(links(&FileSystem::open_image(&image).unwrap()), 1);
}
