//! How a server is started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The port of rpcbind.
pub const RPCBIND_PORT: u16 = 111;
/// How long clients have to ask for the locks that they had before the server was started again.
const GRACE: Duration = Duration::from_secs(45);

/// Who tells clients the ports of the lock manager and the status monitor: they ask rpcbind, at
/// port 111 of the server's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rpcbind {
    /// The server itself, at this address.
    Serve(SocketAddr),
    /// The rpcbind of this machine, which takes that from root.
    Register,
}

/// How locks are kept.
#[derive(Clone, Debug)]
pub struct LockOptions {
    /// Where the clients are noted that have locks, so that they are told when the server was
    /// started again. Without it they are not, and do not ask for their locks again.
    pub state_file: Option<PathBuf>,
    /// How long nobody else gets locks then.
    pub grace: Duration,
    /// Where the rpcbind of clients is asked for their lock managers.
    pub rpcbind_port: u16,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions {
            state_file: None,
            grace: GRACE,
            rpcbind_port: RPCBIND_PORT,
        }
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where it listens, on TCP and UDP; port 0 is any that is free.
    pub address: SocketAddr,
    /// Who tells its ports; without, clients find NFS and MOUNT by the numbers that their users
    /// give, and lock on their own machine only.
    pub rpcbind: Option<Rpcbind>,
    /// How locks are kept.
    pub locks: LockOptions,
}

impl ServerOptions {
    /// At this address, without rpcbind.
    pub fn at(address: SocketAddr) -> ServerOptions {
        ServerOptions {
            address,
            rpcbind: None,
            locks: LockOptions::default(),
        }
    }
}
