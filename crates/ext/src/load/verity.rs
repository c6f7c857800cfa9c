//! Sealed files (`verity`): their data is compared with what was sealed.
//!
//! The kernel compares each page that it reads. Here a file is compared as a whole when its data is
//! first used, and found good or unreadable; nobody changes it while it is mounted. Signatures are
//! not looked at, as in a kernel without keys for them.

use finefs_ext_disk::error::DiskError;
use finefs_ext_disk::inode::Inode;
use finefs_ext_disk::verity::{
    DESCRIPTOR_SIZE, DESCRIPTOR_SIZE_MAX, Descriptor, PLACE_BYTES, Seal,
};
use finefs_namespace::{
    BlockNo, ContentPlace, Error, Extent, Ino, LogicalBlock, ReadAt, Result, SealParameters,
    VerityDigest,
};

use super::{content, encryption};
use crate::crypt::{ContentCipher, FileCipher};
use crate::sealed::Sealed;
use crate::state::{ExtState, InodeBytes};

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Compares the data of a sealed file. `Error::Io` where it is not what was sealed.
pub(crate) fn verify(
    state: &ExtState,
    ino: Ino,
    inode: &Inode<InodeBytes>,
    extents: &[Extent],
) -> Result<()> {
    let broken = |what: &str| broken(ino, what);
    let cipher = encryption::of_content(state, ino)?;
    let file = File {
        state,
        ino,
        extents,
        cipher: cipher.as_deref().and_then(FileCipher::content),
    };
    let read = |at, bytes: &mut [u8]| file.read(at, bytes);
    let end = extents.last().map_or(0, |last| {
        last.end().offset_bytes(state.geometry.block_size.into())
    });
    let (_, descriptor) = descriptor(state, ino, end, &read)?;
    let size_bytes = inode.size(&state.inode_rules);
    if descriptor.data_bytes != size_bytes {
        return Err(broken("its size is not what was sealed"));
    }
    if !has_tree(state, &descriptor, extents) {
        return Err(broken("its size is more than it has hashes for"));
    }
    let mut verifier = descriptor.verifier();
    let mut piece = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        piece.clear();
        piece.resize(PIECE_BYTES.min(size_bytes - at) as usize, 0);
        file.read(at, &mut piece)?;
        verifier.take_in(&piece);
        at += piece.len() as u64;
    }
    match verifier.is_genuine() {
        true => Ok(()),
        false => Err(broken("its data is not what was sealed")),
    }
}

/// What fs-verity knows a sealed file by whose blocks end at `end_bytes`.
pub(crate) fn digest(
    state: &ExtState,
    ino: Ino,
    end_bytes: u64,
    read: &ReadAt<'_>,
) -> Result<VerityDigest> {
    let (bytes, descriptor) = descriptor(state, ino, end_bytes, read)?;
    Ok(VerityDigest {
        algorithm: descriptor.algorithm_number(),
        bytes: descriptor.file_digest(&bytes),
    })
}

/// What seals a file of so many bytes, and where it goes; see `Store::seal`.
pub(crate) fn seal(
    state: &ExtState,
    size_bytes: u64,
    parameters: &SealParameters<'_>,
    read: &ReadAt<'_>,
) -> Result<(u64, Vec<u8>)> {
    let block_bytes = state.geometry.block_size;
    let cluster_bytes = u64::from(block_bytes) * u64::from(state.geometry.cluster_ratio);
    // What seals a file begins with a cluster.
    if !state.has_verity || cluster_bytes > PLACE_BYTES {
        return Err(Error::NotSupported);
    }
    if parameters.block_bytes > block_bytes {
        return Err(Error::Invalid);
    }
    let SealParameters {
        algorithm,
        block_bytes: hashed,
        salt,
        signature,
    } = *parameters;
    let seal = Seal::new(size_bytes, algorithm, hashed, salt, signature);
    let seal = seal.map_err(|_| Error::Invalid)?;
    // A file of holes may be larger than the image.
    let (free_blocks, _) = state.allocator.free_counts();
    if seal.tree_bytes() / u64::from(block_bytes) >= free_blocks {
        return Err(Error::NoSpace);
    }
    seal.build((block_bytes as usize, cluster_bytes as usize), read)
}

