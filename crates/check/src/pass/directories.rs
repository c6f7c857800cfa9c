//! Pass 2: every block of every directory. Directories are shared out among threads.

use std::sync::atomic::Ordering::Relaxed;

use finefs_ext_disk::checksum::{InodeSeed, crc32c};
use finefs_ext_disk::dirent::{DirBlock, EntryType, decode_rec_len, entry_size};
use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::inode::{FileKind, Inode, InodeFlags};
use finefs_ext_disk::{GroupNo, Ino, LogicalBlock};

use super::htree::{BlockKind, Index};
use super::{Check, xattrs};
use crate::finding::{Findings, Object, Problem};
use crate::fs::{is_checksum, short};
use crate::tables::state;
use crate::walk::{self, Sink};

const HEADER: usize = 8;
const ENTRY_MIN: usize = 12;
const TAIL: usize = 12;
/// `i_mode >> 12` of a directory.
const DIRECTORY: u8 = 4;
/// A block of the cipher that names are encrypted with.
const ENCRYPTED_NAME_MIN: usize = 16;
/// Bytes of the parent's number at the start of an inline directory.
const INLINE_PARENT: usize = 4;

/// Runs the pass.
pub(super) fn check(check: &Check, found: &mut Findings) {
    if let Some(root) = check.dirs.get(Ino::ROOT.0) {
        root.parent.store(Ino::ROOT.0, Relaxed);
    }
    let states = check.share(check.dirs.list.len(), Findings::default, |found, at| {
        let ino = check.dirs.list[at as usize].ino;
        if let Some(inode) = check.fs.inode(ino, found) {
            Directory::new(check, ino, &inode, found).check();
        }
    });
    for state in states {
        found.append(state);
    }
}

/// The runs of a directory's blocks.
#[derive(Default)]
pub(crate) struct Runs(pub Vec<(LogicalBlock, u64, u64)>);

impl Sink for Runs {
    fn data(&mut self, logical: LogicalBlock, physical: u64, length: u64) {
        match self.0.last_mut() {
            Some((start, at, count)) if *start + *count == logical && *at + *count == physical => {
                *count += length;
            }
            _ => self.0.push((logical, physical, length)),
        }
    }
    fn node(&mut self, _: u64) -> bool {
        true
    }
}

/// Names of one block, to find those that are there twice.
struct Names {
    filter: [u64; 64],
    seen: Vec<(u32, usize, usize)>,
}

impl Names {
    fn clear(&mut self) {
        self.filter = [0; 64];
        self.seen.clear();
    }

    /// Takes a name in; true when it is there already.
    fn is_new(&mut self, block: &[u8], at: usize, length: usize) -> bool {
        let name = &block[at..at + length];
        let hash = crc32c(!0, name);
        let (word, bit) = ((hash >> 6 & 63) as usize, 1 << (hash & 63));
        let is_twin = |(other, start, count): &(u32, usize, usize)| {
            *other == hash && &block[*start..*start + *count] == name
        };
        let is_known = self.filter[word] & bit != 0 && self.seen.iter().any(is_twin);
        self.filter[word] |= bit;
        self.seen.push((hash, at, length));
        !is_known
    }
}

struct Directory<'a> {
    check: &'a Check,
    ino: u32,
    inode: &'a Inode<Vec<u8>>,
    seed: Option<InodeSeed>,
    found: &'a mut Findings,
    names: Names,
    index: Option<Index>,
    /// Names are hashed for an index, and are no text.
    is_encrypted: bool,
}

