//! ext2, ext3 and ext4 images as a store of a namespace.

pub mod buffer;
pub mod overlay;

mod alloc;
mod apply;
mod group;
mod state;
