//! The finefs command.
fn main() {}
