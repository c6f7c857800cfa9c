//! finefs for programs in Python: what the package `finefs` (in `python/`) is made of.
//!
//! | Module | Thing |
//! |---|---|
//! | [`image`] | an open image |
//! | [`file`] | an open file |
//! | [`stat`] | attributes |
//! | [`make`] | making images |
//! | [`detached`] | a handle that goes without the interpreter's lock |
//! | [`error`] | errors as `OSError` |
//!
//! # Invariants
//! 1. Nothing of finefs that can wait runs while the interpreter's lock is held: every call, and
//!    the end of every handle, goes through `Python::detach`, so threads run side by side.
//! 2. Errors are `OSError` with errno, reason and path, so they come as `FileNotFoundError` and its
//!    like; lack of memory is `MemoryError`.
//!
//! # Locking
//! None of its own.

mod detached;
mod error;
mod file;
mod image;
mod make;
mod stat;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
#[pyo3(name = "_finefs")]
fn package(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<image::Image>()?;
    module.add_class::<file::RawFile>()?;
    module.add_function(wrap_pyfunction!(make::build, module)?)?;
    module.add_function(wrap_pyfunction!(make::mkfs, module)?)
}