/// Whether all blocks of the tree are there, which is then not longer than the image: a hole is no
/// hash. The work goes by the size, and so by what the image holds.
fn has_tree(state: &ExtState, descriptor: &Descriptor, extents: &[Extent]) -> bool {
    let block_bytes = u64::from(state.geometry.block_size);
    let tree_bytes = descriptor.tree_bytes();
    let Some(place) = descriptor.data_bytes.checked_next_multiple_of(PLACE_BYTES) else {
        return false;
    };
    let Some(end) = place.checked_add(tree_bytes) else {
        return false;
    };
    let (first, end) = (place / block_bytes, end.div_ceil(block_bytes));
    let held = extents.iter().map(|extent| {
        let (from, to) = (extent.logical.0.max(first), extent.end().0.min(end));
        to.saturating_sub(from)
    });
    let tree_blocks = end - first;
    tree_blocks <= state.geometry.blocks_count && held.sum::<u64>() == tree_blocks
}

fn broken(ino: Ino, what: &str) -> Error {
    Error::io(format_args!("inode {ino}: verity: {what}"))
}

/// The descriptor, which lies at the end of the last blocks, and its bytes.
fn descriptor(
    state: &ExtState,
    ino: Ino,
    end_bytes: u64,
    read: &ReadAt<'_>,
) -> Result<(Vec<u8>, Descriptor)> {
    let broken = |what: &str| broken(ino, what);
    let block_bytes = u64::from(state.geometry.block_size);
    let at = end_bytes
        .checked_sub(4)
        .ok_or_else(|| broken("it has no blocks"))?;
    let mut last = [0; 4];
    read(at, &mut last)?;
    let length = Descriptor::length(&last);
    if !(DESCRIPTOR_SIZE..=DESCRIPTOR_SIZE_MAX).contains(&length) {
        return Err(broken("it has no descriptor"));
    }
    let start = at.checked_sub(length as u64);
    let start = start.ok_or_else(|| broken("it has no descriptor"))?;
    let mut bytes = vec![0; length];
    read(start / block_bytes * block_bytes, &mut bytes)?;
    match Descriptor::parse(&bytes) {
        Ok(descriptor) => Ok((bytes, descriptor)),
        Err(DiskError::Incompatible(_)) => Err(Error::NotSupported),
        Err(_) => Err(broken("its descriptor is damaged")),
    }
}

/// A file as it lies on the image.
struct File<'a> {
    state: &'a ExtState,
    ino: Ino,
    extents: &'a [Extent],
    /// What encrypts it, if anything does: then the tree and the descriptor too.
    cipher: Option<&'a ContentCipher>,
}

impl File<'_> {
    /// Reads bytes; holes are zeros.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let File {
            state,
            ino,
            extents,
            cipher,
        } = *self;
        let block_bytes = u64::from(state.geometry.block_size);
        let mut done = 0;
        while done < bytes.len() {
            let from = at + done as u64;
            let (logical, within) = (LogicalBlock::of_byte(from, block_bytes), from % block_bytes);
            let length = (block_bytes - within).min((bytes.len() - done) as u64) as usize;
            let piece = &mut bytes[done..done + length];
            match content::block_at(extents, logical) {
                None => piece.fill(0),
                Some(block) => {
                    let sealed = cipher.map(|cipher| {
                        let place = ContentPlace { ino, logical };
                        Sealed::new(state, cipher, place, BlockNo(block))
                    });
                    let overlay = state.buffers.overlay();
                    let place = block * block_bytes + within;
                    match sealed {
                        Some(sealed) => sealed.read(within, piece)?,
                        None => overlay
                            .read_at(&*state.device, place, piece)
                            .map_err(|error| {
                                Error::io(format_args!("reading block {block}: {error}"))
                            })?,
                    }
                }
            }
            done += length;
        }
        Ok(())
    }
}
