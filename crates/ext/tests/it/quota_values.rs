//! Quotas of images whose attributes may have values in inodes (quota with ea_inode): each value
//! counts for the owner of each file that has it. e2fsck counts for itself, after every commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use finefs_block::{Access, BlockDevice, FileDevice};
use finefs_ext::{ExtOptions, ExtStore, OnError, QuotaKind};
use finefs_namespace::{
    AccessChecks, Caller, Error, Ino, Namespace, Options, QuotaAccount, QuotaChange, QuotaLimits,
    QuotaOwners, Result, SetAttributes, XattrMode,
};
use finefs_sim::{RecordingDevice, Request};

use crate::image::{assert_clean, debugfs, make_ext4, run};
use crate::kernel_mount::KernelMount;
use crate::trial;

const USER: u32 = 1000;
const OTHER: u32 = 2000;
const GROUP: u32 = 77;
const PROJECT: u32 = 7;

/// Of small and large blocks, with and without a journal, with room for attributes in inodes and
/// without, in clusters.
const FORMATS: [&str; 6] = [
    "-b 1024 -O quota,ea_inode",
    "-b 4096 -O quota,ea_inode,project -E quotatype=usrquota:grpquota:prjquota",
    "-b 4096 -O quota,ea_inode,inline_data,orphan_file -I 512",
    "-b 1024 -O quota,ea_inode,^metadata_csum,^has_journal -I 128",
    "-b 1024 -O quota,ea_inode,^extent,^64bit",
    "-b 4096 -O quota,ea_inode,bigalloc -C 16384",
];

/// A mounted image.
struct Mounted {
    namespace: Namespace,
    image: PathBuf,
}

impl Mounted {
    fn new(image: &Path) -> Mounted {
        Mounted {
            namespace: trial::open_with(image, OnError::Continue),
            image: image.to_owned(),
        }
    }

    /// One in which limits count.
    fn limited(image: &Path) -> Mounted {
        let device = FileDevice::open(image, Access::ReadWrite).unwrap();
        let limits = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];
        Mounted {
            namespace: over(Arc::new(device), &limits),
            image: image.to_owned(),
        }
    }

    fn create(&self, name: &str, uid: u32) -> Ino {
        let caller = Caller::root();
        let root = self.namespace.root();
        let made = self
            .namespace
            .create_file(&caller, root, name.as_bytes(), 0o644);
        let ino = made.unwrap().ino;
        self.give(ino, uid, GROUP).unwrap();
        ino
    }

    fn give(&self, ino: Ino, uid: u32, gid: u32) -> Result<()> {
        let owners = SetAttributes {
            uid: Some(uid),
            gid: Some(gid),
            ..SetAttributes::default()
        };
        let given = self.namespace.set_attributes(&Caller::root(), ino, &owners);
        given.map(|_| ())
    }

    fn set(&self, ino: Ino, name: &str, length: usize) -> Result<()> {
        self.set_by(&Caller::root(), ino, name, length)
    }

    fn set_by(&self, caller: &Caller, ino: Ino, name: &str, length: usize) -> Result<()> {
        let value = vec![length as u8; length];
        let name = format!("user.{name}");
        (self.namespace).set_xattr(caller, ino, name.as_bytes(), &value, XattrMode::Set)
    }

    fn unset(&self, ino: Ino, name: &str) {
        let name = format!("user.{name}");
        let removed = (self.namespace).remove_xattr(&Caller::root(), ino, name.as_bytes());
        removed.unwrap();
    }

    fn remove(&self, name: &str) {
        let root = self.namespace.root();
        let removed = self
            .namespace
            .remove_file(&Caller::root(), root, name.as_bytes());
        removed.unwrap();
    }

    fn ino(&self, name: &str) -> Ino {
        let root = self.namespace.root();
        let found = self
            .namespace
            .lookup(&Caller::root(), root, name.as_bytes());
        found.unwrap().ino
    }

    fn account(&self, owners: (QuotaOwners, u32)) -> QuotaAccount {
        let account = self.namespace.quota(&Caller::root(), owners, |_| true);
        account.unwrap()
    }

    fn inodes(&self, uid: u32) -> u64 {
        self.account((QuotaOwners::Users, uid)).inodes
    }

    fn limit(&self, (owners, id): (QuotaOwners, u32), limits: QuotaLimits) {
        let change = QuotaChange::Limits { id, limits };
        let set = (self.namespace).set_quota(&Caller::root(), owners, &change);
        set.unwrap();
    }

    /// Commits; then the image is what a count over it gives, as after a crash.
    fn commit(&self) {
        self.namespace.sync().unwrap();
        let copy = self.image.with_extension("copy");
        fs::copy(&self.image, &copy).unwrap();
        assert_right(&copy, "after a commit");
    }

    fn end(self) {
        self.namespace.shut_down().unwrap();
        drop(self.namespace);
        assert_clean(&self.image);
    }
}

