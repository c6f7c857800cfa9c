//! The entries of a directory: linear, indexed, or inline in its inode.
//!
//! # What damage does
//! A block whose checksum or chain of entries is wrong makes the directory unreadable
//! (`Error::Corrupt`): nobody may take a part of it for the whole. A single entry that can only be
//! nonsense (an illegal name, an inode number out of range, a name that was there before) is left
//! out with a warning, as its neighbours are not in doubt.
//!
//! Where something was left out, or where a change would meet damage when it is applied (an index
//! that is not sound, a name that its index does not lead to, blocks behind the end), the directory
//! can be read and not changed ([`DirectoryImage::damage`]). The index is not looked at where the
//! image is only read.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/directory.rst`, `inlinedata.rst`.

use std::collections::HashSet;
use std::sync::Arc;

use finefs_ext_disk as disk;
use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::dirent::{DirBlock, DirRules, NAME_MAX, decode_rec_len};
use finefs_ext_disk::dirhash::DirHash;
use finefs_ext_disk::error::{Corrupt, DiskError};
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::nokey;
use finefs_namespace::{
    DirectoryImage, EntryImage, Error, Extent, ExtentState, FileKind, Ino, LogicalBlock, Result,
};

use super::checked::{self, convert_kind};
use super::index::Leaves;
use super::inode::misplaced_inline_data;
use super::nokey_names::NokeyNames;
use super::{content, encryption, map};
use crate::crypt::{FileCipher, Protection};
use crate::error::{at, detail};
use crate::state::{ExtState, InodeBytes, disk_ino};

/// Loads all entries of a directory.
pub(crate) fn load(state: &ExtState, ino: Ino) -> Result<DirectoryImage> {
    let (inode, kind) = checked::inode(state, ino)?;
    if kind != FileKind::Directory {
        return Err(Error::NotADirectory);
    }
    let flags = inode.flags();
    let mut reader = Reader {
        state,
        ino,
        seed: inode.seed(&state.inode_rules, disk_ino(ino)?),
        flags,
        is_indexed: flags.contains(InodeFlags::INDEX),
        is_encrypted: flags.contains(InodeFlags::ENCRYPT),
        cipher: names_cipher(state, ino, flags)?,
        nokey_names: None,
        parent: None,
        entries: Vec::new(),
        leaves: None,
        checked: 0,
        damage: None,
    };
    if flags.contains(InodeFlags::INLINE_DATA) && !state.may_hold_inline_data() {
        return Err(misplaced_inline_data(ino));
    }
    if flags.contains(InodeFlags::INLINE_DATA) {
        reader.nokey_names = NokeyNames::of(state, &inode, None);
        reader.inline(&inode)?;
    } else {
        reader.blocks(&inode)?;
    }
    let mut image = reader.finish()?;
    if map::is_out_of_reach(state, flags) {
        image.damage.get_or_insert(Error::FileTooLarge);
    }
    Ok(image)
}

/// What encrypts the names; `None` for those that are not, or are shown as without the key.
fn names_cipher(state: &ExtState, ino: Ino, flags: InodeFlags) -> Result<Option<Arc<FileCipher>>> {
    if !flags.contains(InodeFlags::ENCRYPT) {
        return Ok(None);
    }
    match encryption::protection(state, ino)? {
        Protection::Open(cipher) => Ok(Some(cipher)),
        Protection::Plain | Protection::Locked => Ok(None),
    }
}

struct Reader<'a> {
    state: &'a ExtState,
    ino: Ino,
    seed: Option<InodeSeed>,
    flags: InodeFlags,
    is_indexed: bool,
    is_encrypted: bool,
    /// Of an encrypted one whose key is there.
    cipher: Option<Arc<FileCipher>>,
    /// Of an encrypted one whose key is not.
    nokey_names: Option<NokeyNames>,
    parent: Option<disk::Ino>,
    entries: Vec<EntryImage>,
    /// Of an indexed directory that may be changed.
    leaves: Option<Leaves>,
    /// Entries up to this one are where the index leads to.
    checked: usize,
    /// Why it must not be changed.
    damage: Option<Error>,
}

