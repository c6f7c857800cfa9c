//! Compares two trees: names, metadata and contents.
//!
//! Access times, times of change and inode numbers are not compared, nor where holes are. An empty
//! `lost+found` at the top is the same as none, and as another one: that of an image that was built
//! has the time of the image.
//!
//! # Locking
//! None.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs::FileKind;
use serde::Serialize;

use crate::attributes::{Attributes, Time, Xattr};
use crate::error::Result;
use crate::tree::{Follow, SourceDir};

/// Bytes that are compared at a time.
const CHUNK: usize = 1 << 20;

/// A tree: a directory, and the name of its top there; `.` for the directory itself.
pub type Tree = (Arc<dyn SourceDir>, OsString);

/// What is compared besides names, kinds and contents.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Owners and groups.
    pub owners: bool,
    /// Times of the last change of the data.
    pub times: bool,
    /// Extended attributes, ACLs among them.
    pub xattrs: bool,
}

/// Something that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Where, below the tops of the trees; empty for these.
    pub path: PathBuf,
    /// How.
    pub change: Change,
}

/// How a file differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is in the first tree alone, with all that is in it.
    Removed,
    /// It is in the second tree alone, with all that is in it.
    Added,
    /// It is in both.
    Changed(Vec<Aspect>),
}

/// A part of a file that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Aspect {
    /// Its name: type, mode, owner, size, mtime, target, device, link, content, or that of an
    /// extended attribute.
    pub what: String,
    /// In the first tree, as text.
    pub from: String,
    /// In the second tree.
    pub to: String,
}

impl Aspect {
    fn new(what: impl Into<String>, from: impl ToString, to: impl ToString) -> Aspect {
        Aspect {
            what: what.into(),
            from: from.to_string(),
            to: to.to_string(),
        }
    }
}

/// Compares two trees, and tells each difference in the order of names, and what cannot be read.
pub fn compare(trees: (&Tree, &Tree), options: Options, tell: &mut dyn FnMut(Result<Difference>)) {
    let mut comparison = Comparison {
        options,
        firsts: Default::default(),
        buffers: (vec![0; CHUNK], vec![0; CHUNK]),
        tell,
    };
    let (left, right) = trees;
    let top = comparison.both((&left.0, &left.1), (&right.0, &right.1), PathBuf::new());
    let mut levels = Vec::from_iter(top);
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop_first() else {
            levels.pop();
            continue;
        };
        let path = level.path.join(&name);
        let in_left = level.left.1.contains(&name);
        let in_right = level.right.1.contains(&name);
        let (left, right) = (Arc::clone(&level.left.0), Arc::clone(&level.right.0));
        let is_made_with_it = |dir: &Arc<dyn SourceDir>, is_there: bool| {
            path == Path::new("lost+found") && (!is_there || is_empty(&**dir, &name))
        };
        if is_made_with_it(&left, in_left) && is_made_with_it(&right, in_right) {
            continue;
        }
        if in_left && in_right {
            levels.extend(comparison.both((&left, &name), (&right, &name), path));
            continue;
        }
        let change = match in_left {
            true => Change::Removed,
            false => Change::Added,
        };
        (comparison.tell)(Ok(Difference { path, change }));
    }
}

struct Comparison<'a> {
    options: Options,
    /// The first paths of files with several names, by device and inode.
    firsts: (Firsts, Firsts),
    buffers: (Vec<u8>, Vec<u8>),
    tell: &'a mut dyn FnMut(Result<Difference>),
}

type Firsts = HashMap<(u64, u64), PathBuf>;

/// A directory and the names in it.
type Listed = (Arc<dyn SourceDir>, BTreeSet<OsString>);

/// Two directories that are being compared.
struct Level {
    path: PathBuf,
    left: Listed,
    right: Listed,
    /// Those of both that are left to do.
    names: BTreeSet<OsString>,
}

type Named<'n> = (&'n Arc<dyn SourceDir>, &'n OsStr);

