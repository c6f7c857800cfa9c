//! Checks and repairs beside e2fsck.

mod agree;
mod groups;
mod marks;
mod mmp;
mod repair;
mod resize;
mod support;
