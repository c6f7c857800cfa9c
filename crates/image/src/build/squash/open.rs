//! Opens squashfs images, also those that the kept reader refuses for a symbolic link of 256 bytes
//! or more, which the kernel takes.
//!
//! That reader takes the table of inodes from any reader. It is given a copy in memory in which
//! long links are short; their targets are put back into what it makes of them.
//!
//! # References
//! The kernel's `fs/squashfs/squashfs_fs.h`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Cursor};
use std::os::unix::fs::FileExt;
use std::path::Path;

use backhand::kind::{Kind, LE_V4_0};
use backhand::v4::inode::InodeInner;
use backhand::v4::metadata::METADATA_MAXSIZE;
use backhand::v4::reader::SquashFsReader;
use backhand::{BackhandError, Inode, Squashfs};

use super::tables::{Bytes, damaged};
use crate::error::{Error, Result};

type Read<T> = std::result::Result<T, BackhandError>;

const SUPERBLOCK_BYTES: usize = 96;

/// Longest target that the kept reader takes.
const SHORT_MAX: usize = 255;

/// In the length of a metadata block that is not compressed.
const UNCOMPRESSED: u16 = 1 << 15;

/// Of a file whose end lies in no fragment.
const NO_FRAGMENT: u32 = u32::MAX;

/// Opens an image. The error says what is wrong, also what this reads no images of.
pub(super) fn open(path: &Path) -> Result<Squashfs<'static>> {
    let failed = |error| Error::host(path.display().to_string(), error);
    let reader = || File::open(path).map(BufReader::new).map_err(failed);
    let file = File::open(path).map_err(failed)?;
    check(&file).map_err(|reason| Error::new(path.display().to_string(), reason))?;
    let refused = match Squashfs::from_reader(reader()?) {
        Ok(opened) => return Ok(opened),
        Err(error) => error,
    };
    match with_long_links(reader()?) {
        Ok(Some(opened)) => Ok(opened),
        _ => Err(Error::new(path.display().to_string(), reason(&refused))),
    }
}

/// What an error of the kept reader says, which has no text for most.
pub(super) fn reason(error: &BackhandError) -> String {
    match error {
        BackhandError::StdIo(error) => format!("is damaged: {error}"),
        _ => "is damaged".to_owned(),
    }
}

/// Refuses what the superblock tells: images that were cut, and what is not supported.
fn check(file: &File) -> std::result::Result<(), String> {
    let mut head = [0; SUPERBLOCK_BYTES];
    let length = file.metadata().map_or(0, |found| found.len());
    let read = file.read_exact_at(&mut head, 0);
    read.map_err(|_| format!("is cut off: it has {length} bytes"))?;
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (major, minor) = (half(28), half(30));
    if (major, minor) != (4, 0) {
        return Err(format!("is squashfs {major}.{minor}; 4.0 is supported"));
    }
    let packing = match half(20) {
        1 | 4..=6 => None,
        2 => Some("lzma".to_owned()),
        3 => Some("lzo".to_owned()),
        other => Some(format!("a packing with the number {other}")),
    };
    if let Some(packing) = packing {
        return Err(format!(
            "is packed by {packing}, which is not supported; unpack it by unsquashfs(1), and build \
             from the directory"
        ));
    }
    let used = head[40..]
        .first_chunk()
        .copied()
        .map_or(0, u64::from_le_bytes);
    match used > length {
        true => Err(format!("is cut off: it has {length} of {used} bytes")),
        false => Ok(()),
    }
}

