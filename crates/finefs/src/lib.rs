//! finefs: ext2, ext3 and ext4 images and memory file systems, in user space, with no big lock.
//!
//! # Purpose
//! The library that programs embed. It re-exports the namespace (every operation on files, as
//! methods of [`Namespace`]) and opens what lies below it: [`open_image`] for images,
//! [`open_memory`] for memory. The command `finefs` is built on the same two calls.
//!
//! # Example
//! ```
//! use finefs::{Caller, Options, open_memory};
//!
//! let space = open_memory(1 << 20, 0o755, 0, 0, Options::default())?;
//! let caller = Caller::root();
//! let file = space.create_file(&caller, space.root(), b"hello", 0o644)?;
//! space.write(file.ino, 0, b"world")?;
//! let mut buffer = [0; 16];
//! assert_eq!(space.read(file.ino, 0, &mut buffer)?, 5);
//! space.shut_down()?;
//! # Ok::<(), finefs::Error>(())
//! ```

mod image;

pub use finefs_ext::OnError;
pub use finefs_namespace::types::*;
pub use finefs_namespace::*;
pub use image::{Image, ImageOptions, OpenImageError, open_device, open_image, open_memory};
