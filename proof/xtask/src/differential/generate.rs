//! Random steps. Paths are mostly those that are known to exist, so that most steps reach
//! something; the rest are made up.

use super::deviations;
use super::execute::SLOTS;
use super::operation::{Bytes, Fill, NewTime, Operation, Slot, Step, Target, Whence, Who};
use super::values;
use finefs_harness::rng::Rng;
use rustix::fs::{FileType, OFlags};
use std::collections::BTreeMap;

/// What the generator believes of the tree: which paths there are, and what is open. It need not be
/// right.
pub struct Generator {
    rng: Rng,
    known: BTreeMap<Bytes, FileType>,
    open: [Option<FileType>; SLOTS],
    /// Slots that were opened or changed to O_DIRECT.
    direct: [bool; SLOTS],
    /// Slots that were opened with O_APPEND.
    appends: [bool; SLOTS],
    shape: Shape,
}

/// How large things are.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Usual end of files.
    pub file_bytes: u64,
    /// Names at most, before some are removed.
    pub names: usize,
    /// Bytes of a block.
    pub block: u64,
    /// True when a name may also be written in other case.
    pub folds_case: bool,
}

/// How often O_DIRECT is used against its rules, for reading: when it refuses a write, the kernel's
/// ext4 may have allocated blocks already.
const UNALIGNED_PERCENT: u64 = 15;

/// How often a name is written in other case, where that is the same name.
const OTHER_CASE_PERCENT: u64 = 30;

const SHORT: &[&str] = &[
    "a", "b", "c", "d", "e", "f", "g", "h", "link", "dir", "data", "x.y",
];

impl Generator {
    /// A generator that gives the same steps for the same seed and the same answers.
    pub fn new(seed: u64, shape: Shape) -> Self {
        let (known, open, not) = (BTreeMap::new(), [None; SLOTS], [false; SLOTS]);
        Self {
            rng: Rng::new(seed),
            known,
            open,
            direct: not,
            appends: not,
            shape,
        }
    }

    /// Learns what is at `path`.
    pub fn learn(&mut self, path: &Bytes, kind: Option<FileType>) {
        match kind {
            Some(kind) => drop(self.known.insert(path.clone(), kind)),
            None => drop(self.known.remove(path)),
        }
    }

    /// Learns what is open.
    pub fn learn_slot(&mut self, slot: Slot, kind: Option<FileType>) {
        self.open[slot] = kind;
    }

