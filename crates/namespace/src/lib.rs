//! finefs-namespace
