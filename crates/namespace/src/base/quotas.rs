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

/// What an owner has and may have.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct QuotaAccount {
    /// Space in bytes.
    pub space_bytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// What it may have.
    pub limits: QuotaLimits,
    /// Until when space may be above its soft limit, in seconds since 1970; 0 when it is not.
    pub space_until_seconds: u64,
    /// The same for inodes.
    pub inodes_until_seconds: u64,
    /// How long all may stay above their soft limits of space, in seconds.
    pub space_grace_seconds: u32,
    /// The same for inodes.
    pub inode_grace_seconds: u32,
}

/// What an owner may have at most, and has, where that is limited.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Space in bytes.
    pub space_bytes: Option<Limited>,
    /// Inodes.
    pub inodes: Option<Limited>,
}

/// What is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limited {
    /// The lower one of the limits.
    pub limit: u64,
    /// What of it is used.
    pub used: u64,
}

impl Limited {
    /// By a soft and a hard limit; 0 is none.
    pub fn by(limits: [u64; 2], used: u64) -> Option<Limited> {
        let limit = limits.into_iter().filter(|limit| *limit > 0).min()?;
        Some(Limited { limit, used })
    }

    /// What is left.
    pub fn rest(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}
