//! Results that several procedures give.

use finefs_namespace::{Attributes, FileKind, Timestamp};

use crate::changes::Before;
use crate::export::Export;
use crate::xdr::Writer;

/// `wcc_data`: a file before and after a change.
#[derive(Default)]
pub(super) struct Wcc {
    /// Not where something else may have changed it in between; see `changes`.
    pub before: Option<Before>,
    pub after: Option<Attributes>,
}

/// The length of `post_op_attr` with attributes.
pub(super) const POST_OP_BYTES: usize = 4 + 84;

const fn kind(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// Times before 1970 and after 2106 are shown as these: the protocol has no others.
pub(super) fn put_time(out: &mut Writer, time: Timestamp) {
    match u32::try_from(time.seconds()) {
        Ok(seconds) => {
            out.u32(seconds);
            out.u32(time.nanoseconds());
        }
        Err(_) => {
            out.u32(if time.seconds() < 0 { 0 } else { u32::MAX });
            out.u32(0);
        }
    }
}

/// Seconds and nanoseconds as [`put_time`] writes them.
pub(super) fn is_shown_as(time: Timestamp, shown: Timestamp) -> bool {
    let bytes = |time| {
        let mut out = Writer::default();
        put_time(&mut out, time);
        out.bytes().to_vec()
    };
    bytes(time) == bytes(shown)
}

/// `fattr3`
pub(super) fn put_attributes(out: &mut Writer, export: &Export, attributes: &Attributes) {
    out.u32(kind(attributes.kind));
    out.u32(attributes.permissions & 0o7777);
    out.u32(attributes.link_count);
    out.u32(attributes.uid);
    out.u32(attributes.gid);
    out.u64(attributes.size_bytes);
    out.u64(attributes.sectors * 512);
    out.u32(libc::major(attributes.device));
    out.u32(libc::minor(attributes.device));
    out.u64(export.id());
    out.u64(attributes.ino.0);
    put_time(out, attributes.times.accessed);
    put_time(out, attributes.times.modified);
    put_time(out, attributes.times.changed);
}

/// `post_op_attr`
pub(super) fn put_post_op(out: &mut Writer, export: &Export, attributes: Option<&Attributes>) {
    out.bool(attributes.is_some());
    if let Some(attributes) = attributes {
        put_attributes(out, export, attributes);
    }
}

/// `wcc_data`
pub(super) fn put_wcc(out: &mut Writer, export: &Export, wcc: &Wcc) {
    out.bool(wcc.before.is_some());
    if let Some(before) = wcc.before {
        out.u64(before.size_bytes);
        put_time(out, before.modified);
        put_time(out, before.changed);
    }
    put_post_op(out, export, wcc.after.as_ref());
}

/// `post_op_fh3` and `post_op_attr` of what was made.
pub(super) fn put_made(out: &mut Writer, export: &Export, made: &Attributes) {
    out.bool(true);
    out.opaque(&export.handle(made.ino, made.generation));
    put_post_op(out, export, Some(made));
}
