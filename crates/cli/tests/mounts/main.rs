//! The command `finefs` with real mounts.

mod errors;
mod exercise;
mod freeze;
mod mount;
mod sizes;
mod support;
mod sync;
mod top;
mod top_server;
mod top_terminal;
