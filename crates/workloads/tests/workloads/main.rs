//! Workloads at tiny size, on both kinds of targets, and the crews that run them.

mod crew;
mod dirops;
mod openspeed;
mod postmark;
mod support;
mod targets;
