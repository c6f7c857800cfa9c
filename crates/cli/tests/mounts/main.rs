//! The command `finefs` with real mounts.

mod mount;
mod support;
mod top;
