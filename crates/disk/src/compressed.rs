//! Raw images compressed by gzip, zstd or xz, to read.
//!
//! They are unpacked whole into a file without a name, in TMPDIR or /var/tmp: sparse, and in memory
//! only what one step needs. None of the three formats can be read from its middle in general.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use finefs_block::{BlockDevice, Extent, FileDevice, bounds};

use crate::format::Format;

/// Zeros of this size and place become holes.
const STEP_BYTES: usize = 64 << 10;
/// A decoder of zstd takes no more memory than this (its window), in bits.
const ZSTD_WINDOW_BITS: u32 = 27;
/// A decoder of xz takes no more memory than this.
const XZ_MEMORY_BYTES: u64 = 256 << 20;

/// A compressed image.
pub(crate) struct UnpackedDevice {
    file: File,
    length_bytes: u64,
    path: PathBuf,
}

/// Unpacks an image.
pub(crate) fn open(packed: &FileDevice, format: Format) -> io::Result<UnpackedDevice> {
    let mut file = packed.file()?;
    file.rewind()?;
    let from = BufReader::with_capacity(STEP_BYTES, file);
    let mut reader: Box<dyn Read> = match format {
        Format::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(from)?;
            decoder.window_log_max(ZSTD_WINDOW_BITS)?;
            Box::new(decoder)
        }
        Format::Xz => {
            let flags = liblzma::stream::CONCATENATED;
            let stream = liblzma::stream::Stream::new_auto_decoder(XZ_MEMORY_BYTES, flags)?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(from, stream))
        }
        _ => Box::new(flate2::bufread::MultiGzDecoder::new(from)),
    };
    let directory = std::env::var_os("TMPDIR").filter(|path| !path.is_empty());
    let directory = directory.map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    let file =
        tempfile::tempfile_in(&directory).map_err(|error| in_directory(&directory, error))?;
    let length_bytes =
        unpack(&mut *reader, &file, format).map_err(|error| match error.raw_os_error() {
            Some(_) => in_directory(&directory, error),
            None => error,
        })?;
    Ok(UnpackedDevice {
        file,
        length_bytes,
        path: packed.path().to_owned(),
    })
}

fn in_directory(directory: &Path, error: io::Error) -> io::Error {
    io::Error::other(format!(
        "cannot be unpacked in {} (TMPDIR says where): {error}",
        directory.display()
    ))
}

/// Gives the number of bytes.
fn unpack(from: &mut dyn Read, to: &File, format: Format) -> io::Result<u64> {
    let damaged = |error: io::Error| {
        io::Error::other(format!(
            "is damaged: cannot be unpacked by {format}: {error}"
        ))
    };
    let mut step = vec![0; STEP_BYTES];
    let mut at = 0;
    loop {
        let mut length = 0;
        while length < step.len() {
            match from.read(&mut step[length..]).map_err(damaged)? {
                0 => break,
                more => length += more,
            }
        }
        if step[..length].iter().any(|byte| *byte != 0) {
            to.write_all_at(&step[..length], at)?;
        }
        at += length as u64;
        if length < step.len() {
            to.set_len(at)?;
            return Ok(at);
        }
    }
}

impl BlockDevice for UnpackedDevice {
    fn len_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        bounds::check(self.length_bytes, offset_bytes, buffer.len() as u64)?;
        self.file.read_exact_at(buffer, offset_bytes)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn extent_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Extent> {
        bounds::check(self.length_bytes, offset_bytes, length_bytes)?;
        finefs_block::file::extent_of(&self.file, offset_bytes, length_bytes)
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}
