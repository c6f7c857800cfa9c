//! What an image is to hold: the files of all sources, later ones over earlier ones.
//!
//! # Data model
//! A [`Node`] for each file, in one vector; a directory has the numbers of its files by name. Hard
//! links are names with the same number. What is replaced stays in the vector, without a name.
//!
//! # Invariants
//! 1. Node 0 is the root. What has a name is reached from it by names.
//! 2. Only directories have names in them, and a directory has one name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::hash::Hasher;
use std::path::{Component, Path, PathBuf};

use finefs::FileKind;
use finefs::front_end::namespace::SYMLINKS_MAX;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::content::Content;
use crate::attributes::{Time, Xattr};
use crate::error::{Error, Result};
use crate::mkfs;
use crate::tree::{check_path_bytes, start_of};

/// The attribute of a directory that hides what is below it in overlayfs.
const OPAQUE: &str = "trusted.overlay.opaque";

/// The attribute that is an access ACL.
const ACCESS_ACL: &str = "system.posix_acl_access";

/// The longest name.
const NAME_MAX: usize = 255;

/// The longest target of a symbolic link.
const TARGET_MAX: usize = 4095;

/// The largest numbers of devices: 12 bits and 20 bits.
const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;

/// Owner and group, as far as somebody says them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The owner.
    pub user: Option<u32>,
    /// The group.
    pub group: Option<u32>,
}

impl From<(u32, u32)> for Owner {
    fn from((user, group): (u32, u32)) -> Owner {
        Owner {
            user: Some(user),
            group: Some(group),
        }
    }
}

/// Whose the files are.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// Owner and group of everything; those of the sources without it.
    pub all: Owner,
    /// Owner and group of the root directory.
    pub root: Owner,
    /// Users of the sources, and what they become, in the order of the options.
    pub users: Vec<Mapped>,
    /// The same for groups.
    pub groups: Vec<Mapped>,
}

/// So many numbers from one on become those from another on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The first number in the sources.
    pub from: u32,
    /// What it becomes in the image.
    pub to: u32,
    /// How many.
    pub count: u32,
}

impl Owners {
    fn of(&self, uid: u32, gid: u32) -> (u32, u32) {
        let mapped = |id: u32, ranges: &[Mapped]| {
            ranges
                .iter()
                .find_map(|range| {
                    let offset = id.checked_sub(range.from).filter(|it| *it < range.count)?;
                    range.to.checked_add(offset)
                })
                .unwrap_or(id)
        };
        let user = self.all.user.unwrap_or_else(|| mapped(uid, &self.users));
        let group = self.all.group.unwrap_or_else(|| mapped(gid, &self.groups));
        (user, group)
    }
}

/// What a file is besides its data.
#[derive(Clone, Debug)]
pub(super) struct Attributes {
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: Time,
    pub xattrs: Vec<Xattr>,
    /// No source names it: a directory on the way to something. One that is there stays as it is.
    pub is_implied: bool,
}

impl Attributes {
    /// Of directories that no source names.
    fn implied(modified: Time) -> Attributes {
        Attributes {
            permissions: 0o755,
            uid: 0,
            gid: 0,
            modified,
            xattrs: Vec::new(),
            is_implied: true,
        }
    }

    /// An access ACL decides over the permission bits, as where it is set after them.
    pub fn obey_acl(&mut self) {
        let acl = self.xattrs.iter().find(|(key, _)| key == ACCESS_ACL);
        if let Some(bits) = acl.and_then(|(_, value)| crate::acl::permissions(value)) {
            self.permissions = self.permissions & !0o777 | bits;
        }
    }

    /// Marks a directory that hides what is below it in overlayfs.
    pub fn be_opaque(&mut self) {
        self.xattrs.retain(|(key, _)| key != OPAQUE);
        self.xattrs.push((OPAQUE.into(), b"y".to_vec()));
        self.xattrs.sort();
    }
}

/// What a file is.
#[derive(Clone)]
pub(super) enum Kind {
    Directory(BTreeMap<OsString, usize>),
    Regular(Content),
    Symlink(PathBuf),
    Node { kind: FileKind, rdev: u64 },
}

/// A file.
#[derive(Clone)]
pub(super) struct Node {
    pub kind: Kind,
    pub attributes: Attributes,
}