fn over(device: Arc<dyn BlockDevice>, limits: &[QuotaKind]) -> Namespace {
    let options = ExtOptions {
        limits: limits.to_vec(),
        ..ExtOptions::default()
    };
    let store = ExtStore::open(device, &options).unwrap();
    assert!(!finefs_namespace::Store::geometry(&store).is_read_only);
    Namespace::without_thread(Arc::new(store), Options::default()).unwrap()
}

/// e2fsck finds nothing in an image once its journal is replayed.
fn assert_right(image: &Path, when: &str) {
    // Without a journal it says so, and fails.
    let replay = ["-y", "-E", "journal_only"];
    let _ = Command::new("e2fsck").args(replay).arg(image).output();
    let checked = Command::new("e2fsck").arg("-fn").arg(image).output();
    let checked = checked.unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned()
        + &String::from_utf8_lossy(&checked.stderr);
    let is_right = checked.status.success() && !said.contains("QUOTA");
    assert!(is_right, "{when}: {said}");
}

fn user(uid: u32) -> Caller {
    Caller {
        uid,
        gid: GROUP,
        groups: vec![GROUP + 1],
        umask: 0,
        checks: AccessChecks::Needed,
    }
}

#[test]
fn values_count_for_their_owner() {
    for options in FORMATS {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Mounted::new(&make_ext4(directory.path(), options));
        let said = |what: &str| format!("{options}: {what}");
        let (one, two) = (mounted.create("one", USER), mounted.create("two", USER));
        mounted.commit();
        assert_eq!(mounted.inodes(USER), 2, "{}", said("no values"));
        mounted.set(one, "large", 20_000).unwrap();
        mounted.set(one, "small", 20).unwrap();
        mounted.commit();
        assert_eq!(mounted.inodes(USER), 3, "{}", said("a value"));
        // Some in the inode, some in the block.
        for number in 0..6 {
            let name = format!("value {number}");
            mounted.set(two, &name, 9_000 + number * 1000).unwrap();
        }
        mounted.commit();
        assert_eq!(mounted.inodes(USER), 9, "{}", said("more values"));
        // Growth, shrinking, another value of the same length, and into the inode and out of it.
        for length in [40_000, 30_001, 30_001, 10, 65_000] {
            mounted.set(one, "large", length).unwrap();
            mounted.commit();
            let expected = if length == 10 { 8 } else { 9 };
            assert_eq!(mounted.inodes(USER), expected, "{}", said("replaced"));
        }
        // Content beside them.
        mounted.namespace.write(two, 0, &[1; 100_000]).unwrap();
        mounted.commit();
        mounted.give(two, OTHER, GROUP + 1).unwrap();
        mounted.commit();
        assert_eq!((mounted.inodes(USER), mounted.inodes(OTHER)), (2, 7));
        assert_eq!(mounted.account((QuotaOwners::Groups, GROUP + 1)).inodes, 7);
        // Values and owner in one commit.
        mounted.unset(two, "value 3");
        mounted.set(two, "another", 5_000).unwrap();
        mounted.give(two, USER, GROUP).unwrap();
        mounted.set(two, "one more", 5_001).unwrap();
        mounted.unset(one, "large");
        mounted.commit();
        assert_eq!((mounted.inodes(USER), mounted.inodes(OTHER)), (9, 0));
        if options.contains("project") {
            let kept = |flags| flags;
            let set = (mounted.namespace).set_flags_and_project(
                &Caller::root(),
                two,
                kept,
                Some(PROJECT),
            );
            set.unwrap();
            mounted.commit();
            assert_eq!(mounted.account((QuotaOwners::Projects, PROJECT)).inodes, 8);
        }
        mounted.namespace.forget(two, 1);
        mounted.remove("two");
        mounted.commit();
        assert_eq!(mounted.inodes(USER), 1, "{}", said("removed"));
        mounted.end();
    }
}

