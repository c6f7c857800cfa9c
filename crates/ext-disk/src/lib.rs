//! finefs-ext-disk
