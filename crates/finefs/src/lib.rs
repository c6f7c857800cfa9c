//! finefs
