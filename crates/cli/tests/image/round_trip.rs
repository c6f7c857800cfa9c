//! Trees of all kinds of files go into an image, from there into another, and out again; nothing is
//! lost on the way.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::support::{KernelMount, Place, assert_clean, assert_same, is_root, run, snapshot};

/// Numbers that depend on a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn is_one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }
}

struct Maker {
    random: Random,
    is_root: bool,
    files: Vec<PathBuf>,
}

impl Maker {
    fn fill(&mut self, dir: &Path, depth: u32) {
        for number in 0..3 + self.random.below(6) {
            let name = match self.random.below(8) {
                0 => format!("Grüße {number}"),
                1 => format!("{}{number}", "x".repeat(250)),
                2 => format!("-line\nbreak:{number}"),
                _ => format!("f{number}"),
            };
            let path = dir.join(name);
            self.make(&path, depth);
        }
    }

    fn make(&mut self, path: &Path, depth: u32) {
        match self.random.below(if self.is_root { 9 } else { 7 }) {
            0 | 1 if depth < 4 => {
                fs::create_dir(path).unwrap();
                self.fill(path, depth + 1);
                self.decorate(path, true);
            }
            2 => symlink("../some where/else", path).unwrap(),
            3 if !self.files.is_empty() => {
                let at = self.random.below(self.files.len() as u64) as usize;
                fs::hard_link(&self.files[at], path).unwrap();
            }
            4 => {
                rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
                self.decorate(path, false);
            }
            7 => self.node(path, FileType::CharacterDevice),
            8 => self.node(path, FileType::BlockDevice),
            _ => {
                self.file(path);
                self.files.push(path.to_owned());
                self.decorate(path, false);
            }
        }
        if self.is_root && path.is_symlink() {
            lchown(path, Some(5), Some(6)).unwrap();
            let name = "trusted.link";
            rustix::fs::lsetxattr(path, name, b"on a link", XattrFlags::empty()).unwrap();
        }
        let seconds = self.random.below(4_000_000_000) as i64 - 1_000_000_000;
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: self.random.below(1_000_000_000) as i64,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn node(&mut self, path: &Path, kind: FileType) {
        let device = rustix::fs::makedev(self.random.below(300) as u32, 70_000);
        rustix::fs::mknodat(CWD, path, kind, Mode::RUSR, device).unwrap();
        self.decorate(path, false);
    }

    fn file(&mut self, path: &Path) {
        let file = File::create(path).unwrap();
        match self.random.below(4) {
            0 => {}
            1 => {
                // Holes before, between and behind.
                let unit = 1 + self.random.below(64);
                for piece in [3, 9, 10] {
                    let data = vec![self.random.below(255) as u8 + 1; 5000];
                    file.write_all_at(&data, piece * unit * 65_536).unwrap();
                }
                file.set_len(11 * unit * 65_536 + 1).unwrap();
            }
            2 => {
                let length = self.random.below(3 << 20) as usize;
                let data: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
                file.write_all_at(&data, 0).unwrap();
            }
            _ => file.write_all_at(b"small", 0).unwrap(),
        }
        // The kernel tells where data is when it has found it a place.
        file.sync_all().unwrap();
    }

    /// Owner, attributes, permissions.
    fn decorate(&mut self, path: &Path, is_directory: bool) {
        let set = |name: &str, value: &[u8]| {
            rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
        };
        if self.is_root && self.random.is_one_in(2) {
            let (uid, gid) = (
                self.random.below(70_000) as u32,
                self.random.below(9) as u32,
            );
            lchown(path, Some(uid), Some(gid)).unwrap();
        }
        if self.is_root && self.random.is_one_in(3) {
            set("trusted.note", &[0, 1, 2, 255]);
            if path.is_file() {
                // cap_net_raw+ep, version 2.
                let mut value = [0; 20];
                value[3] = 2;
                value[0] = 1;
                value[5] = 0x20;
                set("security.capability", &value);
            }
        }
        if (is_directory || path.is_file()) && self.random.is_one_in(3) {
            let length = self.random.below(900) as usize;
            set("user.note", &vec![b'n'; length]);
            set("system.posix_acl_access", &acl(self.random.below(8) as u16));
            if is_directory {
                set("system.posix_acl_default", &acl(5));
            }
        }
        if self.random.is_one_in(2) {
            let special = if self.random.is_one_in(3) {
                self.random.below(8) << 9
            } else {
                0
            };
            let mode = 0o600 | self.random.below(0o200) as u32 | special as u32;
            let mode = if is_directory { mode | 0o100 } else { mode };
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        }
    }
}

/// user::rw-, user:1000:`rights`, group::r--, mask::rw-, other::---
fn acl(rights: u16) -> Vec<u8> {
    let nobody = u32::MAX;
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1_u16, 7_u16, nobody),
        (2, rights, 1000),
        (4, 4, nobody),
        (16, 6, nobody),
        (32, 0, nobody),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// Fills a new directory with files of all kinds.
pub fn tree(path: &Path, seed: u64) {
    fs::create_dir(path).unwrap();
    let mut maker = Maker {
        random: Random(seed * 0x9E37_79B9 + 88_172_645_463_325_252),
        is_root: is_root(),
        files: Vec::new(),
    };
    maker.fill(path, 0);
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 987_654_321);
    File::open(path).unwrap().set_modified(time).unwrap();
}

