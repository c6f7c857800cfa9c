//! From a record to its reply: which program, which procedure, whether it was carried out before.

use std::net::IpAddr;
use std::sync::Arc;

use finefs_namespace::guard::guarded;

use crate::export::Export;
use crate::mount::{self, Mounted};
use crate::procedures::{self, Context, Waits};
use crate::replies::{Found, Replies, UnderWay};
use crate::rpc::{self, Call, Head, Rejection};
use crate::xdr::{Garbage, Reader, Writer};

/// What is served on one port.
pub(crate) struct Service {
    pub export: Export,
    mounted: Mounted,
}

/// Who sent a record: `W` is whom replies can be sent to.
pub(crate) struct Sender<'s, W> {
    pub address: IpAddr,
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
    pub(crate) fn new(export: Export) -> Service {
        Service {
            export,
            mounted: Mounted::new(),
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
        let under_way = match self.look_up(sender, &call, record) {
            Ok(None) => None,
            Ok(Some(Found::New(under_way))) => Some(under_way),
            Ok(Some(Found::IsUnderWay)) => return Answer::Later,
            Ok(Some(Found::Done(reply))) => {
                out.raw(&reply);
                return Answer::Reply(Vec::new());
            }
            Err(rejection) => {
                rpc::reject(out, call.xid, rejection);
                return Answer::Reply(Vec::new());
            }
        };
        rpc::accept(out, call.xid);
        let result = guarded("an NFS call", || {
            self.run(sender.address, &call, &mut reader, out, waits)
        });
        let rejection = match result {
            Some(Ok(())) => None,
            Some(Err(rejection)) => Some(rejection),
            None => Some(Rejection::SystemError),
        };
        if let Some(rejection) = rejection {
            out.cut(start);
            rpc::reject(out, call.xid, rejection);
        }
        let reply = &out.bytes()[start..];
        let also = match under_way {
            // It was not carried out, and may be next time.
            Some(_) if rejection.is_some() || is_put_off(reply) => Vec::new(),
            Some(under_way) => UnderWay::finish(under_way, reply),
            None => Vec::new(),
        };
        Answer::Reply(also)
    }

    /// Whether the call was carried out before; `None` where that does not matter.
    fn look_up<'s, W>(
        &self,
        sender: &Sender<'s, W>,
        call: &Call,
        record: &[u8],
    ) -> Result<Option<Found<'s, W>>, Rejection> {
        let known = match (call.program, call.version) {
            (procedures::PROGRAM, procedures::VERSION) => procedures::find(call.procedure)?,
            (mount::PROGRAM, mount::VERSION) => return Ok(None),
            (procedures::PROGRAM, _) => {
                return Err(Rejection::ProgramMismatch(procedures::VERSION));
            }
            (mount::PROGRAM, _) => return Err(Rejection::ProgramMismatch(mount::VERSION)),
            _ => return Err(Rejection::ProgramUnavailable),
        };
        let find = || sender.replies.find(call.xid, record, sender.connection);
        Ok(known.is_kept.then(find))
    }

    fn run(
        &self,
        address: IpAddr,
        call: &Call,
        reader: &mut Reader<'_>,
        out: &mut Writer,
        waits: &dyn Waits,
    ) -> Result<(), Rejection> {
        if call.program == mount::PROGRAM {
            let who = (address, &call.credential);
            return mount::run(
                (&self.export, &self.mounted),
                who,
                call.procedure,
                reader,
                out,
            );
        }
        let known = procedures::find(call.procedure)?;
        let context = Context {
            export: &self.export,
            caller: self.export.caller(&call.credential),
            waits,
        };
        log::trace!("{} by user {}", known.name, context.caller.uid);
        let result = known.run(&context, reader, out);
        result.map_err(|Garbage| Rejection::Garbage)
    }
}

/// Whether a reply says "later": the file system is frozen.
fn is_put_off(reply: &[u8]) -> bool {
    let status = reply.get(24..28).and_then(|status| status.try_into().ok());
    status.map(u32::from_be_bytes) == Some(crate::status::JUKEBOX)
}
