//! The command `finefs` with real mounts.

mod errors;
mod freeze;
mod mount;
mod support;
mod sync;
mod top;
