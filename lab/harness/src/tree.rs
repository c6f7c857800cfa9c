//! A source tree made from a seed, with at least one of everything that a file system stores.
//!
//! Four top parts of about equal size, so that four copies can run at once; hard links stay inside
//! a part. The tree lies below a bind mount without access times (when root), so that copying it
//! does not change it.

use crate::cleanup;
use crate::rng::Rng;
use crate::run;
use crate::tools;
use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

/// The names of the top parts.
pub const PARTS: [&str; 4] = ["p0", "p1", "p2", "p3"];

/// What tree to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of inodes other than directories, over all parts.
    pub files: usize,
    /// Largest size of an ordinary file in bytes.
    pub max_size: u64,
    /// Largest xattr value in bytes.
    pub xattr_max: usize,
    /// Same seed, same tree.
    pub seed: u64,
}

/// A tree on disk.
#[derive(Debug)]
pub struct Tree {
    /// Its root.
    pub root: PathBuf,
    /// What it was made from.
    pub plan: Plan,
    _noatime: Option<NoAtime>,
}

/// A bind mount of a directory onto itself without access times.
#[derive(Debug)]
struct NoAtime {
    dir: PathBuf,
    _entry: cleanup::Entry,
}

impl Drop for NoAtime {
    fn drop(&mut self) {
        cleanup::force_unmount(&self.dir);
    }
}

impl Tree {
    /// Makes the tree in the new directory `root`.
    pub fn make(root: &Path, plan: Plan) -> Result<Self> {
        std::fs::create_dir(root).with_context(|| root.display().to_string())?;
        for (number, part) in PARTS.iter().enumerate() {
            let mut maker = Maker {
                rng: Rng::new(plan.seed ^ (number as u64 + 1) << 32),
                plan,
                root: tools::is_root(),
                directories: vec![root.join(part)],
                regular: Vec::new(),
                others: Vec::new(),
                count: 0,
            };
            maker
                .fill(plan.files / PARTS.len())
                .with_context(|| format!("making {part}"))?;
        }
        let noatime = if tools::is_root() {
            let mount = tools::program("mount");
            let guard = NoAtime {
                dir: root.to_owned(),
                _entry: cleanup::mount(root),
            };
            run::ok(run::cmd(&mount, ["--bind"]).arg(root).arg(root))?;
            run::ok(run::cmd(&mount, ["-o", "remount,bind,noatime"]).arg(root))?;
            Some(guard)
        } else {
            None
        };
        Ok(Self {
            root: root.to_owned(),
            plan,
            _noatime: noatime,
        })
    }
}

struct Maker {
    rng: Rng,
    plan: Plan,
    root: bool,
    directories: Vec<PathBuf>,
    regular: Vec<PathBuf>,
    others: Vec<PathBuf>,
    count: u64,
}

impl Maker {
    fn fill(&mut self, files: usize) -> Result<()> {
        let top = self.directories[0].clone();
        std::fs::create_dir(&top)?;
        let many = top.join("many");
        std::fs::create_dir(&many)?;
        for number in 0..files {
            // A tenth lie in one large directory, the others are spread.
            let dir = if self.rng.percent(10) {
                many.clone()
            } else {
                let dir = self.rng.pick(&self.directories).clone();
                if self.rng.percent(8) && dir.components().count() < top.components().count() + 9 {
                    let path = dir.join(self.name());
                    std::fs::create_dir(&path)?;
                    self.directories.push(path.clone());
                    path
                } else {
                    dir
                }
            };
            let path = dir.join(self.name());
            // The first ones are one of each kind, so that even a small tree has all.
            let kind = if number < 100 {
                number as u64
            } else {
                self.rng.below(100)
            };
            self.make(&path, kind)
                .with_context(|| path.display().to_string())?;
        }
        self.directories.push(many);
        self.finish()
    }

    fn make(&mut self, path: &Path, kind: u64) -> Result<()> {
        match kind {
            0..=2 if !self.regular.is_empty() => {
                let of = self.rng.pick(&self.regular).clone();
                std::fs::hard_link(of, path)?;
                return Ok(());
            }
            3..=5 => {
                let target_len = *self.rng.pick(&[1, 20, 59, 60, 61, 200, 900]);
                let target: String = (0..target_len)
                    .map(|i| if i % 9 == 4 { '/' } else { 't' })
                    .collect();
                symlink(target, path)?;
            }
            6 => mknod(path, FileType::Fifo, 0)?,
            7 => mknod(path, FileType::Socket, 0)?,
            8 if self.root => {
                let (kind, major, minor) = *self.rng.pick(&[
                    (FileType::CharacterDevice, 1, 3),
                    (FileType::BlockDevice, 7, 200),
                    (FileType::CharacterDevice, 259, 70_000),
                ]);
                mknod(path, kind, rustix::fs::makedev(major, minor))?;
            }
            9 => self.sparse(path)?,
            _ => {
                let size = self.size();
                std::fs::write(path, self.rng.bytes(size as usize))?;
            }
        }
        let kind = path.symlink_metadata()?.file_type();
        if kind.is_file() {
            self.regular.push(path.to_owned());
        } else {
            self.others.push(path.to_owned());
        }
        Ok(())
    }

