//! The target `jbd2`; see `finefs_fuzz::TARGETS`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| finefs_fuzz::run("jbd2", data));
