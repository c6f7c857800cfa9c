//! What the kept reader of squashfs images does not tell: which inode a name has, and the extended
//! attributes.
//!
//! The format is that of the kernel's `fs/squashfs/squashfs_fs.h`. An inode has an index in the
//! table of attribute sets; a set is a place among the attributes, and a count. Both lie in
//! metadata blocks of up to 8 KiB, which may be compressed: a place is the block's position and an
//! offset in what is unpacked, and what begins in one block may go on in the next.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use backhand::v4::inode::InodeInner;
use backhand::v4::metadata::{METADATA_MAXSIZE, read_block};
use backhand::{BackhandError, Inode, Squashfs};

use crate::attributes::Xattr;

/// Of a file without attributes, and of an image without any.
const NO_INDEX: u32 = u32::MAX;
const NO_TABLE: u64 = u64::MAX;

const SET_BYTES: u64 = 16;
/// The value is elsewhere; the rest of the type is the prefix.
const VALUE_ELSEWHERE: u16 = 0x100;
const PREFIXES: [&str; 3] = ["user.", "trusted.", "security."];
/// Of a value, by the kernel's limits.h.
const VALUE_MAX_BYTES: usize = 65536;
/// All attributes of all files: sets can be shared, so that a small image could fill the memory.
const ALL_MAX_BYTES: usize = 1 << 30;
/// Unpacked blocks that are kept: 8 MiB.
const BLOCKS_MAX: usize = 1024;

type Result<T> = std::result::Result<T, BackhandError>;

pub(super) fn damaged() -> BackhandError {
    BackhandError::CorruptedOrInvalidSquashfs
}

/// What is to be known of a name.
pub(super) struct Known {
    /// The number of its inode.
    pub number: u32,
    pub xattrs: Vec<Xattr>,
}

/// All names, by their paths, which begin with `/`.
pub(super) fn names(squashfs: &mut Squashfs<'_>) -> Result<HashMap<PathBuf, Known>> {
    let inodes = inodes(squashfs)?;
    let mut attributes = Attributes::new(squashfs)?;
    let known = |(path, inode): (PathBuf, Indexed)| {
        let xattrs = match &mut attributes {
            Some(attributes) => attributes.of(inode)?,
            None => Vec::new(),
        };
        let number = inode.number;
        Ok((path, Known { number, xattrs }))
    };
    inodes.into_iter().map(known).collect()
}

/// An inode's number, and its index in the table of sets.
#[derive(Clone, Copy)]
struct Indexed {
    number: u32,
    index: u32,
}

fn inodes(squashfs: &Squashfs<'_>) -> Result<HashMap<PathBuf, Indexed>> {
    let root = &squashfs.root_inode;
    let mut found = HashMap::from([(PathBuf::from("/"), indexed(root))]);
    // An image that is damaged may have circles.
    let mut seen = HashSet::from([root.header.inode_number]);
    let mut left = vec![(PathBuf::from("/"), root)];
    while let Some((path, inode)) = left.pop() {
        for (name, number) in entries(squashfs, inode)? {
            let inode = squashfs.inodes.get(&number).ok_or_else(damaged)?;
            let path = path.join(name);
            let is_directory = matches!(
                inode.inner,
                InodeInner::BasicDirectory(_) | InodeInner::ExtendedDirectory(_)
            );
            if is_directory && seen.insert(number) {
                left.push((path.clone(), inode));
            }
            found.insert(path, indexed(inode));
        }
    }
    Ok(found)
}

fn indexed(inode: &Inode) -> Indexed {
    let index = match &inode.inner {
        InodeInner::ExtendedDirectory(it) => it.xattr_index,
        InodeInner::ExtendedFile(it) => it.xattr_index,
        InodeInner::ExtendedSymlink(it) => it.xattr_index,
        InodeInner::ExtendedBlockDevice(it) => it.xattr_index,
        InodeInner::ExtendedCharacterDevice(it) => it.xattr_index,
        InodeInner::ExtendedNamedPipe(it) => it.xattr_index,
        InodeInner::ExtendedSocket(it) => it.xattr_index,
        _ => NO_INDEX,
    };
    Indexed {
        number: inode.header.inode_number,
        index,
    }
}

/// The names in a directory, with their inodes' numbers.
fn entries(squashfs: &Squashfs<'_>, inode: &Inode) -> Result<Vec<(OsString, u32)>> {
    let (block, offset, size) = match &inode.inner {
        InodeInner::BasicDirectory(it) => {
            (it.block_index, it.block_offset, u32::from(it.file_size))
        }
        InodeInner::ExtendedDirectory(it) => (it.block_index, it.block_offset, it.file_size),
        _ => return Err(damaged()),
    };
    // The size counts `.` and `..`, which are not there.
    let Some(size) = size.checked_sub(3).filter(|size| *size > 0) else {
        return Ok(Vec::new());
    };
    let (places, bytes) = &squashfs.dir_blocks;
    let place = places.get(&u64::from(block)).ok_or_else(damaged)?;
    let start = *place as usize + usize::from(offset);
    let all = bytes.get(start..start + size as usize);
    let mut rest = Bytes(all.ok_or_else(damaged)?);
    let mut found = Vec::new();
    while !rest.0.is_empty() {
        let count = rest.u32()?;
        let _start = rest.u32()?;
        let first = rest.u32()?;
        for _ in 0..=count {
            let _offset = rest.u16()?;
            let difference = rest.u16()? as i16;
            let _kind = rest.u16()?;
            let name_bytes = usize::from(rest.u16()?) + 1;
            let name = OsString::from_vec(rest.take(name_bytes)?.to_vec());
            found.push((name, first.wrapping_add_signed(difference.into())));
        }
    }
    Ok(found)
}

