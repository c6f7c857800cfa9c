//! Workloads that file systems are measured with, each on a finefs file system in process or on any
//! directory, by threads or processes.

pub mod model;
pub mod page;
pub mod seeds;
