//! Five published threads on the locks of file systems: their tables, measured again on finefs and
//! on the kernel, and a model of more cores than this machine has.
//!
//! | module | what it is about |
//! |---|---|
//! | [`studies`] | the five threads, each beside what is measured here |
//! | [`model`] | throughput on more cores, by mean value analysis |
//! | [`page`] | documents of tables and charts |
//!
//! The loads are those of `finefs-workloads`.

pub mod model;
pub mod page;
pub mod studies;
