//! Sealed files (`verity`): their data is compared with what was sealed.
//!
//! The kernel compares each page that it reads. Here a file is compared as a whole when its data is
//! first used, and found good or unreadable; nobody changes it while it is mounted. Signatures are
//! not looked at, as in a kernel without keys for them.

use finefs_ext_disk::error::DiskError;
use finefs_ext_disk::inode::Inode;
use finefs_ext_disk::verity::{DESCRIPTOR_SIZE, DESCRIPTOR_SIZE_MAX, Descriptor};
use finefs_namespace::{Error, Extent, Ino, Result};

use super::content;
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
    let broken = |what: &str| Error::io(format_args!("inode {ino}: verity: {what}"));
    let descriptor = match Descriptor::parse(&descriptor_bytes(state, extents, &broken)?) {
        Ok(descriptor) => descriptor,
        Err(DiskError::Incompatible(_)) => return Err(Error::NotSupported),
        Err(_) => return Err(broken("its descriptor is damaged")),
    };
    let size_bytes = inode.size(&state.inode_rules);
    if descriptor.data_bytes != size_bytes {
        return Err(broken("its size is not what was sealed"));
    }
    let mut verifier = descriptor.verifier();
    let mut piece = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        piece.clear();
        piece.resize(PIECE_BYTES.min(size_bytes - at) as usize, 0);
        read(state, extents, at, &mut piece)?;
        verifier.take_in(&piece);
        at += piece.len() as u64;
    }
    match verifier.is_genuine() {
        true => Ok(()),
        false => Err(broken("its data is not what was sealed")),
    }
}

/// The descriptor, which lies at the end of the last blocks.
fn descriptor_bytes(
    state: &ExtState,
    extents: &[Extent],
    broken: &impl Fn(&str) -> Error,
) -> Result<Vec<u8>> {
    let block_bytes = u64::from(state.geometry.block_size);
    let end = extents.last().map_or(0, |last| last.end() * block_bytes);
    let at = end
        .checked_sub(4)
        .ok_or_else(|| broken("it has no blocks"))?;
    let mut last = [0; 4];
    read(state, extents, at, &mut last)?;
    let length = Descriptor::length(&last);
    if !(DESCRIPTOR_SIZE..=DESCRIPTOR_SIZE_MAX).contains(&length) {
        return Err(broken("it has no descriptor"));
    }
    let start = at.checked_sub(length as u64);
    let start = start.ok_or_else(|| broken("it has no descriptor"))?;
    let mut bytes = vec![0; length];
    read(
        state,
        extents,
        start / block_bytes * block_bytes,
        &mut bytes,
    )?;
    Ok(bytes)
}

/// Reads bytes of a file; holes are zeros.
fn read(state: &ExtState, extents: &[Extent], at: u64, bytes: &mut [u8]) -> Result<()> {
    let block_bytes = u64::from(state.geometry.block_size);
    let mut done = 0;
    while done < bytes.len() {
        let from = at + done as u64;
        let (logical, within) = (from / block_bytes, from % block_bytes);
        let length = (block_bytes - within).min((bytes.len() - done) as u64) as usize;
        let piece = &mut bytes[done..done + length];
        match content::block_at(extents, logical) {
            None => piece.fill(0),
            Some(block) => {
                let place = block * block_bytes + within;
                let overlay = state.buffers.overlay();
                overlay
                    .read_at(&*state.device, place, piece)
                    .map_err(|error| Error::io(format_args!("reading block {block}: {error}")))?;
            }
        }
        done += length;
    }
    Ok(())
}
