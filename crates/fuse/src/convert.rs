//! Between the namespace's vocabulary and the kernel's: numbers, attributes, times.

use finefs_namespace::Namespace;
use finefs_namespace::types::{Attributes, FileKind, Ino, SetAttributes, SetTime, Timestamp};

use crate::abi::{
    Attr, AttrOut, EntryOut, ROOT_NODE, SetattrIn, Statx, StatxOut, StatxTime, setattr,
};

/// How long the kernel may trust what it was told, in seconds: for ever (ten years), as nobody else
/// changes the image.
pub(crate) const FOREVER: u64 = 10 * 365 * 86_400;

/// How long it may trust attributes that a commit will change without its doing: seconds. It asks
/// again then.
const UNTIL_SETTLED: u64 = 1;

/// What stat(2) recommends as the size of reads and writes. Programs size their buffers by it
/// (stdio does), and each buffer that is written costs a round trip.
const IO_SIZE_BYTES: u32 = 64 << 10;

/// Bits of a statx(2) mask: all that stat(2) shows, and the time of birth.
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

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

    pub(crate) fn ino(self, node: u64) -> Ino {
        Ino(self.swap(node))
    }

    pub(crate) fn node(self, ino: Ino) -> u64 {
        self.swap(ino.0)
    }
}

/// What files are shown to be, whatever they are: the kernel lets in who it is shown that may.
///
/// As libfuse has it (`set_stat`), which knows nothing of it below: what is made, given away or
/// gets another mode is so on the image.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct View {
    /// The owner of all.
    pub uid: Option<u32>,
    /// The group of all.
    pub gid: Option<u32>,
    /// The permissions that all lack; the others they have.
    pub umask: Option<u32>,
}

impl View {
    /// Files are shown as they are.
    pub fn is_plain(&self) -> bool {
        *self == View::default()
    }

    fn uid(&self, attributes: &Attributes) -> u32 {
        self.uid.unwrap_or(attributes.uid)
    }

    fn gid(&self, attributes: &Attributes) -> u32 {
        self.gid.unwrap_or(attributes.gid)
    }

    fn permissions(&self, attributes: &Attributes) -> u32 {
        let shown = self.umask.map(|umask| 0o777 & !umask);
        shown.unwrap_or(attributes.permissions & 0o7777)
    }
}

/// How files are shown to the kernel of a mount.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Shown {
    pub view: View,
    /// The kernel keeps what is written: an open file may have data that nobody here knows of.
    pub has_writeback_cache: bool,
}

impl Shown {
    /// What is in the kernel alone has no block yet, and programs take a file without blocks for
    /// one hole (`tar --sparse`).
    fn may_have_more(self, attributes: &Attributes) -> bool {
        self.has_writeback_cache && attributes.kind == FileKind::Regular && attributes.sectors == 0
    }

    fn sectors(self, attributes: &Attributes) -> u64 {
        match self.may_have_more(attributes) {
            true => 1,
            false => attributes.sectors,
        }
    }

    fn attr_valid(self, attributes: &Attributes) -> u64 {
        match attributes.is_settled && !self.may_have_more(attributes) {
            true => FOREVER,
            false => UNTIL_SETTLED,
        }
    }
}

pub(crate) fn attr(shown: Shown, attributes: &Attributes) -> Attr {
    let (times, view) = (&attributes.times, shown.view);
    Attr {
        ino: attributes.ino.0,
        size: attributes.size_bytes,
        blocks: shown.sectors(attributes),
        atime: times.accessed.seconds(),
        mtime: times.modified.seconds(),
        ctime: times.changed.seconds(),
        atime_ns: times.accessed.nanoseconds(),
        mtime_ns: times.modified.nanoseconds(),
        ctime_ns: times.changed.nanoseconds(),
        mode: attributes.kind.mode_bits() | view.permissions(attributes),
        link_count: attributes.link_count,
        uid: view.uid(attributes),
        gid: view.gid(attributes),
        // FUSE has the kernel's 12 + 20 bits, which are the low half of makedev(3)'s.
        device: attributes.device as u32,
        block_size: IO_SIZE_BYTES,
        flags: 0,
    }
}

pub(crate) fn attr_out(shown: Shown, attributes: &Attributes) -> AttrOut {
    AttrOut {
        valid: shown.attr_valid(attributes),
        attr: attr(shown, attributes),
        ..AttrOut::default()
    }
}

/// How long the kernel may remember what names of a directory name, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct NameLifetime(u64);

impl NameLifetime {
    /// Until the kernel itself changes the name, unless other names of the directory lead to the
    /// same.
    pub fn of(namespace: &Namespace, dir: Ino) -> NameLifetime {
        NameLifetime(match namespace.folds_names(dir) {
            true => 0,
            false => FOREVER,
        })
    }

    /// The same of a name that is not there: a directory that folds case later may have it then,
    /// and one that is made durable at once has it though that failed.
    pub fn of_missing(namespace: &Namespace) -> NameLifetime {
        let may_come = namespace.can_fold_names() || namespace.has_synchronous_directories();
        NameLifetime(match may_come {
            true => 0,
            false => FOREVER,
        })
    }
}

