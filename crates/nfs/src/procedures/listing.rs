//! READDIR and READDIRPLUS.
//!
//! Cookies are the namespace's: places in an order of the names that stays as long as the file
//! system does, whatever comes and goes beside a name and however often the server starts. So a
//! cookie is always good, and the verifier never changes.
//!
//! Attributes and handles are looked up by name when the walk over the entries is over: the walk
//! may hold what loading an inode needs, and by name no other inode is given that has got the
//! number of one which went meanwhile. An entry that went is left out.

use finefs_namespace::{Attributes, DirectoryEntry, Error};

use super::arguments::handle;
use super::results::put_post_op;
use super::{Context, Failed, READ};
use crate::held::Held;
use crate::status;
use crate::xdr::{Garbage, Reader, Writer, padded};

/// The most bytes of one listing, whatever is asked for.
const LISTING_MAX: usize = 1 << 20;
/// What an answer has besides its entries: status, attributes, verifier, the list's end.
const AROUND_BYTES: usize = 4 + 88 + 8 + 4 + 4;
/// An entry has this, and its name.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 8;
/// With attributes and handle.
const PLUS_BYTES: usize = 88 + 4 + 4 + crate::handle::HANDLE_BYTES;

impl Context<'_> {
    fn verifier_of_cookies(&self) -> u64 {
        let uuid = self.export.namespace.geometry().identity.uuid;
        uuid.iter().fold(1, |sum: u64, byte| {
            sum.wrapping_mul(31).wrapping_add((*byte).into())
        })
    }

    /// The directory of a listing, if the caller may read it and the cookie is one of ours.
    fn list(&self, held: &Held<'_>, cookie: u64, verifier: u64) -> Result<(), Failed> {
        if cookie != 0 && verifier != 0 && verifier != self.verifier_of_cookies() {
            return Err(Failed::Status(status::BAD_COOKIE));
        }
        Ok(self
            .export
            .namespace
            .access(&self.caller, held.ino(), READ)?)
    }

    /// Writes a listing that `entries` adds the entries of; true from it: that was the last one.
    fn put_listing(
        &self,
        handle: &[u8],
        (cookie, verifier): (u64, u64),
        out: &mut Writer,
        entries: impl FnOnce(&Held<'_>, &mut Writer) -> Result<bool, Failed>,
    ) {
        let held = match self.export.hold(handle) {
            Ok(held) => held,
            Err(error) => {
                out.u32(self.status(&error.into()));
                return put_post_op(out, self.export, None);
            }
        };
        let start = out.length();
        let listed = self.list(&held, cookie, verifier).and_then(|()| {
            out.u32(status::OK);
            put_post_op(out, self.export, Some(&held.now()));
            out.u64(self.verifier_of_cookies());
            entries(&held, out)
        });
        match listed {
            Ok(is_complete) => {
                out.bool(false);
                out.bool(is_complete);
            }
            Err(failed) => {
                out.cut(start);
                out.u32(self.status(&failed));
                put_post_op(out, self.export, Some(&held.now()));
            }
        }
    }
}

pub(super) fn read_directory(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, cookie, verifier) = (handle(reader)?, reader.u64()?, reader.u64()?);
    let limit = (reader.u32()? as usize).min(LISTING_MAX);
    context.put_listing(handle, (cookie, verifier), out, |held, out| {
        let end = out.length() + limit.saturating_sub(AROUND_BYTES);
        let (mut is_complete, mut is_empty) = (true, true);
        let mut add = |entry: DirectoryEntry<'_>| {
            if out.length() + ENTRY_BYTES + padded(entry.name.len()) > end {
                is_complete = false;
                return false;
            }
            put_entry(out, entry.ino.0, entry.name, entry.cookie);
            is_empty = false;
            true
        };
        let namespace = &context.export.namespace;
        namespace.read_directory(held.ino(), cookie, &mut add)?;
        match is_empty && !is_complete {
            true => Err(Failed::Status(status::TOO_SMALL)),
            false => Ok(is_complete),
        }
    });
    Ok(())
}

fn put_entry(out: &mut Writer, number: u64, name: &[u8], cookie: u64) {
    out.bool(true);
    out.u64(number);
    out.opaque(name);
    out.u64(cookie);
}

/// Entries that were taken out of a directory: each with the end of its name among all names.
#[derive(Default)]
struct Taken {
    names: Vec<u8>,
    entries: Vec<(usize, u64, u64)>,
}

pub(super) fn read_directory_plus(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, cookie, verifier) = (handle(reader)?, reader.u64()?, reader.u64()?);
    // The first limit is on names, numbers and cookies alone.
    let (names_limit, limit) = (reader.u32()? as usize, reader.u32()? as usize);
    let limit = limit.min(LISTING_MAX);
    context.put_listing(handle, (cookie, verifier), out, |held, out| {
        let room = limit.saturating_sub(AROUND_BYTES);
        let (mut names_bytes, mut bytes) = (0, 0);
        let mut taken = Taken::default();
        let mut is_complete = true;
        let mut take = |entry: DirectoryEntry<'_>| {
            let own = ENTRY_BYTES + padded(entry.name.len());
            let is_full = bytes + own + PLUS_BYTES > room
                || (names_bytes + own > names_limit && names_bytes > 0);
            if is_full {
                is_complete = false;
                return false;
            }
            (names_bytes, bytes) = (names_bytes + own, bytes + own + PLUS_BYTES);
            taken.names.extend_from_slice(entry.name);
            taken
                .entries
                .push((taken.names.len(), entry.ino.0, entry.cookie));
            true
        };
        let namespace = &context.export.namespace;
        namespace.read_directory(held.ino(), cookie, &mut take)?;
        if taken.entries.is_empty() && !is_complete {
            return Err(Failed::Status(status::TOO_SMALL));
        }
        put_taken(context, held, &taken, out);
        Ok(is_complete)
    });
    Ok(())
}

/// Writes entries with their attributes and handles.
fn put_taken(context: &Context<'_>, directory: &Held<'_>, taken: &Taken, out: &mut Writer) {
    let export = context.export;
    let mut start = 0;
    for (end, number, cookie) in &taken.entries {
        let name = &taken.names[start..*end];
        start = *end;
        let found = export
            .namespace
            .lookup(&context.caller, directory.ino(), name);
        let found: Option<Attributes> = match found {
            Ok(attributes) => {
                export.namespace.forget(attributes.ino, 1);
                Some(attributes)
            }
            Err(Error::NotFound) => continue,
            // It is listed all the same: any use of it tells the error. So it is for all entries of
            // a directory that the caller may read but not search.
            Err(_) => None,
        };
        let number = found.map_or(*number, |attributes| attributes.ino.0);
        put_entry(out, number, name, *cookie);
        put_post_op(out, export, found.as_ref());
        out.bool(found.is_some());
        if let Some(found) = found {
            out.opaque(&export.handle(found.ino, found.generation));
        }
    }
}
