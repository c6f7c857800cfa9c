//! The allocator under many threads.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Barrier;

use finefs_namespace::{BlockNo, BlockRun, Error, Goal, LogicalBlock};

use super::bits::Bits;
use super::{Allocator, BitmapSource, GroupCounts, Layout};

const GROUPS: u32 = 8;
const BLOCKS: u32 = 512;
const INODES: u32 = 64;

/// Every group has its first ten blocks in use; one group's bitmap is damaged; an inode of one is
/// in use, though it is called free.
#[derive(Default)]
struct Source {
    damaged: Option<u32>,
    in_use: Option<(u32, u32)>,
}

impl BitmapSource for Source {
    fn describe(&self) -> String {
        "a test".to_owned()
    }

    fn repairer(&self) -> &'static str {
        "nobody"
    }

    fn run_max(&self) -> u64 {
        u64::MAX
    }

    fn block_bits(&self, group: u32) -> Result<Bits, Error> {
        if self.damaged == Some(group) {
            return Err(Error::corrupt("checksum"));
        }
        let mut bits = Bits::all_free(BLOCKS);
        bits.set_range(0, 10);
        Ok(bits)
    }

    fn inode_bits(&self, group: u32) -> Result<Bits, Error> {
        if self.damaged == Some(group) {
            return Err(Error::corrupt("checksum"));
        }
        Ok(Bits::all_free(INODES))
    }

    fn check_inodes(
        &self,
        group: u32,
        indices: Range<u32>,
        is_free: &dyn Fn(u32) -> bool,
    ) -> Result<(), Error> {
        match self.in_use {
            Some((at, index)) if at == group && indices.contains(&index) && is_free(index) => {
                Err(Error::corrupt("in use"))
            }
            _ => Ok(()),
        }
    }
}

fn allocator(reserved_for_root: u64) -> Allocator {
    allocator_of(GROUPS, reserved_for_root)
}

fn allocator_of(groups: u32, reserved_for_root: u64) -> Allocator {
    let layout = Layout {
        first_data_block: 1,
        blocks: u64::from(groups * BLOCKS) + 1,
        blocks_per_group: BLOCKS,
        cluster_bits: 0,
        inodes_per_group: INODES,
        inodes_per_block: 16,
        groups_per_flex: 4,
        reserved_for_root,
        run_max: u64::MAX,
    };
    let counts = GroupCounts {
        free_blocks: BLOCKS - 10,
        free_inodes: INODES,
        directories: 0,
    };
    Allocator::new(layout, &vec![counts; groups as usize])
}

/// Of a file that is small.
fn goal(block: u64) -> Option<Goal> {
    Some(Goal {
        block: BlockNo(block),
        logical: LogicalBlock(0),
    })
}

fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(1);
    super::mix(*seed)
}

