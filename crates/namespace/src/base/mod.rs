//! The base: what every other folder may use.
//!
//! | module | about |
//! |---|---|
//! | [`types`], [`error`] | inode numbers, attributes, callers; errors and their errno |
//! | [`file_flags`], `file_kind` | flags of inodes, as chattr(1) sets them; what an inode is |
//! | [`store`] | the contract with what is below |
//! | `quotas`, `directory_image`, `committed` | what it says of quotas, directories, commits |
//! | `extents` | runs of its blocks |
//! | `identity`, `name_rules` | what tells a store from others; how it compares names |
//! | `inode_form` | what inodes can have in it |
//! | `classes` | the lock classes of the namespace and their order |
//! | [`guard`] | what front ends do about panics, and about many errors |
//! | [`number_map`] | hash tables keyed by inode or block |
//! | `memory` | how much memory is taken |
//! | [`parallel`] | work that several threads share |
//! | `radix`, `once_box` | arrays and boxes that are filled once and read without a lock |
//! | `retire` | when memory that readers may still see is given back |
//!
//! # Invariants
//! 1. Nothing here knows what an inode in memory is, or a namespace.
//! 2. Every lock class of the namespace stands in `classes`.
//!
//! # May use
//! Of this crate nothing; the crates `locks` and `lockmeter`.

pub(crate) mod classes;
mod committed;
mod directory_image;
pub mod error;
mod extents;
pub mod file_flags;
mod file_kind;
pub mod guard;
mod identity;
mod inode_form;
pub(crate) mod memory;
mod name_rules;
pub mod number_map;
pub(crate) mod once_box;
pub mod parallel;
mod quotas;
pub(crate) mod radix;
pub(crate) mod retire;
pub mod store;
pub mod types;
