//! FSSTAT, FSINFO, PATHCONF: facts about the file system.

use super::arguments::handle;
use super::results::put_post_op;
use super::{Context, READ_MAX, WRITE_MAX};
use crate::status;
use crate::xdr::{Garbage, Reader, Writer};

/// Properties of FSINFO: hard links, symbolic links, the same PATHCONF everywhere, times can be
/// set.
const PROPERTIES: u32 = 0x1 | 0x2 | 0x8 | 0x10;
/// What listings are best asked for with, in bytes.
const LISTING_BYTES: u32 = 64 << 10;

/// Writes a result that begins with the attributes of what the handle names.
fn about(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
    put: impl FnOnce(&mut Writer),
) -> Result<(), Garbage> {
    let handle = handle(reader)?;
    match context.export.hold(handle) {
        Ok(held) => {
            out.u32(status::OK);
            put_post_op(out, context.export, Some(&held.attributes));
            put(out);
        }
        Err(error) => {
            out.u32(context.status(&error.into()));
            put_post_op(out, context.export, None);
        }
    }
    Ok(())
}

pub(super) fn statistics(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    about(context, reader, out, |out| {
        let statfs = context.export.namespace.statfs();
        let bytes = |blocks: u64| blocks.saturating_mul(statfs.block_size_bytes.into());
        out.u64(bytes(statfs.blocks));
        out.u64(bytes(statfs.blocks_free));
        out.u64(bytes(statfs.blocks_available));
        out.u64(statfs.inodes);
        out.u64(statfs.inodes_free);
        out.u64(statfs.inodes_free);
        // It may change at any time.
        out.u32(0);
    })
}

pub(super) fn information(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    about(context, reader, out, |out| {
        let geometry = context.export.namespace.geometry();
        for most in [READ_MAX, WRITE_MAX] {
            out.u32(most);
            out.u32(most);
            out.u32(geometry.block_size_bytes);
        }
        out.u32(LISTING_BYTES);
        out.u64(geometry.new_form.size_max_bytes);
        // The grain of times.
        let (seconds, nanoseconds) = match geometry.has_fine_times {
            true => (0, 1),
            false => (1, 0),
        };
        out.u32(seconds);
        out.u32(nanoseconds);
        out.u32(PROPERTIES);
    })
}

pub(super) fn path_configuration(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    about(context, reader, out, |out| {
        let geometry = context.export.namespace.geometry();
        out.u32(geometry.link_max);
        out.u32(geometry.name_max);
        // Names that are too long are errors; only root gives files away; case is kept and counts.
        out.bool(true);
        out.bool(true);
        out.bool(false);
        out.bool(true);
    })
}
