//! The server, by a client of the tests.

mod client;
mod crash;
mod exports;
mod failing;
mod locks;
mod model;
mod procedures;
mod restart;
mod soak;
mod stalled;
mod transport;
