//! From the greeting to what an export can do: the fixed newstyle handshake with `NBD_OPT_GO`.

use std::io::{self, IoSlice};
use std::time::Instant;

use crate::protocol::{
    self, ALLOCATION, FIXED_NEWSTYLE, INFO_BLOCK_SIZE, INFO_EXPORT, NBD_MAGIC, NO_ZEROES,
    OLD_MAGIC, OPT_GO, OPT_SET_META_CONTEXT, OPT_STARTTLS, OPT_STRUCTURED_REPLY, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, REP_ACK, REP_ERR_POLICY, REP_ERR_SHUTDOWN, REP_ERR_TLS_REQD,
    REP_ERR_UNKNOWN, REP_ERR_UNSUP, REP_ERROR, REP_INFO, REP_META_CONTEXT,
};
use crate::stream::{Input, Stream};
use crate::tls::Credentials;

/// A reply to an option is never longer than this.
const REPLY_MAX: u32 = 64 << 10;
/// So many replies come to one option at most.
const REPLIES_MAX: usize = 64;
/// What a server is expected to take where it says nothing: the protocol's word.
const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The largest smallest block that the protocol allows.
const BLOCK_MIN_MAX: u32 = 64 << 10;

/// What a server says of an export.
#[derive(Clone, Debug, Default)]
pub(crate) struct Export {
    pub size_bytes: u64,
    /// `SEND_FLUSH` and its like.
    pub flags: u16,
    /// Offsets and lengths are multiples of this power of two.
    pub block_min: u32,
    /// No request has more data.
    pub request_max: u32,
    pub has_structured_replies: bool,
    /// The server's number for the context that tells of holes.
    pub allocation_context: Option<u32>,
}

impl Export {
    pub fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// What is wrong where the server later says this of it.
    pub fn difference(&self, later: &Export) -> Option<String> {
        if self.size_bytes != later.size_bytes {
            return Some(format!(
                "the export has {} bytes now, and had {}; unmount, and check what the server has",
                later.size_bytes, self.size_bytes
            ));
        }
        let can = |export: &Export| {
            let tells_of_holes = export.allocation_context.is_some();
            let (min, max) = (export.block_min, export.request_max);
            (export.flags, min, max, tells_of_holes)
        };
        (can(self) != can(later)).then(|| {
            format!(
                "the export is not what it was: its flags are {:#x} and were {:#x}, its blocks \
                 {} to {} bytes and were {} to {}; unmount, and mount it again",
                later.flags,
                self.flags,
                later.block_min,
                later.request_max,
                self.block_min,
                self.request_max
            )
        })
    }
}

/// One connection before its requests.
pub(crate) struct Handshake<'a> {
    pub stream: &'a Stream,
    pub input: &'a mut Input,
    pub deadline: Instant,
}

/// A reply to an option.
struct Reply {
    kind: u32,
    data: Vec<u8>,
}

