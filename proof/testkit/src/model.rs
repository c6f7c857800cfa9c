//! The reference model: a file system as simple as can be.
//!
//! # Data model
//! Inodes in one map, by a number that is never used again. A directory is a map from name to
//! number, a file is a vector of bytes. There is no cache, no store, no concurrency, no block.
//!
//! # Invariants
//! 1. An inode is in the map while it has a name or a reference; the root always.
//! 2. A call that is refused changes nothing, and gives every error that applies (see the crate's
//!    head).

use std::collections::BTreeMap;

use finefs_namespace::{
    AllocateMode, Caller, Error, FileKind, Geometry, RenameMode, SetAttributes, XattrMode,
};

const READ: u32 = libc::R_OK as u32;
const WRITE: u32 = libc::W_OK as u32;
const EXECUTE: u32 = libc::X_OK as u32;

/// Longest value of an extended attribute.
const XATTR_VALUE_MAX: usize = 65536;

pub mod acl;
mod contents;

use acl::Acl;

/// Number of an inode in the model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id(pub u64);

/// All errors that apply to a call that must fail.
pub type Refused = Vec<Error>;
/// What a call gives.
pub type Result<T> = std::result::Result<T, Refused>;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub device: u64,
    /// Number of links, as stat(2) shows it.
    pub links: u32,
    /// References that the caller holds.
    pub references: u64,
    /// Made without a name, and never had one.
    pub is_unnamed: bool,
    /// Content of a regular file, target of a symbolic link.
    pub data: Vec<u8>,
    /// Names of a directory.
    pub entries: BTreeMap<Vec<u8>, Id>,
    /// What holds the directory's name; itself for the root.
    pub parent: Id,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Node {
    /// One of its ACLs.
    fn acl(&self, name: &[u8]) -> Option<Acl> {
        let value = self.xattrs.get(name)?;
        Acl::from_value(value).expect("checked when it was set")
    }
}

/// What an inode is made from.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits before the umask.
    pub permissions: u32,
    /// Device number.
    pub device: u64,
    /// Target of a symbolic link.
    pub target: &'a [u8],
}

/// The file system.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: BTreeMap<Id, Node>,
    next: u64,
    limits: Geometry,
}

/// Collects the errors that apply.
#[derive(Default)]
struct Checks(Refused);

impl Checks {
    fn refuse_if(&mut self, applies: bool, error: Error) {
        if applies {
            self.0.push(error);
        }
    }

    fn done(self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.0)
        }
    }
}

impl Model {
    /// The number of the root.
    pub const ROOT: Id = Id(0);

    /// A file system of nothing but a root directory with these attributes.
    pub fn new(limits: &Geometry, permissions: u32, uid: u32, gid: u32) -> Model {
        let root = Node {
            kind: FileKind::Directory,
            permissions,
            uid,
            gid,
            device: 0,
            links: 2,
            references: 1,
            is_unnamed: false,
            data: Vec::new(),
            entries: BTreeMap::new(),
            parent: Model::ROOT,
            xattrs: BTreeMap::new(),
        };
        Model {
            nodes: BTreeMap::from([(Model::ROOT, root)]),
            next: 1,
            limits: limits.clone(),
        }
    }