impl<'a> Directory<'a> {
    fn new(
        check: &'a Check,
        ino: u32,
        inode: &'a Inode<Vec<u8>>,
        found: &'a mut Findings,
    ) -> Directory<'a> {
        Directory {
            check,
            ino,
            inode,
            seed: inode.seed(&check.fs.rules, Ino(ino)),
            found,
            names: Names {
                filter: [0; 64],
                seen: Vec::new(),
            },
            index: None,
            is_encrypted: inode.flags().contains(InodeFlags::ENCRYPT),
        }
    }

    fn wrong(&mut self, problem: Problem, what: impl std::fmt::Display) {
        self.found.add(problem, Object::inode(self.ino), what);
    }

    fn check(mut self) {
        let fs = &self.check.fs;
        if self.inode.flags().contains(InodeFlags::INLINE_DATA) {
            return self.inline();
        }
        let mut runs = Runs::default();
        let mut told = Findings::default();
        let walked = walk::walk(fs, self.ino, self.inode, &mut runs, &mut told);
        if self.inode.flags().contains(InodeFlags::INDEX) {
            if !fs.has(Compat::DIR_INDEX) {
                self.wrong(Problem::Htree, "indexed, without dir_index");
            }
            let flags = self.inode.flags();
            let index = Index::new(walked.end, fs.dir_rules.with_flags(flags));
            self.index = Some(index.folding(flags.contains(InodeFlags::CASEFOLD)));
        }
        let may_have_holes = fs.needs(Incompat::LARGEDIR) && !fs.needs(Incompat::INLINE_DATA);
        if (walked.has_holes || walked.end == 0) && !may_have_holes {
            self.wrong(Problem::DirectoryBlocks, "a directory with holes");
        }
        let mut block = fs.block_buffer();
        for (logical, physical, length) in runs.0 {
            for step in 0..length {
                if fs.read_block(physical + step, &mut block, self.found) {
                    self.block(logical + step, physical + step, &block);
                }
            }
        }
        if let Some(index) = self.index.take() {
            let (ino, found) = (self.ino, &mut *self.found);
            index.finish(|what| found.add(Problem::Htree, Object::inode(ino), what));
        }
    }

    /// The entries in `i_block` and those in an attribute.
    fn inline(&mut self) {
        let area = self.inode.block_area().to_vec();
        let parent = u32::from_le_bytes([area[0], area[1], area[2], area[3]]);
        let kind = EntryType::from(FileKind::Directory).0;
        self.names.clear();
        let dot = Seen::dot(self.ino, kind);
        self.entry(&dot, b".", 0);
        if let Some(dir) = self.check.dirs.get(self.ino) {
            dir.dotdot.store(parent, Relaxed);
        }
        let dotdot = Seen {
            position: 1,
            ..Seen::dot(parent, kind)
        };
        self.entry(&dotdot, b"..", 0);
        self.entries(&area[INLINE_PARENT..], 2, 0, None);
        let rest = xattrs::inline_bytes(self.inode);
        if !rest.is_empty() {
            self.entries(&rest, 2, 0, None);
        }
    }

    fn block(&mut self, logical: LogicalBlock, physical: u64, block: &[u8]) {
        let kind = match &mut self.index {
            Some(index) => index.block(logical, &self.check.fs, block, |what| {
                self.found
                    .add(Problem::Htree, Object::inode(self.ino), what);
            }),
            None => BlockKind::Leaf,
        };
        let limit = self.checksum(kind, physical, block);
        let position = if logical == LogicalBlock(0) { 0 } else { 2 };
        let is_leaf = kind == BlockKind::Leaf;
        let mut range = None;
        if self.index.is_some() {
            range = Some((u32::MAX, 0));
        }
        let hashes = self.entries(&block[..limit], position, physical, range);
        if let (Some(index), Some((low, high))) = (&mut self.index, hashes)
            && is_leaf
        {
            index.leaf(logical, low, high);
        }
    }

    /// Compares the checksum of a block; gives where its entries end.
    fn checksum(&mut self, kind: BlockKind, physical: u64, block: &[u8]) -> usize {
        let Some(seed) = self.seed else {
            return block.len();
        };
        let view = DirBlock::new(block, self.check.fs.dir_rules);
        let has_tail = view.as_ref().is_ok_and(DirBlock::has_tail);
        let object = || Object::inode(self.ino).block(physical);
        if kind == BlockKind::Leaf && !has_tail && !super::htree::looks_like_index(block) {
            let what = "directory block without room for its checksum";
            self.found.add(Problem::DirectoryBlock, object(), what);
            return block.len();
        }
        // An index block that was a leaf before may have that one's tail still.
        let verified = match (kind, &view) {
            (BlockKind::Leaf, Ok(view)) if has_tail => view.verify_checksum(seed),
            _ => super::htree::verify_checksum(block, seed),
        };
        if let Err(error) = verified {
            let problem = match (kind, is_checksum(&error)) {
                (BlockKind::Leaf, true) => Problem::DirectoryChecksum,
                (BlockKind::Leaf, false) => Problem::DirectoryBlock,
                _ => Problem::Htree,
            };
            let what = format!("directory block: {}", short(&error));
            self.found.add(problem, object(), what);
        }
        match kind {
            BlockKind::Leaf => block.len() - TAIL,
            _ => block.len(),
        }
    }

    /// Goes through the entries of a block; gives the lowest and highest hash, where asked.
    fn entries(
        &mut self,
        block: &[u8],
        position: u32,
        physical: u64,
        mut hashes: Option<(u32, u32)>,
    ) -> Option<(u32, u32)> {
        let block_size = self.check.fs.geo.block_size as usize;
        let (mut at, mut position) = (0, position);
        self.names.clear();
        while at < block.len() {
            let rest = block.len() - at;
            let raw = match rest >= HEADER {
                true => u16::from_le_bytes([block[at + 4], block[at + 5]]),
                false => 0,
            };
            let length = decode_rec_len(raw, block_size);
            let name_length = if rest >= HEADER {
                usize::from(block[at + 6])
            } else {
                0
            };
            if rest < ENTRY_MIN
                || length > rest
                || length < ENTRY_MIN
                || !length.is_multiple_of(4)
                || entry_size(name_length) > length
            {
                let what = format!("directory block: entry at {at} of {length} bytes");
                let object = Object::inode(self.ino).block(physical);
                self.found.add(Problem::DirectoryBlock, object, what);
                return hashes;
            }
            let word =
                |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap_or([0; 4]));
            let seen = Seen {
                ino: word(at),
                kind: block[at + 7],
                position,
                next: block.get(at + HEADER + name_length).copied().unwrap_or(0),
            };
            let name = &block[at + HEADER..at + HEADER + name_length];
            let hash_at = at + entry_size(name_length);
            let stored_hash = block
                .get(hash_at..hash_at + 4)
                .filter(|_| hash_at < at + length);
            if self.entry(&seen, name, physical) {
                if !self.names.is_new(block, at + HEADER, name_length) {
                    let what = "is there twice";
                    self.wrong_entry(Problem::DuplicateName, name, physical, 0, what);
                }
                if let (Some((low, high)), Some(index)) = (&mut hashes, &self.index)
                    && let Some(hash) = index.hash(&self.check.fs.sb, name, stored_hash)
                {
                    *low = hash.min(*low);
                    *high = hash.max(*high);
                }
            }
            at += length;
            position += 1;
        }
        hashes
    }

    /// Checks an entry; whether it counts as one.
    fn entry(&mut self, seen: &Seen, name: &[u8], physical: u64) -> bool {
        let (check, fs) = (self.check, &self.check.fs);
        self.dots(seen, name, physical);
        if seen.ino == 0 {
            return false;
        }
        let mut wrong = |problem, what: &str| self.wrong_entry(problem, name, physical, 0, what);
        let is_reserved = seen.ino != Ino::ROOT.0 && fs.is_reserved(seen.ino);
        if is_reserved || seen.ino > fs.geo.inodes_count {
            wrong(Problem::Entry, &format!("inode {} cannot be", seen.ino));
            return false;
        }
        if seen.position > 1 {
            let what = match name {
                b"." | b".." => "is there once more",
                _ if seen.ino == Ino::ROOT.0 => "names the root directory",
                b"" => "an entry without a name",
                _ if check.inodes.is(seen.ino, state::EA_REFERENCED) => {
                    "names the value of an attribute"
                }
                _ => "",
            };
            if !what.is_empty() {
                wrong(Problem::Entry, what);
            }
        }
        if !check.is_used(seen.ino) {
            let what = format!("inode {} is not in use", seen.ino);
            let (problem, ino) = (unused_problem(check, seen.ino), u64::from(seen.ino));
            self.wrong_entry(problem, name, physical, ino, &what);
        }
        self.target(seen, name, physical);
        check.inodes.count(seen.ino);
        true
    }

    fn wrong_entry(
        &mut self,
        problem: Problem,
        name: &[u8],
        physical: u64,
        value: u64,
        what: &str,
    ) {
        let mut object = Object::inode(self.ino).entry(name);
        if physical != 0 {
            object = object.block(physical);
        }
        self.found.add_with(problem, object, what, value);
    }

    /// The first two entries of a directory, and what else names it.
    fn dots(&mut self, seen: &Seen, name: &[u8], physical: u64) {
        let mut wrong = |problem, what| self.wrong_entry(problem, name, physical, 0, what);
        match seen.position {
            0 => {
                if seen.ino == 0 || name != b"." || seen.next != 0 {
                    wrong(Problem::Dots, "the first entry must be '.'");
                }
                if seen.ino != self.ino {
                    self.wrong_entry(Problem::Dots, name, physical, 0, "'.' is another inode");
                }
            }
            1 => {
                if seen.ino == 0 || name != b".." || seen.next != 0 {
                    wrong(Problem::Dots, "the second entry must be '..'");
                } else if let Some(dir) = self.check.dirs.get(self.ino) {
                    dir.dotdot.store(seen.ino, Relaxed);
                }
            }
            _ if seen.ino == self.ino => {
                self.wrong_entry(Problem::Entry, name, physical, 0, "names its own directory");
            }
            _ => {}
        }
    }

    /// What an entry says about the inode that it names.
    fn target(&mut self, seen: &Seen, name: &[u8], physical: u64) {
        let (check, fs) = (self.check, &self.check.fs);
        let is_encrypted = self.is_encrypted;
        let mut wrong =
            |problem, value, what: &str| self.wrong_entry(problem, name, physical, value, what);
        let kind = check.inodes.kind(seen.ino);
        let wanted = FileKind::from_mode(u16::from(kind) << 12);
        let wanted = wanted.map_or(0, |kind| EntryType::from(kind).0);
        let is_known = check.is_used(seen.ino) && !check.inodes.is(seen.ino, state::BAD);
        if !fs.dir_rules.has_filetype && seen.kind != 0 {
            wrong(Problem::EntryType, 0, "has a type, without filetype");
        } else if fs.dir_rules.has_filetype && seen.kind != 0 && seen.kind != wanted && is_known {
            let what = format!("type {} should be {wanted}", seen.kind);
            wrong(Problem::EntryType, u64::from(wanted), &what);
        }
        if is_encrypted && seen.position > 1 {
            // Devices, pipes and sockets are never encrypted.
            let can_be = [4, 8, 0xA].contains(&kind);
            if name.len() < ENCRYPTED_NAME_MIN {
                let what = "too short for the name of an encrypted file";
                wrong(Problem::Entry, 0, what);
            } else if can_be && !check.inodes.is(seen.ino, state::ENCRYPTED) {
                wrong(
                    Problem::Entry,
                    0,
                    "not encrypted, in an encrypted directory",
                );
            }
        }
        if !is_encrypted && name.iter().any(|byte| *byte == b'/' || *byte == 0) {
            wrong(Problem::Entry, 0, "a name with '/' or a zero byte");
        }
        let is_dir = kind == DIRECTORY && check.is_used(seen.ino);
        if seen.position > 1
            && is_dir
            && let Some(dir) = check.dirs.get(seen.ino)
        {
            let own = self.ino;
            let first = dir.parent.compare_exchange(0, own, Relaxed, Relaxed).err();
            if let Some(first) = first {
                let what = format!("directory {} is also in directory {first}", seen.ino);
                self.wrong_entry(Problem::DirectoryLinked, name, physical, 0, &what);
            }
        }
    }
}

/// An inode that an entry names may be out of the group's range of initialised ones.
fn unused_problem(check: &Check, ino: u32) -> Problem {
    let place = check.fs.geo.locate_inode(Ino(ino));
    let group = place.and_then(|place| {
        let GroupNo(number) = place.group;
        let group = check.fs.groups.get(number as usize)?;
        Some((place.index, group))
    });
    match group {
        Some((index, group)) if index >= check.fs.inodes_scanned(group) => Problem::GroupFlags,
        _ => Problem::Entry,
    }
}

/// An entry, as it lies there.
struct Seen {
    ino: u32,
    kind: u8,
    /// 0 for the first entry of a directory, 1 for the second.
    position: u32,
    /// The byte behind the name.
    next: u8,
}

impl Seen {
    /// One that is not stored.
    fn dot(ino: u32, kind: u8) -> Seen {
        Seen {
            ino,
            kind,
            position: 0,
            next: 0,
        }
    }
}
