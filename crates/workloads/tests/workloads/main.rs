//! Workloads at tiny size, on both kinds of targets, and the crews that run them.

mod crew;
mod openspeed;
mod support;
mod targets;
