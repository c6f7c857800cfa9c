//! Panics that tests of this crate ask for: what a bug costs in a call, beside one, and where
//! connections are accepted. In a build that is no such test nothing of it is left.

use std::net::{IpAddr, Ipv4Addr};

/// Where to panic: the transaction id of the call that does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// While it is carried out.
    Call = 0x00fa_0001,
    /// Behind that, when its reply is to be sent.
    Connection = 0x00fa_0002,
}

/// A client that is not accepted without a panic.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 250, 3);

impl Fault {
    /// Panics if this is the call's fault.
    #[inline]
    pub(crate) fn strike(self, call: &[u8]) {
        if cfg!(test) && call.starts_with(&(self as u32).to_be_bytes()) {
            panic!("asked for by a test: {self:?}");
        }
    }

    /// Panics if it is the client that is meant.
    #[inline]
    pub(crate) fn strike_client(client: IpAddr) {
        if cfg!(test) && client == IpAddr::V4(CLIENT) {
            panic!("asked for by a test: {client}");
        }
    }
}
