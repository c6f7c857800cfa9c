//! The formats, and how they are recognised.

use std::fmt;
use std::io;

use finefs_block::BlockDevice;

use crate::vhd;

/// How an image lies in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// As it is.
    Raw,
    /// QEMU's copy-on-write.
    Qcow2,
    /// VMware's, flat: a descriptor beside a raw file.
    Vmdk,
    /// Microsoft's, fixed: raw with a footer.
    Vhd,
    /// Android's sparse image.
    AndroidSparse,
    /// Raw, compressed by gzip.
    Gzip,
    /// Raw, compressed by zstd.
    Zstd,
    /// Raw, compressed by xz.
    Xz,
}

impl Format {
    /// The name that users give it by.
    pub fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
            Format::Vmdk => "vmdk",
            Format::Vhd => "vhd",
            Format::AndroidSparse => "android-sparse",
            Format::Gzip => "gzip",
            Format::Zstd => "zstd",
            Format::Xz => "xz",
        }
    }

    /// The format of this name.
    pub fn of_name(name: &str) -> Option<Format> {
        let all = [
            Format::Raw,
            Format::Qcow2,
            Format::Vmdk,
            Format::Vhd,
            Format::AndroidSparse,
            Format::Gzip,
            Format::Zstd,
            Format::Xz,
        ];
        all.into_iter().find(|format| format.name() == name)
    }

    /// False for what can only be read.
    pub fn can_be_written(self) -> bool {
        matches!(
            self,
            Format::Raw | Format::Qcow2 | Format::Vmdk | Format::Vhd
        )
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes at the start of an image that tell its format.
const START_BYTES: usize = 512;

/// What makes a raw image of it.
const QEMU: &str = "qemu-img convert -O raw";
const EWF: &str = "ewfexport";

/// What begins so and at this offset, what it is called, where finefs cannot read it, and what
/// can.
const FOREIGN: [(usize, &[u8], &str, &str); 12] = [
    (0, b"vhdxfile", "a VHDX image", QEMU),
    (0, b"EVF\x09\x0d\x0a\xff\x00", "an EnCase (E01) image", EWF),
    (0, b"EVF2\x0d\x0a\x81\x00", "an EnCase (Ex01) image", EWF),
    (0, b"conectix", "a dynamic VHD image", QEMU),
    (0, b"KDMV", "a sparse VMDK image", QEMU),
    (0, b"COWD", "a sparse VMDK image", QEMU),
    (0, b"QED\0", "a QED image", QEMU),
    (0, b"WithoutFreeSpace", "a Parallels image", QEMU),
    (
        64,
        &[0x7f, 0x10, 0xda, 0xbe],
        "a VirtualBox (VDI) image",
        QEMU,
    ),
    (0, b"BZh", "packed by bzip2", "bunzip2"),
    (0, b"\x04\x22\x4d\x18", "packed by lz4", "lz4 -d"),
    (0, b"PK\x03\x04", "a zip archive", "unzip"),
];

/// The format of a file by its first bytes and, for VHD, its last ones. An error says what it is
/// that cannot be read, and what to do.
pub fn recognise(file: &dyn BlockDevice) -> io::Result<Result<Format, String>> {
    let mut start = [0; START_BYTES];
    let length = file.len_bytes().min(START_BYTES as u64) as usize;
    file.read_at(0, &mut start[..length])?;
    let start = &start[..length];
    for (at, magic, name, program) in FOREIGN {
        if start.get(at..at + magic.len()) == Some(magic) {
            let reason =
                format!("is {name}, which finefs cannot read; convert it first, by {program}");
            return Ok(Err(reason));
        }
    }
    Ok(Ok(match start {
        [b'Q', b'F', b'I', 0xfb, 0, 0, 0, 2 | 3, ..] => Format::Qcow2,
        [0x3a, 0xff, 0x26, 0xed, 1, 0, ..] => Format::AndroidSparse,
        [0x1f, 0x8b, 8, ..] => Format::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Format::Zstd,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Format::Xz,
        _ if start.starts_with(b"# Disk DescriptorFile") => Format::Vmdk,
        _ if vhd::has_footer(file)? => Format::Vhd,
        _ => Format::Raw,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;

    fn of(bytes: &[u8]) -> Result<Format, String> {
        recognise(&MemoryDevice::from_bytes(bytes)).unwrap()
    }

    #[test]
    fn formats_are_recognised_by_their_magic() {
        assert_eq!(of(b""), Ok(Format::Raw));
        assert_eq!(of(&[0; 5000]), Ok(Format::Raw));
        assert_eq!(of(b"QFI\xfb\0\0\0\x03"), Ok(Format::Qcow2));
        assert_eq!(of(b"# Disk DescriptorFile\nversion=1\n"), Ok(Format::Vmdk));
        assert_eq!(of(b"\x1f\x8b\x08\0"), Ok(Format::Gzip));
        for (at, magic, name, _) in FOREIGN {
            let bytes = [&vec![0; at][..], magic, &[0; 600]].concat();
            assert!(of(&bytes).unwrap_err().contains(name), "{name}");
        }
    }
}
