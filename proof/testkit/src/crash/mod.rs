//! The crash simulator: what is left of a file system when the machine stops at any moment.
//!
//! A workload runs on a namespace over an image over a device that records what is written
//! when. From the record comes every state that a crash could leave on the disk (see
//! [`finefs_sim::crash`]). Each is opened again, which recovers it, walked, and compared
//! with the reference model; a share of them, or all, also goes through fsck.
//!
//! | Module | Thing |
//! |---|---|
//! | [`step`] | operations by path, on a namespace and on the model |
//! | [`workload`] | all short workloads in the manner of ACE, and longer ones by chance |
//! | [`format`] | what differs between ext and reiserfs |
//! | [`fsck`] | e2fsck and reiserfsck |
//! | [`base`] | images to start from, their free space poisoned |
//! | [`tree`] | what a recovered image holds; consistency that needs no other program |
//! | [`oracle`] | which trees a crash may leave |
//! | [`judge`] | one crash state: recovered, walked, judged, by fsck too |
//! | [`single`] | a workload of one thread, from the run to the verdict |
//! | [`threads`] | threads at once: random operations, mail, clients of a file server, records |
//! | [`dbench`] | a part of dbench's load as operations |
//! | [`shared_log`] | a file that all threads append to |
//! | [`faults`] | a device that fails each of its requests in turn |
//! | [`lies`] | a device that drops each of its writes in turn |
//! | [`report`] | counts, violations |
//!
//! # What a crash may leave
//! Commits are causally closed batches of operations in their order. So the tree after recovery
//! must be the model's after some number of a thread's operations: not fewer than were synced, nor
//! more than had begun. With data=ordered each sector of its files holds what it held after that
//! many operations, or what a later one wrote that had begun: never what another file held, or
//! nobody wrote. What was only written over other data may be older, back to the last sync of that
//! file or of everything.
//!
//! # References
//! Mohan et al., "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing", OSDI 2018.

pub mod base;
pub mod dbench;
pub mod faults;
pub mod format;
pub mod fsck;
pub mod judge;
pub mod lies;
pub mod oracle;
pub mod report;
pub mod shared_log;
pub mod single;
pub mod step;
pub mod threads;
pub mod tree;
pub mod workload;

/// The file of [`shared_log`].
pub const SHARED_LOG: &str = "shared/log";

/// Spreads the bits of a number (the finalizer of SplitMix64).
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
