//! ONC RPC version 2 (RFC 5531): the head of a call, and of its reply.

use crate::xdr::{Garbage, Reader, Writer};

/// The longest credential or verifier.
const AUTH_MAX: usize = 400;
/// The most groups of an AUTH_SYS credential.
const GROUPS_MAX: u32 = 16;
/// The longest name of a client's machine.
const MACHINE_NAME_MAX: usize = 255;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;

const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;

const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

const AUTH_NONE: u32 = 0;
pub(crate) const AUTH_SYS: u32 = 1;

/// Who calls, as the client says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Credential {
    /// AUTH_NONE
    Nobody,
    /// AUTH_SYS
    User {
        uid: u32,
        gid: u32,
        groups: Vec<u32>,
    },
}

/// The head of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub credential: Credential,
}

/// Why a call is not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rejection {
    /// Another version of RPC.
    RpcMismatch,
    /// The credential is not well formed.
    BadCredential,
    /// Credentials of a kind that is not taken.
    WeakCredential,
    /// No such program.
    ProgramUnavailable,
    /// Of the program there is this version only.
    ProgramMismatch(u32),
    /// No such procedure.
    ProcedureUnavailable,
    /// The arguments are not what the procedure takes.
    Garbage,
    /// A bug here.
    SystemError,
}

/// What became of reading the head of a record.
pub(crate) enum Head {
    Call(Call),
    /// It is a call, and is answered so.
    Rejected(u32, Rejection),
}

impl Call {
    /// Reads the head; garbage when it is no call at all.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Head, Garbage> {
        let xid = reader.u32()?;
        if reader.u32()? != CALL {
            return Err(Garbage);
        }
        if reader.u32()? != RPC_VERSION {
            return Ok(Head::Rejected(xid, Rejection::RpcMismatch));
        }
        let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let flavor = reader.u32()?;
        let body = reader.opaque(AUTH_MAX)?;
        // The verifier, which says nothing in these flavors.
        reader.u32()?;
        reader.opaque(AUTH_MAX)?;
        let credential = match flavor {
            AUTH_NONE => Credential::Nobody,
            AUTH_SYS => match auth_sys(body) {
                Ok(user) => user,
                Err(Garbage) => return Ok(Head::Rejected(xid, Rejection::BadCredential)),
            },
            _ => return Ok(Head::Rejected(xid, Rejection::WeakCredential)),
        };
        Ok(Head::Call(Call {
            xid,
            program,
            version,
            procedure,
            credential,
        }))
    }
}

fn auth_sys(body: &[u8]) -> Result<Credential, Garbage> {
    let mut reader = Reader::new(body);
    // A stamp.
    reader.u32()?;
    reader.opaque(MACHINE_NAME_MAX)?;
    let (uid, gid, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if count > GROUPS_MAX {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
    Ok(Credential::User { uid, gid, groups })
}

/// Writes the head of a call, as nobody.
pub(crate) fn call(writer: &mut Writer, xid: u32, (program, version, procedure): (u32, u32, u32)) {
    for word in [xid, CALL, RPC_VERSION, program, version, procedure] {
        writer.u32(word);
    }
    // No credential, no verifier.
    for word in [AUTH_NONE, 0, AUTH_NONE, 0] {
        writer.u32(word);
    }
}

/// Reads the head of a reply to a call that was carried out; gives its transaction id.
pub(crate) fn read_reply(reader: &mut Reader<'_>) -> Result<u32, Garbage> {
    let xid = reader.u32()?;
    if (reader.u32()?, reader.u32()?) != (REPLY, MSG_ACCEPTED) {
        return Err(Garbage);
    }
    reader.u32()?;
    reader.opaque(AUTH_MAX)?;
    match reader.u32()? {
        0 => Ok(xid),
        _ => Err(Garbage),
    }
}

/// Writes the head of the reply to a call that was carried out.
pub(crate) fn accept(writer: &mut Writer, xid: u32) {
    accepted(writer, xid, 0);
}

fn accepted(writer: &mut Writer, xid: u32, status: u32) {
    for word in [xid, REPLY, MSG_ACCEPTED, AUTH_NONE, 0, status] {
        writer.u32(word);
    }
}

/// Writes the reply to a call that was not.
pub(crate) fn reject(writer: &mut Writer, xid: u32, rejection: Rejection) {
    let denied: &[u32] = match rejection {
        Rejection::RpcMismatch => &[RPC_MISMATCH, RPC_VERSION, RPC_VERSION],
        // AUTH_BADCRED and AUTH_TOOWEAK
        Rejection::BadCredential => &[AUTH_ERROR, 1],
        Rejection::WeakCredential => &[AUTH_ERROR, 5],
        Rejection::ProgramUnavailable => return accepted(writer, xid, 1),
        Rejection::ProgramMismatch(version) => {
            accepted(writer, xid, 2);
            writer.u32(version);
            return writer.u32(version);
        }
        Rejection::ProcedureUnavailable => return accepted(writer, xid, 3),
        Rejection::Garbage => return accepted(writer, xid, 4),
        Rejection::SystemError => return accepted(writer, xid, 5),
    };
    for word in [xid, REPLY, MSG_DENIED].iter().chain(denied) {
        writer.u32(*word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(flavor: u32, credential: &[u8]) -> Result<Head, Garbage> {
        let mut writer = Writer::default();
        for word in [9, CALL, RPC_VERSION, 100_003, 3, 1, flavor] {
            writer.u32(word);
        }
        writer.opaque(credential);
        writer.u32(AUTH_NONE);
        writer.opaque(&[]);
        Call::read(&mut Reader::new(writer.bytes()))
    }

    fn credential(groups: u32) -> Writer {
        let mut writer = Writer::default();
        writer.u32(0);
        writer.opaque(b"machine");
        writer.u32(1000);
        writer.u32(100);
        writer.u32(groups);
        (0..groups).for_each(|group| writer.u32(group));
        writer
    }

    #[test]
    fn a_user_comes_with_sixteen_groups_at_most() {
        let Ok(Head::Call(call_of_user)) = call(AUTH_SYS, credential(16).bytes()) else {
            panic!("it is well formed");
        };
        let Credential::User { uid, gid, groups } = call_of_user.credential else {
            panic!("it is a user's");
        };
        assert_eq!((uid, gid, groups.len()), (1000, 100, 16));
        let too_many = call(AUTH_SYS, credential(17).bytes());
        let rejected = |head| matches!(head, Ok(Head::Rejected(9, Rejection::BadCredential)));
        assert!(rejected(too_many));
        assert!(rejected(call(AUTH_SYS, b"abc")));
    }

    #[test]
    fn other_credentials_are_refused_and_replies_ignored() {
        assert!(matches!(call(AUTH_NONE, &[]), Ok(Head::Call(_))));
        let weak = call(6, &[]);
        assert!(matches!(
            weak,
            Ok(Head::Rejected(9, Rejection::WeakCredential))
        ));
        let reply = [0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0];
        assert!(Call::read(&mut Reader::new(&reply)).is_err());
    }
}
