//! An inode in memory.
//!
//! | module | about |
//! |---|---|
//! | (here) | the inode: its words, what its kind adds, and its lock |
//! | `references`, `split_references` | users, counted so that CPUs do not pass its line around |
//! | `stamp` | its times, and how operations set them |
//! | `marks` | what is said of it in a bit each |
//! | `size` | the memory that it takes |
//! | `inode_table`, `slots` | the inodes in memory, by number; the memory that the table takes |
//! | `acl`, `acl_cell` | what an ACL says and permits; where permission checks find it |
//!
//! # Data model
//! [`Inode`] is a cell of the inode table: a number, its [`References`], and a [`Core`] that the
//! first user loads. Front ends hold *references* on an inode (FUSE lookups, open files); while
//! there is one, the inode is neither evicted nor, after its last name went, freed.
//!
//! # Invariants
//! 1. Attribute words are written under the inode's lock and inside its sequence count, so a
//!    reader of [`Core::attributes`] sees them as of one moment. Times and the space count are
//!    single words of their own, written without the lock; a time before the record is appended
//!    that tells of it (`stamp`).
//! 2. A log record of this inode takes its number from `sequence` while holding the lock (or the
//!    range of the data) that orders it against the records it conflicts with, and is appended
//!    before that lock is released.
//!
//! # May use
//! `base`, `schemes`, `names`, `data` and `file_lock`: an inode has a directory's names, a file's
//! extents and locks.

pub(crate) mod acl;
pub(crate) mod acl_cell;
pub(crate) mod inode_table;
mod marks;
pub(crate) mod references;
mod size;
pub(crate) mod slots;
mod split_references;
mod stamp;

use std::collections::BTreeMap;
#[cfg(not(any(loom, feature = "shuttle")))]
use std::mem::offset_of;
use std::ops::Deref;

use crossbeam_epoch::Guard;
use finefs_locks::primitive::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use finefs_locks::{Mutex, MutexGuard, OnceLatch, RwLock, SeqLock};

use crate::base::classes;
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::once_box::OnceBox;
use crate::base::store::{FoldName, Identity, InodeImage, NameClasses};
use crate::base::types::{Attributes, FileKind, Ino, Times, Timestamp};
use crate::data::extent_map::ExtentMap;
use crate::data::inline_data::InlineData;
use crate::data::unsynced::Unsynced;
use crate::data::write_errors::WriteErrors;
use crate::file_lock::FileLocks;
use crate::inode::acl::{Acl, AclKind};
use crate::inode::acl_cell::{AclCell, AclMarks};
use crate::inode::references::References;
use crate::names::name_table::NameTable;
use crate::schemes::{DataLock, LockingScheme, Scheme};
pub(crate) use marks::Capabilities;
pub(crate) use size::INODE_BYTES;
pub(crate) use stamp::{Stamped, Time};

/// A cell of the inode table.
#[repr(C)]
pub(crate) struct Inode {
    pub references: References,
    core: OnceLatch<Core>,
    pub ino: Ino,
}

impl Inode {
    /// A cell without content, with `references` references.
    pub fn unloaded(ino: Ino, references: u64) -> Inode {
        Inode {
            ino,
            references: References::new(references),
            core: OnceLatch::new(&classes::LOAD),
        }
    }

    /// A new object with `references` references.
    pub fn created(core: Core, references: u64) -> Inode {
        Inode {
            ino: core.ino,
            references: References::new(references),
            core: OnceLatch::ready(&classes::LOAD, core),
        }
    }

    /// The content, if it was loaded.
    pub fn loaded(&self) -> Option<&Core> {
        self.core.get()
    }

    /// The content; the first caller loads it.
    pub fn load(&self, scheme: &Scheme, load: impl FnOnce() -> Result<Core>) -> Result<&Core> {
        scheme.load(&self.core, load)
    }

    /// True when it was loaded, is neither freed nor evicted, and need not be told that it is used.
    #[inline]
    pub fn is_usable(&self) -> bool {
        self.core.get().is_some() && !self.references.want_attention()
    }

    /// True when the inode was freed or evicted.
    pub fn is_gone(&self) -> bool {
        self.references.are_gone()
    }

    /// True when the inode is only out of memory.
    pub fn is_evicted(&self) -> bool {
        self.references.are_evicted()
    }
}

impl Deref for Inode {
    type Target = Core;
    fn deref(&self) -> &Core {
        self.core
            .get()
            .expect("only loaded inodes leave the inode table")
    }
}

