//! Passes 3 and 4: every directory hangs on the root; every inode has as many links as it says.

use std::sync::atomic::Ordering::Relaxed;

use finefs_ext_disk::Ino;
use finefs_ext_disk::features::RoCompat;
use finefs_ext_disk::inode::LINKS_MAX;

use super::Check;
use crate::finding::{Findings, Object, Problem};
use crate::tables::{Dir, state};

const DIRECTORY: u8 = 4;

/// Runs both.
pub(super) fn check(check: &Check, found: &mut Findings) {
    connected(check, found);
    let states = check.share(check.fs.groups.len(), Findings::default, |found, group| {
        let per_group = check.fs.geo.inodes_per_group;
        let first = group as u32 * per_group + 1;
        for ino in first..first + per_group {
            links(check, ino, found);
        }
    });
    for state in states {
        found.append(state);
    }
}

fn connected(check: &Check, found: &mut Findings) {
    let root = Ino::ROOT.0;
    if check.dirs.get(root).is_none() {
        let what = "there is no root directory";
        found.add(Problem::Root, Object::inode(root), what);
    }
    let list = &check.dirs.list;
    let at = |ino: u32| list.binary_search_by_key(&ino, |dir| dir.ino).ok();
    let mut is_done = vec![false; list.len()];
    if let Some(root) = at(root) {
        is_done[root] = true;
    }
    for start in 0..list.len() {
        let mut walked = start;
        let mut path = Vec::new();
        while !is_done[walked] {
            is_done[walked] = true;
            path.push(walked);
            let parent = list[walked].parent.load(Relaxed);
            match at(parent) {
                None => {
                    let object = Object::inode(list[walked].ino);
                    found.add(Problem::Disconnected, object, "no directory holds it");
                    break;
                }
                Some(next) if is_done[next] && path.contains(&next) => {
                    let object = Object::inode(list[walked].ino);
                    let what = "it lies below itself";
                    found.add(Problem::DirectoryLinked, object, what);
                    break;
                }
                Some(next) => walked = next,
            }
        }
        dotdot(&list[start], found);
    }
}

fn dotdot(dir: &Dir, found: &mut Findings) {
    let (said, parent) = (dir.dotdot.load(Relaxed), dir.parent.load(Relaxed));
    if said != parent && parent != 0 {
        let what = format!("'..' is {said}, should be {parent}");
        let object = Object::inode(dir.ino);
        found.add_with(Problem::DotDot, object, what, u64::from(parent));
    }
}

fn links(check: &Check, ino: u32, found: &mut Findings) {
    let (fs, inodes) = (&check.fs, &check.inodes);
    let is_reserved = ino != Ino::ROOT.0 && ino < fs.geo.first_ino.0;
    let is_own = ino == fs.sb.prj_quota_inum() || ino == fs.sb.orphan_file_inum();
    if is_reserved || is_own || !check.is_used(ino) {
        return;
    }
    let is_dir = inodes.kind(ino) == DIRECTORY;
    let (stored, mut counted) = (u32::from(inodes.links(ino)), inodes.counted(ino));
    if counted == 0 && inodes.is(ino, state::EA) && inodes.is(ino, state::EA_REFERENCED) {
        counted = 1;
    }
    let is_quota = ino == fs.sb.usr_quota_inum() || ino == fs.sb.grp_quota_inum();
    if counted == 0 && !is_quota {
        let what = "in use, but no directory holds it";
        return found.add(Problem::Unattached, Object::inode(ino), what);
    }
    if is_dir && counted > u32::from(LINKS_MAX) {
        if !fs.has_ro(RoCompat::DIR_NLINK) {
            let what = "too many links for an image without dir_nlink";
            found.add(Problem::Features, Object::inode(ino), what);
        }
        counted = 1;
    }
    // A directory that once had too many links to count them.
    let is_uncounted = is_dir && stored == 1 && counted > 1 && inodes.is(ino, state::INDEXED);
    if counted != stored && !is_uncounted {
        let what = format!("has {counted} links, says {stored}");
        let object = Object::inode(ino);
        found.add_with(Problem::LinkCount, object, what, u64::from(counted));
    }
}
