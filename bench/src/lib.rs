//! finefs-bench
