//! Stat data: attributes of an object, in two versions that are told apart by their length.

use crate::bytes::{le16, le32, le64, put16, put32, put64};
use crate::error::{Corrupt, Result};

/// Bytes of format 3.5's stat data.
pub const OLD_SIZE: usize = 32;

/// Bytes of format 3.6's.
pub const NEW_SIZE: usize = 44;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are POSIX's")]
pub enum FileKind {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

/// The attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatData {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub permissions: u16,
    /// Names.
    pub link_count: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last read, in seconds since 1970, without sign.
    pub accessed: u32,
    /// Last change of the content.
    pub modified: u32,
    /// Last change of content or attributes.
    pub changed: u32,
    /// Space used, in units of 512 bytes.
    pub sectors: u32,
    /// Device number of a device node: (major, minor).
    pub device: (u32, u32),
    /// Tells objects that had the same number apart. Format 3.5 and device nodes have none.
    pub generation: Option<u32>,
    /// Attributes of chattr(1), where the superblock says that they are good.
    pub attributes: u16,
    /// Of format 3.6, which objects need that have extended attributes.
    pub is_new: bool,
    /// Where the bytes of the file that are in the tree begin (its first direct item's offset);
    /// `None` where there are none. Format 3.6 does not tell.
    pub first_direct: Option<u32>,
}

/// What stands for no direct item.
const NO_DIRECT: u32 = u32::MAX;

impl StatData {
    /// Takes the body of a stat data item.
    pub fn parse(body: &[u8]) -> Result<StatData> {
        match body.len() {
            OLD_SIZE => old(body),
            NEW_SIZE => new(body),
            other => Err(Corrupt::StatLength(other).into()),
        }
    }

    /// The body of its item.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mode = mode(self.kind) | self.permissions & 0o7777;
        let device = is_device(self.kind).then(|| device_number(self.device));
        if !self.is_new {
            let mut body = vec![0; OLD_SIZE];
            put16(&mut body, 0, mode);
            put16(
                &mut body,
                2,
                self.link_count.min(u32::from(u16::MAX)) as u16,
            );
            put16(&mut body, 4, self.uid as u16);
            put16(&mut body, 6, self.gid as u16);
            put32(&mut body, 8, self.size as u32);
            put32(&mut body, 12, self.accessed);
            put32(&mut body, 16, self.modified);
            put32(&mut body, 20, self.changed);
            put32(&mut body, 24, device.unwrap_or(self.sectors));
            put32(&mut body, 28, self.first_direct.unwrap_or(NO_DIRECT));
            return body;
        }
        let mut body = vec![0; NEW_SIZE];
        put16(&mut body, 0, mode);
        put16(&mut body, 2, self.attributes);
        put32(&mut body, 4, self.link_count);
        put64(&mut body, 8, self.size);
        put32(&mut body, 16, self.uid);
        put32(&mut body, 20, self.gid);
        put32(&mut body, 24, self.accessed);
        put32(&mut body, 28, self.modified);
        put32(&mut body, 32, self.changed);
        put32(&mut body, 36, self.sectors);
        let generation = self.generation.unwrap_or_default();
        put32(&mut body, 40, device.unwrap_or(generation));
        body
    }
}

fn mode(kind: FileKind) -> u16 {
    match kind {
        FileKind::Fifo => 0x1000,
        FileKind::CharDevice => 0x2000,
        FileKind::Directory => 0x4000,
        FileKind::BlockDevice => 0x6000,
        FileKind::Regular => 0x8000,
        FileKind::Symlink => 0xa000,
        FileKind::Socket => 0xc000,
    }
}

fn kind(mode: u16) -> Result<FileKind> {
    Ok(match mode & 0xf000 {
        0x1000 => FileKind::Fifo,
        0x2000 => FileKind::CharDevice,
        0x4000 => FileKind::Directory,
        0x6000 => FileKind::BlockDevice,
        0x8000 => FileKind::Regular,
        0xa000 => FileKind::Symlink,
        0xc000 => FileKind::Socket,
        _ => return Err(Corrupt::Mode(mode).into()),
    })
}

