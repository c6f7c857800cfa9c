//! Workloads at tiny size, on both kinds of targets, and the crews that run them.

mod crew;
mod dbench;
mod dirops;
mod faulty;
mod openspeed;
mod postmark;
mod shared_file;
mod support;
mod targets;