/// Bytes that are taken from the front.
pub(super) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u16(&mut self) -> Result<u16> {
        let bytes = self.take(2)?.try_into().map_err(|_| damaged())?;
        Ok(u16::from_le_bytes(bytes))
    }

    pub fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?.try_into().map_err(|_| damaged())?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub fn u64(&mut self) -> Result<u64> {
        let bytes = self.take(8)?.try_into().map_err(|_| damaged())?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// The extended attributes of an image.
struct Attributes<'a, 'b> {
    squashfs: &'a mut Squashfs<'b>,
    /// Where attributes begin, and where the list of the blocks with sets is.
    start: u64,
    list: u64,
    count: u32,
    /// Unpacked blocks by their positions, and the position of the next.
    blocks: HashMap<u64, (Vec<u8>, u64)>,
    all_bytes: usize,
}

impl<'a, 'b> Attributes<'a, 'b> {
    /// None in an image that has no attributes.
    fn new(squashfs: &'a mut Squashfs<'b>) -> Result<Option<Self>> {
        let table = squashfs.superblock.xattr_table;
        if table == NO_TABLE {
            return Ok(None);
        }
        let mut found = Attributes {
            squashfs,
            start: 0,
            list: table + SET_BYTES,
            count: 0,
            blocks: HashMap::new(),
            all_bytes: 0,
        };
        let head = found.raw(table, SET_BYTES as usize)?;
        let mut head = Bytes(&head);
        found.start = head.u64()?;
        found.count = head.u32()?;
        Ok(Some(found))
    }

    /// The attributes of an inode, by their full names.
    fn of(&mut self, inode: Indexed) -> Result<Vec<Xattr>> {
        if inode.index == NO_INDEX {
            return Ok(Vec::new());
        }
        if inode.index >= self.count {
            return Err(damaged());
        }
        let at = u64::from(inode.index) * SET_BYTES;
        let (block, offset) = (at / METADATA_MAXSIZE as u64, at % METADATA_MAXSIZE as u64);
        let pointer = self.raw(self.list + block * 8, 8)?;
        let mut place = Place {
            block: Bytes(&pointer).u64()?,
            offset: offset as usize,
        };
        let set = self.bytes(&mut place, SET_BYTES as usize)?;
        let mut set = Bytes(&set);
        let (mut place, count) = (self.place(set.u64()?)?, set.u32()?);
        let mut xattrs = Vec::new();
        for _ in 0..count {
            xattrs.push(self.one(&mut place)?);
        }
        xattrs.sort();
        Ok(xattrs)
    }

    fn one(&mut self, place: &mut Place) -> Result<Xattr> {
        let head = self.bytes(place, 4)?;
        let mut head = Bytes(&head);
        let (kind, name_bytes) = (head.u16()?, usize::from(head.u16()?));
        let prefix = PREFIXES.get(usize::from(kind & !VALUE_ELSEWHERE));
        let mut name = prefix.ok_or_else(damaged)?.as_bytes().to_vec();
        name.extend(self.bytes(place, name_bytes)?);
        let mut value = self.value(place)?;
        if kind & VALUE_ELSEWHERE != 0 {
            let mut elsewhere = self.place(Bytes(&value).u64()?)?;
            value = self.value(&mut elsewhere)?;
        }
        self.all_bytes += name.len() + value.len();
        if self.all_bytes > ALL_MAX_BYTES {
            return Err(std::io::Error::from(ErrorKind::OutOfMemory).into());
        }
        Ok((OsString::from_vec(name), value))
    }

    fn value(&mut self, place: &mut Place) -> Result<Vec<u8>> {
        let size = self.bytes(place, 4)?;
        let size = Bytes(&size).u32()? as usize;
        if size > VALUE_MAX_BYTES {
            return Err(damaged());
        }
        self.bytes(place, size)
    }

    /// A reference: the block's distance from the first, and an offset of 16 bits.
    fn place(&self, reference: u64) -> Result<Place> {
        Ok(Place {
            block: self
                .start
                .checked_add(reference >> 16)
                .ok_or_else(damaged)?,
            offset: (reference & 0xffff) as usize,
        })
    }

    /// What is unpacked from a place on, which moves behind it.
    fn bytes(&mut self, place: &mut Place, count: usize) -> Result<Vec<u8>> {
        let mut found = Vec::with_capacity(count);
        while found.len() < count {
            let (block, next) = self.block(place.block)?;
            let rest = block.get(place.offset..).ok_or_else(damaged)?;
            let taken = &rest[..rest.len().min(count - found.len())];
            if taken.is_empty() && block.len() < METADATA_MAXSIZE {
                return Err(damaged());
            }
            found.extend(taken);
            place.offset += taken.len();
            if place.offset == METADATA_MAXSIZE {
                *place = Place {
                    block: next,
                    offset: 0,
                };
            }
        }
        Ok(found)
    }

    fn block(&mut self, at: u64) -> Result<(&[u8], u64)> {
        if !self.blocks.contains_key(&at) {
            if self.blocks.len() == BLOCKS_MAX {
                self.blocks.clear();
            }
            let Squashfs {
                file,
                superblock,
                kind,
                ..
            } = &mut *self.squashfs;
            file.seek(SeekFrom::Start(at))?;
            let unpacked = read_block(file, superblock, kind)?;
            let next = file.stream_position()?;
            self.blocks.insert(at, (unpacked, next));
        }
        let (block, next) = &self.blocks[&at];
        Ok((block, *next))
    }

    fn raw(&mut self, at: u64, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        let file = &mut self.squashfs.file;
        file.seek(SeekFrom::Start(at))?;
        std::io::Read::read_exact(file, &mut bytes)?;
        Ok(bytes)
    }
}

/// A byte of what is unpacked.
struct Place {
    block: u64,
    offset: usize,
}
