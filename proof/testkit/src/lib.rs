//! What the file system's tests share: a reference model, random operations, a runner that compares
//! a namespace with the model, and a store that checks the contract of stores.
//!
//! | Module | Thing |
//! |---|---|
//! | [`model`] | a file system as simple as can be: maps, byte vectors, no concurrency, no store |
//! | [`operation`] | operations as plain data, made from a seed |
//! | [`runner`] | runs operations on a namespace and the model, compares, and shrinks failures |
//! | [`linear`] | histories of threads, and an order of the model that explains them |
//! | [`crash`] | what is left when the machine stops at any moment, against the model |
//! | [`checked_store`] | a store that replays every batch and checks that a file system comes of it |
//!
//! # Errors
//! Where several errors apply to one call, POSIX leaves open which one is given. So the model does
//! not imitate an order of checks: it gives all errors that apply, and the namespace must give one
//! of them, or succeed where there is none.

pub mod checked_store;
pub mod crash;
pub mod linear;
pub mod model;
pub mod operation;
pub mod runner;

pub use checked_store::CheckedStore;
pub use model::Model;
pub use operation::{Operation, operations};
pub use runner::{Subject, check_seed, check_seeds, run};
