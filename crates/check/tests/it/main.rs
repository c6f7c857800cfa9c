//! Checks and repairs beside e2fsck.

mod agree;
mod groups;
mod marks;
mod repair;
mod resize;
mod support;
