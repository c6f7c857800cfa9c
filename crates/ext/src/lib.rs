//! finefs-ext
