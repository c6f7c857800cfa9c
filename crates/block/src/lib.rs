//! finefs-block
