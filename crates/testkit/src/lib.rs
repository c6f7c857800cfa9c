//! finefs-testkit
