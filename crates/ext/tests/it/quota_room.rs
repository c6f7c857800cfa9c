//! New ids in quota files, which grow by them: where the file system is full, and where they are so
//! many that the journal cannot take them at once. e2fsck counts for itself.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use finefs_ext::OnError;
use finefs_namespace::{
    Caller, Error, Ino, Namespace, QuotaChange, QuotaLimits, QuotaOwners, Result, SetAttributes,
};

use crate::image::debugfs;
use crate::trial;

/// Ids so far apart that each takes its own branch of the tree.
fn scattered(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b9) | 1
}

fn make(path: &Path, options: &str) -> Namespace {
    let output = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-m", "0"])
        .args(["-O", "quota", "-N", "8000"])
        .args(options.split_whitespace())
        .arg(path)
        .arg("64M")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    trial::open_with(path, OnError::Continue)
}

fn end(namespace: Namespace, path: &Path) {
    namespace.shut_down().unwrap();
    drop(namespace);
    let output = Command::new("e2fsck").arg("-fn").arg(path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn files(namespace: &Namespace, count: u32) -> Vec<Ino> {
    let caller = Caller::root();
    let made = (0..count).map(|number| {
        let name = format!("file {number}");
        let made = namespace.create_file(&caller, namespace.root(), name.as_bytes(), 0o644);
        made.unwrap().ino
    });
    made.collect()
}

/// Writes a file until there is no space.
fn fill(namespace: &Namespace, ino: Ino) {
    let mut at = 0;
    for length in [1 << 20, 1 << 14, 1 << 10] {
        while namespace.write(ino, at, &vec![1; length]) == Ok(length) {
            at += length as u64;
        }
    }
    namespace.sync().unwrap();
}

fn give(namespace: &Namespace, ino: Ino, number: u32) -> Result<()> {
    let owners = SetAttributes {
        uid: Some(scattered(number)),
        gid: Some(scattered(number + 100_000)),
        ..SetAttributes::default()
    };
    let given = namespace.set_attributes(&Caller::root(), ino, &owners);
    given.map(|_| ())
}

/// chown(2) finds no space where the quota file could not grow, and no commit fails for it.
#[test]
fn new_owners_have_room_or_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let namespace = make(&path, "");
    let inodes = files(&namespace, 1500);
    namespace.sync().unwrap();
    fill(&namespace, inodes[0]);
    let mut refused = 0;
    for (number, ino) in (0..).zip(&inodes) {
        match give(&namespace, *ino, number) {
            Ok(()) => {}
            Err(Error::NoSpace) => refused += 1,
            Err(error) => panic!("{number}: {error:?}"),
        }
    }
    assert!(refused > 0);
    namespace.sync().unwrap();
    // With space again, all can be given away.
    empty(&namespace, inodes[0]);
    for (number, ino) in (0..).zip(&inodes) {
        give(&namespace, *ino, number).unwrap();
    }
    end(namespace, &path);
}

fn limit(namespace: &Namespace, id: u32) -> Result<()> {
    let limits = QuotaLimits {
        inodes_hard: 100,
        ..QuotaLimits::default()
    };
    let change = QuotaChange::Limits { id, limits };
    namespace.set_quota(&Caller::root(), QuotaOwners::Users, &change)
}

fn empty(namespace: &Namespace, ino: Ino) {
    let size = SetAttributes {
        size_bytes: Some(0),
        ..SetAttributes::default()
    };
    let cut = namespace.set_attributes(&Caller::root(), ino, &size);
    cut.unwrap();
}

/// Limits of somebody who has no entry yet are refused where the quota file could not grow; of
/// others, and grace times, they are not.
#[test]
fn limits_have_room_or_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let namespace = make(&path, "");
    let inodes = files(&namespace, 2);
    limit(&namespace, 1000).unwrap();
    fill(&namespace, inodes[0]);
    let refused = (0..600).filter(|number| match limit(&namespace, scattered(*number)) {
        Ok(()) => false,
        Err(Error::NoSpace) => true,
        Err(error) => panic!("{number}: {error:?}"),
    });
    assert!(refused.count() > 0);
    limit(&namespace, 1000).expect("it has an entry");
    let grace = QuotaChange::Grace {
        space_seconds: 60,
        inode_seconds: 60,
    };
    namespace
        .set_quota(&Caller::root(), QuotaOwners::Users, &grace)
        .expect("it takes no space");
    // What was removed counts before its commit.
    empty(&namespace, inodes[0]);
    limit(&namespace, scattered(1000)).unwrap();
    end(namespace, &path);
}

