//! What users, groups and projects have, as counted in pass 1, and what the quota files say of it.

use std::collections::BTreeMap;

use finefs_ext_disk::Ino;
use finefs_ext_disk::features::RoCompat;
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::quota::{BLOCK_SIZE, PlacedEntry, QuotaInfo, QuotaKind, TreeError, entries};

use super::{Check, Runs};
use crate::finding::{Findings, Object, Problem};
use crate::fs::Fs;
use crate::walk::walk;

/// What an id has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub bytes: u64,
    pub inodes: u64,
}

/// What the ids of each kind have: users, groups, projects.
#[derive(Default)]
pub(crate) struct Usage {
    by_id: [BTreeMap<u32, Held>; 3],
}

impl Usage {
    /// Counts an inode, unless it is one that quotas leave out. Values of attributes that lie in
    /// inodes count for each inode that has the attribute, as one inode each.
    pub fn count(&mut self, fs: &Fs, ino: u32, inode: &Inode<Vec<u8>>, more: Held) {
        let is_counted = fs.has_ro(RoCompat::QUOTA)
            && (ino == Ino::ROOT.0 || ino >= fs.geo.first_ino.0)
            && !fs.is_own_file(ino)
            && !inode.flags().contains(InodeFlags::EA_INODE);
        if !is_counted {
            return;
        }
        let ids = [inode.uid(), inode.gid(), inode.project().unwrap_or(0)];
        for (held, id) in self.by_id.iter_mut().zip(ids) {
            let held = held.entry(id).or_default();
            held.bytes += more.bytes;
            held.inodes += more.inodes;
        }
    }

    pub fn absorb(&mut self, other: Usage) {
        for (held, others) in self.by_id.iter_mut().zip(other.by_id) {
            for (id, more) in others {
                let held = held.entry(id).or_default();
                held.bytes += more.bytes;
                held.inodes += more.inodes;
            }
        }
    }

    /// What the ids of a kind have.
    pub fn of(&self, kind: QuotaKind) -> &BTreeMap<u32, Held> {
        let [users, groups, projects] = &self.by_id;
        match kind {
            QuotaKind::User => users,
            QuotaKind::Group => groups,
            QuotaKind::Project => projects,
        }
    }
}

/// Compares the quota files with what was counted. Not where orphans wait to be removed: they count
/// until then.
pub(super) fn check(check: &Check, found: &mut Findings) {
    let fs = &check.fs;
    if found.has_any(&[Problem::Orphans, Problem::OrphansPending]) {
        return;
    }
    let files = [
        (QuotaKind::User, fs.sb.usr_quota_inum()),
        (QuotaKind::Group, fs.sb.grp_quota_inum()),
        (QuotaKind::Project, fs.sb.prj_quota_inum()),
    ];
    let files = files.into_iter().filter(|(_, ino)| *ino != 0);
    for (kind, ino) in files.filter(|_| fs.has_ro(RoCompat::QUOTA)) {
        match read(fs, kind, ino) {
            Ok(entries) => compare(kind, &entries, check.usage.of(kind), found),
            Err(what) => found.add(Problem::Quota, Object::inode(ino), what),
        }
    }
}

fn compare(
    kind: QuotaKind,
    entries: &[PlacedEntry],
    usage: &BTreeMap<u32, Held>,
    found: &mut Findings,
) {
    let mut said: BTreeMap<u32, Held> = BTreeMap::new();
    for (entry, _) in entries {
        let (bytes, inodes) = (entry.space_bytes, entry.inodes);
        said.insert(entry.id, Held { bytes, inodes });
    }
    let name = match kind {
        QuotaKind::User => "user",
        QuotaKind::Group => "group",
        QuotaKind::Project => "project",
    };
    let ids = usage
        .keys()
        .chain(said.keys().filter(|id| !usage.contains_key(id)));
    for id in ids {
        let held = usage.get(id).copied().unwrap_or_default();
        let what = match said.get(id) {
            Some(said) if *said == held => continue,
            Some(said) => format!("says {} bytes, {} inodes", said.bytes, said.inodes),
            None => "has no entry".to_owned(),
        };
        let what = format!(
            "quota of {name} {id}: {what}; counted {} bytes, {} inodes",
            held.bytes, held.inodes
        );
        found.add(Problem::QuotaUsage, Object::whole(), what);
    }
}

/// All entries of a quota file, or why it cannot be read.
fn read(fs: &Fs, kind: QuotaKind, ino: u32) -> Result<Vec<PlacedEntry>, String> {
    // What is wrong with the map was told in pass 1.
    let told = &mut Findings::default();
    let inode = fs.inode(ino, told).ok_or("quota file: no such inode")?;
    let mut runs = Runs::default();
    walk(fs, ino, &inode, &mut runs, told);
    let block_bytes = u64::from(fs.geo.block_size);
    let piece = |number: u32| -> Result<Vec<u8>, String> {
        let at = u64::from(number) * BLOCK_SIZE as u64;
        let block = runs.0.iter().find_map(|(logical, start, length)| {
            let offset = (at / block_bytes).checked_sub(logical.0)?;
            (offset < *length).then_some(start + offset)
        });
        let block = block.ok_or_else(|| format!("quota file: block {number} is missing"))?;
        let mut bytes = vec![0; BLOCK_SIZE];
        let place = block * block_bytes + at % block_bytes;
        match fs.source.read_at(place, &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(format!("quota file: reading block {number}: {error}")),
        }
    };
    let info = QuotaInfo::parse(&piece(0)?, kind).ok_or("quota file: of another kind, or none")?;
    entries(info.blocks, piece).map_err(|error| match error {
        TreeError::Read(what) => what,
        TreeError::Block(number) => format!("quota file: refers to block {number}"),
        TreeError::Twice(id) => format!("quota file: two entries of id {id}"),
    })
}