/// State that only the holder of the inode's lock may touch.
///
/// It is empty: the words that it guards are atomic so that readers need no lock. The guard is the
/// evidence that the setters ask for.
pub(crate) struct Guarded;

/// Extended attributes: full name and value.
pub(crate) type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// A loaded inode. In this order, so that what stat asks for lies in two or three cache lines, and
/// what lookups ask a directory for in the next.
#[repr(C)]
pub(crate) struct Core {
    pub kind: FileKind,
    is_old_form: bool,
    /// Made here: the store has nothing of it.
    is_new: bool,
    /// See [`marks`].
    marks: AtomicU8,
    pub generation: u32,
    pub ino: Ino,
    sectors: AtomicI64,
    words: Words,
    times: [AtomicU64; 4],
    pub body: Body,
    /// Bytes that it was counted for, see `size`.
    counted: AtomicU64,
    /// Order of the records of this inode.
    sequence: AtomicU64,
    /// The log generation of the newest record of this inode, 0 when it never had one; and in the
    /// lowest bit whether records that no commit made durable change more than times.
    dirty: AtomicU64,
    lock: Mutex<Guarded>,
    /// The attributes as of the last commit, where there are commits; only they touch them.
    committed: Option<Box<Mutex<Attributes>>>,
    rare: OnceBox<Rare>,
    /// Why the content cannot be read, if it cannot.
    pub unreadable: Option<Box<Error>>,
}

// The locks of the schedulers' builds are larger.
#[cfg(not(any(loom, feature = "shuttle")))]
const _: () = assert!(offset_of!(Core, body) <= 96 && size_of::<Inode>() <= 296);

/// What most inodes never need: made at the first use.
struct Rare {
    /// Locks on the file, while there are any.
    file_locks: Mutex<Option<Box<FileLocks>>>,
    xattrs: OnceLatch<RwLock<Xattrs>>,
    /// By [`AclKind`].
    acls: [AclCell; 2],
    /// Why the names of a directory must not be changed, once they are loaded and if they must not.
    names_damage: OnceBox<Error>,
}

/// What all inodes of a namespace have in common.
#[derive(Clone, Copy)]
pub(crate) struct InodeConfig {
    /// What locks their data have.
    pub scheme: LockingScheme,
    /// The store takes batches, so what was committed is remembered.
    pub keeps_log: bool,
    /// ACLs count.
    pub has_acls: bool,
    /// How names are found whatever their case, in directories that do so.
    pub fold: Option<FoldName>,
    /// Contents of new files lie in their inodes at first.
    pub has_inline_data: bool,
    /// How many names of a directory the store can tell apart.
    pub name_classes: Option<&'static NameClasses>,
    /// From which the keys of directories come.
    pub identity: Identity,
}

/// The attributes that change together.
struct Words {
    seq: SeqLock,
    /// The permission bits, and above them [`AclMarks`].
    permissions: AtomicU32,
    links: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
    flags: AtomicU32,
    project: AtomicU32,
    size_bytes: AtomicU64,
}

/// What a kind of inode has beyond attributes.
#[allow(
    clippy::large_enum_variant,
    reason = "most inodes are regular files, and a box would cost each of them an allocation"
)]
pub(crate) enum Body {
    Regular(FileBody),
    Directory(DirectoryBody),
    Symlink(OnceLatch<Box<[u8]>>),
    /// With the device's number, where it is one.
    Special(u64),
}

pub(crate) struct FileBody {
    contents: OnceBox<Contents>,
    scheme: LockingScheme,
    /// Made here: the store has nothing of it.
    is_new: bool,
    /// The content, where it lies in the inode or did.
    inline: Option<Box<InlineData>>,
    /// Data that could not be written.
    pub write_errors: WriteErrors,
}

/// What a file has once its data is used: very many are only listed, or stay empty.
pub(crate) struct Contents {
    pub data: DataLock,
    pub extents: OnceLatch<ExtentMap>,
    pub unsynced: Unsynced,
}

pub(crate) struct DirectoryBody {
    /// The directory that holds this one's name; its own number for the root. 0 until loaded.
    pub parent: AtomicU64,
    pub table: OnceLatch<NameTable>,
}

/// In `dirty`: more than times changed.
const CHANGED: u64 = 1;

/// Permission bits, set-id bits and sticky bit.
const PERMISSIONS: u32 = 0o7777;

