//! Arguments that several procedures take.

use finefs_namespace::{SetAttributes, SetTime, Timestamp};

use crate::handle::HANDLE_MAX;
use crate::xdr::{Garbage, Reader};

/// Longer names and targets are garbage; shorter ones the namespace judges.
const NAME_MAX: usize = 8192;

pub(super) fn handle<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Garbage> {
    reader.opaque(HANDLE_MAX)
}

pub(super) fn name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Garbage> {
    reader.opaque(NAME_MAX)
}

/// A directory and a name in it.
pub(super) fn place<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], &'a [u8]), Garbage> {
    Ok((handle(reader)?, name(reader)?))
}

fn optional<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Garbage>,
) -> Result<Option<T>, Garbage> {
    match reader.bool()? {
        true => read(reader).map(Some),
        false => Ok(None),
    }
}

pub(super) fn time(reader: &mut Reader<'_>) -> Result<Timestamp, Garbage> {
    let (seconds, nanoseconds) = (reader.u32()?, reader.u32()?);
    Ok(Timestamp::new(seconds.into(), nanoseconds))
}

/// `sattr3`: what is to be set.
pub(super) fn attributes(reader: &mut Reader<'_>) -> Result<SetAttributes, Garbage> {
    let set_time = |reader: &mut Reader<'_>| match reader.u32()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => Ok(Some(SetTime::To(time(reader)?))),
        _ => Err(Garbage),
    };
    Ok(SetAttributes {
        permissions: optional(reader, Reader::u32)?.map(|mode| mode & 0o7777),
        uid: optional(reader, Reader::u32)?,
        gid: optional(reader, Reader::u32)?,
        size_bytes: optional(reader, Reader::u64)?,
        accessed: set_time(reader)?,
        modified: set_time(reader)?,
        changed: None,
    })
}
