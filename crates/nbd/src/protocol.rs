//! The numbers of the protocol, and errors that name the server.

use std::io;

/// Magic numbers: of the greeting, of options and their replies, of requests and their replies.
pub(crate) const NBD_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
pub(crate) const OLD_MAGIC: u64 = 0x0000_4202_8186_1253;
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Flags of the greeting, of both sides.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
pub(crate) const NO_ZEROES: u16 = 2;

/// Options.
pub(crate) const OPT_STARTTLS: u32 = 5;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(crate) const OPT_SET_META_CONTEXT: u32 = 10;

/// Replies to options.
pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_META_CONTEXT: u32 = 4;
pub(crate) const REP_ERROR: u32 = 1 << 31;
pub(crate) const REP_ERR_UNSUP: u32 = REP_ERROR | 1;
pub(crate) const REP_ERR_POLICY: u32 = REP_ERROR | 2;
pub(crate) const REP_ERR_TLS_REQD: u32 = REP_ERROR | 5;
pub(crate) const REP_ERR_UNKNOWN: u32 = REP_ERROR | 6;
pub(crate) const REP_ERR_SHUTDOWN: u32 = REP_ERROR | 7;

/// What OPT_GO tells of an export.
pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

/// What an export can do.
pub(crate) const HAS_FLAGS: u16 = 1;
pub(crate) const READ_ONLY: u16 = 1 << 1;
pub(crate) const SEND_FLUSH: u16 = 1 << 2;
pub(crate) const SEND_FUA: u16 = 1 << 3;
pub(crate) const SEND_TRIM: u16 = 1 << 5;
pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;

/// Flags of requests.
pub(crate) const FLAG_FUA: u16 = 1;

/// Flags and kinds of the chunks of a structured reply.
pub(crate) const REPLY_DONE: u16 = 1;
pub(crate) const CHUNK_NONE: u16 = 0;
pub(crate) const CHUNK_DATA: u16 = 1;
pub(crate) const CHUNK_HOLE: u16 = 2;
pub(crate) const CHUNK_STATUS: u16 = 5;
pub(crate) const CHUNK_ERROR: u16 = 1 << 15 | 1;
pub(crate) const CHUNK_ERROR_OFFSET: u16 = 1 << 15 | 2;

/// The metadata context that tells of holes, and its flag for what reads as zeros.
pub(crate) const ALLOCATION: &str = "base:allocation";
pub(crate) const STATE_ZERO: u32 = 2;

/// Kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
    BlockStatus = 7,
}

impl Command {
    /// The word for it in messages.
    pub fn verb(self) -> &'static str {
        match self {
            Command::Read => "read",
            Command::Write => "write",
            Command::Disconnect => "disconnect",
            Command::Flush => "flush",
            Command::Trim => "trim",
            Command::WriteZeroes => "write zeros",
            Command::BlockStatus => "tell what is allocated",
        }
    }
}

/// A request without its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub command: Command,
    pub flags: u16,
    pub offset: u64,
    pub length: u32,
}

/// Bytes of a request on the wire.
pub(crate) const REQUEST_BYTES: usize = 28;

impl Request {
    /// As it is sent, to be answered with this cookie.
    pub fn encode(&self, cookie: u64) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&(self.command as u16).to_be_bytes());
        bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// The error number of a server that is about to end.
pub(crate) const SHUTTING_DOWN: u32 = 108;

/// The kind of error that the protocol's number of it is; only some of errno's are in use.
pub(crate) fn error_kind(number: u32) -> io::ErrorKind {
    match number {
        1 => io::ErrorKind::PermissionDenied,
        12 => io::ErrorKind::OutOfMemory,
        22 => io::ErrorKind::InvalidInput,
        28 => io::ErrorKind::StorageFull,
        95 => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    }
}

/// What the number means, for messages.
pub(crate) fn error_text(number: u32) -> String {
    match number {
        1 => "not permitted".to_owned(),
        5 => "I/O error".to_owned(),
        12 => "out of memory".to_owned(),
        22 => "invalid request".to_owned(),
        28 => "no space left".to_owned(),
        75 => "request too large".to_owned(),
        95 => "not supported".to_owned(),
        SHUTTING_DOWN => "the server is shutting down".to_owned(),
        other => format!("error {other}"),
    }
}

/// An error in the words that a user knows.
pub(crate) fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "the server does not answer".to_owned(),
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted => "the server has closed the connection".to_owned(),
        io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        io::ErrorKind::ConnectionRefused => "no server listens there".to_owned(),
        _ => error.to_string(),
    }
}

/// The same error in these words.
pub(crate) fn plain(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), in_words(&error))
}
