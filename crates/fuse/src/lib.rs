//! finefs-fuse
