//! What the file system itself takes, and what hangs on the superblock alone.

use std::time::{SystemTime, UNIX_EPOCH};

use finefs_ext::MmpState;
use finefs_ext_disk::features::{Compat, Incompat, RoCompat};
use finefs_ext_disk::inode::FileKind;
use finefs_ext_disk::jbd2::JournalSuperblock;
use finefs_ext_disk::superblock::{SUPERBLOCK_SIZE, State, Superblock};
use finefs_ext_disk::{GroupNo, Ino, LogicalBlock};

use super::Check;
use crate::finding::{Findings, Object, Problem};
use crate::fs::{Fs, short};
use crate::walk::{self, Sink};

/// Claims what belongs to nobody, and checks it.
pub(super) fn check(check: &Check, found: &mut Findings) {
    let fs = &check.fs;
    claim_groups(check, found);
    superblock(fs, found);
    backup(fs, found);
    resize_inode(fs, found);
    journal(fs, found);
    mmp(fs, found);
}

fn claim_groups(check: &Check, found: &mut Findings) {
    let (fs, geo) = (&check.fs, &check.fs.geo);
    for (number, group) in (0..).zip(&fs.groups) {
        // With clusters block 0 is one of them; with blocks of 1 KiB it lies before the superblock.
        let first = match number {
            0 => geo.super_block().0,
            _ => geo.group_first_block(GroupNo(number)).0,
        };
        let base = geo.group_base_blocks(GroupNo(number));
        let base = base.min(geo.group_blocks(GroupNo(number)));
        if base > 0 {
            check.claim_again(first, u64::from(base));
        }
        let mut place = |what: &str, block: u64, length: u64| {
            if block == 0 {
                return;
            }
            let is_taken = check.claim_again(block, length);
            if is_taken && check.cluster_bits == 0 {
                let object = Object::group(number).block(block);
                let what = format_args!("{what} lies on other metadata");
                found.add(Problem::GroupPlace, object, what);
            }
        };
        let table = u64::from(geo.inode_table_blocks);
        place("inode table", group.inode_table, table);
        place("block bitmap", group.block_bitmap, 1);
        place("inode bitmap", group.inode_bitmap, 1);
    }
    check.claim_again(geo.super_block().0, 1);
    let mmp = fs.sb.mmp_block();
    if fs.needs(Incompat::MMP) && geo.contains_block(finefs_ext_disk::PhysBlock(mmp)) && mmp > 0 {
        check.claim_again(mmp, 1);
    }
}

fn superblock(fs: &Fs, found: &mut Findings) {
    let sb = &fs.sb;
    let mut wrong = |problem, what: String| found.add(problem, Object::whole(), what);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(u64::MAX, |since| since.as_secs());
    for (what, time) in [("mounted", sb.mount_time()), ("written", sb.write_time())] {
        if time > now {
            wrong(
                Problem::SuperblockTime,
                format!("superblock: last {what} in the future"),
            );
        }
    }
    if sb.state().contains(State::ERROR) {
        let what = "marked as having errors".to_owned();
        wrong(Problem::ErrorsNoted, what);
    }
    // A journal that must be replayed says the same.
    if !sb.state().contains(State::VALID) && !fs.is_replayed {
        let what = "was not unmounted cleanly".to_owned();
        wrong(Problem::NotClean, what);
    }
    if sb.reserved_blocks_count() > fs.geo.blocks_count / 2 {
        let what = "superblock: more than half of the blocks are reserved".to_owned();
        wrong(Problem::Superblock, what);
    }
    let extra_max = fs.geo.inode_size.saturating_sub(128);
    for size in [sb.min_extra_isize(), sb.want_extra_isize()] {
        let is_bad = size != 0 && (size < 4 || size > extra_max || size & 3 != 0);
        if is_bad && extra_max > 0 {
            let what = format!("superblock: {size} bytes of extra fields in inodes");
            wrong(Problem::Superblock, what);
        }
    }
    if !fs.has(Compat::RESIZE_INODE) && sb.reserved_gdt_blocks() != 0 {
        let what = "superblock: reserved descriptor blocks without resize_inode".to_owned();
        wrong(Problem::Superblock, what);
    }
    let quotas = [
        sb.usr_quota_inum(),
        sb.grp_quota_inum(),
        sb.prj_quota_inum(),
    ];
    if fs.has_ro(RoCompat::QUOTA) {
        for ino in quotas.into_iter().filter(|ino| *ino > fs.geo.inodes_count) {
            wrong(
                Problem::Quota,
                format!("quota inode {ino}, which cannot be"),
            );
        }
    }
    if fs.has_ro(RoCompat::ORPHAN_PRESENT) && !fs.has(Compat::ORPHAN_FILE) {
        let what = "orphan_present without orphan_file".to_owned();
        wrong(Problem::Features, what);
    }
}

