//! finefs for programs in C.
//!
//! | Module | Thing |
//! |---|---|
//! | [`fs`] | images: opening, closing, making, space |
//! | [`names`] | what names are made, changed and removed by |
//! | [`file`] | open files |
//! | [`listing`] | directories |
//! | [`xattr`] | extended attributes |
//! | [`stat`] | attributes as C sees them |
//! | [`call`] | arguments, errors and panics at the border |
//!
//! `include/finefs.h` is written by cbindgen from these functions; a test compares the two.
//!
//! # Invariants
//! 1. No panic crosses the border: [`call::run`] makes it EIO.
//! 2. A null pointer where an object or string must be is EINVAL, never followed.
//! 3. What a caller gets is freed by the function that closes it, once.
//!
//! # Safety
//! What C promises with each call, and the SAFETY notes rely on:
//! 1. A handle is null, or was given out by the function that opens it and is not closed yet; while
//!    it is being closed nobody else uses it.
//! 2. A string is null, or ends with 0 and stays as it is during the call.
//! 3. Of a buffer as many bytes as the call says may be read, or written.
//! 4. A place for a result is null or may be written.
//!
//! # Locking
//! None of its own. The message of the last error is the thread's.
#![expect(
    clippy::missing_safety_doc,
    reason = "all functions have the same: it stands above"
)]

pub mod call;
pub mod file;
pub mod fs;
pub mod listing;
pub mod names;
pub mod stat;
pub mod xattr;
