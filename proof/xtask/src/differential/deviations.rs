//! Where finefs may differ from the kernel's ext4: one table, each row with its reason. Nothing
//! else may differ.

use super::clock::{Clock, Nanoseconds};
use super::look::{Attributes, Entry, Relation};
use super::operation::{NewTime, Operation, Step, Target, Whence, Who};
use super::outcome::{Outcome, Value};
use super::values::SECONDS;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One row.
pub struct Deviation {
    /// What differs.
    pub name: &'static str,
    /// Why it is no fault, or not yet.
    pub reason: &'static str,
    /// True of differences that the row is about.
    allows: fn(&Seen<'_>) -> bool,
    /// True of steps that are left out.
    avoids: fn(&Step) -> bool,
}

/// A difference.
enum Seen<'a> {
    /// Of one field of an inode.
    Field(&'a str, &'a Attributes, &'a Attributes, Relation<'a>),
    /// Of where a file has data.
    Holes(&'a Entry, &'a Entry),
    /// Of what an operation gives back.
    Outcome(&'a Step, &'a Outcome, &'a Outcome),
}

const fn differs(
    name: &'static str,
    reason: &'static str,
    allows: fn(&Seen<'_>) -> bool,
) -> Deviation {
    Deviation {
        name,
        reason,
        allows,
        avoids: |_| false,
    }
}

const fn avoided(name: &'static str, reason: &'static str, avoids: fn(&Step) -> bool) -> Deviation {
    Deviation {
        name,
        reason,
        allows: |_| false,
        avoids,
    }
}

/// What may differ.
pub const TABLE: &[Deviation] = &[
    differs(
        "size and blocks of a directory",
        "finefs writes what is left at the commit, so names made and removed before never took room",
        |seen| match seen {
            Seen::Field("size" | "blocks", kernel, ..) => kernel.kind == FileType::Directory,
            _ => false,
        },
    ),
    differs(
        "access time of what the kernel's cache answers",
        "the kernel does not tell a FUSE server of reads, loads and maps that its cache answers, \
         nor of symbolic links that it follows",
        |seen| match seen {
            // Looking at a link is reading it.
            Seen::Field("atime", kernel, _, Relation::Again) => kernel.kind == FileType::Symlink,
            Seen::Field("atime", kernel, finefs, Relation::Beside(clock)) => {
                use FileType::{Directory, RegularFile, Symlink};
                matches!(kernel.kind, RegularFile | Symlink | Directory)
                    && clock.is_recent(kernel.atime)
                    && may_lag(clock, kernel.atime, finefs.atime)
            }
            _ => false,
        },
    ),
    differs(
        "times of a named pipe",
        "the kernel does not tell a FUSE server of what goes through a pipe",
        |seen| match seen {
            Seen::Field("atime" | "mtime" | "ctime", kernel, ..) => kernel.kind == FileType::Fifo,
            _ => false,
        },
    ),
    differs(
        "data that is none",
        "where zeros of unwritten extents were read, the kernel's ext4 says data, since its cache has \
         pages there; finefs looks at the extents",
        |seen| match seen {
            Seen::Holes(kernel, finefs) => match (&kernel.holes, &finefs.holes) {
                (Ok(Value::Ranges(more)), Ok(Value::Ranges(less))) => {
                    are_within(less, more) && is_zero_outside(&finefs.contents, less)
                }
                // Its cache has a page of which only the first blocks are in the file: data is
                // found where the file has ended, and no hole after it.
                (Err(Errno::NXIO), Ok(_)) => true,
                _ => false,
            },
            Seen::Outcome(step, Ok(kernel), Ok(finefs)) => {
                match (&step.operation, kernel, finefs) {
                    (Operation::Holes { .. }, Value::Ranges(more), Value::Ranges(less)) => {
                        are_within(less, more)
                    }
                    (Operation::Seek { whence, .. }, Value::Number(a), Value::Number(b)) => {
                        match whence {
                            Whence::Data => a <= b,
                            Whence::Hole => a >= b,
                            _ => false,
                        }
                    }
                    _ => false,
                }
            }
            Seen::Outcome(step, Ok(_), Err(Errno::NXIO)) => {
                matches!(
                    step.operation,
                    Operation::Seek {
                        whence: Whence::Data,
                        ..
                    }
                )
            }
            Seen::Outcome(step, Err(Errno::NXIO), Ok(Value::Ranges(_))) => {
                matches!(step.operation, Operation::Holes { .. })
            }
            _ => false,
        },
    ),
    differs(
        "what is told first of what flags of directories forbid",
        "the kernel looks at the flags before all else on its own file systems; of those of a FUSE \
         server it does not know, and looks at modes and kinds before it asks",
        |seen| match seen {
            Seen::Outcome(_, Err(Errno::PERM), Err(told)) => {
                IS_LOCKED.load(Ordering::Relaxed)
                    && matches!(*told, Errno::ACCESS | Errno::ISDIR | Errno::NOTDIR)
            }
            _ => false,
        },
    ),
    differs(
        "blocks of metadata before a commit",
        "blocks for extent trees, block maps and extended attributes are taken at the commit",
        |seen| match seen {
            Seen::Field("blocks", one, other, _) => {
                !IS_SETTLED.load(Ordering::Relaxed) && one.blocks.abs_diff(other.blocks) <= 64
            }
            _ => false,
        },
    ),
    differs(
        "blocks of extent trees",
        "into how many extents a file is cut is the allocator's matter",
        |seen| match seen {
            Seen::Field("blocks", kernel, finefs, Relation::Beside(_)) => {
                HAS_EXTENTS.load(Ordering::Relaxed)
                    && kernel.kind == FileType::RegularFile
                    && kernel.blocks.abs_diff(finefs.blocks) <= 16
            }
            _ => false,
        },
    ),
    differs(
        "empty blocks of block maps",
        "either may leave a block of the map allocated when the last block below it is freed",
        |seen| match seen {
            Seen::Field("blocks", kernel, finefs, Relation::Beside(_)) => {
                !HAS_EXTENTS.load(Ordering::Relaxed)
                    && kernel.kind == FileType::RegularFile
                    && kernel.blocks.abs_diff(finefs.blocks) <= 64
            }
            _ => false,
        },
    ),
    differs(
        "O_DIRECT that is not aligned, where there is no data",
        "the kernel's ext4 looks at the alignment where it comes to a block; finefs before all",
        |seen| match seen {
            Seen::Outcome(step, Ok(_), Err(Errno::INVAL)) => match step.operation {
                Operation::Pread { offset, len, .. } => !(offset | len as u64).is_multiple_of(512),
                _ => false,
            },
            _ => false,
        },
    ),
    differs(
        "more extended attributes",
        "the kernel leaves each attribute in the inode or in the block, where it first came; finefs \
         writes all anew, so that some fit that the kernel refuses",
        |seen| match seen {
            Seen::Outcome(step, Err(Errno::NOSPC), Ok(Value::Done)) => {
                matches!(step.operation, Operation::SetXattr { .. })
            }
            _ => false,
        },
    ),
    differs(
        "st_blksize",
        "64 KiB: with it programs that copy ask for as much at once as a request is worth",
        |seen| matches!(seen, Seen::Field("blksize", ..)),
    ),
    differs(
        "SEEK_HOLE in a directory",
        "the kernel answers for FUSE from the directory's size, for ext4 from its hashes",
        |seen| match seen {
            Seen::Outcome(step, Ok(Value::Number(end)), Err(Errno::NXIO)) => {
                matches!(
                    step.operation,
                    Operation::Seek {
                        whence: Whence::Hole,
                        ..
                    }
                ) && *end >= 0x7fff_ffff
            }
            _ => false,
        },
    ),
    differs(
        "seeking beyond the largest file",
        "for FUSE the kernel's limit is that of the type",
        |seen| match seen {
            Seen::Outcome(step, Err(Errno::INVAL), Ok(Value::Number(to))) => {
                matches!(step.operation, Operation::Seek { .. }) && *to > 1 << 40
            }
            _ => false,
        },
    ),
    differs(
        "copy_file_range of nothing to beyond the largest file",
        "for FUSE the kernel's limit is that of the type, and nothing is not sent to the server",
        |seen| match seen {
            Seen::Outcome(step, Err(Errno::FBIG), Ok(Value::Number(0))) => {
                matches!(step.operation, Operation::CopyRange { .. })
            }
            _ => false,
        },
    ),
    avoided(
        "fallocate that moves what follows",
        "the kernel does not pass COLLAPSE_RANGE and INSERT_RANGE on to FUSE",
        |step| match step.operation {
            Operation::Fallocate { mode, .. } => mode & 0x28 != 0,
            _ => false,
        },
    ),
    avoided(
        "chown that names nobody, by somebody without privilege",
        "for FUSE it looks like a write that takes file capabilities away, which anybody may make",
        |step| match step.operation {
            Operation::Chown { uid, gid, .. } => {
                step.who != Who::Root && uid.is_none() && gid.is_none()
            }
            _ => false,
        },
    ),
    avoided(
        "file capabilities beside set-id bits",
        "a write by root that takes capabilities away looks like a chown that names nobody, and takes \
         set-id bits, too",
        |step| match &step.operation {
            Operation::SetXattr { name, .. } => name.0 == b"security.capability",
            _ => false,
        },
    ),
    avoided(
        "fallocate on images without extents",
        "finefs allocates blocks and clears them where the kernel refuses",
        |step| match step.operation {
            Operation::Fallocate { mode, .. } => {
                !HAS_EXTENTS.load(Ordering::Relaxed) && mode & 2 == 0
            }
            _ => false,
        },
    ),
];

type Ranges = [(u64, u64)];

/// True when finefs may have this time for one that the kernel has read since: one of before, or,
/// where only a later read came to it, of this run; one of after is one that somebody has set.
fn may_lag(clock: &Clock, kernel: Nanoseconds, finefs: Nanoseconds) -> bool {
    let seconds = finefs.div_euclid(1_000_000_000);
    let is_set = || {
        SECONDS
            .iter()
            .any(|known| Nanoseconds::from(*known) == seconds)
    };
    finefs <= kernel || clock.is_recent(finefs) || is_set()
}

/// True when each range of `less` is within one of `more`.
fn are_within(less: &Ranges, more: &Ranges) -> bool {
    let is_in = |(from, to): &(u64, u64)| more.iter().any(|(a, b)| a <= from && to <= b);
    less.iter().all(is_in)
}

/// True when no byte outside of the ranges is other than zero.
fn is_zero_outside(contents: &Outcome, ranges: &Ranges) -> bool {
    let Ok(Value::Bytes(bytes)) = contents else {
        // Of a large file only what is in ranges was looked at, on both sides.
        return true;
    };
    let mut at = 0;
    for (from, to) in ranges.iter().copied().chain([(bytes.len() as u64, 0)]) {
        let from = (from as usize).min(bytes.len());
        if bytes[at..from.max(at)].iter().any(|byte| *byte != 0) {
            return false;
        }
        at = (to as usize).min(bytes.len());
    }
    true
}

const ROWS: usize = TABLE.len();

/// How often each row was met.
static MET: [AtomicU64; ROWS] = [const { AtomicU64::new(0) }; ROWS];

/// True while both sides have just written everything to their images.
static IS_SETTLED: AtomicBool = AtomicBool::new(false);

/// Says whether both sides have just written everything to their images.
pub fn settle(is_settled: bool) {
    IS_SETTLED.store(is_settled, Ordering::Relaxed);
}

/// What makes both sides the same again after a step whose outcomes differ and may.
pub fn amends(step: &Step) -> Vec<Operation> {
    let (target, name) = match &step.operation {
        Operation::SetXattr { target, name, .. } => (target, name),
        Operation::Seek { slot, .. } => {
            return vec![Operation::Seek {
                slot: *slot,
                whence: Whence::Set,
                offset: 0,
            }];
        }
        _ => return Vec::new(),
    };
    let (target, name) = (target.clone(), name.clone());
    let mut amends = vec![Operation::RemoveXattr {
        target: target.clone(),
        name: name.clone(),
    }];
    if name.0.starts_with(b"system.") {
        amends.push(Operation::Chmod {
            target: target.clone(),
            mode: 0o644,
        });
    }
    let (atime, mtime) = (NewTime::Now, NewTime::Now);
    amends.push(Operation::Utimens {
        target,
        atime,
        mtime,
    });
    amends
}

/// What makes both sides the same again after a step that ended on both in the same way. When a
/// direct write beyond the end of a file fails, the kernel sets the size of a FUSE file again
/// (fuse_direct_IO), and with it the times; and somebody without privilege so takes the set-id
/// bits. A copy leaves a hole where the source has one; the kernel's ext4 writes zeros.
pub fn evens_out(step: &Step, outcome: &Outcome) -> Vec<Operation> {
    let slot = match (&step.operation, outcome) {
        (Operation::CopyRange { to, to_offset, .. }, Ok(Value::Number(len @ 1..))) => {
            return fills(*to, *to_offset, *len);
        }
        (Operation::Write { slot, .. } | Operation::Pwrite { slot, .. }, Err(_)) => *slot,
        _ => return Vec::new(),
    };
    let target = Target::Open(slot);
    let (atime, mtime) = (NewTime::Omit, NewTime::Now);
    let mode = 0o644;
    vec![
        Operation::Chmod {
            target: target.clone(),
            mode,
        },
        Operation::Utimens {
            target,
            atime,
            mtime,
        },
    ]
}

/// Allocates a range, and sets the time that this may set.
fn fills(slot: usize, offset: u64, len: u64) -> Vec<Operation> {
    let (atime, mtime) = (NewTime::Omit, NewTime::Now);
    let target = Target::Open(slot);
    vec![
        Operation::Fallocate {
            slot,
            // The size stays as the copy has left it.
            mode: rustix::fs::FallocateFlags::KEEP_SIZE.bits(),
            offset,
            len,
        },
        Operation::Utimens {
            target,
            atime,
            mtime,
        },
    ]
}

/// False for images whose files have block maps.
static HAS_EXTENTS: AtomicBool = AtomicBool::new(true);

/// Says that files of the images have no extents.
pub fn be_without_extents() {
    HAS_EXTENTS.store(false, Ordering::Relaxed);
}

fn allows(seen: &Seen<'_>) -> bool {
    let row = TABLE.iter().position(|row| (row.allows)(seen));
    if let Some(row) = row {
        MET[row].fetch_add(1, Ordering::Relaxed);
    }
    row.is_some()
}

/// True when a step is left out.
pub fn avoids(step: &Step) -> bool {
    TABLE.iter().any(|row| (row.avoids)(step))
}

/// True when this field of these inodes may differ.
pub fn allows_field(
    field: &str,
    kernel: &Attributes,
    finefs: &Attributes,
    relation: Relation<'_>,
) -> bool {
    allows(&Seen::Field(field, kernel, finefs, relation))
}

/// True when files may have their holes at these places.
pub fn allows_holes(kernel: &Entry, finefs: &Entry) -> bool {
    allows(&Seen::Holes(kernel, finefs))
}

/// True while a step is judged of which something is immutable or append-only.
static IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// True when a step may end like this. `is_locked`: something that it names, or the directory that
/// this is in, is immutable or append-only.
pub fn allows_outcome(step: &Step, kernel: &Outcome, finefs: &Outcome, is_locked: bool) -> bool {
    IS_LOCKED.store(is_locked, Ordering::Relaxed);
    allows(&Seen::Outcome(step, kernel, finefs))
}

/// The rows that were met, and how often.
pub fn met() -> Vec<(&'static str, u64)> {
    let each = TABLE
        .iter()
        .zip(&MET)
        .map(|(row, met)| (row.name, met.load(Ordering::Relaxed)));
    each.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::super::clock::now;
    use super::super::operation::Bytes;
    use super::*;

    #[test]
    fn another_error_is_only_told_of_what_flags_lock() {
        let step = Step {
            who: Who::First,
            operation: Operation::Unlink {
                path: Bytes::new("a/b"),
            },
        };
        let (kernel, finefs) = (Err(Errno::PERM), Err(Errno::ACCESS));
        assert!(allows_outcome(&step, &kernel, &finefs, true));
        assert!(!allows_outcome(&step, &kernel, &finefs, false));
        assert!(!allows_outcome(&step, &finefs, &kernel, true));
    }

    #[test]
    fn a_time_of_reading_lags_and_is_not_made_up() {
        const SECOND: Nanoseconds = 1_000_000_000;
        let now = now();
        let clock = Clock::new(now - 10 * SECOND, 0);
        let kernel = now - 5 * SECOND;
        for finefs in [5, now - 7 * SECOND, now - SECOND, SECOND << 32] {
            assert!(may_lag(&clock, kernel, finefs), "{finefs}");
        }
        assert!(!may_lag(&clock, kernel, now + 100 * SECOND));
    }
}
