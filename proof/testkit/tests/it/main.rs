//! The stores against models, and after crashes.

/// The size of a usual run, or of a full one (`FINEFS_FULL`).
fn sized<T>(usual: T, full: T) -> T {
    match std::env::var_os("FINEFS_FULL") {
        Some(_) => full,
        None => usual,
    }
}

mod crash;
mod defragment;
mod ext;
mod image;
mod linear;
mod reiser;
mod schemes;
mod sync;