    fn sparse(&mut self, path: &Path) -> Result<()> {
        let file = File::create(path)?;
        let size = self.plan.max_size * self.rng.range(1, 5) + self.rng.below(5000);
        for _ in 0..self.rng.below(4) {
            let data = self.rng.bytes(5000);
            file.write_all_at(&data, self.rng.below(size))?;
        }
        if file.metadata()?.len() < size {
            file.set_len(size)?;
        }
        Ok(())
    }

    /// Mostly small, now and then up to the largest size.
    fn size(&mut self) -> u64 {
        let limit = match self.rng.below(1000) {
            0..80 => return 0,
            80..650 => 4 << 10,
            650..930 => 16 << 10,
            930..990 => 64 << 10,
            _ => self.plan.max_size,
        };
        self.rng.below(limit.min(self.plan.max_size))
    }

    /// A name that is new in its directory: it holds a running number.
    fn name(&mut self) -> std::ffi::OsString {
        self.count += 1;
        let number = self.count;
        let bytes = match self.rng.below(20) {
            0 => format!("Größe-日本語-{number}.txt").into_bytes(),
            1 => [&b"high-\xff\xfe\x80-"[..], number.to_string().as_bytes()].concat(),
            2 => format!("-with space and\nnewline '{number}'").into_bytes(),
            3 => format!("{number:0>255}").into_bytes(),
            4 => format!("{number:x>120}").into_bytes(),
            _ => format!("f{number}").into_bytes(),
        };
        std::ffi::OsString::from_vec(bytes)
    }

    /// Owners, modes, xattrs and, last of all, times.
    fn finish(&mut self) -> Result<()> {
        let regular = std::mem::take(&mut self.regular);
        let directories = std::mem::take(&mut self.directories);
        let others = std::mem::take(&mut self.others);
        for path in regular.iter().chain(&directories) {
            self.xattrs(path)
                .with_context(|| path.display().to_string())?;
            if self.root && self.rng.percent(40) {
                let ids = [1, 1000, 65_534, 65_536, 3_000_000_000];
                chown(path, Some(*self.rng.pick(&ids)), Some(*self.rng.pick(&ids)))?;
            }
        }
        for path in &others {
            if self.root && self.rng.percent(40) {
                lchown(path, Some(1234), Some(100_000))?;
            }
        }
        for path in &regular {
            let modes: &[u32] = if self.root {
                &[
                    0o644, 0o600, 0o755, 0o444, 0, 0o4755, 0o2755, 0o6711, 0o1666,
                ]
            } else {
                &[0o644, 0o600, 0o755, 0o444]
            };
            std::fs::set_permissions(path, PermissionsExt::from_mode(*self.rng.pick(modes)))?;
        }
        for path in &directories {
            let mode = *self.rng.pick(&[0o755, 0o700, 0o2775, 0o1777, 0o711]);
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
        }
        for path in regular.iter().chain(&others).chain(&directories) {
            let (atime, mtime) = (self.time(), self.time());
            let times = Timestamps {
                last_access: atime,
                last_modification: mtime,
            };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn xattrs(&mut self, path: &Path) -> Result<()> {
        if !self.rng.percent(15) {
            return Ok(());
        }
        let small = self.rng.bytes(20);
        rustix::fs::setxattr(path, "user.small", &small, XattrFlags::empty())?;
        if self.rng.percent(30) {
            let len = self.rng.below(self.plan.xattr_max as u64) as usize;
            let large = self.rng.bytes(len);
            rustix::fs::setxattr(path, "user.large", &large, XattrFlags::empty())?;
        }
        if self.root && self.rng.percent(10) {
            rustix::fs::setxattr(path, "trusted.t", b"", XattrFlags::empty())?;
        }
        Ok(())
    }

    fn time(&mut self) -> Timespec {
        let seconds = match self.rng.below(20) {
            0 => -(self.rng.below(2_000_000_000) as i64),
            1 => self.rng.range(2_200_000_000, 9_000_000_000) as i64,
            _ => self.rng.range(1_000_000_000, 1_700_000_000) as i64,
        };
        Timespec {
            tv_sec: seconds,
            tv_nsec: self.rng.below(1_000_000_000) as _,
        }
    }
}

fn mknod(path: &Path, kind: FileType, device: u64) -> rustix::io::Result<()> {
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), device)
}

/// Copies the four parts of `from` into `to` by four `cp -a` at once.
pub fn copy_in_parallel(from: &Path, to: &Path) -> Result<()> {
    copy_parts(from, to, &PARTS.map(OsStr::new))
}

/// Copies the named entries of `from` into `to`, one `cp -a` for each, all at once.
pub fn copy_parts(from: &Path, to: &Path, parts: &[&OsStr]) -> Result<()> {
    std::thread::scope(|scope| {
        let copies: Vec<_> = parts
            .iter()
            .map(|part| scope.spawn(move || copy(&from.join(part), to)))
            .collect();
        for copy in copies {
            copy.join()
                .map_err(|_| anyhow::anyhow!("a copying thread panicked"))??;
        }
        Ok(())
    })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let output = run::ok(run::cmd("cp", ["-a", "--"]).arg(from).arg(to))?;
    anyhow::ensure!(
        output.stderr.is_empty(),
        "cp -a said: {}",
        run::tail(&output.stderr)
    );
    Ok(())
}