pub(crate) fn entry_out(
    shown: Shown,
    node: u64,
    attributes: &Attributes,
    NameLifetime(entry_valid): NameLifetime,
) -> EntryOut {
    EntryOut {
        node,
        generation: u64::from(attributes.generation),
        entry_valid,
        attr_valid: shown.attr_valid(attributes),
        attr: attr(shown, attributes),
        ..EntryOut::default()
    }
}

/// "There is no such name, and so long you may remember that": node 0 with a lifetime.
pub(crate) fn negative_entry_out(NameLifetime(entry_valid): NameLifetime) -> EntryOut {
    EntryOut {
        entry_valid,
        ..EntryOut::default()
    }
}

pub(crate) fn statx_out(shown: Shown, attributes: &Attributes) -> StatxOut {
    let time = |time: Timestamp| StatxTime {
        seconds: time.seconds(),
        nanoseconds: time.nanoseconds(),
        reserved: 0,
    };
    let attr = attr(shown, attributes);
    // Formats that keep no time of birth have the epoch there.
    let has_birth = attributes.times.created != Timestamp::new(0, 0);
    StatxOut {
        valid: shown.attr_valid(attributes),
        statx: Statx {
            mask: STATX_BASIC_STATS | if has_birth { STATX_BTIME } else { 0 },
            block_size: attr.block_size,
            link_count: attr.link_count,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode as u16,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attributes.times.accessed),
            btime: time(attributes.times.created),
            ctime: time(attributes.times.changed),
            mtime: time(attributes.times.modified),
            device_major: libc::major(attributes.device),
            device_minor: libc::minor(attributes.device),
            ..Statx::default()
        },
        ..StatxOut::default()
    }
}

/// What a SETATTR asks for.
pub(crate) fn change(fields: &SetattrIn) -> SetAttributes {
    let has = |bit| fields.valid & bit != 0;
    let time = |is_set, is_now, seconds, nanoseconds| {
        if !has(is_set) {
            None
        } else if has(is_now) {
            Some(SetTime::Now)
        } else {
            Some(SetTime::To(Timestamp::new(seconds, nanoseconds)))
        }
    };
    SetAttributes {
        permissions: has(setattr::MODE).then_some(fields.mode & 0o7777),
        uid: has(setattr::UID).then_some(fields.uid),
        gid: has(setattr::GID).then_some(fields.gid),
        size_bytes: has(setattr::SIZE).then_some(fields.size),
        accessed: time(
            setattr::ATIME,
            setattr::ATIME_NOW,
            fields.atime,
            fields.atime_ns,
        ),
        modified: time(
            setattr::MTIME,
            setattr::MTIME_NOW,
            fields.mtime,
            fields.mtime_ns,
        ),
        changed: has(setattr::CTIME).then(|| Timestamp::new(fields.ctime, fields.ctime_ns)),
    }
}

#[cfg(test)]
mod tests {
    use finefs_namespace::types::Times;

    use super::*;

    #[test]
    fn the_root_and_node_1_are_swapped_and_nothing_else() {
        let numbers = Numbers::new(Ino(2));
        assert_eq!(numbers.ino(1), Ino(2));
        assert_eq!(numbers.node(Ino(2)), 1);
        assert_eq!(numbers.node(Ino(11)), 11);
        for number in 1..20 {
            assert_eq!(numbers.ino(numbers.node(Ino(number))), Ino(number));
        }
        let same = Numbers::new(Ino(1));
        assert_eq!(same.node(Ino(1)), 1);
        assert_eq!(same.node(Ino(2)), 2);
    }

    fn attributes() -> Attributes {
        Attributes {
            ino: Ino(12),
            generation: 3,
            kind: FileKind::CharDevice,
            permissions: 0o4751,
            link_count: 2,
            uid: 1000,
            gid: 1001,
            device: libc::makedev(8, 300),
            size_bytes: 5,
            sectors: 8,
            times: Times {
                // -1.25 s is (-2, 750_000_000).
                accessed: Timestamp::new(-2, 750_000_000),
                created: Timestamp::new(77, 9),
                ..Times::default()
            },
            flags: finefs_namespace::FileFlags::empty(),
            project: 0,
            is_settled: true,
        }
    }