/// The attributes that are set together under the inode's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ownership {
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub flags: FileFlags,
    pub project: u32,
}

impl Ownership {
    /// The project of what is made in a directory.
    pub fn inherited_project(&self) -> u32 {
        match self.flags.contains(FileFlags::PROJECT_INHERIT) {
            true => self.project,
            false => 0,
        }
    }

    /// False where a directory that hands its project on shall name what is of another: link and
    /// rename answer EXDEV then (`ext4_link`, `ext4_rename`), and mv copies.
    pub fn may_name(&self, named: Ownership) -> bool {
        !self.flags.contains(FileFlags::PROJECT_INHERIT) || self.project == named.project
    }
}

impl FileBody {
    /// Of a file that was made here.
    fn new(config: InodeConfig) -> FileBody {
        let inline = || Box::new(InlineData::new(Box::default()));
        FileBody {
            contents: OnceBox::new(),
            scheme: config.scheme,
            is_new: true,
            inline: config.has_inline_data.then(inline),
            write_errors: WriteErrors::new(),
        }
    }

    /// Bytes that the content takes which lies in the inode.
    fn inline_bytes(&self) -> usize {
        let inline = self.inline.as_ref();
        inline.map_or(0, |inline| size_of::<InlineData>() + inline.length_bytes())
    }

    /// The content, while it lies in the inode.
    #[inline]
    pub fn inline(&self) -> Option<&InlineData> {
        self.inline.as_deref().filter(|inline| inline.is_inline())
    }

    /// What belongs to the file's data.
    #[inline]
    pub fn contents(&self) -> &Contents {
        self.contents.get_or_make(|| Contents {
            data: DataLock::new(self.scheme),
            extents: if self.is_new {
                OnceLatch::ready(&classes::LOAD, ExtentMap::new())
            } else {
                OnceLatch::new(&classes::LOAD)
            },
            unsynced: Unsynced::new(),
        })
    }

    /// The same, if the data was ever used.
    pub fn used_contents(&self) -> Option<&Contents> {
        self.contents.get()
    }
}

impl Words {
    /// As it stands, with the marks; inside a read of the sequence count.
    #[inline]
    fn ownership(&self) -> Ownership {
        Ownership {
            permissions: self.permissions.load(Ordering::Relaxed),
            uid: self.uid.load(Ordering::Relaxed),
            gid: self.gid.load(Ordering::Relaxed),
            flags: FileFlags::from_bits_retain(self.flags.load(Ordering::Relaxed)),
            project: self.project.load(Ordering::Relaxed),
        }
    }

    fn set_ownership(&self, evidence: &MutexGuard<'_, Guarded>, to: Ownership, marks: AclMarks) {
        self.seq.write(evidence, || {
            let permissions = to.permissions | marks.bits();
            self.permissions.store(permissions, Ordering::Relaxed);
            self.uid.store(to.uid, Ordering::Relaxed);
            self.gid.store(to.gid, Ordering::Relaxed);
            self.flags.store(to.flags.bits(), Ordering::Relaxed);
            self.project.store(to.project, Ordering::Relaxed);
        });
    }
}

impl Core {
    pub fn from_image(image: InodeImage, config: InodeConfig) -> Core {
        let body = match image.attributes.kind {
            FileKind::Regular => Body::Regular(FileBody {
                is_new: false,
                inline: (image.inline)
                    .map(|content| Box::new(InlineData::new(content.into_boxed_slice()))),
                ..FileBody::new(config)
            }),
            FileKind::Directory => Body::Directory(DirectoryBody {
                parent: AtomicU64::new(0),
                table: OnceLatch::new(&classes::LOAD),
            }),
            FileKind::Symlink => Body::Symlink(OnceLatch::new(&classes::LOAD)),
            _ => Body::Special(image.attributes.device),
        };
        let core = Core {
            unreadable: image.unreadable.map(Box::new),
            is_old_form: image.is_old_form,
            is_new: false,
            ..Core::new(image.attributes, body, config)
        };
        if image.may_have_acls && config.has_acls {
            let permissions = image.attributes.permissions | AclMarks::UNKNOWN.bits();
            core.words.permissions.store(permissions, Ordering::Relaxed);
        }
        core
    }

