//! The namespace over its stores.

mod access_time;
mod acl;
mod behind;
mod bsd_groups;
mod commits;
mod copy_range;
mod eviction;
mod labels;
mod listing;
mod memory;
mod model;
mod refused;
mod set_id;
mod settled;
mod stress;
mod walk;
