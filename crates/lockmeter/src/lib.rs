//! finefs-lockmeter
