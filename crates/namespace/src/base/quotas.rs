//! What the namespace and stores say to each other of quotas.

/// What somebody will have more, for quotas. Ids that are `None` have it already.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Charge {
    /// The owner that will have it.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The project.
    pub project: Option<u32>,
    /// Inodes.
    pub inodes: u64,
    /// Space in bytes.
    pub bytes: u64,
    /// It may be more than is allowed: the superuser asks.
    pub is_privileged: bool,
}

/// A kind of owners that quotas are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaOwners {
    /// Users.
    Users,
    /// Groups.
    Groups,
    /// Projects.
    Projects,
}

/// What is set of quotas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaChange {
    /// What one owner may have. What is above a soft limit then has all grace from then on.
    Limits {
        /// Whose.
        id: u32,
        /// How much.
        limits: QuotaLimits,
    },
    /// How long all may stay above their soft limits.
    Grace {
        /// Where it is space, in seconds.
        space_seconds: u32,
        /// Where it is inodes.
        inode_seconds: u32,
    },
}

/// How much an owner may have: for good (hard), and for long (soft). 0 is any amount.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct QuotaLimits {
    /// Space in bytes, in whole KiB.
    pub space_soft_bytes: u64,
    /// The same.
    pub space_hard_bytes: u64,
    /// Inodes.
    pub inodes_soft: u64,
    /// Inodes.
    pub inodes_hard: u64,
}