impl Node {
    /// What hides a file below in overlayfs: a character device with the number 0:0.
    pub fn whiteout(modified: Time) -> Node {
        Node {
            kind: Kind::Node {
                kind: FileKind::CharDevice,
                rdev: 0,
            },
            attributes: Attributes {
                permissions: 0,
                is_implied: false,
                ..Attributes::implied(modified)
            },
        }
    }

    fn is_whiteout(&self) -> bool {
        matches!(
            self.kind,
            Kind::Node {
                kind: FileKind::CharDevice,
                rdev: 0
            }
        )
    }
}

/// What all of it comes to.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Totals {
    /// Files that have a name, without the root.
    pub files: u64,
    /// Bytes of data, without known holes.
    pub bytes: u64,
}

/// See the module's head.
pub(super) struct Manifest {
    pub nodes: Vec<Node>,
    /// Of each node the bytes of the path by which it was put.
    path_bytes: Vec<usize>,
    /// Entries of sources that an image does not have.
    pub left_out: Vec<String>,
    /// What the user should know of the sources.
    pub notes: Vec<String>,
    /// Device and inode number of a file of the host that is left out: the image itself.
    pub output: Option<(u64, u64)>,
    /// Names of the archive members that were chosen.
    pub members: Vec<PathBuf>,
    /// A directory that comes over a whiteout of overlayfs is opaque.
    pub joins_whiteouts: bool,
    /// The names that the layer being laid has given, by their directories; `None` for what is no
    /// layer.
    layer: Option<HashMap<usize, HashSet<OsString>>>,
    owners: Owners,
    time_max: Option<i64>,
    newest: Option<Time>,
}

pub(super) const ROOT: usize = 0;

/// What [`Manifest::directory`] does about directories that are missing.
#[derive(Clone, Copy)]
pub enum Missing {
    Make,
    Keep,
}

impl Manifest {
    pub fn new(owners: Owners, time_max: Option<i64>) -> Manifest {
        let zero = Time {
            seconds: 0,
            nanos: 0,
        };
        let root = Node {
            kind: Kind::Directory(BTreeMap::new()),
            attributes: Attributes::implied(zero),
        };
        let mut manifest = Manifest {
            nodes: vec![root],
            path_bytes: vec![0],
            left_out: Vec::new(),
            notes: Vec::new(),
            output: None,
            members: Vec::new(),
            joins_whiteouts: false,
            layer: None,
            owners,
            time_max,
            newest: None,
        };
        manifest.set_attributes(ROOT, Attributes::implied(zero));
        manifest
    }

    /// The files in a directory.
    pub fn names(&self, node: usize) -> &BTreeMap<OsString, usize> {
        static NONE: BTreeMap<OsString, usize> = BTreeMap::new();
        match &self.nodes[node].kind {
            Kind::Directory(names) => names,
            _ => &NONE,
        }
    }

