//! GETATTR, SETATTR, ACCESS, READLINK.

use finefs_namespace::{AccessChecks, Error, FileKind, SetAttributes, Timestamp};

use super::arguments::{self, handle};
use super::results::{is_shown_as, put_attributes, put_post_op};
use super::{Context, EXECUTE, Failed, READ, WRITE};
use crate::held::Held;
use crate::status;
use crate::xdr::{Garbage, Reader, Writer};

pub(super) fn get_attributes(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let handle = handle(reader)?;
    match context.export.hold(handle) {
        Ok(held) => {
            out.u32(status::OK);
            put_attributes(out, context.export, &held.attributes);
        }
        Err(error) => out.u32(context.status(&error.into())),
    }
    Ok(())
}

pub(super) fn set_attributes(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let handle = handle(reader)?;
    let change = arguments::attributes(reader)?;
    let guard = match reader.bool()? {
        true => Some(arguments::time(reader)?),
        false => None,
    };
    context.change_and_tell(handle, out, |held| {
        check_guard(held, guard)?;
        set(context, held, &change)
    });
    Ok(())
}

/// The file must not have changed since the client looked.
fn check_guard(held: &Held<'_>, guard: Option<Timestamp>) -> Result<(), Failed> {
    match guard {
        Some(time) if !is_shown_as(held.now().times.changed, time) => {
            Err(Failed::Status(status::NOT_SYNC))
        }
        _ => Ok(()),
    }
}

/// Sets attributes of a file for the caller: the size first, which takes set-id bits away, then the
/// owner, which does too, then the rest. An owner who has the file open for writing may cut it,
/// whatever the mode says now.
pub(super) fn set(
    context: &Context<'_>,
    held: &Held<'_>,
    change: &SetAttributes,
) -> Result<(), Failed> {
    let (namespace, caller) = (&context.export.namespace, &context.caller);
    if let Some(size_bytes) = change.size_bytes {
        let mut actor = caller.clone();
        if held.attributes.kind == FileKind::Regular {
            context.check_data(held, WRITE)?;
            if held.attributes.uid == caller.uid {
                actor.checks = AccessChecks::Done;
            }
        }
        namespace.set_size_as(&actor, held.ino(), size_bytes)?;
    }
    if change.uid.is_some() || change.gid.is_some() {
        let owner = (change.uid, change.gid);
        let is_in_group = |gid| caller.is_in_group(gid);
        namespace.set_owner(caller, held.ino(), owner, is_in_group)?;
    }
    let rest = SetAttributes {
        uid: None,
        gid: None,
        size_bytes: None,
        ..*change
    };
    namespace.set_attributes(caller, held.ino(), &rest)?;
    Ok(())
}

/// Bits of ACCESS.
const ACCESS_READ: u32 = 1;
const ACCESS_LOOKUP: u32 = 2;
const ACCESS_MODIFY: u32 = 4;
const ACCESS_EXTEND: u32 = 8;
const ACCESS_DELETE: u32 = 16;
const ACCESS_EXECUTE: u32 = 32;

pub(super) fn access(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, asked) = (handle(reader)?, reader.u32()?);
    let held = match context.export.hold(handle) {
        Ok(held) => held,
        Err(error) => {
            out.u32(context.status(&error.into()));
            put_post_op(out, context.export, None);
            return Ok(());
        }
    };
    let kind = held.attributes.kind;
    // What is written to others is not on the export, as knfsd and access(2) have it.
    let holds_data = matches!(kind, FileKind::Regular | FileKind::Directory);
    let is_writable = !holds_data || context.export.check_writable().is_ok();
    let may = |mask| {
        let access = context
            .export
            .namespace
            .access(&context.caller, held.ino(), mask);
        match access {
            Ok(()) => Ok(mask != WRITE || is_writable),
            Err(Error::AccessDenied | Error::ReadOnly | Error::NotPermitted) => Ok(false),
            Err(error) => Err(Failed::from(error)),
        }
    };
    let is_directory = kind == FileKind::Directory;
    let granted = || {
        let mut granted = 0;
        if may(READ)? {
            granted |= ACCESS_READ;
        }
        if may(WRITE)? {
            granted |= ACCESS_MODIFY | ACCESS_EXTEND;
            // Of a file its directory decides, which clients ask.
            granted |= if is_directory { ACCESS_DELETE } else { 0 };
        }
        if may(EXECUTE)? {
            granted |= match is_directory {
                true => ACCESS_LOOKUP,
                false => ACCESS_EXECUTE,
            };
        }
        Ok(granted & asked)
    };
    match granted() {
        Ok(granted) => {
            out.u32(status::OK);
            put_post_op(out, context.export, Some(&held.now()));
            out.u32(granted);
        }
        Err(failed) => {
            out.u32(context.status(&failed));
            put_post_op(out, context.export, Some(&held.now()));
        }
    }
    Ok(())
}

pub(super) fn read_link(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let handle = handle(reader)?;
    let held = match context.export.hold(handle) {
        Ok(held) => held,
        Err(error) => {
            out.u32(context.status(&error.into()));
            put_post_op(out, context.export, None);
            return Ok(());
        }
    };
    match context.export.namespace.read_symlink(held.ino()) {
        Ok(target) => {
            out.u32(status::OK);
            put_post_op(out, context.export, Some(&held.now()));
            out.opaque(&target);
        }
        Err(error) => {
            out.u32(context.status(&error.into()));
            put_post_op(out, context.export, Some(&held.now()));
        }
    }
    Ok(())
}
