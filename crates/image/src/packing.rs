//! How archives are compressed.

use std::ffi::OsStr;
use std::io::{Read, Write};

use crate::error::Result;

/// A compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// None.
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// zstd (RFC 8878).
    Zstd,
    /// xz.
    Xz,
}

/// The preset that xz(1) has.
const XZ_PRESET: u32 = 6;

impl Packing {
    /// What data that begins so is compressed by; 6 bytes are enough.
    pub(crate) fn of_start(start: &[u8]) -> Packing {
        match start {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            // A frame to be skipped: those of pzstd begin with one.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
            _ => Packing::None,
        }
    }

    /// What a file with this name is to be compressed by, as tar --auto-compress has it.
    pub fn of_name(name: &OsStr) -> Packing {
        let name = name.as_encoded_bytes();
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end.as_bytes()));
        if ends(&[".gz", ".tgz", ".taz"]) {
            Packing::Gzip
        } else if ends(&[".zst", ".tzst"]) {
            Packing::Zstd
        } else if ends(&[".xz", ".txz"]) {
            Packing::Xz
        } else {
            Packing::None
        }
    }

    /// The compression that a file's name asks for, where it is one that there is not.
    pub fn lacking_of_name(name: &OsStr) -> Option<&'static str> {
        const LACKING: [(&[&str], &str); 6] = [
            (&[".bz2", ".tbz", ".tbz2", ".tz2"], "bzip2"),
            (&[".lzma", ".tlz"], "lzma"),
            (&[".lz"], "lzip"),
            (&[".lzo"], "lzop"),
            (&[".lz4"], "lz4"),
            (&[".Z", ".taZ"], "compress"),
        ];
        let name = name.as_encoded_bytes();
        let asks = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end.as_bytes()));
        LACKING
            .iter()
            .find(|(ends, _)| asks(ends))
            .map(|(_, program)| *program)
    }

    /// Reads what is compressed so.
    pub(crate) fn reader<'a>(self, from: impl Read + 'a) -> std::io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Packing::None => Box::new(from),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(from)),
            Packing::Zstd => Box::new(zstd::Decoder::new(from)?),
            Packing::Xz => Box::new(liblzma::read::XzDecoder::new_multi_decoder(from)),
        })
    }

    /// Writes what `body` writes, compressed; `failed` tells where the rest failed.
    pub(crate) fn write(
        self,
        mut to: &mut dyn Write,
        failed: &dyn Fn(std::io::Error) -> crate::Error,
        body: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        match self {
            Packing::None => body(&mut to)?,
            Packing::Gzip => {
                let mut packer = flate2::write::GzEncoder::new(&mut to, Default::default());
                body(&mut packer)?;
                packer.finish().map_err(failed)?;
            }
            Packing::Zstd => {
                let level = zstd::DEFAULT_COMPRESSION_LEVEL;
                let mut packer = zstd::Encoder::new(&mut to, level).map_err(failed)?;
                body(&mut packer)?;
                packer.finish().map_err(failed)?;
            }
            Packing::Xz => {
                let mut packer = liblzma::write::XzEncoder::new(&mut to, XZ_PRESET);
                body(&mut packer)?;
                packer.finish().map_err(failed)?;
            }
        }
        to.flush().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_known_by_its_name() {
        for (name, program) in [
            ("a.tar.bz2", Some("bzip2")),
            ("a.tbz", Some("bzip2")),
            ("a.tar.Z", Some("compress")),
            ("a.tar.lz", Some("lzip")),
            ("a.tar.xz", None),
            ("a.tar", None),
        ] {
            assert_eq!(
                Packing::lacking_of_name(OsStr::new(name)),
                program,
                "{name}"
            );
        }
    }

    #[test]
    fn packings_are_known_by_their_first_bytes() {
        for (packing, name) in [
            (Packing::None, "a.tar"),
            (Packing::Gzip, "a.tgz"),
            (Packing::Zstd, "a.tar.zst"),
            (Packing::Xz, "a.tar.xz"),
        ] {
            assert_eq!(Packing::of_name(OsStr::new(name)), packing);
            let mut packed = Vec::new();
            let failed = |error: std::io::Error| crate::Error::new("", error.to_string());
            packing
                .write(&mut packed, &failed, |to| {
                    to.write_all(b"text").map_err(failed)
                })
                .unwrap();
            assert_eq!(Packing::of_start(&packed), packing);
            let mut text = String::new();
            let mut reader = packing.reader(packed.as_slice()).unwrap();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "text");
            drop(reader);
            if packing == Packing::Zstd {
                // As pzstd writes it, which begins with a frame for itself.
                packed.splice(0..0, *b"\x50\x2a\x4d\x18\x04\0\0\0size");
                assert_eq!(Packing::of_start(&packed), packing);
                let mut reader = packing.reader(packed.as_slice()).unwrap();
                text.clear();
                reader.read_to_string(&mut text).unwrap();
                assert_eq!(text, "text");
            }
        }
    }
}
