//! The codecs beside images of mke2fs.

mod dx_hash;
mod feature_names;
mod mkfs_images;
mod random_bytes;
mod support;
mod written_images;