/// Looks at the block of multiple mount protection. Who has the file system is no matter of this.
fn mmp(fs: &Fs, found: &mut Findings) {
    if !fs.needs(Incompat::MMP) {
        return;
    }
    let number = fs.sb.mmp_block();
    if number <= u64::from(fs.geo.first_data_block) || number >= fs.geo.blocks_count {
        let what = format!("superblock: MMP block {number}, which cannot be");
        return found.add(Problem::Superblock, Object::whole(), what);
    }
    match MmpState::of(&fs.source.device) {
        Ok(Some(MmpState::Damaged(what))) => found.add(Problem::Mmp, Object::whole(), what),
        Ok(_) => {}
        Err(error) => found.add(Problem::Io, Object::whole().block(number), error),
    }
}

/// Looks at the first backup superblock, as e2fsck does when it has found nothing wrong.
fn backup(fs: &Fs, found: &mut Findings) {
    let Some(group) = fs.geo.backup_groups().next() else {
        return;
    };
    let at = fs.geo.group_first_block(group).0 * u64::from(fs.geo.block_size);
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let Ok(copy) = (match fs.source.read_at(at, &mut bytes) {
        Ok(()) => Superblock::parse(&bytes).map_err(|error| short(&error)),
        Err(error) => Err(error.to_string()),
    }) else {
        let what = "the backup superblock is none";
        return found.add(Problem::Backup, Object::group(group.0), what);
    };
    let large = Incompat::EXTENTS | Incompat::NEEDS_RECOVERY | Incompat::CSUM_SEED;
    let lazy = RoCompat::LARGE_FILE | RoCompat::DIR_NLINK | RoCompat::ORPHAN_PRESENT;
    let is_same = copy.compat() == fs.sb.compat()
        && copy.incompat() - large == fs.sb.incompat() - large
        && copy.ro_compat() - lazy == fs.sb.ro_compat() - lazy
        && copy.blocks_count() == fs.sb.blocks_count()
        && copy.inodes_count() == fs.sb.inodes_count()
        && copy.uuid() == fs.sb.uuid();
    if !is_same {
        let what = "the backup superblock differs in features, sizes or UUID";
        found.add(Problem::Backup, Object::group(group.0), what);
    }
}

/// The inode that holds the blocks which the descriptor table may grow into.
fn resize_inode(fs: &Fs, found: &mut Findings) {
    const DOUBLE: usize = 13;
    let Some(inode) = fs.inode(Ino::RESIZE.0, found) else {
        return;
    };
    let words = inode.block_words();
    let object = || Object::inode(Ino::RESIZE.0);
    let others = words
        .iter()
        .enumerate()
        .any(|(i, w)| i != DOUBLE && *w != 0);
    if !fs.has(Compat::RESIZE_INODE) {
        if others || words[DOUBLE] != 0 {
            let what = "resize inode with blocks, without resize_inode";
            found.add(Problem::ResizeInode, object(), what);
        }
        return;
    }
    let double = u64::from(words[DOUBLE]);
    let is_file = inode.kind() == Some(FileKind::Regular);
    let mut is_good = !others
        && inode.links_count() > 0
        && is_file
        && double != 0
        && fs.geo.contains_block(finefs_ext_disk::PhysBlock(double));
    if is_good {
        is_good = are_reserved(fs, double, found);
    }
    if !is_good {
        let what = "resize inode does not map the reserved descriptor blocks";
        found.add(Problem::ResizeInode, object(), what);
    }
}

