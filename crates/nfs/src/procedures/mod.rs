//! The 22 procedures of NFS version 3 (RFC 1813), each as calls of the namespace.
//!
//! | module | procedures |
//! |---|---|
//! | `objects` | GETATTR, SETATTR, ACCESS, READLINK |
//! | `names` | LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK |
//! | `data` | READ, WRITE, COMMIT |
//! | `listing` | READDIR, READDIRPLUS |
//! | `about` | FSSTAT, FSINFO, PATHCONF |
//! | `arguments`, `results` | what is read and written by several |
//!
//! # Invariants
//! 1. A procedure reads all its arguments before it does anything.
//! 2. A reply that has a place for attributes has them, unless the handle was no good.
//! 3. A reply to a change is given when the change is durable, but for unstable writes and exports
//!    that are `async`.

mod about;
mod arguments;
mod data;
mod listing;
mod names;
mod objects;
mod results;

use std::time::Duration;

use finefs_namespace::{Caller, Error, FileKind, Ino, SyncScope};

use crate::changes::Before;
use crate::export::Export;
use crate::held::Held;
use crate::procedures::results::{Wcc, put_wcc};
use crate::rpc::Rejection;
use crate::status;
use crate::xdr::{Garbage, Reader, Writer};

pub(crate) use data::{READ_MAX, WRITE_MAX};

/// The program's number, and its only version here.
pub(crate) const PROGRAM: u32 = 100_003;
pub(crate) const VERSION: u32 = 3;

/// How often it is looked for a thaw, and for the end of the server.
const THAW_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Who is told that a thread waits for the disk.
pub(crate) trait Waits {
    fn begin_wait(&self);
    fn end_wait(&self);
    /// The server ends: nothing is to be waited for that does not come by itself.
    fn is_stopping(&self) -> bool;
}

/// A thread that waits; it does not any more when this is dropped, also by a panic.
struct Waiting<'w>(&'w dyn Waits);

impl<'w> Waiting<'w> {
    fn begin(waits: &'w dyn Waits) -> Waiting<'w> {
        waits.begin_wait();
        Waiting(waits)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.end_wait();
    }
}

/// What a procedure has besides its arguments.
pub(crate) struct Context<'e> {
    pub export: &'e Export,
    pub caller: Caller,
    pub waits: &'e dyn Waits,
}

/// Why a procedure fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// As the namespace says.
    Error(Error),
    /// As the protocol has it.
    Status(u32),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Error(error)
    }
}

type Procedure = fn(&Context<'_>, &mut Reader<'_>, &mut Writer) -> Result<(), Garbage>;

/// A procedure as the server knows it.
pub(crate) struct Known {
    pub name: &'static str,
    run: Procedure,
    /// It must not be carried out twice.
    pub is_kept: bool,
}

const fn once(name: &'static str, run: Procedure) -> Known {
    Known {
        name,
        run,
        is_kept: true,
    }
}

const fn again(name: &'static str, run: Procedure) -> Known {
    Known {
        name,
        run,
        is_kept: false,
    }
}

/// By their numbers.
const PROCEDURES: &[Known] = &[
    again("NULL", |_, _, _| Ok(())),
    again("GETATTR", objects::get_attributes),
    once("SETATTR", objects::set_attributes),
    again("LOOKUP", names::lookup),
    again("ACCESS", objects::access),
    again("READLINK", objects::read_link),
    again("READ", data::read),
    again("WRITE", data::write),
    once("CREATE", names::create),
    once("MKDIR", names::make_directory),
    once("SYMLINK", names::make_symlink),
    once("MKNOD", names::make_node),
    once("REMOVE", names::remove),
    once("RMDIR", names::remove_directory),
    once("RENAME", names::rename),
    once("LINK", names::link),
    again("READDIR", listing::read_directory),
    again("READDIRPLUS", listing::read_directory_plus),
    again("FSSTAT", about::statistics),
    again("FSINFO", about::information),
    again("PATHCONF", about::path_configuration),
    again("COMMIT", data::commit),
];

/// The procedure of a number.
pub(crate) fn find(number: u32) -> Result<&'static Known, Rejection> {
    PROCEDURES
        .get(number as usize)
        .ok_or(Rejection::ProcedureUnavailable)
}

