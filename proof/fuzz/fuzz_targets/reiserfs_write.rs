//! The target `reiserfs_write`; see `finefs_fuzz::TARGETS`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| finefs_fuzz::run("reiserfs_write", data));
