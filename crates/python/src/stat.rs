//! Attributes of files, as numbers; the package makes `os.stat_result` of them.

use std::time::SystemTime;

use finefs::Metadata;

/// mode, ino, nlink, uid, gid, size, blocks, rdev; times in nanoseconds: access, modification,
/// change, birth.
pub(crate) type Stat = (u32, u64, u32, u32, u32, u64, u64, u64, [Option<i128>; 4]);

pub(crate) fn stat(found: &Metadata) -> Stat {
    let times = [
        Some(found.accessed()),
        Some(found.modified()),
        Some(found.changed()),
        found.created(),
    ];
    (
        found.mode(),
        found.ino(),
        found.nlink(),
        found.uid(),
        found.gid(),
        found.len(),
        found.blocks(),
        found.rdev(),
        times.map(|time| time.map(nanoseconds)),
    )
}

fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}
