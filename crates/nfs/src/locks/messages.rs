//! What NLM 4 sends (X/Open XNFS, chapter 10; RFC 1813, appendix II).

use std::ops::Range;

use finefs_namespace::{Error, LockKind};

use crate::handle::HANDLE_MAX;
use crate::xdr::{Garbage, Reader, Writer};

/// The longest name of a client, and the longest name of an owner (LM_MAXSTRLEN).
const NAME_MAX: usize = 1024;
/// The longest cookie; clients use 4 to 8 bytes.
const COOKIE_MAX: usize = 1024;

pub(super) const GRANTED: u32 = 0;
pub(super) const DENIED: u32 = 1;
pub(super) const NO_LOCKS: u32 = 2;
pub(super) const BLOCKED: u32 = 3;
pub(super) const GRACE_PERIOD: u32 = 4;
const DEADLOCK: u32 = 5;
const READ_ONLY: u32 = 6;
const STALE_HANDLE: u32 = 7;
pub(super) const TOO_BIG: u32 = 8;
const FAILED: u32 = 9;

/// The status that stands for an error.
pub(super) fn status(error: &Error) -> u32 {
    match error {
        Error::WouldBlock | Error::AccessDenied | Error::NotPermitted => DENIED,
        Error::NoLocks => NO_LOCKS,
        Error::Deadlock => DEADLOCK,
        Error::ReadOnly => READ_ONLY,
        Error::Stale | Error::BadHandle => STALE_HANDLE,
        _ => FAILED,
    }
}

/// `nlm4_lock`: whose lock it is, and where.
#[derive(Clone, Copy)]
pub(super) struct Lock<'a> {
    /// The name of the client.
    pub name: &'a [u8],
    pub handle: &'a [u8],
    /// The owner in the client's words, opaque.
    pub owner: &'a [u8],
    /// The owner as a number, which alone tells owners of one client apart, as in Linux.
    pub svid: u32,
    start: u64,
    length: u64,
    /// All of it as it came, for the grant.
    pub raw: &'a [u8],
}

impl<'a> Lock<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Lock<'a>, Garbage> {
        let all = reader.rest();
        let mut lock = Lock {
            name: reader.opaque(NAME_MAX)?,
            handle: reader.opaque(HANDLE_MAX)?,
            owner: reader.opaque(NAME_MAX)?,
            svid: reader.u32()?,
            start: reader.u64()?,
            length: reader.u64()?,
            raw: all,
        };
        lock.raw = &all[..all.len() - reader.rest().len()];
        Ok(lock)
    }

    /// The bytes; a length of 0 is "to the end". `None` beyond all files.
    pub(super) fn range(&self) -> Option<Range<u64>> {
        let end = match self.length {
            0 => u64::MAX,
            length => self.start.saturating_add(length),
        };
        (self.start < end).then_some(self.start..end)
    }
}

/// The arguments of TEST, LOCK, CANCEL, UNLOCK and NM_LOCK.
pub(super) struct Asks<'a> {
    pub cookie: &'a [u8],
    /// Wait for it.
    pub is_blocking: bool,
    pub kind: LockKind,
    pub lock: Lock<'a>,
    /// The client had it before the server was started.
    pub is_reclaim: bool,
    /// The state of the client's monitor, as it says; 0 where a procedure does not tell.
    pub state: u32,
}

/// Which of its items a procedure has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Test,
    Lock,
    Cancel,
    Unlock,
}

impl<'a> Asks<'a> {
    pub(super) fn read(reader: &mut Reader<'a>, form: Form) -> Result<Asks<'a>, Garbage> {
        let cookie = reader.opaque(COOKIE_MAX)?;
        let has_block = matches!(form, Form::Lock | Form::Cancel);
        let is_blocking = has_block && reader.bool()?;
        let kind = match form != Form::Unlock && !reader.bool()? {
            true => LockKind::Shared,
            false => LockKind::Exclusive,
        };
        let lock = Lock::read(reader)?;
        let is_reclaim = form == Form::Lock && reader.bool()?;
        let state = match form {
            Form::Lock => reader.u32()?,
            _ => 0,
        };
        Ok(Asks {
            cookie,
            is_blocking,
            kind,
            lock,
            is_reclaim,
            state,
        })
    }
}

/// The arguments of SHARE and UNSHARE.
pub(super) struct Shares<'a> {
    pub cookie: &'a [u8],
    pub name: &'a [u8],
    pub handle: &'a [u8],
    pub owner: &'a [u8],
    /// What others may not do: 1 reading, 2 writing.
    pub denied: u32,
    /// What its owner does.
    pub access: u32,
    pub is_reclaim: bool,
}

impl<'a> Shares<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Shares<'a>, Garbage> {
        let shares = Shares {
            cookie: reader.opaque(COOKIE_MAX)?,
            name: reader.opaque(NAME_MAX)?,
            handle: reader.opaque(HANDLE_MAX)?,
            owner: reader.opaque(NAME_MAX)?,
            denied: reader.u32()?,
            access: reader.u32()?,
            is_reclaim: reader.bool()?,
        };
        match shares.denied <= 3 && shares.access <= 3 {
            true => Ok(shares),
            false => Err(Garbage),
        }
    }
}

/// `nlm4_notify`, the argument of FREE_ALL: the client that has started anew.
pub(super) fn read_notify<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Garbage> {
    let name = reader.opaque(NAME_MAX)?;
    reader.u32()?;
    Ok(name)
}

/// `stat_chge` of NSM: a name, and its state.
pub(super) fn read_state_change<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], u32), Garbage> {
    Ok((reader.opaque(NAME_MAX)?, reader.u32()?))
}

/// The lock in the way, for TEST.
pub(super) struct Holder<'a> {
    pub kind: LockKind,
    pub svid: u32,
    pub owner: &'a [u8],
    pub range: Range<u64>,
}

impl Holder<'_> {
    pub(super) fn put(&self, out: &mut Writer) {
        out.bool(self.kind == LockKind::Exclusive);
        out.u32(self.svid);
        out.opaque(self.owner);
        out.u64(self.range.start);
        out.u64(match self.range.end {
            u64::MAX => 0,
            end => end - self.range.start,
        });
    }
}
