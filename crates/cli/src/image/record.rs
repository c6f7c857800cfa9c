//! What files are, as JSON.

use std::ffi::OsStr;

use finefs_image::Attributes;
use serde::Serialize;

use super::session::At;
use super::text;

/// A file as scripts read it. Times are universal, in nanoseconds.
#[derive(Serialize)]
pub(super) struct Record {
    image: String,
    path: String,
    /// The bytes of a path that is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Octal, with set-id bits.
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    /// Of 512 bytes.
    blocks: u64,
    nlink: u64,
    ino: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<(u32, u32)>,
    atime: String,
    mtime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    crtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Record {
    pub fn new(at: &At, attributes: &Attributes) -> Record {
        let is_symlink = attributes.kind == finefs::FileKind::Symlink;
        let target = is_symlink
            .then(|| at.fs.read_link(at.path()).ok())
            .flatten();
        Record {
            image: at.address.image.display().to_string(),
            path: at.path().display().to_string(),
            path_hex: hex_unless_utf8(at.path().as_os_str()),
            kind: kind(attributes),
            mode: format!("{:04o}", attributes.permissions),
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            blocks: attributes.sectors,
            nlink: attributes.links,
            ino: attributes.ino,
            device: text::is_device(attributes).then(|| text::device_numbers(attributes)),
            atime: text::rfc3339(attributes.accessed),
            mtime: text::rfc3339(attributes.modified),
            ctime: text::rfc3339(attributes.changed),
            crtime: attributes.born.map(text::rfc3339),
            target: target.map(|target| target.display().to_string()),
        }
    }
}

fn kind(attributes: &Attributes) -> &'static str {
    use finefs::FileKind as Kind;
    match attributes.kind {
        Kind::Regular => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::BlockDevice => "block",
        Kind::CharDevice => "char",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
    }
}

/// The bytes of a path that is not UTF-8, in hexadecimal.
pub(super) fn hex_unless_utf8(path: &OsStr) -> Option<String> {
    let bytes = path.as_encoded_bytes();
    let is_text = std::str::from_utf8(bytes).is_ok();
    (!is_text).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
