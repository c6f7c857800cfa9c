//! Between the namespace's vocabulary and the kernel's: numbers, attributes, times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use finefs_namespace::types::{Attributes, FileKind, Ino, SetTime, Timestamp};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

/// FUSE's number of the root node.
const ROOT_NODE: u64 = 1;

/// How long the kernel may trust what it was told: for ever, as nobody else changes the image.
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The two numberings; see invariant 1 of the crate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    root: u64,
}

impl Numbers {
    pub(crate) fn new(root: Ino) -> Numbers {
        Numbers { root: root.0 }
    }

    fn swap(self, number: u64) -> u64 {
        if number == ROOT_NODE {
            self.root
        } else if number == self.root {
            ROOT_NODE
        } else {
            number
        }
    }

    pub(crate) fn ino(self, node: INodeNo) -> Ino {
        Ino(self.swap(node.0))
    }

    pub(crate) fn node(self, ino: Ino) -> INodeNo {
        INodeNo(self.swap(ino.0))
    }
}

/// The kernel's kinds.
pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

/// Attributes for a reply. `number` is what the reply's form wants as the number: the node id in
/// entries (the library sends one number for both), the namespace's number in attributes.
pub(crate) fn file_attr(attributes: &Attributes, number: INodeNo, io_size_bytes: u32) -> FileAttr {
    FileAttr {
        ino: number,
        size: attributes.size_bytes,
        blocks: attributes.sectors,
        atime: system_time(attributes.times.accessed),
        mtime: system_time(attributes.times.modified),
        ctime: system_time(attributes.times.changed),
        crtime: UNIX_EPOCH,
        kind: file_type(attributes.kind),
        perm: (attributes.permissions & 0o7777) as u16,
        nlink: attributes.link_count,
        uid: attributes.uid,
        gid: attributes.gid,
        // FUSE has the kernel's 12 + 20 bits, which are the low half of makedev(3)'s.
        rdev: attributes.device as u32,
        blksize: io_size_bytes,
        flags: 0,
    }
}

/// What stands for "there is no such name, and you may remember that": node 0 with a lifetime.
pub(crate) fn negative_attr() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds()));
    // Both bounds of a timestamp lie well within what SystemTime holds.
    if time.seconds() >= 0 {
        UNIX_EPOCH + Duration::from_secs(time.seconds() as u64) + nanoseconds
    } else {
        UNIX_EPOCH - Duration::from_secs(time.seconds().unsigned_abs()) + nanoseconds
    }
}

/// A time of a SETATTR request.
///
/// fuser 0.18 turns the kernel's (-s, n) into the epoch less s seconds **and less** n nanoseconds
/// (`time.rs`, marked TODO there). The two parts are still found in the distance from the epoch,
/// so this takes them from there and is exact.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp::new(
            i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            after.subsec_nanos(),
        ),
        Err(error) => {
            let before = error.duration();
            Timestamp::new(
                0i64.saturating_sub_unsigned(before.as_secs()),
                before.subsec_nanos(),
            )
        }
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(timestamp(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_and_node_1_are_swapped_and_nothing_else() {
        let numbers = Numbers::new(Ino(2));
        assert_eq!(numbers.ino(INodeNo(1)), Ino(2));
        assert_eq!(numbers.node(Ino(2)), INodeNo(1));
        assert_eq!(numbers.node(Ino(11)), INodeNo(11));
        for number in 1..20 {
            assert_eq!(numbers.ino(numbers.node(Ino(number))), Ino(number));
        }
        let same = Numbers::new(Ino(1));
        assert_eq!(same.node(Ino(1)), INodeNo(1));
        assert_eq!(same.node(Ino(2)), INodeNo(2));
    }

    #[test]
    fn times_go_out_exactly() {
        for (seconds, nanoseconds) in [(0, 0), (1, 1), (1_700_000_000, 999_999_999)] {
            let out = system_time(Timestamp::new(seconds, nanoseconds));
            let distance = out.duration_since(UNIX_EPOCH).unwrap();
            assert_eq!(
                (distance.as_secs() as i64, distance.subsec_nanos()),
                (seconds, nanoseconds)
            );
        }
        // -1.25 s is stored as (-2, 750_000_000).
        let out = system_time(Timestamp::new(-2, 750_000_000));
        assert_eq!(
            UNIX_EPOCH.duration_since(out).unwrap(),
            Duration::from_millis(1250)
        );
    }

    #[test]
    fn times_come_in_as_the_library_makes_them() {
        assert_eq!(
            timestamp(UNIX_EPOCH + Duration::new(5, 7)),
            Timestamp::new(5, 7)
        );
        // The library's rendering of the kernel's (-2, 750_000_000).
        let quirk = UNIX_EPOCH - Duration::new(2, 750_000_000);
        assert_eq!(timestamp(quirk), Timestamp::new(-2, 750_000_000));
    }
}