fn are_reserved(fs: &Fs, double: u64, found: &mut Findings) -> bool {
    let geo = &fs.geo;
    let (mut table, mut copies) = (fs.block_buffer(), fs.block_buffer());
    if !fs.read_block(double, &mut table, found) {
        return false;
    }
    let per_block = geo.block_size / 4;
    let first = geo.super_block().0 + 1 + u64::from(geo.desc_blocks);
    let backups: Vec<GroupNo> = geo.backup_groups().take(per_block as usize).collect();
    // As many as e2fsck looks at.
    (0..geo.reserved_gdt_blocks / 4).all(|index| {
        let block = first + u64::from(index);
        let at = (geo.desc_blocks + index) % per_block;
        finefs_ext_disk::indirect::pointer(&table, at).0 == block
            && fs.read_block(block, &mut copies, found)
            && (0..).zip(&backups).all(|(at, group)| {
                let expected = block + u64::from(group.0) * u64::from(geo.blocks_per_group);
                finefs_ext_disk::indirect::pointer(&copies, at).0 == expected
            })
    })
}

/// Finds the journal's blocks.
#[derive(Default)]
struct Runs {
    first: u64,
    blocks: u64,
    is_gapless: bool,
    next: LogicalBlock,
}

impl Sink for Runs {
    fn data(&mut self, logical: LogicalBlock, physical: u64, length: u64) {
        if logical == LogicalBlock(0) {
            self.first = physical;
            self.is_gapless = true;
        }
        self.is_gapless &= logical == self.next;
        self.next = logical + length;
        self.blocks += length;
    }

    fn node(&mut self, _: u64) -> bool {
        true
    }
}

fn journal(fs: &Fs, found: &mut Findings) {
    let sb = &fs.sb;
    let number = sb.journal_inum();
    if !fs.has(Compat::HAS_JOURNAL) {
        if fs.needs(Incompat::NEEDS_RECOVERY) || number != 0 || sb.journal_dev() != 0 {
            let what = "a journal is named, without has_journal";
            found.add(Problem::Journal, Object::whole(), what);
        }
        return;
    }
    if number == 0 {
        if sb.journal_dev() == 0 && sb.journal_uuid() == [0; 16] {
            found.add(Problem::Journal, Object::whole(), "has_journal, but none");
        }
        return;
    }
    let object = Object::inode(number);
    let mut wrong = |what: String| found.add(Problem::Journal, object.clone(), what);
    let mut own = Findings::default();
    let inode = match fs.inode(number, &mut own) {
        Some(inode) if inode.kind() == Some(FileKind::Regular) && inode.links_count() > 0 => inode,
        _ => return wrong("the journal's inode is no file".to_owned()),
    };
    let mut runs = Runs::default();
    let walked = walk::walk(fs, number, &inode, &mut runs, &mut own);
    let mut block = fs.block_buffer();
    if runs.first == 0 || !fs.read_block(runs.first, &mut block, &mut own) {
        return wrong("the journal has no first block".to_owned());
    }
    let size = inode.size(&fs.rules) / u64::from(fs.geo.block_size);
    if !runs.is_gapless || walked.end < size || size < 1024 {
        let what = format!("the journal has {} blocks of {size}", runs.blocks);
        wrong(what);
    }
    let journal = match JournalSuperblock::parse(&block) {
        Ok(journal) => journal,
        Err(error) => return wrong(format!("journal superblock: {}", short(&error))),
    };
    let is_v1_with_more = !journal.is_v2() && block[0x24..0x44].iter().any(|byte| *byte != 0);
    if is_v1_with_more || journal.is_v2() && journal.nr_users() > 1 {
        wrong("journal superblock: fields of another version, or more than one user".to_owned());
    }
    if let Err(error) = journal.validate(fs.geo.block_size, size) {
        return wrong(format!("journal superblock: {}", short(&error)));
    }
    if journal.start() != 0 && !fs.is_replayed {
        let what = "the journal holds transactions, but is not marked as needing a replay";
        found.add(Problem::JournalLog, object, what);
    }
}
