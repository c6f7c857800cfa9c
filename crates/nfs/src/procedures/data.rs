//! READ, WRITE, COMMIT.

use finefs_namespace::{DataChange, SyncScope};

use super::arguments::handle;
use super::results::{POST_OP_BYTES, put_post_op, put_wcc};
use super::{Context, Failed, READ, WRITE};
use crate::status;
use crate::xdr::{Garbage, Reader, Writer, padded};

/// The most data of one READ.
pub(crate) const READ_MAX: u32 = 1 << 20;
/// The most data of one WRITE.
pub(crate) const WRITE_MAX: u32 = 1 << 20;

/// How durable a WRITE is.
const UNSTABLE: u32 = 0;
const DATA_SYNC: u32 = 1;
const FILE_SYNC: u32 = 2;

pub(super) fn read(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, offset, count) = (handle(reader)?, reader.u64()?, reader.u32()?);
    let export = context.export;
    let held = match export.hold(handle) {
        Ok(held) => held,
        Err(error) => {
            out.u32(context.status(&error.into()));
            put_post_op(out, export, None);
            return Ok(());
        }
    };
    let start = out.length();
    out.u32(status::OK);
    // The data first, into its place: the attributes before it are those of after the read.
    let length = count.min(READ_MAX) as usize;
    out.space(POST_OP_BYTES + 12);
    let read = context.check_data(&held, READ).and_then(|()| {
        let space = out.space(length);
        Ok(export.namespace.read(held.ino(), offset, space)?)
    });
    let after = held.now();
    match read {
        Ok(done) => {
            let data = start + 4 + POST_OP_BYTES + 12;
            out.cut(start + 4);
            put_post_op(out, export, Some(&after));
            out.u32(done as u32);
            out.bool(offset.saturating_add(done as u64) >= after.size_bytes);
            out.u32(done as u32);
            out.space(padded(done));
            out.at(data + done).fill(0);
        }
        Err(failed) => {
            out.cut(start);
            out.u32(context.status(&failed));
            put_post_op(out, export, Some(&after));
        }
    }
    Ok(())
}

pub(super) fn write(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, offset, count) = (handle(reader)?, reader.u64()?, reader.u32()?);
    let stable = reader.u32()?;
    let data = reader.opaque(WRITE_MAX as usize)?;
    let data = data.get(..count as usize).ok_or(Garbage)?;
    if stable > FILE_SYNC {
        return Err(Garbage);
    }
    let (export, caller) = (context.export, &context.caller);
    // Before: what is lost from here on is told by another one.
    let verifier = export.verifier.now();
    let (wcc, result) = context.change_then(
        handle,
        |held| {
            let (namespace, ino) = (&export.namespace, held.ino());
            context.check_data(held, WRITE)?;
            let change = DataChange::Write {
                offset_bytes: offset,
                length_bytes: data.len() as u64,
            };
            let is_in_group = |gid| caller.is_in_group(gid);
            namespace.remove_privileges_unless_root(caller, ino, change, is_in_group)?;
            Ok(namespace.write(ino, offset, data)?)
        },
        |held, _| match stable {
            UNSTABLE => Ok(()),
            DATA_SYNC => context.sync(held.ino(), SyncScope::Data),
            _ => context.sync(held.ino(), SyncScope::All),
        },
    );
    match result {
        Ok(written) => {
            out.u32(status::OK);
            put_wcc(out, export, &wcc);
            out.u32(written as u32);
            out.u32(stable);
            out.u64(verifier);
        }
        Err(failed) => {
            out.u32(context.status(&failed));
            put_wcc(out, export, &wcc);
        }
    }
    Ok(())
}

pub(super) fn commit(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    // A commit of a part is one of the file.
    let (handle, _offset, _count) = (handle(reader)?, reader.u64()?, reader.u32()?);
    let export = context.export;
    let verifier = export.verifier.now();
    let nothing = |_: &crate::held::Held<'_>| Ok::<_, Failed>(());
    let (wcc, result) = match export.check_writable() {
        // What was written before, by others, is there.
        Err(_) => match export.hold(handle) {
            Ok(held) => (
                super::results::Wcc {
                    before: None,
                    after: Some(held.now()),
                },
                Ok(()),
            ),
            Err(error) => (super::results::Wcc::default(), Err(error.into())),
        },
        Ok(()) => context.change_then(handle, nothing, |held, ()| {
            context.sync(held.ino(), SyncScope::All)
        }),
    };
    match result {
        Ok(()) => {
            out.u32(status::OK);
            put_wcc(out, export, &wcc);
            out.u64(verifier);
        }
        Err(failed) => {
            out.u32(context.status(&failed));
            put_wcc(out, export, &wcc);
        }
    }
    Ok(())
}