/// It counts until its last use ends, or until the next mount after a crash.
#[test]
fn values_of_a_removed_file_count_while_it_is_open() {
    for options in [FORMATS[0], FORMATS[2]] {
        let directory = tempfile::tempdir().unwrap();
        let image = make_ext4(directory.path(), options);
        let mounted = Mounted::new(&image);
        let ino = mounted.create("open", USER);
        mounted.set(ino, "large", 20_000).unwrap();
        mounted.commit();
        mounted.remove("open");
        mounted.namespace.sync().unwrap();
        assert_eq!(mounted.inodes(USER), 2);
        mounted.set(ino, "another", 30_000).unwrap();
        mounted.namespace.sync().unwrap();
        assert_eq!(mounted.inodes(USER), 3);
        let copy = directory.path().join("crashed");
        fs::copy(&image, &copy).unwrap();
        let next = Mounted::new(&copy);
        assert_eq!(next.inodes(USER), 0);
        next.end();
        mounted.namespace.forget(ino, 1);
        mounted.commit();
        assert_eq!(mounted.inodes(USER), 0);
        mounted.end();
    }
}

/// Lets `name` have the attributes of `of`, which has some in its inode only: as the kernel does it
/// with equal values. e2fsck puts counts and quotas right.
fn share_inode_values(image: &Path, name: &str, of: &str) {
    let place = |name: &str| {
        let said = debugfs(image, &format!("imap {name}\n"));
        let numbers = said.split(|letter: char| !letter.is_ascii_alphanumeric());
        let numbers: Vec<&str> = numbers.filter(|word| !word.is_empty()).collect();
        let after = |word: &str| {
            let at = numbers.iter().rposition(|found| *found == word).unwrap();
            numbers[at + 1]
        };
        let block: u64 = after("block").parse().unwrap();
        let offset = after("offset").trim_start_matches("0x");
        block * 1024 + u64::from_str_radix(offset, 16).unwrap()
    };
    let (from, to) = (place(of) as usize, place(name) as usize);
    let mut bytes = fs::read(image).unwrap();
    bytes.copy_within(from + 160..from + 256, to + 160);
    fs::write(image, bytes).unwrap();
    repair(image);
}

fn repair(image: &Path) {
    let repaired = Command::new("e2fsck").arg("-fy").arg(image).output();
    let repaired = repaired.unwrap();
    assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
    assert_clean(image);
}

#[test]
fn values_that_files_share_count_for_each() {
    let directory = tempfile::tempdir().unwrap();
    let options = "-b 1024 -O quota,ea_inode,^metadata_csum";
    let image = make_ext4(directory.path(), options);
    let mounted = Mounted::new(&image);
    let one = mounted.create("one", USER);
    mounted.set(one, "large", 20_000).unwrap();
    for name in ["two", "three"] {
        mounted.create(name, OTHER);
    }
    mounted.end();
    share_inode_values(&image, "two", "one");
    share_inode_values(&image, "three", "one");
    let mounted = Mounted::new(&image);
    assert_eq!((mounted.inodes(USER), mounted.inodes(OTHER)), (2, 4));
    let (two, three) = (mounted.ino("two"), mounted.ino("three"));
    mounted.give(two, USER, GROUP + 1).unwrap();
    mounted.commit();
    assert_eq!((mounted.inodes(USER), mounted.inodes(OTHER)), (4, 2));
    mounted.set(two, "large", 30_000).unwrap();
    mounted.commit();
    assert_eq!((mounted.inodes(USER), mounted.inodes(OTHER)), (4, 2));
    mounted.remove("one");
    mounted.commit();
    mounted.unset(three, "large");
    mounted.commit();
    assert_eq!((mounted.inodes(USER), mounted.inodes(OTHER)), (2, 1));
    mounted.end();
}

/// Equal values share an inode when the kernel sets them. (Quotas come later: not every kernel has
/// them.)
#[test]
fn values_that_files_of_the_kernel_share_count_for_each() {
    let directory = tempfile::tempdir().unwrap();
    let image = make_ext4(directory.path(), "-b 4096 -O ea_inode,orphan_file");
    let place = directory.path().join("mount");
    let Some(mount) = KernelMount::new(&image, &place, "loop,rw") else {
        return;
    };
    let value = "v".repeat(20_000);
    for number in 0..6 {
        let path = place.join(format!("file {number}"));
        fs::write(&path, "content").unwrap();
        let owner = Some(if number % 2 == 0 { USER } else { OTHER });
        std::os::unix::fs::chown(&path, owner, Some(GROUP)).unwrap();
        for name in ["user.one", "user.other"] {
            let set = ["-n", name, "-v", &value];
            let set = Command::new("setfattr").args(set).arg(&path).status();
            assert!(set.unwrap().success());
        }
    }
    drop(mount);
    run(Command::new("tune2fs").args(["-O", "quota"]).arg(&image));
    repair(&image);
    let mounted = Mounted::new(&image);
    let has = || (mounted.inodes(USER), mounted.inodes(OTHER));
    assert_eq!(has(), (9, 9));
    let file = |number: u32| mounted.ino(&format!("file {number}"));
    mounted.give(file(0), OTHER, GROUP).unwrap();
    mounted.commit();
    assert_eq!(has(), (6, 12));
    mounted.unset(file(1), "one");
    mounted.set(file(2), "one", 30_000).unwrap();
    mounted.remove("file 3");
    mounted.namespace.forget(file(4), 1);
    mounted.remove("file 4");
    mounted.commit();
    assert_eq!(has(), (3, 8));
    mounted.end();
}