impl Reply {
    /// What an error says, with the server's own words.
    fn refusal(&self) -> String {
        let kind = match self.kind {
            REP_ERR_UNSUP => "the server does not know an option".to_owned(),
            REP_ERR_POLICY => "the server does not allow it".to_owned(),
            REP_ERR_TLS_REQD => "the server wants TLS; use nbds:// or nbds+unix://".to_owned(),
            REP_ERR_UNKNOWN => "there is no such export; check the name".to_owned(),
            REP_ERR_SHUTDOWN => "the server is shutting down".to_owned(),
            other => format!("the server refuses with error {}", other & !REP_ERROR),
        };
        match String::from_utf8_lossy(&self.data) {
            text if text.is_empty() => kind,
            text => format!("{kind} ({})", text.escape_debug()),
        }
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Handshake<'_> {
    /// Asks for an export, which may be used from then on.
    pub fn go(&mut self, name: &str, credentials: Option<&Credentials>) -> io::Result<Export> {
        self.greet()?;
        if let Some(credentials) = credentials {
            self.start_tls(credentials)?;
        }
        let mut export = Export {
            block_min: 1,
            request_max: REQUEST_BYTES_MAX,
            ..Export::default()
        };
        export.has_structured_replies = self.ask_for_structured_replies()?;
        if export.has_structured_replies {
            export.allocation_context = self.ask_for_allocation(name)?;
        }
        let mut ask = named(name);
        ask.extend(1_u16.to_be_bytes());
        ask.extend(INFO_BLOCK_SIZE.to_be_bytes());
        self.send(OPT_GO, &ask)?;
        let mut is_told = false;
        for _ in 0..REPLIES_MAX {
            let reply = self.receive(OPT_GO)?;
            match reply.kind {
                REP_ACK if is_told => return Ok(export),
                REP_ACK => return Err(wrong("the server does not tell the size of the export")),
                REP_INFO => is_told |= note(&mut export, &reply.data)?,
                kind if kind & REP_ERROR != 0 => return Err(io::Error::other(reply.refusal())),
                _ => {}
            }
        }
        Err(wrong("the server tells too much of the export"))
    }

    fn greet(&mut self) -> io::Result<()> {
        let magic = u64::from_be_bytes(self.array()?);
        let version = u64::from_be_bytes(self.array()?);
        if magic != NBD_MAGIC {
            return Err(wrong("is no NBD server"));
        }
        if version == OLD_MAGIC {
            return Err(wrong(
                "the server speaks the old handshake only; use one that knows exports by name",
            ));
        }
        let flags = u16::from_be_bytes(self.array()?);
        if version != OPTION_MAGIC || flags & FIXED_NEWSTYLE == 0 {
            return Err(wrong(
                "the server does not speak the fixed newstyle handshake",
            ));
        }
        let ours = u32::from(FIXED_NEWSTYLE | flags & NO_ZEROES);
        self.write(&[&ours.to_be_bytes()])
    }

    fn start_tls(&mut self, credentials: &Credentials) -> io::Result<()> {
        self.send(OPT_STARTTLS, &[])?;
        let reply = self.receive(OPT_STARTTLS)?;
        match reply.kind {
            REP_ACK => {}
            REP_ERR_UNSUP | REP_ERR_POLICY => {
                return Err(wrong("the server does not speak TLS; use nbd://"));
            }
            _ => return Err(io::Error::other(reply.refusal())),
        }
        // What was sent before is not from whom the certificate will tell.
        if !self.input.is_empty() {
            return Err(wrong("the server goes on without TLS"));
        }
        self.stream.secure(credentials, self.deadline)
    }

    fn ask_for_structured_replies(&mut self) -> io::Result<bool> {
        self.send(OPT_STRUCTURED_REPLY, &[])?;
        let reply = self.receive(OPT_STRUCTURED_REPLY)?;
        if reply.kind == REP_ERR_TLS_REQD {
            return Err(io::Error::other(reply.refusal()));
        }
        Ok(reply.kind == REP_ACK)
    }

    fn ask_for_allocation(&mut self, name: &str) -> io::Result<Option<u32>> {
        let mut ask = named(name);
        ask.extend(1_u32.to_be_bytes());
        ask.extend((ALLOCATION.len() as u32).to_be_bytes());
        ask.extend(ALLOCATION.as_bytes());
        self.send(OPT_SET_META_CONTEXT, &ask)?;
        let mut context = None;
        for _ in 0..REPLIES_MAX {
            let reply = self.receive(OPT_SET_META_CONTEXT)?;
            match (reply.kind, reply.data.split_first_chunk()) {
                (REP_META_CONTEXT, Some((id, text))) if text == ALLOCATION.as_bytes() => {
                    context = Some(u32::from_be_bytes(*id));
                }
                (REP_ACK, _) => return Ok(context),
                // Without it everything counts as allocated.
                (kind, _) if kind & REP_ERROR != 0 => return Ok(None),
                _ => {}
            }
        }
        Err(wrong("the server tells of too many contexts"))
    }

    fn send(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let length = data.len() as u32;
        self.write(&[
            &OPTION_MAGIC.to_be_bytes(),
            &option.to_be_bytes(),
            &length.to_be_bytes(),
            data,
        ])
    }

    fn receive(&mut self, option: u32) -> io::Result<Reply> {
        let magic = u64::from_be_bytes(self.array()?);
        let to = u32::from_be_bytes(self.array()?);
        let kind = u32::from_be_bytes(self.array()?);
        let length = u32::from_be_bytes(self.array()?);
        if magic != OPTION_REPLY_MAGIC || to != option {
            return Err(wrong(
                "what the server says is no reply to what it was asked",
            ));
        }
        if length > REPLY_MAX {
            return Err(wrong("a reply of the server is too long"));
        }
        let mut data = vec![0; length as usize];
        self.input
            .read_exact(self.stream, &mut data, self.deadline)?;
        Ok(Reply { kind, data })
    }

    fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let mut parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        self.stream.write_all(&mut parts, self.deadline)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.input.read_array(self.stream, self.deadline)
    }
}

fn named(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data
}

/// Takes what a reply to `OPT_GO` tells; true for the size.
fn note(export: &mut Export, data: &[u8]) -> io::Result<bool> {
    let Some((kind, rest)) = data.split_first_chunk() else {
        return Err(wrong("the server tells nothing of the export"));
    };
    match u16::from_be_bytes(*kind) {
        INFO_EXPORT => {
            let (size, flags) = rest
                .split_first_chunk()
                .and_then(|(size, rest)| Some((size, rest.first_chunk()?)))
                .ok_or_else(|| wrong("the server does not tell the size of the export"))?;
            export.size_bytes = u64::from_be_bytes(*size);
            export.flags = u16::from_be_bytes(*flags);
            if i64::try_from(export.size_bytes).is_err() {
                return Err(wrong("the export is larger than can be"));
            }
            if !export.can(protocol::HAS_FLAGS) {
                export.flags = 0;
            }
            Ok(true)
        }
        INFO_BLOCK_SIZE => {
            let sizes: &[u8; 12] = rest
                .try_into()
                .map_err(|_| wrong("the server does not tell its block sizes"))?;
            let number = |at: usize| {
                u32::from_be_bytes([sizes[at], sizes[at + 1], sizes[at + 2], sizes[at + 3]])
            };
            let (min, max) = (number(0), number(8));
            if !min.is_power_of_two() || min > BLOCK_MIN_MAX || max < min {
                return Err(wrong("the server's block sizes make no sense"));
            }
            export.block_min = min;
            export.request_max = (max / min * min).min(REQUEST_BYTES_MAX);
            Ok(false)
        }
        _ => Ok(false),
    }
}