    /// What a path names, with all symbolic links on the way followed within the image; the last
    /// one too. `None` for a missing directory, unless those are made.
    pub fn directory(&mut self, path: &Path, missing: Missing) -> Result<Option<usize>> {
        let refused = |reason: &str| Error::new(path.display().to_string(), reason);
        let mut above = vec![ROOT];
        let mut todo: Vec<OsString> = components(path).rev().collect();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                if above.len() > 1 {
                    above.pop();
                }
                continue;
            }
            let here = above[above.len() - 1];
            let found = match self.names(here).get(&name) {
                Some(found) => *found,
                None => match missing {
                    Missing::Make => self.imply(here, &name)?,
                    Missing::Keep => return Ok(None),
                },
            };
            match &self.nodes[found].kind {
                Kind::Directory(_) => above.push(found),
                Kind::Symlink(target) => {
                    links += 1;
                    if links > SYMLINKS_MAX {
                        return Err(refused("too many symbolic links on the way"));
                    }
                    if target.is_absolute() {
                        above.truncate(1);
                    }
                    let target = target.clone();
                    todo.extend(components(&target).rev());
                }
                _ => return Err(refused("leads through a file that is no directory")),
            }
        }
        Ok(above.last().copied())
    }

    /// A directory that no source has named yet.
    fn imply(&mut self, parent: usize, name: &OsStr) -> Result<usize> {
        let modified = self.nodes[parent].attributes.modified;
        let mut node = Node {
            kind: Kind::Directory(BTreeMap::new()),
            attributes: Attributes::implied(modified),
        };
        self.settle(&mut node.attributes);
        self.put_new(parent, name, node, &|| name.display().to_string())
    }

    /// Takes away what is at these paths, with all below it.
    pub fn leave_out(&mut self, is_out: &dyn Fn(&Path) -> bool) {
        let mut todo = vec![(ROOT, PathBuf::from("/"))];
        while let Some((directory, path)) = todo.pop() {
            let Kind::Directory(names) = &mut self.nodes[directory].kind else {
                continue;
            };
            names.retain(|name, node| {
                let path = path.join(name);
                let is_in = !is_out(&path);
                if is_in {
                    todo.push((*node, path));
                }
                is_in
            });
        }
    }

    /// From here on a layer of a container image is laid over what is there. What it has replaces
    /// what is no directory on both sides: as with containerd and umoci, a file takes the place of
    /// a directory with all in it, and a directory that of a link to one.
    pub fn begin_layer(&mut self) {
        self.layer = Some(HashMap::new());
    }

    /// The layer is whole.
    pub fn end_layer(&mut self) {
        self.layer = None;
    }

    /// Takes away what lower layers have at a name of a directory, at all names without one. What
    /// the layer being laid has there stays, with the directories that lead to it.
    pub fn take_away(&mut self, directory: usize, name: Option<&OsStr>) {
        // Each directory before those in it.
        let mut found: Vec<(usize, OsString, usize)> = Vec::new();
        let all_in = |manifest: &Manifest, parent: usize| -> Vec<(usize, OsString, usize)> {
            let names = manifest.names(parent).iter();
            names
                .map(|(name, node)| (parent, name.clone(), *node))
                .collect()
        };
        let mut todo = all_in(self, directory);
        todo.retain(|(_, other, _)| name.is_none_or(|name| name == other));
        while let Some(entry) = todo.pop() {
            todo.extend(all_in(self, entry.2));
            found.push(entry);
        }
        for (parent, name, node) in found.into_iter().rev() {
            let is_of_layer = |layer: &HashMap<usize, HashSet<OsString>>| {
                layer
                    .get(&parent)
                    .is_some_and(|names| names.contains(&name))
            };
            let stays = self.layer.as_ref().is_some_and(is_of_layer);
            if !stays
                && self.names(node).is_empty()
                && let Kind::Directory(names) = &mut self.nodes[parent].kind
            {
                names.remove(&name);
            }
        }
    }

    /// Notes that the layer being laid has given a name.
    fn note_name(&mut self, parent: usize, name: &OsStr) {
        if let Some(layer) = &mut self.layer {
            layer.entry(parent).or_default().insert(name.to_owned());
        }
    }

    /// Puts a directory at a path whose parent is known. It joins the one that is there, also where
    /// a symbolic link leads to it, unless it is of a layer, and its attributes count.
    pub fn put_directory(
        &mut self,
        parent: usize,
        path: &Path,
        node: Node,
        shown: &dyn Fn() -> String,
    ) -> Result<usize> {
        let name = path.file_name().unwrap_or_default();
        let existing = self.names(parent).get(name).copied();
        let led_to = match existing.map(|existing| &self.nodes[existing].kind) {
            Some(Kind::Symlink(_)) if self.layer.is_none() => {
                self.directory(path, Missing::Keep).ok().flatten()
            }
            _ => None,
        };
        match led_to {
            Some(existing) => {
                self.set_attributes(existing, node.attributes);
                Ok(existing)
            }
            None => self.put(parent, name, node, shown),
        }
    }

    /// Puts a file at a name of a directory, in place of what is there.
    pub fn put(
        &mut self,
        parent: usize,
        name: &OsStr,
        mut node: Node,
        shown: &dyn Fn() -> String,
    ) -> Result<usize> {
        self.settle(&mut node.attributes);
        let Some(existing) = self.names(parent).get(name).copied() else {
            return self.put_new(parent, name, node, shown);
        };
        let there = &mut self.nodes[existing];
        match (&node.kind, &there.kind) {
            (Kind::Directory(_), Kind::Directory(_)) => {
                let was_opaque = there.attributes.xattrs.iter().any(|(key, _)| key == OPAQUE);
                there.attributes = node.attributes;
                if was_opaque && self.joins_whiteouts {
                    there.attributes.be_opaque();
                }
                self.note_name(parent, name);
                Ok(existing)
            }
            (Kind::Directory(_), _) if self.joins_whiteouts && there.is_whiteout() => {
                node.attributes.be_opaque();
                self.put_new(parent, name, node, shown)
            }
            _ => self.put_new(parent, name, node, shown),
        }
    }

    fn put_new(
        &mut self,
        parent: usize,
        name: &OsStr,
        node: Node,
        shown: &dyn Fn() -> String,
    ) -> Result<usize> {
        check(&node, name, shown)?;
        let path_bytes = self.path_bytes[parent] + 1 + name.len();
        let too_long = |reason| Error::new(start_of(Path::new(&shown())), reason);
        check_path_bytes(path_bytes).map_err(too_long)?;
        let number = self.nodes.len();
        self.nodes.push(node);
        self.path_bytes.push(path_bytes);
        self.link(parent, name, number, shown)?;
        Ok(number)
    }

    /// Gives a file a name, in place of what has it; a layer's in place of a full directory, too.
    pub fn link(
        &mut self,
        parent: usize,
        name: &OsStr,
        node: usize,
        shown: &dyn Fn() -> String,
    ) -> Result<()> {
        let existing = self.names(parent).get(name).copied();
        let is_full = existing.is_some_and(|existing| !self.names(existing).is_empty());
        if is_full && self.layer.is_none() {
            let reason = "would replace a directory that has files in it";
            return Err(Error::new(shown(), reason));
        }
        if let Kind::Directory(names) = &mut self.nodes[parent].kind {
            names.insert(name.to_owned(), node);
        }
        self.note_name(parent, name);
        Ok(())
    }

    /// Gives a directory that is there the attributes that a source has for it.
    pub fn set_attributes(&mut self, node: usize, mut attributes: Attributes) {
        self.settle(&mut attributes);
        if node == ROOT {
            let root = self.owners.root;
            attributes.uid = root.user.unwrap_or(attributes.uid);
            attributes.gid = root.group.unwrap_or(attributes.gid);
        }
        self.nodes[node].attributes = attributes;
    }

    /// Owner and time as the options want them.
    fn settle(&mut self, attributes: &mut Attributes) {
        (attributes.uid, attributes.gid) = self.owners.of(attributes.uid, attributes.gid);
        if let Some(max) = self.time_max
            && attributes.modified.seconds >= max
        {
            attributes.modified = Time {
                seconds: max,
                nanos: 0,
            };
        }
        self.newest = self.newest.max(Some(attributes.modified));
    }

    /// Directories from the root on, each before those in it, with their paths.
    pub fn each_directory<'a>(&'a self) -> impl Iterator<Item = (PathBuf, usize)> + use<'a> {
        let mut path = PathBuf::from("/");
        // What is still to come of each directory on the path.
        let mut open = vec![self.names(ROOT).iter()];
        let below = std::iter::from_fn(move || {
            loop {
                let Some((name, node)) = open.last_mut()?.next() else {
                    open.pop();
                    path.pop();
                    continue;
                };
                if matches!(self.nodes[*node].kind, Kind::Directory(_)) {
                    path.push(name);
                    open.push(self.names(*node).iter());
                    return Some((path.clone(), *node));
                }
            }
        });
        std::iter::once((PathBuf::from("/"), ROOT)).chain(below)
    }

    /// Marks nodes; true the first time.
    pub fn marks(&self) -> impl FnMut(usize) -> bool + use<> {
        let mut seen = vec![false; self.nodes.len()];
        move |node| !std::mem::replace(&mut seen[node], true)
    }

    /// Which nodes have several names.
    pub fn linked(&self) -> Vec<bool> {
        let mut linked = vec![false; self.nodes.len()];
        let mut is_first = self.marks();
        for (_, directory) in self.each_directory() {
            for number in self.names(directory).values() {
                linked[*number] |= !is_first(*number);
            }
        }
        linked
    }

    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let mut is_first = self.marks();
        for (_, directory) in self.each_directory() {
            for node in self.names(directory).values() {
                if is_first(*node) {
                    totals.files += 1;
                    if let Kind::Regular(content) = &self.nodes[*node].kind {
                        totals.bytes += content.data_bytes;
                    }
                }
            }
        }
        totals
    }

    /// Gives the file system its time and its numbers, where nobody did.
    pub fn identify(&self, options: &mut mkfs::Options) {
        if options.time.is_none() {
            let newest = self.newest.map_or(0, |time| time.seconds);
            options.time = Some(newest.max(0));
        }
        if options.seed.is_none() {
            options.seed = Some(format!("{:032x}", self.digest()));
        }
    }

    /// Tells contents apart, by names and attributes.
    fn digest(&self) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(0x6669_6e65_6673, 0x0062_7569_6c64);
        let text = |hasher: &mut SipHasher13, bytes: &[u8]| {
            hasher.write(&(bytes.len() as u64).to_le_bytes());
            hasher.write(bytes);
        };
        let mut is_first = self.marks();
        for (path, directory) in self.each_directory() {
            text(&mut hasher, path.as_os_str().as_encoded_bytes());
            for (name, number) in self.names(directory) {
                text(&mut hasher, name.as_encoded_bytes());
                let node = &self.nodes[*number];
                if !is_first(*number) {
                    continue;
                }
                let it = &node.attributes;
                let (kind, size) = match &node.kind {
                    Kind::Directory(_) => (0, 0),
                    Kind::Regular(content) => (1, content.size),
                    Kind::Symlink(target) => {
                        text(&mut hasher, target.as_os_str().as_encoded_bytes());
                        (2, 0)
                    }
                    Kind::Node { kind, rdev } => (u64::from(kind.mode_bits()), *rdev),
                };
                let seconds = it.modified.seconds as u64;
                let ids = u64::from(it.uid) << 32 | u64::from(it.gid);
                let mode = u64::from(it.permissions) << 32 | u64::from(it.modified.nanos);
                for word in [kind, size, seconds, ids, mode] {
                    hasher.write(&word.to_le_bytes());
                }
                for (key, value) in &it.xattrs {
                    text(&mut hasher, key.as_encoded_bytes());
                    text(&mut hasher, value);
                }
            }
        }
        hasher.finish128().as_u128()
    }
}