#[test]
fn no_block_is_given_twice() {
    let source = Source::default();
    let allocator = allocator(0);
    let (free, _) = allocator.free_counts();
    let barrier = Barrier::new(4);
    let held: Vec<Vec<BlockRun>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (allocator, source, barrier) = (&allocator, &source, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let mut seed = thread << 32;
                    let mut held: Vec<BlockRun> = Vec::new();
                    for _ in 0..20_000 {
                        if next(&mut seed) % 5 < 3 {
                            let goal = (next(&mut seed).is_multiple_of(2))
                                .then(|| 1 + next(&mut seed) % u64::from(GROUPS * BLOCKS))
                                .and_then(goal);
                            let group = (next(&mut seed) % u64::from(GROUPS)) as u32;
                            let count = 1 + next(&mut seed) % 40;
                            match allocator.allocate_data(source, group, goal, count) {
                                Ok(run) => held.push(run),
                                Err(error) => assert_eq!(error, Error::NoSpace),
                            }
                        } else if !held.is_empty() {
                            let at = next(&mut seed) as usize % held.len();
                            allocator.release_blocks(source, held.swap_remove(at));
                        }
                    }
                    held
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut seen = HashSet::new();
    for run in held.iter().flatten() {
        for block in run.start.0..run.start.0 + run.length {
            assert!(seen.insert(block), "block {block} was given twice");
            assert!(
                (block - 1) % u64::from(BLOCKS) >= 10,
                "block {block} is metadata"
            );
        }
    }
    let (now, _) = allocator.free_counts();
    assert_eq!(now + seen.len() as u64, free);
    for run in held.into_iter().flatten() {
        allocator.release_blocks(&source, run);
    }
    assert_eq!(allocator.free_counts().0, free);
}

/// A thread that has a claim finds its block: all threads together get every block there is.
#[test]
fn the_last_block_is_found() {
    let source = Source::default();
    let allocator = allocator(0);
    let available = allocator
        .free_counts()
        .0
        .saturating_sub(allocator.kept_back());
    let got: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u32)
            .map(|thread| {
                let (allocator, source) = (&allocator, &source);
                scope.spawn(move || {
                    let mut got = 0;
                    while let Ok(run) = allocator.allocate_data(source, thread * 2, None, 3) {
                        got += run.length;
                    }
                    got
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(got, available);
    assert!(allocator.free_counts().0 <= allocator.kept_back());
}

#[test]
fn no_inode_is_given_twice() {
    let source = Source::default();
    let allocator = allocator(0);
    let all: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u32)
            .map(|thread| {
                let (allocator, source) = (&allocator, &source);
                scope.spawn(move || {
                    let mut held = Vec::new();
                    let mut seed = u64::from(thread);
                    while let Ok((ino, _)) = allocator.allocate_inode_number(
                        source,
                        next(&mut seed) as u32 % GROUPS,
                        next(&mut seed).is_multiple_of(3),
                        next(&mut seed).is_multiple_of(2),
                    ) {
                        if next(&mut seed).is_multiple_of(4) {
                            allocator.release_inode_number(source, ino, false);
                        } else {
                            held.push(ino);
                        }
                    }
                    held
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let distinct: HashSet<u32> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len());
    assert_eq!(
        all.len() as u32 + allocator.free_counts().1 as u32,
        GROUPS * INODES
    );
    assert!(
        distinct
            .iter()
            .all(|ino| (1..=GROUPS * INODES).contains(ino))
    );
}

#[test]
fn a_damaged_group_gives_nothing() {
    let source = Source {
        damaged: Some(2),
        ..Source::default()
    };
    let allocator = allocator(0);
    let start = 1 + 2 * u64::from(BLOCKS);
    let run = allocator
        .allocate_data(&source, 2, goal(start + 50), 5)
        .unwrap();
    assert!(run.start.0 >= start + u64::from(BLOCKS), "{run:?}");
    assert!(allocator.take_damage().is_some());
    assert!(allocator.take_damage().is_none());
    assert!(allocator.damage().is_some());
    // Its blocks are no longer counted.
    let usable = u64::from((GROUPS - 1) * (BLOCKS - 10)) - run.length;
    assert_eq!(allocator.free_counts().0, usable);
    allocator.release_blocks(&source, run);
    let inside = BlockRun {
        start: finefs_namespace::BlockNo(start + 100),
        length: 3,
    };
    allocator.release_blocks(&source, inside);
    assert_eq!(allocator.free_counts().0, usable + run.length);
    let (ino, _) = allocator
        .allocate_inode_number(&source, 2, false, false)
        .unwrap();
    assert_ne!((ino - 1) / INODES, 2);
}

/// What was promised while nobody had looked at the damaged group is there all the same.
#[test]
fn a_promise_is_kept_by_sound_groups() {
    let source = Source {
        damaged: Some(0),
        ..Source::default()
    };
    let allocator = allocator(0);
    let mut promised = 0;
    while allocator.reserve(&source, 1) {
        promised += 1;
    }
    let pool = super::counter::pool_blocks(u64::from(GROUPS * BLOCKS) + 1);
    assert_eq!(promised, u64::from((GROUPS - 1) * (BLOCKS - 10)) - pool);
    let taken: HashSet<u64> = (0..promised)
        .map(|_| allocator.take_reserved(&source, 1).unwrap())
        .collect();
    assert_eq!(taken.len() as u64, promised);
}

/// A thread that comes while others look at the bitmaps finds what they find.
#[test]
fn the_first_threads_all_find_space() {
    const THREADS: usize = 4;
    let source = Source::default();
    for _ in 0..2000 {
        let allocator = allocator_of(1, 0);
        let start = Barrier::new(THREADS);
        let wants = |thread: usize| {
            start.wait();
            match thread % 2 {
                0 => allocator.reserve(&source, 1),
                _ => allocator.allocate_data(&source, 0, None, 1).is_ok(),
            }
        };
        let found = std::thread::scope(|scope| {
            let wants = &wants;
            let threads = [0, 1, 2, 3].map(|thread| scope.spawn(move || wants(thread)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(found, [true; THREADS]);
    }
}

/// A number that the bitmap calls free wrongly is given to nobody, nor is any other of its group.
#[test]
fn an_inode_in_use_is_not_given_out() {
    let source = Source {
        in_use: Some((3, 20)),
        ..Source::default()
    };
    let allocator = allocator(0);
    // The block before the one with the inode in use is sound.
    for _ in 0..16 {
        let (ino, _) = allocator
            .allocate_inode_number(&source, 3, false, false)
            .unwrap();
        assert_eq!((ino - 1) / INODES, 3);
    }
    let mut given = 16;
    while let Ok((ino, _)) = allocator.allocate_inode_number(&source, 3, false, false) {
        assert_ne!((ino - 1) / INODES, 3);
        given += 1;
    }
    assert_eq!(given, 16 + (GROUPS - 1) * INODES);
    assert!(allocator.take_damage().is_some());
}

#[test]
fn files_stay_near_and_directories_spread() {
    let source = Source::default();
    let allocator = allocator(0);
    let (file, _) = allocator
        .allocate_inode_number(&source, 3, false, false)
        .unwrap();
    assert_eq!(file, 3 * INODES + 1);
    let (below, _) = allocator
        .allocate_inode_number(&source, 3, true, false)
        .unwrap();
    assert_eq!((below - 1) / INODES, 3);
    let groups: HashSet<u32> = (0..40)
        .map(|_| {
            allocator
                .allocate_inode_number(&source, 0, true, true)
                .unwrap()
                .0
        })
        .map(|ino| (ino - 1) / INODES / 4)
        .collect();
    assert_eq!(
        groups.len(),
        2,
        "directories of the root fill all flex groups"
    );
}

#[test]
fn goals_are_met() {
    let source = Source::default();
    let allocator = allocator(0);
    let first = allocator.allocate_data(&source, 0, goal(100), 20).unwrap();
    assert_eq!((first.start.0, first.length), (100, 20));
    // The next best place is right behind.
    let second = allocator.allocate_data(&source, 0, goal(105), 20).unwrap();
    assert_eq!((second.start.0, second.length), (120, 20));
    // More than a group has comes in pieces.
    let third = allocator
        .allocate_data(&source, 0, goal(1 + u64::from(BLOCKS) + 10), 10_000)
        .unwrap();
    assert_eq!(third.length, u64::from(BLOCKS) - 10);
}

/// Two files grow block by block, one begun right behind the other.
#[test]
fn files_that_grow_beside_each_other_get_runs() {
    let source = Source::default();
    let allocator = allocator(0);
    let mut ends = [None::<u64>; 2];
    let mut runs = [0; 2];
    for logical in (0..200).map(LogicalBlock) {
        for (end, runs) in ends.iter_mut().zip(&mut runs) {
            let goal = end.map(|end| Goal {
                block: BlockNo(end),
                logical,
            });
            let run = allocator.allocate_data(&source, 0, goal, 1).unwrap();
            *runs += u32::from(*end != Some(run.start.0));
            *end = Some(run.start.0 + 1);
        }
    }
    // 16 blocks, some chunks of 16, 32 and 64, and one of 128.
    assert!(runs.iter().all(|runs| *runs < 30), "{runs:?}");
}

#[test]
fn data_leaves_the_reserve() {
    let source = Source::default();
    let allocator = allocator(300);
    let mut got = 0;
    while let Ok(run) = allocator.allocate_data(&source, 0, None, 64) {
        got += run.length;
    }
    let (free, _) = allocator.free_counts();
    let available = free.saturating_sub(allocator.kept_back());
    assert_eq!(available, 0);
    assert_eq!(got + free, u64::from(GROUPS * (BLOCKS - 10)));
    // Metadata may have the superuser's share, but not the pool.
    assert!(allocator.reserve(&source, 300));
    assert!(!allocator.reserve(&source, 1));
    assert!(allocator.extend_reservation(&source));
    assert!(allocator.take_reserved(&source, 5).is_some());
}
