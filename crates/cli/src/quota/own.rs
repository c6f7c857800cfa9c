//! What users see of quotas in another's mount: their own accounts, and those of their groups.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use finefs::front_end::namespace::{QuotaAccount, QuotaOwners};
use finefs_ext::{QuotaEntry, QuotaInfo, QuotaKind, QuotaReport};
use finefs_fuse::MountPoint;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};

/// True for users to whom the server of this mount does not listen.
pub(super) fn must_ask(mount: &MountPoint) -> bool {
    let me = geteuid();
    !me.is_root() && mount.owner.is_some_and(|owner| owner != me.as_raw())
}

/// One report for each kind that is kept. The error is the reason, for the user.
pub(super) fn reports(directory: &Path) -> Result<Vec<QuotaReport>, String> {
    // Accounts are as the last commit left them.
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| error.to_string())?;
    let groups = getgroups().map_err(|error| error.to_string())?;
    let groups = groups.into_iter().chain([getegid()]);
    let groups: BTreeSet<u32> = groups.map(|group| group.as_raw()).collect();
    let user = BTreeSet::from([geteuid().as_raw()]);
    let mut reports = Vec::new();
    for (kind, owners, ids) in [
        (QuotaKind::User, QuotaOwners::Users, user),
        (QuotaKind::Group, QuotaOwners::Groups, groups),
    ] {
        let accounts = ids.into_iter().map(|id| {
            let account = finefs_fuse::quota_of(directory, owners, id)?;
            Ok((id, account))
        });
        match accounts.collect::<Result<Vec<_>, Errno>>() {
            Ok(accounts) => reports.push(report(kind, &accounts)),
            Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(reports)
}

fn report(kind: QuotaKind, accounts: &[(u32, QuotaAccount)]) -> QuotaReport {
    let grace = accounts.first().map(|(_, account)| account);
    QuotaReport {
        kind,
        info: QuotaInfo {
            space_grace: grace.map_or(0, |account| account.space_grace_seconds),
            inode_grace: grace.map_or(0, |account| account.inode_grace_seconds),
            ..QuotaInfo::default()
        },
        entries: accounts.iter().map(entry).collect(),
    }
}

fn entry((id, account): &(u32, QuotaAccount)) -> QuotaEntry {
    QuotaEntry {
        id: *id,
        inodes_hard: account.limits.inodes_hard,
        inodes_soft: account.limits.inodes_soft,
        inodes: account.inodes,
        space_hard: account.limits.space_hard_bytes / 1024,
        space_soft: account.limits.space_soft_bytes / 1024,
        space_bytes: account.space_bytes,
        space_until: account.space_until_seconds,
        inodes_until: account.inodes_until_seconds,
    }
}
