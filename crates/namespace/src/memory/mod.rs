//! A store that persists nothing.
//!
//! | module | about |
//! |---|---|
//! | `memory_store` | the store: numbers, blocks and nothing else, as the namespace has the rest |
//! | `pages` | memory in blocks, taken from and given back to the system |
//!
//! # Invariants
//! 1. It takes no batches, so nothing is logged and a removal gives back at once.
//!
//! # May use
//! `base`; `commit` and `namespace` for [`Namespace::new`](crate::Namespace::new), over itself.

pub(crate) mod memory_store;
mod pages;
