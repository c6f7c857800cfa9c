//! What a server, or this process for an image that nobody has open, sets of quotas.

use finefs::front_end::namespace::{
    Caller, Error, Namespace, QuotaChange, QuotaLimits, QuotaOwners,
};
use serde::{Deserialize, Serialize};

/// Whose quotas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Owners {
    Users,
    Groups,
    Projects,
}

/// What is set. Space in bytes, times in seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setting {
    Limits {
        id: u32,
        space_soft: u64,
        space_hard: u64,
        inodes_soft: u64,
        inodes_hard: u64,
    },
    Grace {
        space: u32,
        inodes: u32,
    },
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub owners: Owners,
    pub setting: Setting,
}

impl Order {
    /// Carries it out; the error is a line for the user.
    pub(crate) fn apply(&self, namespace: &Namespace) -> Result<(), String> {
        let owners = match self.owners {
            Owners::Users => QuotaOwners::Users,
            Owners::Groups => QuotaOwners::Groups,
            Owners::Projects => QuotaOwners::Projects,
        };
        let change = match self.setting {
            Setting::Limits {
                id,
                space_soft,
                space_hard,
                inodes_soft,
                inodes_hard,
            } => QuotaChange::Limits {
                id,
                limits: QuotaLimits {
                    space_soft_bytes: space_soft,
                    space_hard_bytes: space_hard,
                    inodes_soft,
                    inodes_hard,
                },
            },
            Setting::Grace { space, inodes } => QuotaChange::Grace {
                space_seconds: space,
                inode_seconds: inodes,
            },
        };
        let done = namespace.set_quota(&Caller::root(), owners, &change);
        done.map_err(|error| match error {
            Error::NotSupported => "keeps no such quota; see tune2fs -O quota -Q".to_owned(),
            error => error.to_string(),
        })
    }
}
