//! From a record to its reply: which program, which procedure, whether it was carried out before.

use std::net::IpAddr;
use std::sync::Arc;

use finefs_namespace::guard::guarded;

use crate::export::{Export, Exports};
use crate::faults::Fault;
use crate::handle::HANDLE_MAX;
use crate::locks::{self, Locking};
use crate::mount::{self, Mounted};
use crate::portmap;
use crate::procedures::{self, Context, Waits};
use crate::replies::{Found, Replies};
use crate::rpc::{self, Call, Head, Rejection};
use crate::xdr::{Garbage, Reader, Writer};

/// What is served on one port.
pub(crate) struct Service {
    pub exports: Arc<Exports>,
    pub locking: Arc<Locking>,
    mounted: Mounted,
    /// Where it tells ports itself.
    port_map: Option<portmap::Map>,
}

/// Who sent a record: `W` is whom replies can be sent to.
pub(crate) struct Sender<'s, W> {
    pub address: IpAddr,
    pub port: u16,
    /// The address of this server that it uses.
    pub server: IpAddr,
    /// It came by UDP, which NFS itself is not for.
    pub is_datagram: bool,
    pub replies: &'s Replies<W>,
    pub connection: &'s Arc<W>,
}

/// What is to be done with what was written.
pub(crate) enum Answer<W> {
    /// It is the reply; these others wait for it too.
    Reply(Vec<Arc<W>>),
    /// Nothing: the reply to the call's original will be sent.
    Later,
    /// Nothing, and the sender does not speak RPC.
    Close,
}

impl Service {
    pub(crate) fn new(
        exports: Arc<Exports>,
        locking: Arc<Locking>,
        port_map: Option<portmap::Map>,
    ) -> Service {
        Service {
            exports,
            locking,
            mounted: Mounted::new(),
            port_map,
        }
    }

    /// Carries out the call in `record`, and writes the reply behind what is in `out`.
    pub(crate) fn answer<W>(
        &self,
        sender: &Sender<'_, W>,
        record: &[u8],
        out: &mut Writer,
        waits: &dyn Waits,
    ) -> Answer<W> {
        let start = out.length();
        let mut reader = Reader::new(record);
        let call = match Call::read(&mut reader) {
            Ok(Head::Call(call)) => call,
            Ok(Head::Rejected(xid, rejection)) => {
                rpc::reject(out, xid, rejection);
                return Answer::Reply(Vec::new());
            }
            Err(Garbage) => return Answer::Close,
        };
        let what = (&call, record);
        let answered = guarded("an NFS call", || {
            self.carry_out(sender, what, &mut reader, out, waits)
        });
        let answered = answered.unwrap_or(Err(Rejection::SystemError));
        answered.unwrap_or_else(|rejection| {
            out.cut(start);
            rpc::reject(out, call.xid, rejection);
            Answer::Reply(Vec::new())
        })
    }

    /// Carries out a call, unless that was done before.
    fn carry_out<W>(
        &self,
        sender: &Sender<'_, W>,
        (call, record): (&Call, &[u8]),
        reader: &mut Reader<'_>,
        out: &mut Writer,
        waits: &dyn Waits,
    ) -> Result<Answer<W>, Rejection> {
        let start = out.length();
        let under_way = match self.look_up(sender, call, record)? {
            None => None,
            Some(Found::New(under_way)) => Some(under_way),
            Some(Found::IsUnderWay) => return Ok(Answer::Later),
            Some(Found::Done(reply)) => {
                out.raw(&reply);
                return Ok(Answer::Reply(Vec::new()));
            }
        };
        rpc::accept(out, call.xid);
        self.run(sender, call, reader, out, waits)?;
        Fault::Call.strike(record);
        let reply = &out.bytes()[start..];
        Ok(Answer::Reply(match under_way {
            // It was not carried out, and may be next time.
            Some(_) if is_put_off(reply) => Vec::new(),
            Some(under_way) => under_way.finish(reply),
            None => Vec::new(),
        }))
    }