    #[test]
    fn attributes_go_out_exactly() {
        let attributes = attributes();
        let plain = Shown::default();
        let out = attr(plain, &attributes);
        assert_eq!((out.atime, out.atime_ns), (-2, 750_000_000));
        assert_eq!(out.mode, libc::S_IFCHR | 0o4751);
        // The kernel's new_decode_dev: minor low byte, 12 bits of major, the minor's rest.
        assert_eq!(out.device, (300 & 0xff) | 8 << 8 | (300 & !0xff) << 12);
        let statx = statx_out(plain, &attributes).statx;
        assert_eq!((statx.btime.seconds, statx.btime.nanoseconds), (77, 9));
        assert_eq!((statx.device_major, statx.device_minor), (8, 300));
        assert_ne!(statx.mask & STATX_BTIME, 0);
        let old = Attributes {
            times: Times {
                created: Timestamp::new(0, 0),
                ..Times::default()
            },
            ..attributes
        };
        assert_eq!(statx_out(plain, &old).statx.mask & STATX_BTIME, 0);

        let lives = |attributes| {
            let entry = entry_out(plain, 12, attributes, NameLifetime(FOREVER));
            let attr = attr_out(plain, attributes).valid;
            let statx = statx_out(plain, attributes).valid;
            (attr, statx, entry.attr_valid, entry.entry_valid)
        };
        assert_eq!(lives(&attributes), (FOREVER, FOREVER, FOREVER, FOREVER));
        let unsettled = Attributes {
            is_settled: false,
            ..attributes
        };
        assert_eq!(lives(&unsettled), (1, 1, 1, FOREVER));
    }

    /// What is written may be in the kernel alone.
    #[test]
    fn an_open_file_may_have_more_than_is_known_with_a_writeback_cache() {
        let of = |kind, sectors, has_writeback_cache| {
            let file = Attributes {
                kind,
                sectors,
                ..attributes()
            };
            let shown = Shown {
                has_writeback_cache,
                ..Shown::default()
            };
            let out = attr_out(shown, &file);
            (out.attr.blocks, out.valid)
        };
        assert_eq!(of(FileKind::Regular, 0, true), (1, 1));
        assert_eq!(of(FileKind::Regular, 8, true), (8, FOREVER));
        assert_eq!(of(FileKind::Regular, 0, false), (0, FOREVER));
        assert_eq!(of(FileKind::Symlink, 0, true), (0, FOREVER));
    }

    #[test]
    fn a_view_shows_other_owners_and_permissions_in_every_answer() {
        let file = attributes();
        let shown = |view: View| {
            let so = Shown {
                view,
                has_writeback_cache: false,
            };
            let attr = attr_out(so, &file).attr;
            let entry = entry_out(so, 12, &file, NameLifetime(FOREVER)).attr;
            let statx = statx_out(so, &file).statx;
            let shown = (attr.uid, attr.gid, attr.mode);
            assert_eq!((entry.uid, entry.gid, entry.mode), shown, "{view:?}");
            let of_statx = (statx.uid, statx.gid, u32::from(statx.mode));
            assert_eq!(of_statx, shown, "{view:?}");
            (attr.uid, attr.gid, attr.mode & !libc::S_IFMT)
        };
        let kept = (1000, 1001, 0o4751);
        let plain = View::default();
        assert_eq!(shown(plain), kept);
        let (uid, gid) = (Some(0), Some(7));
        assert_eq!(shown(View { uid, ..plain }), (0, kept.1, kept.2));
        assert_eq!(shown(View { gid, ..plain }), (kept.0, 7, kept.2));
        for (umask, mode) in [(0o077, 0o700), (0, 0o777), (0o777, 0)] {
            let umask = Some(umask);
            assert_eq!(shown(View { umask, ..plain }), (kept.0, kept.1, mode));
            assert_eq!(shown(View { uid, gid, umask }), (0, 7, mode));
        }
        let all = View {
            umask: Some(0),
            ..plain
        };
        let so = Shown {
            view: all,
            has_writeback_cache: false,
        };
        let kind = attr(so, &file).mode & libc::S_IFMT;
        assert_eq!(kind, libc::S_IFCHR);
    }

    #[test]
    fn a_change_takes_only_what_is_marked() {
        let mut fields = SetattrIn {
            valid: 0,
            padding: 0,
            handle: 0,
            size: 9,
            lock_owner: 0,
            atime: i64::MIN,
            mtime: -2,
            ctime: 4,
            atime_ns: 0,
            mtime_ns: 750_000_000,
            ctime_ns: 1,
            mode: 0o100_644,
            unused4: 0,
            uid: 5,
            gid: 6,
            unused5: 0,
        };
        let none = change(&fields);
        assert!(none.permissions.is_none() && none.uid.is_none() && none.gid.is_none());
        assert!(none.size_bytes.is_none() && none.accessed.is_none());
        assert!(none.modified.is_none() && none.changed.is_none());

        fields.valid = setattr::MODE | setattr::MTIME | setattr::ATIME | setattr::ATIME_NOW;
        let some = change(&fields);
        assert_eq!(some.permissions, Some(0o644));
        assert!(matches!(some.accessed, Some(SetTime::Now)));
        let Some(SetTime::To(modified)) = some.modified else {
            panic!("mtime is not set");
        };
        assert_eq!(
            (modified.seconds(), modified.nanoseconds()),
            (-2, 750_000_000)
        );

        // Out of every format's range: clamped, not a panic.
        fields.valid = setattr::ATIME;
        assert!(matches!(change(&fields).accessed, Some(SetTime::To(_))));
    }
}