/// Opens an image that has long links; `None` if it has none.
fn with_long_links(mut reader: BufReader<File>) -> Read<Option<Squashfs<'static>>> {
    let kind = Kind::from_const(LE_V4_0).map_err(|_| damaged())?;
    let head = Squashfs::superblock_and_compression_options(&mut reader, &kind)?;
    let (superblock, compression_options) = head;
    let (places, bytes) = reader.uncompress_metadatas(
        superblock.inode_table,
        &superblock,
        superblock.dir_table,
        &kind,
    )?;
    let (root_block, root_offset) = (superblock.root_inode >> 16, superblock.root_inode & 0xffff);
    let root_place = places.get(&root_block).ok_or_else(damaged)?;
    let root_at = (root_place + root_offset) as usize;
    let table = Table::shorten(&bytes, superblock.block_size, root_at)?;
    if table.targets.is_empty() {
        return Ok(None);
    }
    let mut changed = superblock;
    let blocks = table.blocks(&mut changed.root_inode);
    (changed.inode_table, changed.dir_table) = (0, blocks.len() as u64);
    let (root_inode, mut inodes) = Cursor::new(blocks).inodes(&changed, &kind)?;
    for (number, target) in table.targets {
        if let Some(inode) = inodes.get_mut(&number) {
            put_back(inode, target);
        }
    }
    let fragments = reader.fragments(&superblock, &kind)?;
    let export = reader.export(&superblock, &kind)?;
    let id = reader.id(&superblock, &kind)?;
    // What comes behind the directories.
    let fragments_at = fragments.as_ref().map(|(at, _)| *at);
    let export_at = export.as_ref().map(|(at, _)| *at);
    let end = fragments_at.or(export_at).unwrap_or(id.0);
    let dir_blocks = reader.uncompress_metadatas(superblock.dir_table, &superblock, end, &kind)?;
    Ok(Some(Squashfs {
        kind,
        superblock,
        compression_options,
        inodes,
        root_inode,
        dir_blocks,
        fragments: fragments.map(|(_, table)| table),
        export: export.map(|(_, table)| table),
        id: id.1,
        file: Box::new(reader),
    }))
}

/// Gives a link its target again.
fn put_back(inode: &mut Inode, target: Vec<u8>) {
    let (size, path) = match &mut inode.inner {
        InodeInner::BasicSymlink(it) => (&mut it.target_size, &mut it.target_path),
        InodeInner::ExtendedSymlink(it) => (&mut it.target_size, &mut it.target_path),
        _ => return,
    };
    *size = target.len() as u32;
    *path = target;
}

/// A table of inodes whose links are all short.
struct Table {
    bytes: Vec<u8>,
    /// Where the root's inode is.
    root_at: usize,
    /// What long links lead to, by the numbers of their inodes.
    targets: HashMap<u32, Vec<u8>>,
}

impl Table {
    fn shorten(bytes: &[u8], block_size: u32, root_at: usize) -> Read<Table> {
        let mut table = Table {
            bytes: Vec::with_capacity(bytes.len()),
            root_at: 0,
            targets: HashMap::new(),
        };
        let mut has_root = false;
        let mut rest = Bytes(bytes);
        while !rest.0.is_empty() {
            if bytes.len() - rest.0.len() == root_at {
                table.root_at = table.bytes.len();
                has_root = true;
            }
            table.add(&mut rest, block_size)?;
        }
        has_root.then_some(table).ok_or_else(damaged)
    }

    /// Takes one inode from the front.
    fn add(&mut self, rest: &mut Bytes<'_>, block_size: u32) -> Read<()> {
        const HEAD_BYTES: usize = 16;
        let mut head = Bytes(rest.0.get(..HEAD_BYTES).ok_or_else(damaged)?);
        let kind = head.u16()?;
        head.take(10)?;
        let number = head.u32()?;
        let mut inner = Bytes(&rest.0[HEAD_BYTES..]);
        let inner_bytes = match kind {
            1 => 16,
            2 => {
                let (_start, fragment) = (inner.u32()?, inner.u32()?);
                let (_offset, size) = (inner.u32()?, inner.u32()?);
                16 + blocks_bytes(size.into(), fragment, block_size)?
            }
            3 | 10 => {
                let (links, size) = (inner.u32()?, inner.u32()? as usize);
                let target = inner.take(size)?;
                if size > SHORT_MAX {
                    let index = if kind == 10 { inner.take(4)? } else { &[] };
                    self.bytes.extend(rest.take(HEAD_BYTES)?);
                    self.bytes.extend(links.to_le_bytes());
                    self.bytes.extend(1_u32.to_le_bytes());
                    self.bytes.push(b'x');
                    self.bytes.extend(index);
                    self.targets.insert(number, target.to_vec());
                    rest.take(8 + size + index.len())?;
                    return Ok(());
                }
                8 + size + if kind == 10 { 4 } else { 0 }
            }
            4 | 5 | 13 | 14 => 8,
            6 | 7 => 4,
            8 => directory_bytes(inner)?,
            9 => {
                let (_start, size) = (inner.u64()?, inner.u64()?);
                let (_sparse, _links) = (inner.u64()?, inner.u32()?);
                40 + blocks_bytes(size, inner.u32()?, block_size)?
            }
            11 | 12 => 12,
            _ => return Err(damaged()),
        };
        self.bytes.extend(rest.take(HEAD_BYTES + inner_bytes)?);
        Ok(())
    }

