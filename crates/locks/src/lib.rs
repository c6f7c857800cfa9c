//! finefs-locks