    /// A new object: what a load would fill is there from the start, since nothing of it is in the
    /// store. `parent` counts for a directory, `target` for a symbolic link.
    pub fn created(
        attributes: Attributes,
        config: InodeConfig,
        parent: Ino,
        target: Option<&[u8]>,
    ) -> Core {
        let body = match attributes.kind {
            FileKind::Regular => {
                let is_encrypted = attributes.flags.contains(FileFlags::ENCRYPTED);
                Body::Regular(FileBody::new(InodeConfig {
                    // What is encrypted lies in blocks.
                    has_inline_data: config.has_inline_data && !is_encrypted,
                    ..config
                }))
            }
            FileKind::Directory => {
                let identity = &config.identity;
                let keys = identity.keys_of(attributes.ino, attributes.generation);
                let is_folding = attributes.flags.contains(FileFlags::CASEFOLD);
                let table = NameTable::new(keys)
                    .folding(config.fold, is_folding)
                    .classed(config.name_classes);
                Body::Directory(DirectoryBody {
                    parent: AtomicU64::new(parent.0),
                    table: OnceLatch::ready(&classes::LOAD, table),
                })
            }
            FileKind::Symlink => {
                let text = target.unwrap_or_default().into();
                Body::Symlink(OnceLatch::ready(&classes::LOAD, text))
            }
            _ => Body::Special(attributes.device),
        };
        Core::new(attributes, body, config)
    }

    #[inline]
    fn new(a: Attributes, body: Body, config: InodeConfig) -> Core {
        Core {
            ino: a.ino,
            generation: a.generation,
            kind: a.kind,
            counted: AtomicU64::new(INODE_BYTES as u64),
            // 0 is the creation's.
            sequence: AtomicU64::new(1),
            dirty: AtomicU64::new(0),
            lock: Mutex::new(&classes::INODE, Guarded),
            marks: AtomicU8::new(0),
            is_old_form: false,
            is_new: true,
            words: Words {
                seq: SeqLock::new(),
                permissions: AtomicU32::new(a.permissions),
                links: AtomicU32::new(a.link_count),
                uid: AtomicU32::new(a.uid),
                gid: AtomicU32::new(a.gid),
                flags: AtomicU32::new(a.flags.bits()),
                project: AtomicU32::new(a.project),
                size_bytes: AtomicU64::new(a.size_bytes),
            },
            times: [
                AtomicU64::new(a.times.accessed.to_bits()),
                AtomicU64::new(a.times.modified.to_bits()),
                AtomicU64::new(a.times.changed.to_bits()),
                AtomicU64::new(a.times.created.to_bits()),
            ],
            sectors: AtomicI64::new(a.sectors as i64),
            committed: config
                .keeps_log
                .then(|| Box::new(Mutex::new(&classes::COMMITTED, a))),
            rare: OnceBox::new(),
            body,
            unreadable: None,
        }
    }

    /// True for a file that can hold no unwritten blocks and not the largest size, though others
    /// of its store can.
    pub fn is_old_form(&self) -> bool {
        self.is_old_form
    }