fn is_device(kind: FileKind) -> bool {
    matches!(kind, FileKind::CharDevice | FileKind::BlockDevice)
}

/// The kernel's `new_decode_dev`.
fn device(number: u32) -> (u32, u32) {
    (
        (number & 0xf_ff00) >> 8,
        number & 0xff | number >> 12 & 0xf_ff00,
    )
}

/// The kernel's `new_encode_dev`.
fn device_number((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

fn old(body: &[u8]) -> Result<StatData> {
    let kind = kind(le16(body, 0))?;
    let word = le32(body, 24);
    Ok(StatData {
        kind,
        permissions: le16(body, 0) & 0o7777,
        link_count: u32::from(le16(body, 2)),
        uid: u32::from(le16(body, 4)),
        gid: u32::from(le16(body, 6)),
        size: u64::from(le32(body, 8)),
        accessed: le32(body, 12),
        modified: le32(body, 16),
        changed: le32(body, 20),
        sectors: if is_device(kind) { 0 } else { word },
        device: if is_device(kind) {
            device(word)
        } else {
            (0, 0)
        },
        generation: None,
        attributes: 0,
        is_new: false,
        first_direct: Some(le32(body, 28)).filter(|&first| first != NO_DIRECT),
    })
}

fn new(body: &[u8]) -> Result<StatData> {
    let kind = kind(le16(body, 0))?;
    let word = le32(body, 40);
    let size = le64(body, 8);
    if i64::try_from(size).is_err() {
        return Err(Corrupt::FileSize(size).into());
    }
    Ok(StatData {
        kind,
        permissions: le16(body, 0) & 0o7777,
        link_count: le32(body, 4),
        uid: le32(body, 16),
        gid: le32(body, 20),
        size,
        accessed: le32(body, 24),
        modified: le32(body, 28),
        changed: le32(body, 32),
        sectors: le32(body, 36),
        device: if is_device(kind) {
            device(word)
        } else {
            (0, 0)
        },
        generation: (!is_device(kind)).then_some(word),
        attributes: le16(body, 2),
        is_new: true,
        first_direct: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions() {
        let mut body = vec![0; OLD_SIZE];
        body[..4].copy_from_slice(&[0xed, 0x41, 3, 0]);
        body[8] = 48;
        body[24] = 1;
        body[28..].fill(0xff);
        let old = StatData::parse(&body).expect("a directory");
        assert_eq!(old.to_bytes(), body);
        assert_eq!((old.kind, old.permissions), (FileKind::Directory, 0o755));
        assert_eq!((old.link_count, old.size, old.sectors), (3, 48, 1));
        assert_eq!((old.generation, old.is_new), (None, false));

        let mut body = vec![0; NEW_SIZE];
        body[..4].copy_from_slice(&[0xa4, 0x81, 0x10, 0]);
        body[12] = 1;
        body[36] = 8;
        body[40] = 9;
        let new = StatData::parse(&body).expect("a file");
        assert_eq!(
            (new.kind, new.size, new.sectors),
            (FileKind::Regular, 1 << 32, 8)
        );
        assert_eq!((new.generation, new.attributes), (Some(9), 0x10));
        assert_eq!(new.to_bytes(), body);
    }

    #[test]
    fn devices() {
        let mut body = vec![0; NEW_SIZE];
        body[1] = 0x20;
        body[40..44].copy_from_slice(&0x1234_5678_u32.to_le_bytes());
        let node = StatData::parse(&body).expect("a device");
        assert_eq!((node.device, node.generation), ((0x456, 0x1_2378), None));
        assert_eq!(node.to_bytes(), body);
    }

    #[test]
    fn damage() {
        assert!(StatData::parse(&[0; 31]).is_err());
        assert!(StatData::parse(&[0; NEW_SIZE]).is_err());
        let mut body = vec![0; NEW_SIZE];
        (body[1], body[15]) = (0x80, 0x80);
        assert_eq!(
            StatData::parse(&body),
            Err(Corrupt::FileSize(1 << 63).into())
        );
    }
}
