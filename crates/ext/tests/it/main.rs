//! The store beside the tools of e2fsprogs and the kernel.

mod apply;
mod apply_crash;
mod apply_damage;
mod apply_kernel;
mod apply_large;
mod apply_parallel;
mod apply_speed;
mod apply_world;
mod casefold;
mod clusters;
mod crafted;
mod damaged_writes;
mod data;
mod encrypted;
mod encrypted_with_key;
mod ending;
mod external_journal;
#[path = "../image/mod.rs"]
mod image;
mod info;
mod inode_features;
mod journal;
mod kernel_mount;
mod keyed;
mod labels;
mod large_directories;
mod marks;
mod memory_account;
mod mixed_maps;
mod orphan_faults;
mod quota_room;
mod read;
mod refusals;
mod times;
mod trial;
mod verity;
