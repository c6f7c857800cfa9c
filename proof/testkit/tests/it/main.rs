//! The stores against models, and after crashes.

mod crash;
mod defragment;
mod ext;
mod image;
mod linear;
mod reiser;
mod schemes;
mod sync;
