//! MOUNT version 3 (RFC 1813, appendix I): the handle of the root for a path.

use std::collections::VecDeque;
use std::net::IpAddr;

use finefs_locks::Mutex;
use finefs_namespace::{Caller, Error, FileKind, Result};

use crate::classes;
use crate::export::{Export, Exports};
use crate::held::Held;
use crate::rpc::{AUTH_SYS, Credential, Rejection};
use crate::status;
use crate::xdr::{Garbage, Reader, Writer};

/// The program's number, and its only version here.
pub(crate) const PROGRAM: u32 = 100_005;
pub(crate) const VERSION: u32 = 3;

/// The longest path (MNTPATHLEN).
const PATH_MAX: usize = 1024;
/// Clients that are remembered for DUMP, which nothing but `showmount -a` asks.
const MOUNTED_MAX: usize = 256;

/// Clients that have asked for a root and have not said that they are done.
pub(crate) struct Mounted(Mutex<VecDeque<(IpAddr, Vec<u8>)>>);

impl Mounted {
    pub(crate) fn new() -> Mounted {
        Mounted(Mutex::new(&classes::MOUNTS, VecDeque::new()))
    }

    fn note(&self, client: IpAddr, path: &[u8]) {
        let mut mounted = self.0.lock();
        let entry = (client, path.to_vec());
        if !mounted.contains(&entry) {
            if mounted.len() == MOUNTED_MAX {
                mounted.pop_front();
            }
            mounted.push_back(entry);
        }
    }

    fn forget(&self, client: IpAddr, path: Option<&[u8]>) {
        let is_meant = |entry: &(IpAddr, Vec<u8>)| {
            entry.0 == client && path.is_none_or(|path| entry.1 == path)
        };
        self.0.lock().retain(|entry| !is_meant(entry));
    }
}

fn path<'a>(reader: &mut Reader<'a>) -> std::result::Result<&'a [u8], Rejection> {
    let path = reader.opaque(PATH_MAX);
    path.map_err(|Garbage| Rejection::Garbage)
}

/// Carries out a procedure and writes its result.
pub(crate) fn run(
    (exports, mounted): (&Exports, &Mounted),
    (client, port, credential): (IpAddr, u16, &Credential),
    procedure: u32,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> std::result::Result<(), Rejection> {
    match procedure {
        // NULL
        0 => {}
        // MNT
        1 => {
            let path = path(reader)?;
            let within = exports.of_path(path).ok_or(Error::NotFound);
            let found = within.and_then(|(export, rest)| {
                if !export.admits_call(client, port) {
                    return Err(Error::AccessDenied);
                }
                Ok((export, find(export, &export.caller(credential), rest)?))
            });
            match found {
                Ok((export, root)) => {
                    mounted.note(client, path);
                    out.u32(status::OK);
                    out.opaque(&export.handle(root.ino(), root.attributes.generation));
                    // The kinds of credentials that are taken.
                    out.u32(1);
                    out.u32(AUTH_SYS);
                }
                Err(error) => out.u32(status::of(&error)),
            }
        }
        // DUMP
        2 => {
            for (client, path) in mounted.0.lock().iter() {
                out.bool(true);
                out.opaque(client.to_string().as_bytes());
                out.opaque(path);
            }
            out.bool(false);
        }
        // UMNT
        3 => mounted.forget(client, Some(path(reader)?)),
        // UMNTALL
        4 => mounted.forget(client, None),
        // EXPORT
        5 => {
            for export in exports.all() {
                out.bool(true);
                out.opaque(export.name.as_bytes());
                for network in &export.options.clients {
                    out.bool(true);
                    out.opaque(network.to_string().as_bytes());
                }
                out.bool(false);
            }
            out.bool(false);
        }
        _ => return Err(Rejection::ProcedureUnavailable),
    }
    Ok(())
}

/// The directory at a path; links are not followed.
fn find<'e>(export: &'e Export, caller: &Caller, path: &[u8]) -> Result<Held<'e>> {
    let namespace = &export.namespace;
    let mut at = Held::new(namespace, namespace.reference(namespace.root())?);
    for name in path.split(|byte| *byte == b'/') {
        if name.is_empty() || name == b"." {
            continue;
        }
        let found = namespace.lookup(caller, at.ino(), name)?;
        at = Held::new(namespace, found);
    }
    match at.attributes.kind {
        FileKind::Directory => Ok(at),
        _ => Err(Error::NotADirectory),
    }
}
