//! The target `check`; see `finefs_fuzz::TARGETS`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| finefs_fuzz::run("check", data));