    /// Whether the call was carried out before; `None` where that does not matter.
    fn look_up<'s, W>(
        &self,
        sender: &Sender<'s, W>,
        call: &Call,
        record: &[u8],
    ) -> Result<Option<Found<'s, W>>, Rejection> {
        let known = match (call.program, call.version) {
            (procedures::PROGRAM, _) if sender.is_datagram => {
                return Err(Rejection::ProgramUnavailable);
            }
            (procedures::PROGRAM, procedures::VERSION) => procedures::find(call.procedure)?,
            (mount::PROGRAM, mount::VERSION)
            | (locks::PROGRAM, locks::VERSION)
            | (locks::MONITOR_PROGRAM, locks::MONITOR_VERSION) => return Ok(None),
            (portmap::PROGRAM, 2..=4) if self.port_map.is_some() => return Ok(None),
            (program, _) => {
                let versions = [
                    (procedures::PROGRAM, procedures::VERSION),
                    (mount::PROGRAM, mount::VERSION),
                    (locks::PROGRAM, locks::VERSION),
                    (locks::MONITOR_PROGRAM, locks::MONITOR_VERSION),
                ];
                let known = versions.iter().find(|(number, _)| *number == program);
                return Err(match known {
                    Some((_, version)) => Rejection::ProgramMismatch(*version),
                    None => Rejection::ProgramUnavailable,
                });
            }
        };
        let find = || sender.replies.find(call.xid, record, sender.connection);
        Ok(known.is_kept.then(find))
    }

    fn run<W>(
        &self,
        sender: &Sender<'_, W>,
        call: &Call,
        reader: &mut Reader<'_>,
        out: &mut Writer,
        waits: &dyn Waits,
    ) -> Result<(), Rejection> {
        let client = || locks::Client {
            address: sender.address,
            port: sender.port,
            server: sender.server,
            credential: &call.credential,
        };
        match call.program {
            mount::PROGRAM => {
                let who = (sender.address, sender.port, &call.credential);
                let served = (&*self.exports, &self.mounted);
                return mount::run(served, who, call.procedure, reader, out);
            }
            locks::PROGRAM => {
                return self.locking.run(&client(), call.procedure, reader, out);
            }
            locks::MONITOR_PROGRAM => {
                return self
                    .locking
                    .run_monitor(&client(), call.procedure, reader, out);
            }
            portmap::PROGRAM => {
                let map = self.port_map.as_ref();
                let map = map.ok_or(Rejection::ProgramUnavailable)?;
                let what = (call.version, call.procedure);
                return map.run(sender.server, what, reader, out);
            }
            _ => {}
        }
        let known = procedures::find(call.procedure)?;
        let export = self.export(sender, reader)?;
        let context = Context {
            export,
            caller: export.caller(&call.credential),
            waits,
        };
        log::trace!("{} by user {}", known.name, context.caller.uid);
        let result = known.run(&context, reader, out);
        result.map_err(|Garbage| Rejection::Garbage)
    }

    /// The export that a call is for: all but NULL begin with a handle.
    fn export<W>(&self, sender: &Sender<'_, W>, reader: &Reader<'_>) -> Result<&Export, Rejection> {
        let handle = reader.clone().opaque(HANDLE_MAX).unwrap_or_default();
        let found = self.exports.of_handle(handle);
        // Any of them says what is wrong with a handle of none.
        let export = found.map_or(&self.exports.all()[0], |(_, export)| export);
        match handle.is_empty() || export.admits_call(sender.address, sender.port) {
            true => Ok(export),
            false => Err(Rejection::WeakCredential),
        }
    }
}

/// Whether a reply says "later": the file system is frozen.
fn is_put_off(reply: &[u8]) -> bool {
    let status = reply.get(24..28).and_then(|status| status.try_into().ok());
    status.map(u32::from_be_bytes) == Some(crate::status::JUKEBOX)
}