/// Two files share a block of attributes, with what these have in inodes.
#[test]
fn values_in_a_block_that_files_share_count_for_each() {
    let directory = tempfile::tempdir().unwrap();
    let options = "-b 1024 -I 128 -O quota,ea_inode,^metadata_csum";
    let image = make_ext4(directory.path(), options);
    let mounted = Mounted::new(&image);
    let one = mounted.create("one", USER);
    mounted.set(one, "large", 20_000).unwrap();
    mounted.set(one, "larger", 30_000).unwrap();
    mounted.set(one, "small", 30).unwrap();
    mounted.create("two", OTHER);
    mounted.end();
    let said = debugfs(&image, "stat one\n");
    let block = said.split("File ACL: ").nth(1).unwrap();
    let block: usize = block.split_whitespace().next().unwrap().parse().unwrap();
    debugfs(&image, &format!("sif two file_acl {block}\n"));
    let mut bytes = fs::read(&image).unwrap();
    assert_eq!(bytes[block * 1024 + 4], 1);
    bytes[block * 1024 + 4] = 2;
    fs::write(&image, bytes).unwrap();
    repair(&image);
    let mounted = Mounted::new(&image);
    assert_eq!((mounted.inodes(USER), mounted.inodes(OTHER)), (3, 3));
    let two = mounted.ino("two");
    mounted.set(two, "small", 40).unwrap();
    mounted.commit();
    assert_eq!((mounted.inodes(USER), mounted.inodes(OTHER)), (3, 3));
    mounted.unset(two, "large");
    mounted.commit();
    mounted.remove("one");
    mounted.commit();
    assert_eq!((mounted.inodes(USER), mounted.inodes(OTHER)), (0, 2));
    mounted.end();
}

/// The kernel leaves an inode whose value nobody has any more on the list of orphans. It counts for
/// nobody, also when it goes.
#[test]
fn a_value_that_waits_for_its_removal_counts_for_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let image = make_ext4(directory.path(), FORMATS[0]);
    let value = directory.path().join("value");
    fs::write(&value, [1; 5000]).unwrap();
    let ino = {
        let said = debugfs(&image, &format!("write {} value\n", value.display()));
        let ino = said.split("Allocated inode: ").nth(1).unwrap();
        ino.split_whitespace().next().unwrap().to_owned()
    };
    // Of values, with extents.
    debugfs(
        &image,
        &format!(
            "unlink value\nsif <{ino}> links_count 0\nsif <{ino}> flags 0x280000\n\
             ssv last_orphan {ino}\n"
        ),
    );
    let mounted = Mounted::new(&image);
    assert_eq!(mounted.inodes(0), 2);
    mounted.end();
}

fn inodes_hard(inodes: u64) -> QuotaLimits {
    QuotaLimits {
        inodes_hard: inodes,
        ..QuotaLimits::default()
    }
}

/// The owner may have no more values than inodes, nor larger ones than space; who owns nothing that
/// is limited may, and so may root.
#[test]
fn limits_count_values() {
    for options in FORMATS {
        let directory = tempfile::tempdir().unwrap();
        let image = make_ext4(directory.path(), options);
        let mounted = Mounted::limited(&image);
        let ino = mounted.create("file", USER);
        mounted.limit((QuotaOwners::Users, USER), inodes_hard(3));
        mounted.commit();
        let caller = user(USER);
        let set = |name: &str, length| mounted.set_by(&caller, ino, name, length);
        set("one", 20_000).unwrap();
        set("two", 20_000).unwrap();
        assert_eq!(set("three", 20_000), Err(Error::QuotaExceeded), "{options}");
        set("small", 20).unwrap();
        mounted.commit();
        assert_eq!(set("three", 20_000), Err(Error::QuotaExceeded), "{options}");
        // As in the kernel, which asks for the new value before it frees the old one.
        assert_eq!(set("two", 21_000), Err(Error::QuotaExceeded), "{options}");
        mounted.unset(ino, "one");
        set("three", 21_000).unwrap();
        mounted.set(ino, "by root", 20_000).unwrap();
        mounted.commit();
        assert_eq!(mounted.inodes(USER), 4, "{options}");
        let space = QuotaLimits {
            space_hard_bytes: 200 << 10,
            ..QuotaLimits::default()
        };
        mounted.limit((QuotaOwners::Users, USER), space);
        let set = |number: usize| set(&format!("number {number}"), 60_000 + number);
        let set: Vec<Result<()>> = (0..4).map(set).collect();
        assert_eq!(set[3], Err(Error::QuotaExceeded), "{options}");
        mounted.commit();
        let has = mounted.account((QuotaOwners::Users, USER)).space_bytes;
        assert!((120 << 10..=200 << 10).contains(&has), "{options}: {has}");
        mounted.end();
    }
}