    /// The inode's lock. Several inodes only in ascending order of number.
    pub fn lock(&self) -> MutexGuard<'_, Guarded> {
        self.lock.lock_nested(self.ino.0)
    }

    /// The locks on the file.
    pub fn file_locks(&self) -> MutexGuard<'_, Option<Box<FileLocks>>> {
        self.rare().file_locks.lock()
    }

    /// True when there are locks on the file, or requests for them.
    pub fn has_file_locks(&self) -> bool {
        !self.never_had_locks() && self.file_locks().is_some()
    }

    /// True when there were never locks on the file.
    pub fn never_had_locks(&self) -> bool {
        self.rare.get().is_none()
    }

    /// The extended attributes, once they are loaded.
    pub fn xattrs(&self) -> &OnceLatch<RwLock<Xattrs>> {
        &self.rare().xattrs
    }

    /// Made since the file system was opened, and in memory since.
    pub fn was_made_here(&self) -> bool {
        self.is_new
    }

    /// True when there were never extended attributes: to ask needs no place for them.
    pub fn never_had_xattrs(&self) -> bool {
        self.is_new && self.rare.get().is_none()
    }

    /// True when its extended attributes may have been changed: they are in memory.
    pub fn has_loaded_xattrs(&self) -> bool {
        self.rare
            .get()
            .is_some_and(|rare| rare.xattrs.get().is_some())
    }

    /// Gives a new object its access and default ACL, which are also among its attributes, before
    /// anybody can find it.
    pub fn give_acls(&self, acls: [Option<Acl>; 2], xattrs: Xattrs) {
        let marks = AclMarks::of(&acls);
        let permissions = self.ownership().permissions | marks.bits();
        let word = &self.words.permissions;
        word.store(permissions, Ordering::Relaxed);
        self.rare.get_or_make(|| Rare {
            file_locks: Mutex::new(&classes::FILE_LOCKS, None),
            xattrs: OnceLatch::ready(&classes::LOAD, RwLock::new(&classes::XATTR, xattrs)),
            acls: acls.map(AclCell::new),
            names_damage: OnceBox::new(),
        });
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_make(|| {
            let xattrs = if self.is_new {
                let none = RwLock::new(&classes::XATTR, Xattrs::new());
                OnceLatch::ready(&classes::LOAD, none)
            } else {
                OnceLatch::new(&classes::LOAD)
            };
            Rare {
                file_locks: Mutex::new(&classes::FILE_LOCKS, None),
                xattrs,
                acls: [None, None].map(AclCell::new),
                names_damage: OnceBox::new(),
            }
        })
    }

    /// The attributes as of the last commit, of an inode whose store takes batches.
    pub fn committed(&self) -> MutexGuard<'_, Attributes> {
        let committed = self.committed.as_ref();
        committed.expect("only what is logged is committed").lock()
    }

    /// A number for the next record of this inode. See invariant 2.
    pub fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// There is a record that changes the inode.
    pub fn mark_dirty(&self, generation: u64) {
        let dirty = generation << 1 | CHANGED;
        if self.dirty.load(Ordering::Relaxed) < dirty {
            self.dirty.fetch_max(dirty, Ordering::AcqRel);
        }
    }

    /// There is a record that changes nothing but times. `committed`: the newest generation that is
    /// durable.
    pub fn mark_touched(&self, generation: u64, committed: u64) {
        let touched = |dirty: u64| {
            let changed = if dirty >> 1 > committed {
                dirty & CHANGED
            } else {
                0
            };
            (dirty >> 1 < generation).then_some(generation << 1 | changed)
        };
        let _ = self
            .dirty
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, touched);
    }

    /// The log generation of the newest record, 0 for none.
    pub fn dirty_generation(&self) -> u64 {
        self.dirty.load(Ordering::Acquire) >> 1
    }

    /// The generation that must be durable before what changed of the inode beside times is: 0
    /// where nothing did since a commit.
    pub fn changed_generation(&self) -> u64 {
        let dirty = self.dirty.load(Ordering::Acquire);
        if dirty & CHANGED == 0 { 0 } else { dirty >> 1 }
    }

    pub fn size_bytes(&self) -> u64 {
        self.words.size_bytes.load(Ordering::Acquire)
    }

    pub fn set_size(&self, evidence: &MutexGuard<'_, Guarded>, size_bytes: u64) {
        self.words.seq.write(evidence, || {
            self.words.size_bytes.store(size_bytes, Ordering::Release)
        });
    }

    pub fn link_count(&self) -> u32 {
        self.words.links.load(Ordering::Acquire)
    }

    pub fn set_link_count(&self, evidence: &MutexGuard<'_, Guarded>, links: u32) {
        self.words.seq.write(evidence, || {
            self.words.links.store(links, Ordering::Release)
        });
    }

    /// What chattr(1) sets.
    #[inline]
    pub fn flags(&self) -> FileFlags {
        FileFlags::from_bits_retain(self.words.flags.load(Ordering::Acquire))
    }

    pub fn ownership(&self) -> Ownership {
        self.ownership_and_marks().0
    }

    /// Which ACLs there are.
    pub fn acl_marks(&self) -> AclMarks {
        AclMarks::from_bits(self.words.permissions.load(Ordering::Acquire) & !PERMISSIONS)
    }

    /// Mode and owner, and which ACLs there are beside them, as of one moment.
    pub fn ownership_and_marks(&self) -> (Ownership, AclMarks) {
        let read = self.words.seq.read(|| self.words.ownership());
        let marks = AclMarks::from_bits(read.permissions & !PERMISSIONS);
        let permissions = read.permissions & PERMISSIONS;
        let ownership = Ownership {
            permissions,
            ..read
        };
        (ownership, marks)
    }

    /// An ACL, if [`Core::acl_marks`] say that there is one and it was not taken away since.
    pub fn acl<'g>(&self, kind: AclKind, guard: &'g Guard) -> Option<&'g Acl> {
        self.rare.get()?.acls[kind as usize].get(guard)
    }

    /// Sets an ACL, or takes it away, and mode and owner with it. A permission check sees all of
    /// before or all of after: the marks tell whether there is an ACL to read, and where it is gone
    /// by then they are read again.
    pub fn set_acl(
        &self,
        evidence: &MutexGuard<'_, Guarded>,
        kind: AclKind,
        acl: Option<Acl>,
        to: Ownership,
    ) {
        let marks = self.acl_marks().with(kind, acl.is_some());
        let cell = &self.rare().acls[kind as usize];
        if acl.is_some() {
            cell.set(evidence, acl);
            self.words.set_ownership(evidence, to, marks);
        } else {
            self.words.set_ownership(evidence, to, marks);
            cell.set(evidence, None);
        }
    }

    /// Notes the access and default ACL that are among the attributes that were loaded.
    pub fn note_acls(&self, evidence: &MutexGuard<'_, Guarded>, acls: [Option<Acl>; 2]) {
        let marks = AclMarks::of(&acls);
        for (cell, acl) in self.rare().acls.iter().zip(acls) {
            cell.set(evidence, acl);
        }
        self.words.set_ownership(evidence, self.ownership(), marks);
    }

    pub fn set_ownership(&self, evidence: &MutexGuard<'_, Guarded>, to: Ownership) {
        let marks = self.acl_marks();
        self.words.set_ownership(evidence, to, marks);
    }

    /// Changes the link count of a directory whose subdirectories come and go in parallel. A
    /// count of 1 means "not counted" (dir_nlink) and stays; more than `counted_max` become that.
    pub fn add_directory_links(&self, delta: i32, counted_max: u32) {
        if delta == 0 {
            // Most renames: they leave the line of the directory's attributes to its readers.
            return;
        }
        let _ = self
            .words
            .links
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |links| {
                let next = links.saturating_add_signed(delta);
                (links != 1).then_some(if next > counted_max { 1 } else { next })
            });
    }

    pub fn time(&self, which: Time) -> Timestamp {
        Timestamp::from_bits(self.times[which as usize].load(Ordering::Acquire))
    }

    pub fn times(&self) -> Times {
        Times {
            accessed: self.time(Time::Accessed),
            modified: self.time(Time::Modified),
            changed: self.time(Time::Changed),
            created: self.time(Time::Created),
        }
    }

    pub fn add_sectors(&self, delta: i64) {
        self.sectors.fetch_add(delta, Ordering::Relaxed);
    }

    /// The space that it takes, in units of 512 bytes.
    pub fn sectors(&self) -> u64 {
        self.sectors.load(Ordering::Relaxed).max(0) as u64
    }

    pub fn set_sectors(&self, sectors: u64) {
        self.sectors.store(sectors as i64, Ordering::Relaxed);
    }

    pub fn attributes(&self) -> Attributes {
        let (ownership, link_count, size_bytes) = self.words.seq.read(|| {
            (
                self.words.ownership(),
                self.words.links.load(Ordering::Relaxed),
                self.words.size_bytes.load(Ordering::Relaxed),
            )
        });
        Attributes {
            ino: self.ino,
            generation: self.generation,
            kind: self.kind,
            permissions: ownership.permissions & PERMISSIONS,
            link_count,
            uid: ownership.uid,
            gid: ownership.gid,
            // For all others it is 0, and would be one cache line more.
            device: match self.body {
                Body::Special(device) => device,
                _ => 0,
            },
            size_bytes,
            sectors: self.sectors(),
            times: self.times(),
            flags: ownership.flags,
            project: ownership.project,
            is_settled: true,
        }
    }

    pub fn file(&self) -> Result<&FileBody> {
        match &self.body {
            Body::Regular(file) => Ok(file),
            Body::Directory(_) => Err(Error::IsADirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// The reason if the names of a directory, which are loaded, must not be changed because they
    /// are damaged.
    #[inline]
    pub fn check_names(&self) -> Result<()> {
        match self.rare.get().and_then(|rare| rare.names_damage.get()) {
            None => Ok(()),
            Some(damage) => Err(damage.clone()),
        }
    }

    /// Says why the names of a directory must not be changed.
    pub fn note_names_damage(&self, damage: Error) {
        self.rare().names_damage.get_or_make(|| damage);
    }

    pub fn directory(&self) -> Result<&DirectoryBody> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotADirectory),
        }
    }
}