    /// As metadata blocks that are not compressed. The root's place in them is told.
    fn blocks(&self, root: &mut u64) -> Vec<u8> {
        let mut blocks = Vec::new();
        for part in self.bytes.chunks(METADATA_MAXSIZE) {
            blocks.extend((part.len() as u16 | UNCOMPRESSED).to_le_bytes());
            blocks.extend(part);
        }
        let block = self.root_at / METADATA_MAXSIZE * (METADATA_MAXSIZE + 2);
        *root = (block as u64) << 16 | (self.root_at % METADATA_MAXSIZE) as u64;
        blocks
    }
}

/// What the sizes of a file's blocks take.
fn blocks_bytes(size: u64, fragment: u32, block_size: u32) -> Read<usize> {
    let block_size = u64::from(block_size.max(1));
    let blocks = match fragment {
        NO_FRAGMENT => size.div_ceil(block_size),
        _ => size / block_size,
    };
    let bytes = blocks
        .checked_mul(4)
        .and_then(|bytes| usize::try_from(bytes).ok());
    // No overflow where the rest is added.
    bytes
        .filter(|bytes| *bytes < usize::MAX / 2)
        .ok_or_else(damaged)
}

/// A directory with an index: fields, and a name for each part.
fn directory_bytes(mut inner: Bytes<'_>) -> Read<usize> {
    let all = inner.0.len();
    inner.take(16)?;
    let count = inner.u16()?;
    inner.take(6)?;
    for _ in 0..count {
        inner.take(8)?;
        let name_bytes = inner.u32()? as usize + 1;
        inner.take(name_bytes)?;
    }
    Ok(all - inner.0.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An inode: its kind, its number, and the rest.
    fn inode(kind: u16, number: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0; 10]);
        bytes.extend(number.to_le_bytes());
        bytes.extend(rest);
        bytes
    }

    fn link(kind: u16, number: u32, size: usize) -> Vec<u8> {
        let mut rest = 1_u32.to_le_bytes().to_vec();
        rest.extend((size as u32).to_le_bytes());
        rest.extend(vec![b't'; size]);
        if kind == 10 {
            rest.extend(7_u32.to_le_bytes());
        }
        inode(kind, number, &rest)
    }

    #[test]
    fn long_links_become_short_and_all_else_stays() {
        let mut file = vec![0; 16];
        // 3 blocks of 4096 bytes and no fragment.
        file[4..8].fill(0xff);
        file[12..16].copy_from_slice(&8193_u32.to_le_bytes());
        file.extend([9; 12]);
        let others = [
            inode(2, 1, &file),
            link(3, 2, 255),
            inode(7, 3, &[1; 4]),
            inode(
                8,
                4,
                &[
                    &[0; 16][..],
                    &[1, 0],
                    &[0; 6],
                    &[0; 8],
                    &[2, 0, 0, 0],
                    b"abc",
                ]
                .concat(),
            ),
        ];
        let root = inode(1, 7, &[3; 16]);
        let mut bytes = others.concat();
        bytes.extend(link(3, 5, 256));
        bytes.extend(link(10, 6, 5000));
        let root_at = bytes.len();
        bytes.extend(&root);
        let table = Table::shorten(&bytes, 4096, root_at).unwrap();
        let mut wanted = others.concat();
        for (kind, number) in [(3, 5), (10, 6)] {
            let mut short = link(kind, number, 1);
            short[16 + 8] = b'x';
            wanted.extend(short);
        }
        assert_eq!(table.root_at, wanted.len());
        wanted.extend(root);
        assert!(table.bytes == wanted);
        assert_eq!(table.targets[&5], [b't'; 256]);
        assert_eq!(table.targets[&6], [b't'; 5000]);
        // Whatever is cut is refused.
        for end in [1, 15, 20, bytes.len() - 1] {
            assert!(Table::shorten(&bytes[..end], 4096, 0).is_err(), "{end}");
        }
    }

    #[test]
    fn the_root_is_found_in_its_block() {
        let table = Table {
            bytes: vec![1; 3 * METADATA_MAXSIZE],
            root_at: METADATA_MAXSIZE + 5,
            targets: HashMap::new(),
        };
        let mut root = 0;
        let blocks = table.blocks(&mut root);
        assert_eq!(root, 8194 << 16 | 5);
        assert_eq!(blocks.len(), 3 * 8194);
        assert_eq!(blocks[..2], [0, 0xa0]);
    }
}
