//! What can be wrong, and the report of all that is.

use std::fmt;

use serde::Serialize;

/// Who can put something right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Remedy {
    /// It is only remarkable, as it is for e2fsck: the image is clean all the same.
    None,
    /// `finefs repair` does it.
    Repair,
    /// It takes a decision about somebody's data: e2fsck's.
    E2fsck,
}

macro_rules! problems {
    ($( $(#[$doc:meta])* $name:ident $code:literal $remedy:ident; )*) => {
        /// A kind of problem. Its code is part of the command's interface.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        pub enum Problem { $( $(#[$doc])* $name, )* }
        impl Problem {
            /// Its stable name.
            pub fn code(self) -> &'static str {
                match self { $( Problem::$name => $code, )* }
            }
            /// Who can put it right.
            pub fn remedy(self) -> Remedy {
                match self { $( Problem::$name => Remedy::$remedy, )* }
            }
        }
    };
}

problems! {
    /// A number in the superblock cannot be, or contradicts another.
    Superblock "superblock" E2fsck;
    /// Features that exclude each other.
    Features "features" E2fsck;
    /// There are files of 2 GiB or more, which take feature `large_file`.
    LargeFile "large-file" Repair;
    /// The file system is larger than its device.
    Truncated "truncated" E2fsck;
    /// The superblock's checksum.
    SuperblockChecksum "superblock-checksum" Repair;
    /// A time of the superblock lies in the future.
    SuperblockTime "superblock-time" None;
    /// Errors were noted in the file system: a repair takes the note away when all is right.
    ErrorsNoted "errors-noted" None;
    /// It was not unmounted, and no journal stands for it: the same.
    NotClean "not-clean" None;
    /// The block of multiple mount protection says that somebody has the file system.
    InUse "in-use" None;
    /// The block of multiple mount protection.
    Mmp "mmp" Repair;
    /// A superblock copy differs in what must be equal.
    Backup "backup-superblock" None;
    /// The journal's inode, map or superblock.
    Journal "journal" E2fsck;
    /// The journal's log.
    JournalLog "journal-log" E2fsck;
    /// The journal holds transactions that are not in their places.
    JournalDirty "journal-dirty" None;
    /// Orphans wait for a mount to be removed.
    Orphans "orphans" None;
    /// The orphan file holds orphans: a mount removes them.
    OrphansPending "orphans-pending" Repair;
    /// The list of orphans.
    OrphanList "orphan-list" None;
    /// The orphan file.
    OrphanFile "orphan-file" E2fsck;
    /// The inode of reserved descriptor blocks.
    ResizeInode "resize-inode" E2fsck;
    /// A group's bitmaps or table lie where they cannot.
    GroupPlace "group-place" E2fsck;
    /// A group descriptor's checksum.
    GroupChecksum "group-checksum" Repair;
    /// A group descriptor's flags or count of unused inodes.
    GroupFlags "group-flags" Repair;
    /// An inode's checksum, and nothing else.
    InodeChecksum "inode-checksum" Repair;
    /// A field of an inode cannot be.
    InodeField "inode-field" E2fsck;
    /// A freed inode has no time of deletion, or one in use has one.
    InodeTime "inode-dtime" Repair;
    /// The type of an inode, or what contradicts it.
    InodeKind "inode-kind" E2fsck;
    /// A symbolic link's target.
    Symlink "symlink" E2fsck;
    /// An inode's size.
    InodeSize "inode-size" E2fsck;
    /// An inode's count of blocks.
    InodeBlocks "inode-blocks" Repair;
    /// An extent tree.
    Extent "extent" E2fsck;
    /// The checksum of an extent tree's node, and nothing else.
    ExtentChecksum "extent-checksum" Repair;
    /// A block pointer.
    BlockPointer "block-pointer" E2fsck;
    /// Blocks that are claimed more than once.
    SharedBlocks "shared-blocks" E2fsck;
    /// Inline data.
    InlineData "inline-data" E2fsck;
    /// Extended attributes.
    Xattr "xattr" E2fsck;
    /// The checksum of a block of extended attributes, and nothing else.
    XattrChecksum "xattr-checksum" Repair;
    /// How many inodes share a block of extended attributes.
    XattrRefcount "xattr-refcount" Repair;
    /// A directory has no blocks, or holes.
    DirectoryBlocks "directory-blocks" E2fsck;
    /// A directory block that cannot be followed.
    DirectoryBlock "directory-block" E2fsck;
    /// The checksum of a directory block, and nothing else.
    DirectoryChecksum "directory-checksum" Repair;
    /// `.` or `..` are missing.
    Dots "directory-dots" E2fsck;
    /// `..` names another directory than that which holds the entry.
    DotDot "directory-dotdot" Repair;
    /// An entry that cannot be.
    Entry "directory-entry" E2fsck;
    /// Two entries of a name.
    DuplicateName "duplicate-name" E2fsck;
    /// A directory with two entries.
    DirectoryLinked "directory-linked-twice" E2fsck;
    /// The type in an entry is not the inode's.
    EntryType "entry-type" Repair;
    /// The index of a directory.
    Htree "directory-index" Repair;
    /// A directory that no path leads to.
    Disconnected "disconnected-directory" Repair;
    /// A file that no path leads to.
    Unattached "unattached-inode" Repair;
    /// The root directory.
    Root "root" E2fsck;
    /// An inode's count of links.
    LinkCount "link-count" Repair;
    /// A block bitmap.
    BlockBitmap "block-bitmap" Repair;
    /// An inode bitmap.
    InodeBitmap "inode-bitmap" Repair;
    /// A bitmap's checksum, and nothing else.
    BitmapChecksum "bitmap-checksum" Repair;
    /// A group's free blocks, free inodes or directories.
    GroupCount "group-count" Repair;
    /// The superblock's free blocks or inodes: what a crash may leave behind.
    FreeCount "free-count" None;
    /// A quota file is damaged.
    Quota "quota" E2fsck;
    /// A quota file does not agree with what is used.
    QuotaUsage "quota-usage" Repair;
    /// Something cannot be read.
    Io "io" E2fsck;
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.code())
    }
}

