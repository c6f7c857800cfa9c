//! Checks and repairs beside e2fsck.

mod agree;
mod repair;
mod resize;
mod support;