/// A file comes to another owner with its values.
#[test]
fn limits_of_new_owners_count_values() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Mounted::limited(&make_ext4(directory.path(), FORMATS[1]));
    let ino = mounted.create("file", USER);
    mounted.set(ino, "one", 20_000).unwrap();
    mounted.set(ino, "two", 20_000).unwrap();
    let group = (QuotaOwners::Groups, GROUP + 1);
    let project = (QuotaOwners::Projects, PROJECT);
    mounted.limit(group, inodes_hard(2));
    mounted.limit(project, inodes_hard(2));
    mounted.commit();
    let to_group = || {
        let change = SetAttributes {
            gid: Some(GROUP + 1),
            ..SetAttributes::default()
        };
        let set = mounted.namespace.set_attributes(&user(USER), ino, &change);
        set.map(|_| ())
    };
    let to_project = || {
        let kept = |flags| flags;
        (mounted.namespace).set_flags_and_project(&user(USER), ino, kept, Some(PROJECT))
    };
    assert_eq!(to_group(), Err(Error::QuotaExceeded));
    assert_eq!(to_project(), Err(Error::QuotaExceeded));
    mounted.limit(group, inodes_hard(3));
    mounted.limit(project, inodes_hard(3));
    to_group().unwrap();
    to_project().unwrap();
    mounted.commit();
    assert_eq!(mounted.account(group).inodes, 3);
    assert_eq!(mounted.account(project).inodes, 3);
    mounted.end();
}

/// Whatever the journal holds of the commits, values and quotas go together.
#[test]
fn crashes_between_commits_leave_the_quotas_right() {
    let directory = tempfile::tempdir().unwrap();
    let image = make_ext4(directory.path(), "-b 1024 -J size=4 -O quota,ea_inode");
    let device = Arc::new(RecordingDevice::new(fs::read(&image).unwrap()));
    let mounted = Mounted {
        namespace: over(device.clone(), &[]),
        image: image.clone(),
    };
    for round in 0..6_u32 {
        for number in 0..8 {
            let name = format!("file {number}");
            match (round + number) % 4 {
                0 => {
                    let ino = mounted.create(&format!("{name} {round}"), USER + number);
                    mounted.set(ino, "large", 5000 + number as usize).unwrap();
                    mounted.namespace.forget(ino, 1);
                }
                _ if round == 0 => mounted.namespace.forget(mounted.create(&name, USER), 1),
                1 | 2 => {
                    if let Ok(found) = (mounted.namespace).lookup(
                        &Caller::root(),
                        mounted.namespace.root(),
                        name.as_bytes(),
                    ) {
                        let length = 2000 * (round + number) as usize;
                        mounted.set(found.ino, "large", length).unwrap();
                        mounted
                            .give(found.ino, OTHER + round, GROUP + number)
                            .unwrap();
                        mounted.namespace.forget(found.ino, 1);
                    }
                }
                _ => {
                    let old = format!("{name} {}", round.saturating_sub(3));
                    let root = mounted.namespace.root();
                    let _ = (mounted.namespace).remove_file(&Caller::root(), root, old.as_bytes());
                }
            }
        }
        mounted.namespace.sync().unwrap();
    }
    mounted.namespace.shut_down().unwrap();
    drop(mounted);
    let recorded = device.recorded();
    let is_write = |at: &usize| !matches!(recorded.requests[*at], Request::Flush);
    let writes: Vec<usize> = (0..recorded.requests.len()).filter(is_write).collect();
    assert!(writes.len() > 40, "{}", writes.len());
    for point in writes.iter().step_by(writes.len().div_ceil(40)) {
        fs::write(&image, recorded.image_after(*point).to_bytes()).unwrap();
        assert_right(&image, &format!("after request {point}"));
    }
}