/// What is cut into a commit of its own between setting and logging has its room all the same.
#[test]
fn limits_beside_commits_have_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let namespace = make(&path, "");
    let inodes = files(&namespace, 2);
    fill(&namespace, inodes[0]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                files_touched(&namespace, &inodes);
            }
        });
        let result = (0..600).try_for_each(|number| match limit(&namespace, scattered(number)) {
            Ok(()) | Err(Error::NoSpace) => Ok(()),
            Err(error) => Err(format!("{number}: {error:?}")),
        });
        is_over.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    end(namespace, &path);
    let told = trial::messages_about(&path, "more blocks than were reserved");
    assert_eq!(told, Vec::<String>::new());
}

/// What is reserved for somebody who gets nothing is given back.
#[test]
fn room_that_is_not_used_is_free_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let namespace = make(&path, "");
    let inodes = files(&namespace, 400);
    namespace.sync().unwrap();
    for round in 0..3 {
        for (number, ino) in (0..).zip(&inodes) {
            give(&namespace, *ino, 1000 * round + number).unwrap();
        }
        for ino in &inodes {
            let owners = SetAttributes {
                uid: Some(0),
                gid: Some(0),
                ..SetAttributes::default()
            };
            let given = namespace.set_attributes(&Caller::root(), *ino, &owners);
            given.unwrap();
        }
        namespace.sync().unwrap();
        files_touched(&namespace, &inodes);
    }
    fill(&namespace, inodes[0]);
    // But for what is kept for commits, all is written: a fiftieth of the blocks.
    let left = namespace.statfs().blocks_free;
    assert!(left <= 65_536 / 50 + 10, "{left}");
    end(namespace, &path);
}

/// Two commits, in which no id is new.
fn files_touched(namespace: &Namespace, inodes: &[Ino]) {
    for permissions in [0o600, 0o640] {
        let mode = SetAttributes {
            permissions: Some(permissions),
            ..SetAttributes::default()
        };
        let set = namespace.set_attributes(&Caller::root(), inodes[0], &mode);
        set.unwrap();
        namespace.sync().unwrap();
    }
}

/// All ids that are new in one transaction would be more than the journal takes.
#[test]
fn new_owners_fit_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let namespace = make(&path, "-J size=1");
    let inodes = files(&namespace, 3000);
    namespace.sync().unwrap();
    for (number, ino) in (0..).zip(&inodes) {
        give(&namespace, *ino, number).unwrap();
    }
    namespace.sync().unwrap();
    end(namespace, &path);
    let told = trial::messages_about(&path, "larger than the journal");
    assert_eq!(told, Vec::<String>::new());
}

/// The lists of free blocks and of those with room, as e2fsck leaves them, are sound.
#[test]
fn quota_files_that_e2fsck_wrote_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let namespace = make(&path, "");
    let first = files(&namespace, 200)[0];
    end(namespace, &path);
    for turn in 1..4 {
        let owned = (0..200).map(|number| {
            let (ino, uid) = (first.0 + u64::from(number), scattered(number / turn));
            format!("sif <{ino}> uid {uid}\nsif <{ino}> gid {}\n", number / turn)
        });
        debugfs(&path, &owned.collect::<String>());
        let repaired = Command::new("e2fsck").arg("-fy").arg(&path).output();
        assert_eq!(repaired.unwrap().status.code(), Some(1));
        let namespace = trial::open_with(&path, OnError::Continue);
        give(&namespace, first, 1000 + turn).unwrap();
        end(namespace, &path);
    }
}