/// What no image can hold.
fn check(node: &Node, name: &OsStr, shown: &dyn Fn() -> String) -> Result<()> {
    if name.len() > NAME_MAX {
        let reason = format!("a name of {} bytes; {NAME_MAX} are possible", name.len());
        return Err(Error::new(shown(), reason));
    }
    match &node.kind {
        Kind::Symlink(target) => match target.as_os_str().len() {
            0 => Err(Error::new(shown(), "a symbolic link to nothing")),
            1..=TARGET_MAX => Ok(()),
            length => {
                let reason =
                    format!("a symbolic link of {length} bytes; {TARGET_MAX} are possible");
                Err(Error::new(shown(), reason))
            }
        },
        Kind::Node { rdev, .. } => {
            let (major, minor) = (rustix::fs::major(*rdev), rustix::fs::minor(*rdev));
            if major <= MAJOR_MAX && minor <= MINOR_MAX {
                return Ok(());
            }
            let reason =
                format!("a device {major}:{minor}; {MAJOR_MAX}:{MINOR_MAX} are the largest");
            Err(Error::new(shown(), reason))
        }
        Kind::Directory(_) | Kind::Regular(_) => Ok(()),
    }
}

/// Names on a path, `..` among them.
fn components(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + use<> {
    let names: Vec<OsString> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            _ => None,
        })
        .collect();
    names.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: Kind) -> Node {
        let zero = Time {
            seconds: 0,
            nanos: 0,
        };
        Node {
            kind,
            attributes: Attributes::implied(zero),
        }
    }

    fn symlink(target: &str) -> Node {
        node(Kind::Symlink(target.into()))
    }

    fn directory() -> Node {
        node(Kind::Directory(BTreeMap::new()))
    }

    fn put(manifest: &mut Manifest, parent: usize, name: &str, node: Node) -> Result<usize> {
        manifest.put(parent, OsStr::new(name), node, &|| name.to_owned())
    }

    fn make(manifest: &mut Manifest, path: &str) -> Result<Option<usize>> {
        manifest.directory(Path::new(path), Missing::Make)
    }

    #[test]
    fn links_and_dots_stay_inside() {
        let mut manifest = Manifest::new(Owners::default(), None);
        let usr = put(&mut manifest, ROOT, "usr", directory()).unwrap();
        put(&mut manifest, ROOT, "lib", symlink("../../usr")).unwrap();
        put(&mut manifest, ROOT, "abs", symlink("/usr/../usr")).unwrap();
        put(&mut manifest, ROOT, "turn", symlink("turn")).unwrap();
        for path in ["usr", "lib", "/abs/.", "../../usr", "lib/../abs"] {
            let found = manifest.directory(Path::new(path), Missing::Keep).unwrap();
            assert_eq!(found, Some(usr), "{path}");
        }
        assert!(make(&mut manifest, "turn/a").is_err());
        let found = manifest.directory(Path::new("lib/a"), Missing::Keep);
        assert_eq!(found.unwrap(), None);
        let made = make(&mut manifest, "lib/a").unwrap();
        assert_eq!(manifest.names(usr).get(OsStr::new("a")).copied(), made);
    }

    #[test]
    fn later_files_replace_earlier_ones_but_not_full_directories() {
        let mut manifest = Manifest::new(Owners::default(), None);
        let usr = put(&mut manifest, ROOT, "usr", directory()).unwrap();
        assert_eq!(put(&mut manifest, ROOT, "usr", directory()).unwrap(), usr);
        let first = put(&mut manifest, usr, "x", symlink("a")).unwrap();
        let second = put(&mut manifest, usr, "x", symlink("b")).unwrap();
        assert_ne!(first, second);
        assert_eq!(manifest.totals().files, 2);
        let error = put(&mut manifest, ROOT, "usr", symlink("a")).unwrap_err();
        assert!(error.to_string().contains("files in it"), "{error}");
    }

    #[test]
    fn directories_come_in_order_each_before_those_in_it() {
        let mut manifest = Manifest::new(Owners::default(), None);
        for path in ["b", "a/z/y", "a/c", "d/e"] {
            make(&mut manifest, path).unwrap();
        }
        put(&mut manifest, ROOT, "c", symlink("a")).unwrap();
        let found = manifest.each_directory().map(|(path, _)| path);
        let found: Vec<String> = found.map(|path| path.display().to_string()).collect();
        let wanted = ["/", "/a", "/a/c", "/a/z", "/a/z/y", "/b", "/d", "/d/e"];
        assert_eq!(found, wanted);
    }

    /// Also where links lead deeper than any one path.
    #[test]
    fn paths_have_an_end() {
        let mut manifest = Manifest::new(Owners::default(), None);
        let part = "a/".repeat(2000);
        for number in 0..4 {
            let above = match number {
                0 => "/".to_owned(),
                _ => format!("/link{}/", number - 1),
            };
            let path = format!("{above}{part}");
            make(&mut manifest, &path).unwrap();
            put(
                &mut manifest,
                ROOT,
                &format!("link{number}"),
                symlink(&path),
            )
            .unwrap();
        }
        let path = format!("link3/{part}");
        let error = make(&mut manifest, &path).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a: a path of 16386 bytes; 16384 are possible"
        );
    }

    #[test]
    fn directories_that_no_source_names_have_owners_too() {
        let owners = Owners {
            all: (5, 6).into(),
            ..Owners::default()
        };
        let mut manifest = Manifest::new(owners, None);
        let made = make(&mut manifest, "a/b").unwrap().unwrap();
        for node in [ROOT, made] {
            let it = &manifest.nodes[node].attributes;
            assert_eq!((it.uid, it.gid), (5, 6));
        }
        let owners = Owners {
            root: (7, 8).into(),
            users: vec![Mapped {
                from: 0,
                to: 1000,
                count: 1,
            }],
            ..Owners::default()
        };
        let mut manifest = Manifest::new(owners, None);
        let made = make(&mut manifest, "a/b").unwrap().unwrap();
        let owner = |node: usize| {
            let it = &manifest.nodes[node].attributes;
            (it.uid, it.gid)
        };
        assert_eq!((owner(ROOT), owner(made)), ((7, 8), (1000, 0)));
    }

    #[test]
    fn owners_are_mapped_by_the_first_range() {
        let range = |from, to, count| Mapped { from, to, count };
        let owners = Owners {
            users: vec![range(1000, 0, 1), range(0, 100_000, 65_536)],
            ..Owners::default()
        };
        assert_eq!(owners.of(1000, 7), (0, 7));
        assert_eq!(owners.of(1001, 7), (101_001, 7));
        assert_eq!(owners.of(70_000, 7), (70_000, 7));
    }
}