/// What a finding is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
pub struct Object {
    /// A block group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// An inode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u32>,
    /// A block of the file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// A name in the directory that `inode` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

impl Object {
    /// The file system as a whole.
    pub fn whole() -> Object {
        Object::default()
    }
    /// A group.
    pub fn group(group: u32) -> Object {
        Object {
            group: Some(group),
            ..Object::default()
        }
    }
    /// An inode.
    pub fn inode(inode: u32) -> Object {
        Object {
            inode: Some(inode),
            ..Object::default()
        }
    }
    /// A block of it.
    pub fn block(mut self, block: u64) -> Object {
        self.block = Some(block);
        self
    }
    /// A name in it.
    pub fn entry(mut self, name: &[u8]) -> Object {
        self.entry = Some(name.escape_ascii().to_string());
        self
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.group.map(|group| format!("group {group}")));
        parts.extend(self.inode.map(|inode| format!("inode {inode}")));
        parts.extend(self.entry.as_ref().map(|name| format!("entry '{name}'")));
        parts.extend(self.block.map(|block| format!("block {block}")));
        match parts.is_empty() {
            true => f.write_str("file system"),
            false => f.write_str(&parts.join(", ")),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Finding {
    /// What it is about.
    #[serde(flatten)]
    pub object: Object,
    /// What kind of problem it is.
    pub problem: Problem,
    /// What is wrong, in words.
    pub what: String,
    /// The number that should be there instead, where a repair needs one; of an entry for which
    /// a group's flags are wrong, the inode that it names.
    #[serde(skip)]
    pub(crate) value: u64,
}

impl Finding {
    /// Whether the image is not clean because of it.
    pub fn is_error(&self) -> bool {
        self.problem.remedy() != Remedy::None
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.what)
    }
}

/// The most findings that are kept; more are only counted.
pub const FINDINGS_MAX: usize = 20_000;

/// Findings while they are gathered.
#[derive(Default, Debug)]
pub(crate) struct Findings {
    pub list: Vec<Finding>,
    pub dropped: u64,
}

impl Findings {
    /// Takes one.
    pub fn add(&mut self, problem: Problem, object: Object, what: impl fmt::Display) {
        self.add_with(problem, object, what, 0);
    }