    /// Forgets all paths.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        let who = match self.rng.below(100) {
            0..76 => Who::Root,
            76..90 => Who::First,
            _ => Who::Second,
        };
        loop {
            let mut operation = self.operation();
            self.align(&mut operation);
            let step = Step { who, operation };
            if !deviations::avoids(&step) {
                return step;
            }
        }
    }

    fn operation(&mut self) -> Operation {
        if self.known.len() > self.shape.names {
            let path = self.existing(None);
            return Operation::RemoveTree { path };
        }
        match self.rng.below(1000) {
            0..110 => self.open(),
            110..130 => Operation::Close { slot: self.slot() },
            130..420 => self.data(),
            420..640 => self.names(),
            640..790 => self.attributes(),
            790..900 => self.xattrs(),
            900..992 => self.looks(),
            992..996 => {
                let mask = *self.rng.pick(&[0, 0o22, 0o22, 0o27, 0o77, 0o777]);
                Operation::Umask { mask }
            }
            _ => Operation::Pause,
        }
    }

    /// What is read and written with O_DIRECT begins and ends at a page, but for some reads.
    fn align(&mut self, operation: &mut Operation) {
        let page = |len: usize| len.next_multiple_of(4096);
        let is_unaligned = self.rng.percent(UNALIGNED_PERCENT);
        match operation {
            Operation::Open { slot, flags, .. } => {
                self.direct[*slot] = *flags & OFlags::DIRECT.bits() != 0;
                self.appends[*slot] = *flags & OFlags::APPEND.bits() != 0;
                if self.direct[*slot] {
                    // The end of a file may be anywhere.
                    *flags &= !OFlags::APPEND.bits();
                }
            }
            Operation::SetDirect { slot, .. } if self.appends[*slot] => {
                *operation = Operation::Close { slot: *slot };
            }
            Operation::SetDirect { slot, is_direct } => self.direct[*slot] = *is_direct,
            Operation::Pread { slot, offset, len } if self.direct[*slot] && !is_unaligned => {
                (*offset, *len) = (*offset & !4095, page(*len));
            }
            Operation::Pwrite {
                slot,
                offset,
                fill,
                flags,
            } if self.direct[*slot] => {
                (*offset, fill.len) = (*offset & !4095, page(fill.len));
                *flags &= !values::RWF_APPEND;
            }
            // The file's position may be anywhere.
            Operation::Read { slot, len } if self.direct[*slot] => {
                let (offset, len) = (self.rng.below(20) << 12, page(*len));
                let slot = *slot;
                *operation = Operation::Pread { slot, offset, len };
            }
            Operation::Write { slot, fill } if self.direct[*slot] => {
                let (slot, flags, offset) = (*slot, 0, self.rng.below(20) << 12);
                let len = page(fill.len);
                let fill = Fill { len, ..*fill };
                *operation = Operation::Pwrite {
                    slot,
                    offset,
                    fill,
                    flags,
                };
            }
            _ => {}
        }
    }

    // Paths.

    /// A path that is believed to exist, of this kind if there is one.
    fn existing(&mut self, kind: Option<FileType>) -> Bytes {
        let of_kind = |known: &FileType| kind.is_none_or(|kind| *known == kind);
        let count = self.known.values().filter(|known| of_kind(known)).count();
        if count == 0 {
            return self.fresh();
        }
        let nth = self.rng.below(count as u64) as usize;
        let mut each = self.known.iter().filter(|(_, known)| of_kind(known));
        each.nth(nth)
            .map(|(path, _)| path.clone())
            .unwrap_or_default()
    }

    fn directory(&mut self) -> Bytes {
        if self.rng.percent(25) || !self.known.values().any(|kind| *kind == FileType::Directory) {
            return Bytes::default();
        }
        self.existing(Some(FileType::Directory))
    }

    fn name(&mut self) -> Vec<u8> {
        let name = self.usual_name();
        match self.shape.folds_case && self.rng.percent(OTHER_CASE_PERCENT) {
            true => in_other_case(&name),
            false => name,
        }
    }

    fn usual_name(&mut self) -> Vec<u8> {
        match self.rng.below(100) {
            0..88 => self.rng.pick(SHORT).as_bytes().to_vec(),
            88..91 => vec![b'n'; 255],
            91..93 => vec![b'n'; 256],
            93..96 => {
                let bytes = self.rng.bytes(1 + self.rng.clone().below(8) as usize);
                bytes
                    .into_iter()
                    .map(|byte| if byte == 0 || byte == b'/' { 7 } else { byte })
                    .collect()
            }
            96..98 => "ümläut €".as_bytes().to_vec(),
            _ => format!("n{}", self.rng.below(1000)).into_bytes(),
        }
    }

    /// A path that need not exist, in a directory that mostly does.
    fn fresh(&mut self) -> Bytes {
        let (directory, name) = (self.directory(), self.name());
        directory.join(&name)
    }

    fn path(&mut self) -> Bytes {
        let path = if self.rng.percent(75) {
            self.existing(None)
        } else {
            self.fresh()
        };
        self.dressed(path)
    }

    fn file(&mut self) -> Bytes {
        let path = match self.rng.below(100) {
            0..70 => self.existing(Some(FileType::RegularFile)),
            70..85 => self.existing(None),
            _ => self.fresh(),
        };
        self.dressed(path)
    }

    /// Mostly the path itself; sometimes the same in another way, or something that cannot be.
    fn dressed(&mut self, path: Bytes) -> Bytes {
        if self.shape.folds_case && self.rng.percent(OTHER_CASE_PERCENT) {
            return Bytes(in_other_case(&path.0));
        }
        if path.0.is_empty() || self.rng.percent(90) {
            return path;
        }
        let (parent, name) = (path.parent(), path.0[path.parent().0.len()..].to_vec());
        let name = name.strip_prefix(b"/").unwrap_or(&name).to_vec();
        match self.rng.below(9) {
            0 => Bytes([path.0.as_slice(), b"/"].concat()),
            1 => Bytes([path.0.as_slice(), b"/."].concat()),
            2 => Bytes([b"./", path.0.as_slice()].concat()),
            3 => parent.join(&[b"./", name.as_slice()].concat()),
            4 if !parent.0.is_empty() => Bytes([&parent.0, b"//".as_slice(), &name].concat()),
            5 => path.join(b"below"),
            6 => parent.join(b"missing/below"),
            7 => {
                let beside = self.existing(Some(FileType::Directory));
                // Never above the directory of this run.
                match beside.0.contains(&b'/') {
                    true => beside.join(&[b"../", name.as_slice()].concat()),
                    false => path,
                }
            }
            _ => Bytes([path.0.as_slice(), b"/.."].concat()),
        }
    }

    fn target(&mut self) -> Target {
        match self.rng.below(100) {
            0..60 => Target::Path(self.path()),
            60..75 => Target::Link(self.path()),
            _ => Target::Open(self.slot()),
        }
    }

    // Open files.

    fn slot(&mut self) -> Slot {
        let slot = self.rng.below(SLOTS as u64) as usize;
        if self.open[slot].is_some() || self.rng.percent(10) {
            return slot;
        }
        self.open.iter().position(Option::is_some).unwrap_or(slot)
    }

    fn file_slot(&mut self) -> Slot {
        let start = self.rng.below(SLOTS as u64) as usize;
        let mut each = (0..SLOTS).map(|step| (start + step) % SLOTS);
        each.find(|slot| self.open[*slot] == Some(FileType::RegularFile))
            .unwrap_or(start)
    }

    fn open(&mut self) -> Operation {
        let slot = self.rng.below(SLOTS as u64) as usize;
        let access = match self.rng.below(100) {
            0..60 => OFlags::RDWR,
            60..80 => OFlags::RDONLY,
            80..98 => OFlags::WRONLY,
            _ => OFlags::RDWR | OFlags::WRONLY,
        };
        let mut flags = access | OFlags::NONBLOCK;
        let rng = &mut self.rng;
        let mut may = |percent, more: OFlags| {
            if rng.percent(percent) {
                flags |= more;
            }
        };
        may(50, OFlags::CREATE);
        may(6, OFlags::EXCL);
        may(8, OFlags::TRUNC);
        may(10, OFlags::APPEND);
        may(5, OFlags::NOFOLLOW);
        may(4, OFlags::DIRECTORY);
        may(2, OFlags::PATH);
        may(8, OFlags::DIRECT);
        may(2, OFlags::DSYNC);
        may(1, OFlags::SYNC);
        may(2, OFlags::NOATIME);
        let mut path = self.file();
        if self.rng.percent(6) {
            flags = (flags & !(OFlags::CREATE | OFlags::PATH)) | OFlags::TMPFILE;
            path = self.directory();
        } else if self.rng.percent(4) {
            flags = OFlags::RDONLY | OFlags::DIRECTORY;
            path = self.directory();
        }
        Operation::Open {
            slot,
            path,
            flags: flags.bits(),
            mode: self.mode(),
        }
    }

    fn mode(&mut self) -> u32 {
        match self.rng.below(10) {
            0..4 => *self.rng.pick(&[0o644, 0o666, 0o755, 0o777]),
            4 => *self
                .rng
                .pick(&[0o4755, 0o2755, 0o6777, 0o2644, 0o1777, 0o2775]),
            5..7 => 0o777,
            _ => self.rng.below(0o1_0000) as u32,
        }
    }

    // Data.

    fn offset(&mut self) -> u64 {
        let end = self.shape.file_bytes;
        match self.rng.below(100) {
            0..45 => self.rng.below(end),
            45..75 => self.rng.below(end / 1024) * 1024,
            75..90 => self.rng.below(end / 4096) * 4096,
            90..96 => self.rng.below(3000),
            96..98 => 0,
            98 => *self.rng.pick(values::OFFSETS),
            _ => self.rng.below(1 << 32),
        }
    }

    fn len(&mut self) -> u64 {
        match self.rng.below(100) {
            0..35 => self.rng.below(5000),
            35..55 => 4096 * self.rng.range(1, 8),
            55..70 => 1024 * self.rng.range(1, 12),
            70..90 => self.rng.below(40_000),
            90..96 => self.rng.below(self.shape.file_bytes / 2),
            96 => 0,
            _ => self.rng.below(100),
        }
    }

    fn fill(&mut self) -> Fill {
        Fill {
            len: self.len() as usize,
            seed: self.rng.next_u64() >> 32,
        }
    }

    fn data(&mut self) -> Operation {
        let slot = self.file_slot();
        match self.rng.below(100) {
            0..6 => Operation::Read {
                slot,
                len: self.len() as usize,
            },
            6..14 => Operation::Pread {
                slot,
                offset: self.offset(),
                len: self.len() as usize,
            },
            14..30 => Operation::Write {
                slot,
                fill: self.fill(),
            },
            30..50 => {
                let flags = match self.rng.below(20) {
                    0 => values::RWF_DSYNC,
                    1..4 => values::RWF_APPEND,
                    _ => 0,
                };
                Operation::Pwrite {
                    slot,
                    offset: self.offset(),
                    fill: self.fill(),
                    flags,
                }
            }
            50..54 => Operation::SetDirect {
                slot,
                is_direct: self.rng.percent(50),
            },
            54..61 => {
                use Whence::*;
                let whence = *self
                    .rng
                    .pick(&[Set, Set, Current, End, Data, Data, Hole, Hole]);
                let offset = match whence {
                    Current | End => self.rng.below(4000).wrapping_sub(2000),
                    _ => self.offset(),
                };
                Operation::Seek {
                    slot,
                    whence,
                    offset,
                }
            }
            61..66 => Operation::Truncate {
                path: self.file(),
                len: self.offset(),
            },
            66..73 => Operation::Ftruncate {
                slot,
                len: self.offset(),
            },
            73..85 => {
                let mode = *self.rng.pick(values::FALLOCATE);
                Operation::Fallocate {
                    slot,
                    mode,
                    offset: self.offset(),
                    len: self.len(),
                }
            }
            85..89 => {
                let (to, len) = (self.file_slot(), self.len() as usize);
                if self.direct[slot] || self.direct[to] {
                    return Operation::Close { slot };
                }
                let (from_offset, to_offset) = (self.offset(), self.offset());
                Operation::CopyRange {
                    from: slot,
                    from_offset,
                    to,
                    to_offset,
                    len,
                }
            }
            89..94 => {
                let (offset, mut fill) = (self.offset() % self.shape.file_bytes, self.fill());
                fill.len = fill.len.max(1);
                Operation::MapWrite { slot, offset, fill }
            }
            94..97 => {
                let (offset, len) = (self.offset() % self.shape.file_bytes, self.len());
                Operation::MapRead {
                    slot,
                    offset,
                    len: len.max(1) as usize,
                }
            }
            97 => Operation::Flock {
                slot: self.slot(),
                operation: self.rng.below(3) as u32,
            },
            _ => Operation::Fsync {
                slot,
                is_data_only: self.rng.percent(50),
            },
        }
    }

    // Names.

    fn names(&mut self) -> Operation {
        match self.rng.below(100) {
            0..16 => {
                let path = self.fresh();
                Operation::Mkdir {
                    path: self.dressed(path),
                    mode: self.mode() | 0o700,
                }
            }
            16..22 => {
                let (kind, major, minor) = *self.rng.pick(values::NODES);
                let mode = self.mode() | kind;
                Operation::Mknod {
                    path: self.fresh(),
                    mode,
                    major,
                    minor,
                }
            }
            22..34 => {
                let target = self.link_target();
                Operation::Symlink {
                    target,
                    path: self.fresh(),
                }
            }
            34..46 => {
                let (from, to) = (self.path(), self.fresh());
                Operation::Link {
                    from,
                    to,
                    follows: self.rng.percent(20),
                }
            }
            46..50 => {
                let by_proc = self.rng.percent(60);
                Operation::LinkOpen {
                    slot: self.slot(),
                    to: self.fresh(),
                    by_proc,
                }
            }
            50..64 => Operation::Unlink { path: self.path() },
            64..72 => {
                let path = self.existing(Some(FileType::Directory));
                let path = self.dressed(path);
                Operation::Rmdir { path }
            }
            _ => self.rename(),
        }
    }

    fn rename(&mut self) -> Operation {
        let from = self.path();
        let to = match self.rng.below(10) {
            0..4 => self.fresh(),
            4 => from.clone(),
            5 => from.join(&self.name()),
            6 => from.parent(),
            _ => self.path(),
        };
        let flags = match self.rng.below(20) {
            0..12 => 0,
            12..15 => values::RENAME_NOREPLACE,
            15..17 => values::RENAME_EXCHANGE,
            17 => values::RENAME_WHITEOUT,
            18 => values::RENAME_WHITEOUT | values::RENAME_NOREPLACE,
            _ => *self.rng.pick(values::RENAME_WRONG),
        };
        // One that finds a full directory leaves traces in ext4's times.
        let to = match flags {
            values::RENAME_WHITEOUT => {
                let name = format!("white{}", self.rng.below(1 << 40));
                self.directory().join(name.as_bytes())
            }
            _ => to,
        };
        Operation::Rename { from, to, flags }
    }

    /// What a symbolic link says: nothing that leads out of the tree.
    fn link_target(&mut self) -> Bytes {
        let len = match self.rng.below(20) {
            0 => 59,
            1 => 60,
            2 => 61,
            3 => self.rng.range(200, 1000) as usize,
            4 => *self.rng.pick(&[1023, 1024, 4094, 4095]),
            5 => 0,
            6 => return Bytes([b"../", self.rng.pick(SHORT).as_bytes()].concat()),
            7 => return self.path(),
            _ => return Bytes(self.name()),
        };
        let letters = b"a/b/c/d/e/".iter().cycle();
        Bytes(letters.take(len).copied().collect())
    }

    // Attributes.

    fn attributes(&mut self) -> Operation {
        let target = self.target();
        match self.rng.below(100) {
            0..3 => Operation::GetFlags { slot: self.slot() },
            3..8 => {
                let slot = self.slot();
                let flags = match self.open[slot] {
                    Some(FileType::Directory) => values::DIRECTORY_FLAGS,
                    _ => values::FILE_FLAGS,
                };
                let flags = *self.rng.pick(flags);
                Operation::SetFlags { slot, flags }
            }
            8..35 => Operation::Chmod {
                target,
                mode: self.mode(),
            },
            35..60 => {
                let rng = &mut self.rng;
                let mut id = || rng.percent(70).then(|| *rng.pick(values::OWNERS));
                let (uid, gid) = (id(), id());
                Operation::Chown { target, uid, gid }
            }
            60..85 => {
                let (atime, mtime) = (self.new_time(), self.new_time());
                Operation::Utimens {
                    target,
                    atime,
                    mtime,
                }
            }
            _ => Operation::Stat { target },
        }
    }

    fn new_time(&mut self) -> NewTime {
        match self.rng.below(10) {
            0..2 => NewTime::Now,
            2..4 => NewTime::Omit,
            4..8 => {
                let nanoseconds = self.rng.below(1_000_000_000) as i64;
                NewTime::At(self.rng.below(1_700_000_000) as i64, nanoseconds)
            }
            8 => NewTime::At(*self.rng.pick(values::SECONDS), 999_999_999),
            _ => NewTime::At(
                *self.rng.pick(values::SECONDS),
                *self.rng.pick(&[0, 1, 500_000_000]),
            ),
        }
    }

    // Extended attributes.

    fn xattrs(&mut self) -> Operation {
        let target = self.target();
        let name: &&str = self.rng.pick(values::XATTR_NAMES);
        let name = Bytes::new(name);
        let room = *self.rng.pick(&[0, 1, 10, 300, 65_536]);
        match self.rng.below(100) {
            0..50 => {
                let flags = *self.rng.pick(&[0, 0, 0, 1, 2, 3]);
                if self.rng.percent(30) {
                    let (name, value) = values::acl(&mut self.rng);
                    return Operation::SetXattr {
                        target,
                        name,
                        value,
                        flags,
                    };
                }
                let value = match name.0.as_slice() {
                    b"security.capability" => values::capability(&mut self.rng),
                    _ => {
                        let len = match self.rng.below(20) {
                            0..12 => self.rng.below(60),
                            12..17 => self.rng.below(700),
                            17 => self.rng.below(self.shape.block + 100),
                            18 => 0,
                            _ => self.rng.below(70_000),
                        };
                        Bytes(self.rng.bytes(len as usize))
                    }
                };
                Operation::SetXattr {
                    target,
                    name,
                    value,
                    flags,
                }
            }
            50..65 => Operation::GetXattr { target, name, room },
            65..80 => Operation::ListXattr { target, room },
            _ => Operation::RemoveXattr { target, name },
        }
    }

    // Looking.

    fn looks(&mut self) -> Operation {
        match self.rng.below(100) {
            0..15 => Operation::Stat {
                target: self.target(),
            },
            15..25 => {
                let room = *self.rng.pick(&[1, 10, 60, 4096]);
                Operation::Readlink {
                    path: self.existing(Some(FileType::Symlink)),
                    room,
                }
            }
            25..40 => {
                let flags =
                    *self
                        .rng
                        .pick(&[0, 0, values::AT_EACCESS, values::AT_SYMLINK_NOFOLLOW]);
                Operation::Access {
                    path: self.path(),
                    mode: self.rng.below(8) as u32,
                    flags,
                }
            }
            40..45 => Operation::Statfs { path: self.path() },
            45..60 => Operation::List {
                path: self.directory(),
            },
            60..65 => Operation::ListFromCookies {
                path: self.directory(),
            },
            65..68 => {
                let base = self.rng.below(1000);
                let count = 2 * self.rng.range(1, 12);
                let name = |number| Bytes(format!("changing-{base}-{number:030}").into_bytes());
                let names = (0..count).map(name).collect();
                Operation::ListWhileChanging {
                    path: self.directory(),
                    names,
                }
            }
            68..70 => {
                let (count, removes) = (self.rng.range(1, 150) as u32, self.rng.percent(50));
                Operation::Many {
                    path: self.directory(),
                    count,
                    removes,
                }
            }
            70..86 => Operation::Contents {
                path: self.existing(Some(FileType::RegularFile)),
            },
            86..98 => Operation::Holes {
                path: self.existing(Some(FileType::RegularFile)),
            },
            _ => Operation::RemoveTree {
                path: self.existing(Some(FileType::Directory)),
            },
        }
    }
}

/// Letters in capitals, or in small letters where there are none other; what is no UTF-8 as it is.
fn in_other_case(name: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(name) else {
        return name.to_vec();
    };
    let capitals = text.to_uppercase();
    match capitals == text {
        true => text.to_lowercase().into_bytes(),
        false => capitals.into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_case_is_other_and_comes_back() {
        for (name, other) in [("a", "A"), ("ümläut €", "ÜMLÄUT €"), ("x.y/DIR", "X.Y/DIR")]
        {
            assert_eq!(in_other_case(name.as_bytes()), other.as_bytes());
        }
        assert_eq!(in_other_case(b"DIR"), b"dir");
        assert_eq!(in_other_case(b"\xff"), b"\xff");
    }
}