impl Comparison<'_> {
    /// Compares what is in both trees; gives the two directories where it is one.
    fn both(&mut self, left: Named<'_>, right: Named<'_>, path: PathBuf) -> Option<Level> {
        match self.try_both(left, right, path) {
            Ok(level) => level,
            Err(error) => {
                (self.tell)(Err(error));
                None
            }
        }
    }

    fn try_both(
        &mut self,
        left: Named<'_>,
        right: Named<'_>,
        path: PathBuf,
    ) -> Result<Option<Level>> {
        let found = (
            left.0.attributes(left.1, Follow::No)?,
            right.0.attributes(right.1, Follow::No)?,
        );
        let mut aspects = self.attributes(&found.0, &found.1, &path);
        if found.0.kind == found.1.kind {
            self.inside(left, right, &found, &mut aspects)?;
        }
        if !aspects.is_empty() {
            (self.tell)(Ok(Difference {
                path: path.clone(),
                change: Change::Changed(aspects),
            }));
        }
        if !(found.0.is_directory() && found.1.is_directory()) {
            return Ok(None);
        }
        let (left, right) = (listed(left)?, listed(right)?);
        Ok(Some(Level {
            path,
            names: left.1.union(&right.1).cloned().collect(),
            left,
            right,
        }))
    }

    fn attributes(&mut self, left: &Attributes, right: &Attributes, path: &Path) -> Vec<Aspect> {
        if left.kind != right.kind {
            return vec![Aspect::new("type", kind(left.kind), kind(right.kind))];
        }
        let mut aspects = Vec::new();
        let mut compare = |what: &str, left: String, right: String| {
            if left != right {
                aspects.push(Aspect::new(what, left, right));
            }
        };
        if left.kind != FileKind::Symlink {
            let mode = |it: &Attributes| format!("{:04o}", it.permissions);
            compare("mode", mode(left), mode(right));
        }
        if self.options.owners {
            let owner = |it: &Attributes| format!("{}:{}", it.uid, it.gid);
            compare("owner", owner(left), owner(right));
        }
        if self.options.times {
            compare("mtime", time(left.modified), time(right.modified));
        }
        match left.kind {
            FileKind::Regular => compare("size", left.size.to_string(), right.size.to_string()),
            FileKind::CharDevice | FileKind::BlockDevice => {
                let number =
                    |rdev| format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
                compare("device", number(left.rdev), number(right.rdev));
            }
            _ => {}
        }
        if !left.is_directory() && (left.links > 1 || right.links > 1) {
            let first = |firsts: &mut Firsts, it: &Attributes| {
                let first = firsts
                    .entry(it.identity())
                    .or_insert_with(|| path.to_owned());
                format!("/{}", first.display())
            };
            let (in_left, in_right) = &mut self.firsts;
            compare("link", first(in_left, left), first(in_right, right));
        }
        aspects
    }

    /// Compares what is read of two files of one kind.
    fn inside(
        &mut self,
        left: Named<'_>,
        right: Named<'_>,
        found: &(Attributes, Attributes),
        aspects: &mut Vec<Aspect>,
    ) -> Result<()> {
        if self.options.xattrs {
            let read = |(dir, name): Named<'_>| dir.xattrs(name, Follow::No);
            compare_xattrs(&read(left)?, &read(right)?, aspects);
        }
        match found.0.kind {
            FileKind::Symlink => {
                let (from, to) = (left.0.read_link(left.1)?, right.0.read_link(right.1)?);
                if from != to {
                    aspects.push(Aspect::new("target", from.display(), to.display()));
                }
            }
            FileKind::Regular if found.0.size == found.1.size => {
                if let Some(at) = self.first_difference(left, right)? {
                    let text = format!("from byte {at} on");
                    aspects.push(Aspect::new("content", text.clone(), text));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The first byte that differs, counted from 0.
    fn first_difference(&mut self, left: Named<'_>, right: Named<'_>) -> Result<Option<u64>> {
        let files = (
            left.0.open_file(left.1, Follow::No)?,
            right.0.open_file(right.1, Follow::No)?,
        );
        let fill = |file: &dyn crate::tree::SourceFile, buffer: &mut [u8], at: u64| {
            let mut done = 0;
            while done < buffer.len() {
                match file.read_at(&mut buffer[done..], at + done as u64)? {
                    0 => break,
                    count => done += count,
                }
            }
            Ok(done)
        };
        let mut at = 0;
        loop {
            let counts = (
                fill(&*files.0, &mut self.buffers.0, at)?,
                fill(&*files.1, &mut self.buffers.1, at)?,
            );
            let (from, to) = (&self.buffers.0[..counts.0], &self.buffers.1[..counts.1]);
            if from != to {
                let same = from.iter().zip(to).take_while(|(from, to)| from == to);
                return Ok(Some(at + same.count() as u64));
            }
            if counts.0 < CHUNK {
                return Ok(None);
            }
            at += CHUNK as u64;
        }
    }
}

/// Attributes are in the order of their names.
fn compare_xattrs(left: &[Xattr], right: &[Xattr], aspects: &mut Vec<Aspect>) {
    let value = |xattrs: &[Xattr], key: &OsStr| {
        let found = xattrs.iter().find(|xattr| xattr.0 == key);
        found.map_or("none".to_owned(), |xattr| {
            xattr.1.escape_ascii().to_string()
        })
    };
    let keys: BTreeSet<&OsString> = left.iter().chain(right).map(|xattr| &xattr.0).collect();
    for key in keys {
        let (from, to) = (value(left, key), value(right, key));
        if from != to {
            aspects.push(Aspect::new(key.display().to_string(), from, to));
        }
    }
}

fn listed((dir, name): Named<'_>) -> Result<Listed> {
    let dir = match name.as_encoded_bytes() {
        b"." => Arc::clone(dir),
        _ => dir.open_dir(name, Follow::No)?,
    };
    let names = dir.names()?.into_iter().collect();
    Ok((dir, names))
}

fn is_empty(dir: &dyn SourceDir, name: &OsStr) -> bool {
    let inside = dir
        .open_dir(name, Follow::No)
        .and_then(|inside| inside.names());
    inside.is_ok_and(|names| names.is_empty())
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice => "block device",
        FileKind::CharDevice => "character device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

fn time(time: Time) -> String {
    format!("{}.{:09}", time.seconds, time.nanos)
}