    /// Takes one whose repair needs a number.
    pub fn add_with(
        &mut self,
        problem: Problem,
        object: Object,
        what: impl fmt::Display,
        value: u64,
    ) {
        if self.list.len() >= FINDINGS_MAX {
            self.dropped += u64::from(problem.remedy() != Remedy::None);
            return;
        }
        let what = what.to_string();
        self.list.push(Finding {
            object,
            problem,
            what,
            value,
        });
    }

    /// Whether there is one of these.
    pub fn has_any(&self, problems: &[Problem]) -> bool {
        self.list
            .iter()
            .any(|finding| problems.contains(&finding.problem))
    }

    /// Takes those of another.
    pub fn append(&mut self, mut other: Findings) {
        self.list.append(&mut other.list);
        self.dropped += other.dropped;
    }
}

/// What a check found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The image.
    pub image: String,
    /// Nothing is wrong.
    pub clean: bool,
    /// The number of things that are wrong.
    pub errors: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Inodes there are.
    pub inodes: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// Blocks there are.
    pub blocks: u64,
    /// Directories.
    pub directories: u64,
    /// Transactions of the journal that count as replayed.
    pub replayed_transactions: u32,
    /// What was found, by object; not all of it if there is very much.
    pub findings: Vec<Finding>,
    /// Errors that are not listed.
    pub unlisted: u64,
    /// A repair has left it: what it says of that is not true of this image.
    #[serde(skip)]
    pub is_left: bool,
}

impl Report {
    pub(crate) fn new(image: String, mut findings: Findings) -> Report {
        findings.list.sort();
        findings.list.dedup();
        let mut unlisted = findings.dropped;
        let errors = |list: &[Finding]| list.iter().filter(|f| f.is_error()).count() as u64;
        let listed = findings.list.len().min(FINDINGS_MAX);
        unlisted += errors(&findings.list[listed..]);
        findings.list.truncate(listed);
        let errors = errors(&findings.list) + unlisted;
        Report {
            image,
            clean: errors == 0,
            errors,
            inodes_used: 0,
            inodes: 0,
            blocks_used: 0,
            blocks: 0,
            directories: 0,
            replayed_transactions: 0,
            findings: findings.list,
            unlisted,
            is_left: false,
        }
    }

    /// Whether all that is wrong can be repaired safely.
    pub fn is_repairable(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.problem.remedy() != Remedy::E2fsck)
    }

    /// Whether the storage did not give all that was asked for: then the rest is not to be
    /// believed. What lies behind the end of a truncated image is not meant.
    pub fn is_unread(&self) -> bool {
        let has = |problem| self.findings.iter().any(|it| it.problem == problem);
        has(Problem::Io) && !has(Problem::Truncated)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let note = if finding.is_error() {
                ""
            } else {
                " (no error)"
            };
            writeln!(f, "{finding}{note}")?;
        }
        if self.unlisted > 0 {
            writeln!(f, "and {} more", self.unlisted)?;
        }
        write!(
            f,
            "{}: {} of {} inodes, {} of {} blocks in use, {} directories; ",
            self.image,
            self.inodes_used,
            self.inodes,
            self.blocks_used,
            self.blocks,
            self.directories
        )?;
        let advice = match (self.clean, self.is_repairable()) {
            (true, _) => return writeln!(f, "clean"),
            _ if self.is_unread() => "not all of it can be read, so the rest may be wrong",
            (false, true) if self.is_left => "only e2fsck can put all of it right: e2fsck -f",
            (false, true) => "finefs repair puts it right",
            (false, false) => "some of it only e2fsck can put right: e2fsck -f",
        };
        let noun = if self.errors == 1 { "error" } else { "errors" };
        writeln!(f, "{} {noun}: {advice}", self.errors)
    }
}
