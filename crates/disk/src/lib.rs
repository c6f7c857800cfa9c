//! What a user names as an image, as a block device: files of several disk formats, and storage
//! that others serve.
//!
//! | Module | Thing |
//! |---|---|
//! | [`mod@format`] | the formats, and how they are recognised |
//! | `open` | from a name to a device |
//! | `qcow2` | QEMU's copy-on-write images, through crate imago |
//! | `vmdk` | VMware's flat disks: a descriptor and a raw file beside it |
//! | `vhd` | Microsoft's fixed disks: a raw image with a footer |
//! | `android` | Android's sparse images |
//! | `compressed` | gzip, zstd and xz |
//!
//! # Invariants
//! 1. An image opens no file that its bytes name, but for a VMDK descriptor's data in the same
//!    directory and of the same name with `-flat`: a backing file or an external data file is a
//!    refusal.
//! 2. Only regular files are looked at for a format; a block device is raw.
//! 3. Whatever the format, the file is claimed as a raw image's is (see [`finefs_block::file`]).

pub mod android;
#[cfg(feature = "compressed")]
mod compressed;
pub mod format;
mod open;
#[cfg(feature = "qcow2")]
pub mod qcow2;
pub mod vhd;
pub mod vmdk;

pub use format::Format;
pub use open::{Opened, Options, absolute, connect, connect_by, is_reconnecting, is_url, open};
