//! The command `finefs` with real mounts.

mod channel;
mod ending;
mod errors;
mod exercise;
mod freeze;
mod helper;
mod mount;
mod support;
mod sync;
mod top;
mod top_server;
mod top_terminal;