pub fn seeds() -> u64 {
    let seeds = std::env::var("FINEFS_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(6)
}

#[test]
fn trees_come_back_as_they_were() {
    for seed in 0..seeds() {
        let place = Place::new();
        let source = place.path("source");
        tree(&source, seed);
        let before = snapshot(&source);
        let kind = ["ext4", "ext3", "ext2"][seed as usize % 3];
        // Holes are compared in blocks of this size.
        let arguments = ["-t", kind, "-b", "4096", "-I", "256"];
        let image = place.image_with("image", 256, &arguments);
        let other = place.image_with("other", 256, &arguments);
        place.ok(&["cp", "-a", "source", "image:/tree"]);
        assert_clean(&image);
        if is_root() {
            let mount = KernelMount::new(&place, &image, "ro");
            assert_same(&before, &snapshot(&mount.dir.join("tree")));
        }
        place.ok(&["cp", "-aj1", "image:/tree", "other:/"]);
        assert_clean(&other);
        place.ok(&["cp", "-a", "other:/tree", "out"]);
        assert_same(&before, &snapshot(&place.path("out")));
    }
}

#[test]
fn a_tree_is_merged_into_one_that_is_there() {
    let place = Place::new();
    let source = place.path("source");
    tree(&source, 100);
    place.image_with("image", 256, &["-t", "ext4", "-b", "4096"]);
    place.ok(&["mkdir", "image:/tree"]);
    for _ in 0..2 {
        place.ok(&["cp", "-a", "source/.", "image:/tree"]);
        assert_clean(&place.path("image"));
    }
    fs::create_dir(place.path("out")).unwrap();
    for _ in 0..2 {
        place.ok(&["cp", "-a", "image:/tree/.", "out"]);
    }
    assert_same(&snapshot(&source), &snapshot(&place.path("out")));
}

/// The ordinary user gets what may be had, is told what not, and sees it in the status.
#[test]
fn an_ordinary_user_is_told_what_could_not_be_set() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    tree(&place.path("source"), 7);
    fs::write(place.path("source/mine"), "of root").unwrap();
    let image = place.image_with("image", 256, &["-t", "ext4", "-b", "4096"]);
    place.ok(&["cp", "-a", "source", "image:/"]);
    let home = place.path("home");
    fs::create_dir(&home).unwrap();
    let binary = place.path("finefs");
    // Not by this process: see `program` of the tests of mounts.
    let mut install = std::process::Command::new("install");
    let installed = install.arg(env!("CARGO_BIN_EXE_finefs")).arg(&binary);
    assert!(installed.status().unwrap().success());
    for path in [&home, &image] {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    let user = |arguments: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(&binary).args(arguments).current_dir(&home);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let (status, said) = user(&["cp", "-a", "../image:/source", "out"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("owners could not be set"), "{said}");
    assert!(
        said.contains("device nodes and the like could not be made"),
        "{said}"
    );
    assert!(said.lines().count() <= 3, "{said}");
    let contents = |root: &Path| -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        let mut todo = vec![PathBuf::new()];
        while let Some(path) = todo.pop() {
            let whole = root.join(&path);
            let kind = fs::symlink_metadata(&whole).unwrap().file_type();
            if kind.is_dir() {
                let entries = fs::read_dir(&whole).unwrap();
                todo.extend(entries.map(|entry| path.join(entry.unwrap().file_name())));
            } else if kind.is_file() {
                found.insert(path, fs::read(&whole).ok());
            }
        }
        found
    };
    assert_eq!(contents(&place.path("source")), contents(&home.join("out")));

    // Without -a there is nothing to be told, but for device nodes.
    fs::write(home.join("own"), "mine").unwrap();
    assert_eq!(
        user(&["cp", "../image:/source/mine", "got"]),
        (Some(0), String::new())
    );
    for arguments in [
        &["cp", "-p", "got", "../image:/etc"][..],
        &["chown", "0:0", "../image:/etc"],
        &["chmod", "4755", "../image:/etc"],
        &["mv", "../image:/etc", "../image:/was-etc"],
        &["rm", "-r", "../image:/source"],
    ] {
        assert_eq!(user(arguments), (Some(0), String::new()), "{arguments:?}");
    }
    assert_clean(&image);
    let shown = place.ok(&["stat", "-c", "%a %u %g", "image:/was-etc"]);
    assert_eq!(shown, "4755 0 0\n");
    let _ = run("true", &[OsStr::new("")]);
}