impl Reader<'_> {
    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        Error::corrupt(format_args!("inode {}: directory: {what}", self.ino))
    }

    /// Notes why it must not be changed.
    fn note(&mut self, damage: Error) {
        self.damage.get_or_insert(damage);
    }

    /// Looks at what a change will need, beside the entries.
    fn check_changeable(
        &mut self,
        size_bytes: u64,
        end: LogicalBlock,
        extents: &[Extent],
    ) -> Result<()> {
        if !size_bytes.is_multiple_of(u64::from(self.state.geometry.block_size)) {
            let damage = self.corrupt(format_args!("size {size_bytes}"));
            self.note(damage);
        }
        if extents.last().is_some_and(|last| last.end() > end) {
            let damage = self.corrupt("blocks behind its end");
            self.note(damage);
        }
        // Without the key nothing is added to an encrypted one, nor looked for by its index.
        let is_index_used = !self.is_encrypted || self.cipher.is_some();
        if !self.is_indexed || !is_index_used {
            return Ok(());
        }
        match super::index::check(self.state, self.ino, (self.seed, self.flags), extents, end) {
            Ok(leaves) => self.leaves = Some(leaves),
            Err(error @ Error::Io(_)) => return Err(error),
            Err(error) => self.note(error),
        }
        Ok(())
    }

    /// Reads all blocks of the directory's size; all must be there.
    fn blocks(&mut self, inode: &Inode<InodeBytes>) -> Result<()> {
        let state = self.state;
        let size_bytes = inode.size(&state.inode_rules);
        let end = LogicalBlock::not_before(size_bytes, state.geometry.block_size.into());
        let mapping = map::load(state, self.ino, inode)?;
        if end == LogicalBlock(0) {
            return Err(self.corrupt("no blocks"));
        }
        if !state.is_read_only {
            self.check_changeable(size_bytes, end, &mapping.extents)?;
        }
        let mut next = LogicalBlock(0);
        for extent in &mapping.extents {
            if next >= end {
                break;
            }
            if extent.logical != next || extent.state != ExtentState::Written {
                return Err(self.corrupt(format_args!("block {next} is a hole")));
            }
            next = extent.end().min(end);
            self.run(extent, next)?;
        }
        if next < end {
            return Err(self.corrupt(format_args!("block {next} is a hole")));
        }
        Ok(())
    }

    /// Reads the blocks of an extent up to the logical block `end`.
    fn run(&mut self, extent: &Extent, end: LogicalBlock) -> Result<()> {
        for step in 0..end - extent.logical {
            let bytes = self.state.buffers.read(extent.physical.0 + step)?;
            self.block(extent.logical + step, &bytes)?;
        }
        Ok(())
    }

    /// Sees how the names of an encrypted directory are shown, by its first block.
    fn begin_names(&mut self, first: &[u8]) {
        if self.is_encrypted
            && self.cipher.is_none()
            && let Ok(inode) = self.state.read_inode(self.ino)
        {
            self.nokey_names = NokeyNames::of(self.state, &inode, Some(first));
        }
    }

    fn block(&mut self, logical: LogicalBlock, bytes: &[u8]) -> Result<()> {
        let is_first = logical == LogicalBlock(0);
        let is_index_node = self.is_indexed && (is_first || is_index_node(bytes));
        let ino = self.ino;
        let place = || format!("inode {ino}: directory block {logical}");
        let rules = if is_index_node {
            // The index hides in what looks like one entry that fills the block.
            DirRules {
                has_tail: false,
                ..self.state.dir_rules
            }
        } else {
            if let (Some(seed), true) = (self.seed, self.state.dir_rules.has_tail) {
                DirBlock::new(bytes, self.state.dir_rules)
                    .and_then(|block| block.verify_checksum(seed))
                    .map_err(|error| at(place(), error))?;
            }
            self.state.dir_rules
        };
        if is_first {
            self.begin_names(bytes);
            let dots = DirBlock::new(bytes, rules).and_then(|block| block.dots());
            match dots {
                Ok((_, parent)) => self.parent = Some(parent),
                Err(error) if !self.state.is_read_only => return Err(at(place(), error)),
                Err(error) => log::warn!("{}", at(place(), error)),
            }
        }
        self.entries_of(bytes, rules, &place())?;
        self.check_places(logical, is_index_node);
        Ok(())
    }

    /// Notes a name of the block that the index does not lead to. They are the last ones that were
    /// taken in.
    fn check_places(&mut self, logical: LogicalBlock, is_index_node: bool) {
        let Some(leaves) = self.leaves.as_ref().filter(|_| !is_index_node) else {
            return;
        };
        let entries = &self.entries[self.checked..];
        let cipher = self.cipher.as_deref().and_then(FileCipher::names);
        let hash = |name: &[u8]| match (leaves.hasher(), cipher) {
            (Some(hasher), None) => Some(hasher.hash(name)),
            (Some(hasher), Some(cipher)) => Some(hasher.hash(&cipher.encrypt(name, NAME_MAX)?)),
            (None, cipher) => Some(cipher?.hash(name)),
        };
        let is_found =
            |name: &[u8]| hash(name).is_some_and(|hash| leaves.may_hold(logical, hash.major));
        let lost = entries.iter().find(|entry| !is_found(&entry.name));
        if let Some(lost) = lost {
            let name = String::from_utf8_lossy(&lost.name);
            let damage = self.corrupt(format_args!(
                "the index does not lead to {name:?} in block {logical}"
            ));
            self.note(damage);
        }
        self.checked = self.entries.len();
    }

    /// Takes in the entries of a chain. An illegal name is blanked out in a copy, and reading goes
    /// on.
    fn entries_of(&mut self, bytes: &[u8], rules: DirRules, place: &str) -> Result<()> {
        if self.is_encrypted && self.cipher.is_none() {
            return self.encrypted_entries_of(bytes, rules, place);
        }
        let rules = rules.with_flags(self.flags);
        let mut patched: Option<Vec<u8>> = None;
        // Each round blanks one entry, of which there are fewer than this.
        for _ in 0..bytes.len() / 12 + 1 {
            let start = self.entries.len();
            let bytes_now = patched.as_deref().unwrap_or(bytes);
            let Some(bad) = self.chain(bytes_now, rules, place)? else {
                return Ok(());
            };
            self.note(Error::corrupt(format_args!(
                "{place}: entry at {bad}: illegal name"
            )));
            log::warn!("{place}: entry at {bad}: illegal name, left out");
            self.entries.truncate(start);
            let copy = patched.get_or_insert_with(|| bytes.to_vec());
            if let Some(number) = copy.get_mut(bad as usize..bad as usize + 4) {
                number.fill(0);
            }
        }
        Err(self.corrupt(format_args!("{place}: too many illegal names")))
    }

    /// Takes in the entries of a chain up to an illegal name, whose offset it gives.
    fn chain(&mut self, bytes: &[u8], rules: DirRules, place: &str) -> Result<Option<u32>> {
        let block = DirBlock::new(bytes, rules).map_err(|error| at(place, error))?;
        for entry in block.entries() {
            match entry {
                Ok(entry) if !entry.is_used() || entry.is_dot() => {}
                Ok(entry) => {
                    let kind = entry.entry_type.kind().map(convert_kind);
                    let Some(name) = self.name_of(entry.name) else {
                        return Ok(Some(entry.offset));
                    };
                    self.check_hash(&name, entry.hash, place);
                    self.take(entry.ino, name, kind, place);
                }
                Err(DiskError::Corrupt(Corrupt::DirName { offset })) => return Ok(Some(offset)),
                Err(error) => return Err(at(place, error)),
            }
        }
        Ok(None)
    }

    /// The name that an entry has; `None` for one that does not become a name by decryption, or
    /// one that would be stored as another.
    fn name_of(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let Some(cipher) = self.cipher.as_deref().and_then(FileCipher::names) else {
            return Some(stored.to_vec());
        };
        let name = cipher.decrypt(stored)?;
        let is_legal = !name.contains(&b'/') && name != b"." && name != b"..";
        let is_same = || cipher.encrypt(&name, NAME_MAX).as_deref() == Some(stored);
        (is_legal && (self.state.is_read_only || is_same())).then_some(name)
    }

    /// Notes a name that the kernel would not find, since it looks at its hash first.
    fn check_hash(&mut self, name: &[u8], stored: Option<DirHash>, place: &str) {
        let cipher = self.cipher.as_deref().and_then(FileCipher::names);
        if let (Some(stored), Some(cipher)) = (stored, cipher)
            && !self.state.is_read_only
            && cipher.hash(name) != stored
        {
            let name = String::from_utf8_lossy(name);
            self.note(Error::corrupt(format_args!(
                "{place}: entry {name:?} has the hash of another name"
            )));
        }
    }

    fn take(&mut self, ino: disk::Ino, name: Vec<u8>, kind: Option<FileKind>, place: &str) {
        if ino.0 > self.state.geometry.inodes_count {
            let name = String::from_utf8_lossy(&name);
            log::warn!("{place}: entry {name:?} names inode {ino}, which cannot be; left out");
            self.note(Error::corrupt(format_args!(
                "{place}: entry {name:?} names inode {ino}"
            )));
            return;
        }
        self.entries.push(EntryImage {
            name,
            ino: Ino(u64::from(ino.0)),
            kind,
        });
    }

    /// Encrypted names are any bytes; they are shown in a form that can be a name.
    fn encrypted_entries_of(&mut self, bytes: &[u8], rules: DirRules, place: &str) -> Result<()> {
        let limit = bytes.len()
            - if rules.has_tail {
                disk::dirent::TAIL_SIZE
            } else {
                0
            };
        let names = self.nokey_names.clone();
        let names = names.ok_or_else(|| self.corrupt("no hash for encrypted names"))?;
        for entry in nokey::entries(bytes, limit).map_err(|error| at(place, error))? {
            if !entry.is_name() {
                continue;
            }
            let entry_type = disk::dirent::EntryType(entry.entry_type);
            let kind = entry_type.kind().filter(|_| rules.has_filetype);
            self.take(
                entry.ino,
                names.shown(&entry),
                kind.map(convert_kind),
                place,
            );
        }
        Ok(())
    }

    /// Reads an inline directory: the parent's number and a chain in `i_block`, and another chain
    /// in the attribute "system.data".
    fn inline(&mut self, inode: &Inode<InodeBytes>) -> Result<()> {
        let size_bytes = inode.size(&self.state.inode_rules);
        let content = content::inline(self.state, self.ino, inode, size_bytes)?;
        let Some((parent, rest)) = content.split_first_chunk::<4>() else {
            return Err(self.corrupt("inline, but too small"));
        };
        self.parent = Some(disk::Ino(u32::from_le_bytes(*parent)));
        let stored_bytes = content::inline_bytes(inode);
        if self.is_encrypted {
            // The kernel makes none.
            let damage = self.corrupt("encrypted and inline");
            self.note(damage);
        }
        if stored_bytes != size_bytes && !self.state.is_read_only {
            let damage = self.corrupt(format_args!("size {size_bytes}, but {stored_bytes} inline"));
            self.note(damage);
        }
        let (first, second) = rest.split_at(rest.len().min(disk::inode::BLOCK_AREA_SIZE - 4));
        let rules = DirRules {
            has_tail: false,
            ..self.state.dir_rules
        };
        for (part, name) in [(first, "i_block"), (second, "system.data")] {
            if part.is_empty() {
                continue;
            }
            // The codec asks for a minimal size: a free entry behind the chain makes it up.
            let mut padded = part.to_vec();
            padded.extend_from_slice(&[0; 64]);
            padded[part.len() + 4] = 64;
            let place = format!("inode {}: inline directory, {name}", self.ino);
            self.entries_of(&padded, rules, &place)?;
        }
        Ok(())
    }

    /// Leaves out names that were there before, and settles the parent.
    fn finish(mut self) -> Result<DirectoryImage> {
        let mut seen = HashSet::with_capacity(self.entries.len());
        let is_first: Vec<bool> = self
            .entries
            .iter()
            .map(|entry| seen.insert(entry.name.as_slice()))
            .collect();
        let duplicates = is_first.iter().filter(|is_first| !**is_first).count();
        drop(seen);
        if duplicates > 0 {
            log::warn!(
                "inode {}: directory: {duplicates} duplicate names left out",
                self.ino
            );
            let mut is_first = is_first.iter();
            self.entries
                .retain(|_| is_first.next().copied().unwrap_or(true));
            let damage = self.corrupt(format_args!("{duplicates} duplicate names"));
            self.note(damage);
        }
        if let Some(damage) = &self.damage
            && !self.state.is_read_only
        {
            log::warn!(
                "{}: the directory cannot be changed; run e2fsck -f",
                detail(damage)
            );
        }
        let is_possible =
            |parent: &disk::Ino| parent.0 > 0 && parent.0 <= self.state.geometry.inodes_count;
        let parent = match self.parent.filter(is_possible) {
            Some(parent) => parent,
            None if self.state.is_read_only => disk::Ino::ROOT,
            None => return Err(self.corrupt("the entry .. names no inode")),
        };
        Ok(DirectoryImage {
            parent: Ino(u64::from(parent.0)),
            entries: self.entries,
            damage: self.damage,
        })
    }
}

/// True for a block of an index below the root: one free entry that fills the block. (A leaf
/// without entries looks the same where blocks have no checksum, and has as few entries.)
fn is_index_node(bytes: &[u8]) -> bool {
    bytes.len() >= 8
        && bytes[..4] == [0; 4]
        && decode_rec_len(u16::from_le_bytes([bytes[4], bytes[5]]), bytes.len()) == bytes.len()
}