    /// An inode, unless it is gone.
    pub fn node(&self, id: Id) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// All inodes.
    pub fn nodes(&self) -> impl Iterator<Item = (Id, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// Notes a name that the store made (`lost+found`), owned by the root user.
    pub fn add_directory(&mut self, name: &[u8], permissions: u32) -> Id {
        let new = New {
            kind: FileKind::Directory,
            permissions,
            device: 0,
            target: b"",
        };
        let id = self.create(&Caller::root(), Model::ROOT, name, &new);
        let id = id.expect("a new name in the root");
        self.forget(id, 1);
        id
    }

    /// The root has links that names do not tell of (reiserfs: its own, a hidden directory's).
    pub fn set_root_links(&mut self, links: u32) {
        self.get_mut(Model::ROOT).links = links;
    }

    fn get(&self, id: Id) -> Result<&Node> {
        self.nodes.get(&id).ok_or_else(|| vec![Error::Stale])
    }

    fn get_mut(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("looked at before")
    }

    fn directory(&self, id: Id) -> Result<&Node> {
        let node = self.get(id)?;
        if node.kind == FileKind::Directory {
            Ok(node)
        } else {
            Err(vec![Error::NotADirectory])
        }
    }

    fn file(&self, id: Id) -> Result<&Node> {
        let node = self.get(id)?;
        match node.kind {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err(vec![Error::IsADirectory]),
            _ => Err(vec![Error::Invalid]),
        }
    }

    fn free_if_unused(&mut self, id: Id) {
        let node = self.get_mut(id);
        if node.links == 0 && node.references == 0 {
            self.nodes.remove(&id);
        }
    }

    // --- names ---

    /// Finds a name and takes a reference.
    pub fn lookup(&mut self, caller: &Caller, dir: Id, name: &[u8]) -> Result<Id> {
        let parent = self.directory(dir)?;
        let mut checks = Checks::default();
        checks.refuse_if(!may(caller, parent, EXECUTE), Error::AccessDenied);
        let found = match name {
            b"." => Some(dir),
            b".." => Some(parent.parent),
            _ => {
                checks.refuse_if(
                    name.len() > self.limits.name_max as usize,
                    Error::NameTooLong,
                );
                parent.entries.get(name).copied()
            }
        };
        // The parent of a directory that was removed may be gone itself.
        checks.refuse_if(name == b".." && parent.links == 0, Error::NotFound);
        checks.refuse_if(found.is_none(), Error::NotFound);
        checks.done()?;
        let id = found.expect("checked");
        self.get_mut(id).references += 1;
        Ok(id)
    }

    fn check_new_name(&self, caller: &Caller, dir: &Node, name: &[u8], checks: &mut Checks) {
        checks.refuse_if(!may(caller, dir, WRITE | EXECUTE), Error::AccessDenied);
        checks.refuse_if(name.is_empty() || dir.links == 0, Error::NotFound);
        checks.refuse_if(
            name.len() > self.limits.name_max as usize,
            Error::NameTooLong,
        );
        let exists = matches!(name, b"." | b"..") || dir.entries.contains_key(name);
        checks.refuse_if(exists, Error::Exists);
        checks.refuse_if(name.contains(&b'/') || name.contains(&0), Error::Invalid);
    }

    /// Makes an inode with a name and one reference.
    pub fn create(&mut self, caller: &Caller, dir: Id, name: &[u8], new: &New<'_>) -> Result<Id> {
        let mut checks = Checks::default();
        let is_device = matches!(new.kind, FileKind::BlockDevice | FileKind::CharDevice);
        checks.refuse_if(
            is_device && new.device > u64::from(u32::MAX),
            Error::Invalid,
        );
        let is_whiteout = new.kind == FileKind::CharDevice && new.device == 0;
        let may_make = caller.is_checked() || caller.uid == 0 || is_whiteout;
        checks.refuse_if(is_device && !may_make, Error::NotPermitted);
        if new.kind == FileKind::Symlink {
            checks.refuse_if(new.target.is_empty(), Error::NotFound);
            let is_long = new.target.len() > self.limits.symlink_max as usize;
            checks.refuse_if(is_long, Error::NameTooLong);
        }
        match self.directory(dir) {
            Ok(parent) => self.check_new_name(caller, parent, name, &mut checks),
            Err(mut errors) => checks.0.append(&mut errors),
        }
        checks.done()?;
        let id = self.make(caller, dir, new);
        let parent = self.get_mut(dir);
        parent.entries.insert(name.to_vec(), id);
        if new.kind == FileKind::Directory {
            parent.links += 1;
        }
        Ok(id)
    }

    /// Makes a regular file without a name, with one reference.
    pub fn create_unnamed(&mut self, caller: &Caller, dir: Id, permissions: u32) -> Result<Id> {
        let parent = self.directory(dir)?;
        let mut checks = Checks::default();
        checks.refuse_if(!may(caller, parent, WRITE | EXECUTE), Error::AccessDenied);
        checks.done()?;
        let new = New {
            kind: FileKind::Regular,
            permissions,
            device: 0,
            target: b"",
        };
        let id = self.make(caller, dir, &new);
        let node = self.get_mut(id);
        node.links = 0;
        node.is_unnamed = true;
        Ok(id)
    }

    fn make(&mut self, caller: &Caller, dir: Id, new: &New<'_>) -> Id {
        let id = Id(self.next);
        self.next += 1;
        let parent = &self.nodes[&dir];
        let inherits = parent.permissions & libc::S_ISGID != 0;
        let is_directory = new.kind == FileKind::Directory;
        // mkdir(2) has no set-id bits to give.
        let mut permissions = new.permissions & if is_directory { 0o1777 } else { 0o7777 };
        let mut xattrs = BTreeMap::new();
        if new.kind != FileKind::Symlink {
            match parent.acl(acl::DEFAULT) {
                None => permissions &= !caller.umask,
                Some(default) => {
                    permissions &= default.mode() | 0o7000;
                    let access = default.with_mode(permissions);
                    if !access.is_minimal() {
                        xattrs.insert(acl::ACCESS.to_vec(), access.value());
                    }
                    if new.kind == FileKind::Directory {
                        xattrs.insert(acl::DEFAULT.to_vec(), default.value());
                    }
                }
            }
        }
        if inherits && is_directory {
            permissions |= libc::S_ISGID;
        } else if inherits && !is_privileged(caller) && !caller.is_in_group(parent.gid) {
            // Judged by the mode that was asked for, and only if it is a program that would run
            // with it.
            if new.permissions & libc::S_IXGRP != 0 {
                permissions &= !libc::S_ISGID;
            }
        }
        let is_device = matches!(new.kind, FileKind::BlockDevice | FileKind::CharDevice);
        let node = Node {
            kind: new.kind,
            permissions,
            uid: caller.uid,
            gid: if inherits { parent.gid } else { caller.gid },
            device: if is_device { new.device } else { 0 },
            links: if is_directory { 2 } else { 1 },
            references: 1,
            is_unnamed: false,
            data: new.target.to_vec(),
            entries: BTreeMap::new(),
            parent: dir,
            xattrs,
        };
        self.nodes.insert(id, node);
        id
    }

    /// Gives an inode another name and takes a reference on it.
    pub fn link(&mut self, caller: &Caller, id: Id, dir: Id, name: &[u8]) -> Result<()> {
        let mut checks = Checks::default();
        let node = self.get(id)?;
        checks.refuse_if(node.kind == FileKind::Directory, Error::NotPermitted);
        checks.refuse_if(node.links == 0 && !node.is_unnamed, Error::NotFound);
        match self.directory(dir) {
            Ok(parent) => self.check_new_name(caller, parent, name, &mut checks),
            Err(mut errors) => checks.0.append(&mut errors),
        }
        checks.done()?;
        self.get_mut(dir).entries.insert(name.to_vec(), id);
        let node = self.get_mut(id);
        node.links += 1;
        node.references += 1;
        node.is_unnamed = false;
        Ok(())
    }

    /// Whether a name that is there may be taken out of its directory.
    fn check_remove(&self, caller: &Caller, dir: &Node, child: &Node, checks: &mut Checks) {
        checks.refuse_if(!may(caller, dir, WRITE | EXECUTE), Error::AccessDenied);
        let is_sticky = dir.permissions & libc::S_ISVTX != 0;
        checks.refuse_if(
            is_sticky && !owns(caller, dir) && !owns(caller, child),
            Error::NotPermitted,
        );
    }

    /// The entry of a name that is to go, with the errors of a name that is none.
    fn old_name(
        &self,
        caller: &Caller,
        dir: &Node,
        name: &[u8],
        checks: &mut Checks,
    ) -> Option<Id> {
        checks.refuse_if(!may(caller, dir, EXECUTE), Error::AccessDenied);
        checks.refuse_if(
            name.len() > self.limits.name_max as usize,
            Error::NameTooLong,
        );
        let found = dir.entries.get(name).copied();
        let is_dots = matches!(name, b"." | b"..");
        checks.refuse_if(found.is_none() && !is_dots, Error::NotFound);
        found
    }

    /// Takes away the name of anything but a directory.
    pub fn remove_file(&mut self, caller: &Caller, dir: Id, name: &[u8]) -> Result<()> {
        let parent = self.directory(dir)?;
        let mut checks = Checks::default();
        checks.refuse_if(matches!(name, b"." | b".."), Error::IsADirectory);
        if let Some(id) = self.old_name(caller, parent, name, &mut checks) {
            let child = &self.nodes[&id];
            checks.refuse_if(child.kind == FileKind::Directory, Error::IsADirectory);
            self.check_remove(caller, parent, child, &mut checks);
        }
        checks.done()?;
        self.unlink(dir, name);
        Ok(())
    }

    /// Takes away the name of an empty directory.
    pub fn remove_directory(&mut self, caller: &Caller, dir: Id, name: &[u8]) -> Result<()> {
        let parent = self.directory(dir)?;
        let mut checks = Checks::default();
        checks.refuse_if(name == b".", Error::Invalid);
        checks.refuse_if(name == b"..", Error::NotEmpty);
        if let Some(id) = self.old_name(caller, parent, name, &mut checks) {
            let child = &self.nodes[&id];
            checks.refuse_if(child.kind != FileKind::Directory, Error::NotADirectory);
            checks.refuse_if(!child.entries.is_empty(), Error::NotEmpty);
            self.check_remove(caller, parent, child, &mut checks);
        }
        checks.done()?;
        self.unlink(dir, name);
        Ok(())
    }

    /// Takes a name out; what it named loses a link, and goes when it was the last of everything.
    fn unlink(&mut self, dir: Id, name: &[u8]) {
        let parent = self.get_mut(dir);
        let id = parent.entries.remove(name).expect("looked at before");
        let child = self.get_mut(id);
        if child.kind == FileKind::Directory {
            child.links = 0;
            self.get_mut(dir).links -= 1;
        } else {
            child.links -= 1;
        }
        self.free_if_unused(id);
    }

    /// True when `above` is `id` or one of the directories above it.
    fn is_above(&self, above: Id, id: Id) -> bool {
        let mut at = id;
        loop {
            if at == above {
                return true;
            }
            match self.nodes.get(&at) {
                Some(node) if node.parent != at => at = node.parent,
                _ => return false,
            }
        }
    }

    /// Renames.
    pub fn rename(
        &mut self,
        caller: &Caller,
        (from_dir, from_name): (Id, &[u8]),
        (to_dir, to_name): (Id, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let mut checks = Checks::default();
        // Linux finds that `.` and `..` are there before it finds that they cannot be replaced.
        let to_dots = match mode {
            RenameMode::NoReplace | RenameMode::WhiteoutNoReplace => Error::Exists,
            _ => Error::Busy,
        };
        for (dir, name, dots) in [
            (from_dir, from_name, Error::Busy),
            (to_dir, to_name, to_dots),
        ] {
            match self.directory(dir) {
                Ok(node) => checks.refuse_if(!may(caller, node, EXECUTE), Error::AccessDenied),
                Err(mut errors) => checks.0.append(&mut errors),
            }
            checks.refuse_if(matches!(name, b"." | b".."), dots);
            checks.refuse_if(name.contains(&b'/') || name.contains(&0), Error::Invalid);
            checks.refuse_if(name.is_empty(), Error::NotFound);
            checks.refuse_if(
                name.len() > self.limits.name_max as usize,
                Error::NameTooLong,
            );
        }
        let (Ok(from), Ok(to)) = (self.directory(from_dir), self.directory(to_dir)) else {
            return checks.done();
        };
        let moved = self.old_name(caller, from, from_name, &mut checks);
        let victim = to.entries.get(to_name).copied();
        checks.refuse_if(victim.is_none() && to.links == 0, Error::NotFound);
        checks.refuse_if(
            matches!(mode, RenameMode::NoReplace | RenameMode::WhiteoutNoReplace)
                && victim.is_some(),
            Error::Exists,
        );
        checks.refuse_if(
            mode == RenameMode::Exchange && victim.is_none(),
            Error::NotFound,
        );
        // Nothing is done where both are one inode: nobody needs a permission for that.
        let is_one = moved.is_some() && moved == victim;
        match victim {
            _ if is_one => {}
            Some(id) => self.check_remove(caller, to, &self.nodes[&id], &mut checks),
            None => checks.refuse_if(!may(caller, to, WRITE | EXECUTE), Error::AccessDenied),
        }
        if let Some(moved) = moved.filter(|_| !is_one) {
            self.check_remove(caller, from, &self.nodes[&moved], &mut checks);
            let sides = (from_dir, to_dir);
            self.check_rename(caller, sides, moved, victim, mode, &mut checks);
        }
        checks.done()?;
        let moved = moved.expect("checked");
        if victim == Some(moved) {
            return Ok(());
        }
        match (mode, victim) {
            (RenameMode::Exchange, Some(victim)) => {
                self.put(from_dir, from_name, victim);
                self.put(to_dir, to_name, moved);
                self.adopt(victim, to_dir, from_dir);
            }
            _ => {
                if victim.is_some() {
                    self.unlink(to_dir, to_name);
                }
                self.get_mut(from_dir).entries.remove(from_name);
                self.put(to_dir, to_name, moved);
                if matches!(mode, RenameMode::Whiteout | RenameMode::WhiteoutNoReplace) {
                    self.leave_whiteout(caller, from_dir, from_name);
                }
            }
        }
        self.adopt(moved, from_dir, to_dir);
        Ok(())
    }

    fn leave_whiteout(&mut self, caller: &Caller, dir: Id, name: &[u8]) {
        let whiteout = New {
            kind: FileKind::CharDevice,
            permissions: 0,
            device: 0,
            target: b"",
        };
        let id = self.make(caller, dir, &whiteout);
        self.put(dir, name, id);
        self.forget(id, 1);
    }

    fn check_rename(
        &self,
        caller: &Caller,
        (from_dir, to_dir): (Id, Id),
        moved: Id,
        victim: Option<Id>,
        mode: RenameMode,
        checks: &mut Checks,
    ) {
        let is_directory = |id: Id| self.nodes[&id].kind == FileKind::Directory;
        let is_exchange = mode == RenameMode::Exchange;
        // Into itself, or below.
        checks.refuse_if(
            is_directory(moved) && self.is_above(moved, to_dir),
            Error::Invalid,
        );
        let also_moves = victim.filter(|_| is_exchange);
        if from_dir != to_dir {
            for id in [Some(moved), also_moves].into_iter().flatten() {
                // Its ".." is rewritten.
                let is_denied = is_directory(id) && !may(caller, &self.nodes[&id], WRITE);
                checks.refuse_if(is_denied, Error::AccessDenied);
            }
        }
        let Some(victim) = victim else { return };
        let holds_from = is_directory(victim) && self.is_above(victim, from_dir);
        if is_exchange {
            checks.refuse_if(holds_from, Error::Invalid);
        } else {
            let kinds = (is_directory(moved), is_directory(victim));
            checks.refuse_if(kinds == (true, false), Error::NotADirectory);
            checks.refuse_if(kinds == (false, true), Error::IsADirectory);
            let is_empty = self.nodes[&victim].entries.is_empty();
            checks.refuse_if(holds_from || !is_empty, Error::NotEmpty);
        }
    }

    fn put(&mut self, dir: Id, name: &[u8], id: Id) {
        self.get_mut(dir).entries.insert(name.to_vec(), id);
    }

    /// A directory goes from one parent to another.
    fn adopt(&mut self, id: Id, from: Id, to: Id) {
        if self.nodes[&id].kind == FileKind::Directory {
            self.get_mut(from).links -= 1;
            self.get_mut(to).links += 1;
            self.get_mut(id).parent = to;
        }
    }

    /// Takes a reference.
    pub fn reference(&mut self, id: Id) -> Result<()> {
        self.get(id)?;
        self.get_mut(id).references += 1;
        Ok(())
    }

    /// Gives back references; an inode without names goes with the last of them.
    pub fn forget(&mut self, id: Id, count: u64) {
        if self.nodes.contains_key(&id) {
            self.get_mut(id).references -= count;
            self.free_if_unused(id);
        }
    }

    /// Forgets all references but the root's, as the end of a mount does.
    pub fn forget_all(&mut self) {
        for (id, node) in &mut self.nodes {
            node.references = u64::from(*id == Model::ROOT);
        }
        self.nodes
            .retain(|_, node| node.links > 0 || node.references > 0);
    }

    // --- attributes ---

    /// Whether the caller may access the inode so.
    pub fn access(&self, caller: &Caller, id: Id, mask: u32) -> Result<()> {
        let mut checks = Checks::default();
        checks.refuse_if(!may(caller, self.get(id)?, mask), Error::AccessDenied);
        checks.done()
    }

    /// Sets mode, owner, group and size.
    pub fn set_attributes(&mut self, caller: &Caller, id: Id, set: &SetAttributes) -> Result<()> {
        let node = self.get(id)?;
        let mut checks = Checks::default();
        if let Some(size_bytes) = set.size_bytes {
            match node.kind {
                FileKind::Regular => {
                    checks.refuse_if(!may(caller, node, WRITE), Error::AccessDenied);
                    let most = self.limits.new_form.size_max_bytes;
                    checks.refuse_if(size_bytes > most, Error::FileTooLarge);
                }
                FileKind::Directory => checks.refuse_if(true, Error::IsADirectory),
                _ => checks.refuse_if(true, Error::Invalid),
            }
        }
        let most = self.limits.new_form.owner_max;
        let mut owners = [set.uid, set.gid].into_iter().flatten();
        checks.refuse_if(owners.any(|owner| owner > most), Error::Invalid);
        let sets_owner = set.uid.is_some() || set.gid.is_some();
        let needs_owner = set.permissions.is_some() || sets_owner;
        checks.refuse_if(needs_owner && !owns(caller, node), Error::NotPermitted);
        let gives_away = set.uid.is_some_and(|uid| uid != node.uid)
            || set
                .gid
                .is_some_and(|gid| gid != node.gid && !caller.is_in_group(gid));
        checks.refuse_if(gives_away && !is_privileged(caller), Error::NotPermitted);
        checks.done()?;

        let node = self.get_mut(id);
        if let Some(size_bytes) = set.size_bytes {
            node.data.resize(size_bytes as usize, 0);
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        if sets_owner && node.kind != FileKind::Directory {
            node.permissions = unprivileged(node.permissions);
        }
        if let Some(permissions) = set.permissions {
            node.permissions = permissions & 0o7777;
            // Linux, setattr_prepare(): for every kind of inode.
            if !is_privileged(caller) && !caller.is_in_group(node.gid) {
                node.permissions &= !libc::S_ISGID;
            }
            if let Some(access) = node.acl(acl::ACCESS) {
                let access = access.with_mode(node.permissions);
                node.xattrs.insert(acl::ACCESS.to_vec(), access.value());
            }
        }
        Ok(())
    }

    /// Drops the set-id bits as a write does.
    pub fn clear_privileges(&mut self, id: Id) -> Result<()> {
        self.get(id)?;
        let node = self.get_mut(id);
        if node.kind != FileKind::Directory {
            node.permissions = unprivileged(node.permissions);
        }
        Ok(())
    }
}

fn is_privileged(caller: &Caller) -> bool {
    caller.is_checked() || caller.uid == 0
}

fn owns(caller: &Caller, node: &Node) -> bool {
    is_privileged(caller) || caller.uid == node.uid
}

/// Whether the caller has every access in `mask` (POSIX, XBD 4.7; acl(5)).
fn may(caller: &Caller, node: &Node, mask: u32) -> bool {
    if caller.is_checked() {
        return true;
    }
    if caller.uid == 0 {
        let is_executable = node.kind == FileKind::Directory || node.permissions & 0o111 != 0;
        return mask & EXECUTE == 0 || is_executable;
    }
    if let Some(access) = node.acl(acl::ACCESS) {
        return access.grants(caller, (node.uid, node.gid), mask);
    }
    let granted = if caller.uid == node.uid {
        node.permissions >> 6
    } else if caller.is_in_group(node.gid) {
        node.permissions >> 3
    } else {
        node.permissions
    };
    mask & !granted & 7 == 0
}

/// Permission bits after somebody without privilege changed the file.
fn unprivileged(permissions: u32) -> u32 {
    let drops_group = permissions & libc::S_IXGRP != 0;
    permissions & !libc::S_ISUID & !(if drops_group { libc::S_ISGID } else { 0 })
}
