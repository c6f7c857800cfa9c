//! The command `finefs` with real mounts.

mod aio;
mod aligned;
mod as_the_kernel;
mod channel;
mod confined;
mod direct;
mod ending;
mod errors;
mod exercise;
mod flags;
mod freeze;
mod helper;
mod mapping;
mod mount;
mod nearly_full;
mod overlay;
mod quota;
mod set_id;
mod sizes;
mod support;
mod sync;
mod top;
mod top_server;
mod top_terminal;
mod trim;
mod users;