impl Known {
    /// Carries it out and writes its result.
    pub(crate) fn run(
        &self,
        context: &Context<'_>,
        arguments: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<(), Garbage> {
        (self.run)(context, arguments, out)
    }
}

impl Context<'_> {
    /// The status of a failure. Logs what points at the device or the image.
    fn status(&self, failed: &Failed) -> u32 {
        match failed {
            Failed::Status(status) => *status,
            Failed::Error(error) => {
                let is_bad = matches!(error, Error::Io(_) | Error::Corrupt(_));
                if is_bad && self.export.log_limit.may_log() {
                    log::error!("nfs: {error}");
                }
                status::of(error)
            }
        }
    }

    /// Changes what a handle names, and makes that durable.
    fn change<'e, T>(
        &'e self,
        handle: &[u8],
        change: impl FnOnce(&Held<'e>) -> Result<T, Failed>,
    ) -> (Wcc, Result<T, Failed>) {
        self.change_then(handle, change, |held, _| self.settle(held.ino()))
    }

    /// The same where that is all, and writes the result.
    fn change_and_tell<'e>(
        &'e self,
        handle: &[u8],
        out: &mut Writer,
        change: impl FnOnce(&Held<'e>) -> Result<(), Failed>,
    ) {
        let (wcc, result) = self.change(handle, change);
        out.u32(result.map_or_else(|failed| self.status(&failed), |()| status::OK));
        put_wcc(out, self.export, &wcc);
    }

    /// Changes what a handle names, and then does `finish` with the outcome when that has
    /// succeeded.
    fn change_then<'e, T>(
        &'e self,
        handle: &[u8],
        change: impl FnOnce(&Held<'e>) -> Result<T, Failed>,
        finish: impl FnOnce(&Held<'e>, &T) -> Result<(), Failed>,
    ) -> (Wcc, Result<T, Failed>) {
        let held = match self.export.hold(handle) {
            Ok(held) => held,
            Err(error) => return (Wcc::default(), Err(error.into())),
        };
        let under_way = self.export.changes.begin(held.ino());
        let before = Before::from(&held.now());
        let changed = match self.export.check_writable() {
            Ok(()) => change(&held),
            Err(error) => Err(error.into()),
        };
        let wcc = Wcc {
            after: Some(held.now()),
            before: under_way.is_alone().then_some(before),
        };
        drop(under_way);
        let result = changed.and_then(|changed| finish(&held, &changed).map(|()| changed));
        (wcc, result)
    }

    /// Carries out a later part of a call. It is too late then to answer that the call is to be
    /// made again, since it was carried out in part: so this waits while the file system is
    /// frozen, unless the server ends.
    fn go_on<T>(&self, mut part: impl FnMut() -> Result<T, Failed>) -> Result<T, Failed> {
        let mut waiting = None;
        loop {
            match part() {
                Err(Failed::Error(Error::Frozen)) if !self.waits.is_stopping() => {
                    waiting.get_or_insert_with(|| Waiting::begin(self.waits));
                    std::thread::sleep(THAW_LOOK_INTERVAL);
                }
                result => return result,
            }
        }
    }

    /// Makes changes of names or attributes durable, where the export is not `async`.
    fn settle(&self, ino: Ino) -> Result<(), Failed> {
        match self.export.options.is_async {
            true => Ok(()),
            false => self.sync(ino, SyncScope::All),
        }
    }

    /// Makes an inode durable.
    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<(), Failed> {
        let waiting = Waiting::begin(self.waits);
        let synced = self.export.namespace.sync_file(ino, scope);
        drop(waiting);
        synced.map_err(|error| {
            // What clients wrote and have not committed may be lost.
            self.export.verifier.change();
            error.into()
        })
    }

    /// EACCES unless the caller may read or write the data of a file. Its owner may: a client
    /// checks when it opens, and a file that is open stays so whatever becomes of its mode. Who may
    /// execute a file may read it, since that is how it is executed.
    fn check_data(&self, held: &Held<'_>, mask: u32) -> Result<(), Failed> {
        let (namespace, caller) = (&self.export.namespace, &self.caller);
        match held.attributes.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory.into()),
            _ => return Err(Error::Invalid.into()),
        }
        if held.attributes.uid == caller.uid {
            return Ok(());
        }
        let checked = namespace.access(caller, held.ino(), mask);
        match checked {
            Err(Error::AccessDenied) if mask == READ => {
                Ok(namespace.access(caller, held.ino(), EXECUTE)?)
            }
            checked => Ok(checked?),
        }
    }
}

/// R_OK, W_OK and X_OK of access(2).
const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
