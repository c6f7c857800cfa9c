//! Undo files: what lay where a repair has written.
//!
//! # Format
//! A line that names it, the length of the image (8 bytes), then pages: offset and length (8 bytes
//! each), the bytes; then all ones and the crc32c of everything before. Numbers are
//! little-endian.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::checksum::crc32c;

use super::shadow::{Change, PAGE};

const NAME: &[u8] = b"finefs undo 1\n";
const END: u64 = u64::MAX;

/// Writes the old bytes of all changes; durable when it returns. The file must not exist.
pub(super) fn write(path: &Path, image_bytes: u64, changes: &[Change]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let outcome = fill(&mut file, image_bytes, changes);
    if outcome.is_err() {
        let _ = std::fs::remove_file(path);
    }
    outcome
}

fn fill(file: &mut File, image_bytes: u64, changes: &[Change]) -> io::Result<()> {
    let mut out = io::BufWriter::new(file);
    let mut crc = !0;
    let mut put = |bytes: &[u8]| {
        crc = crc32c(crc, bytes);
        out.write_all(bytes)
    };
    put(NAME)?;
    put(&image_bytes.to_le_bytes())?;
    for change in changes {
        put(&change.offset_bytes.to_le_bytes())?;
        put(&(change.old.len() as u64).to_le_bytes())?;
        put(&change.old)?;
    }
    put(&END.to_le_bytes())?;
    out.write_all(&crc.to_le_bytes())?;
    out.flush()?;
    out.get_ref().sync_all()
}

/// Puts back what an undo file holds; gives the number of pages. Nothing is written unless the file
/// is whole and of an image of this length.
pub fn undo(path: &Path, device: &Arc<dyn BlockDevice>) -> Result<usize, String> {
    let shown = path.display();
    let read = |error: io::Error| format!("{shown}: {error}");
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(read)?;
    let pages = pages(&bytes).ok_or_else(|| format!("{shown}: is no whole undo file"))?;
    if pages.image_bytes != device.len_bytes() {
        return Err(format!(
            "{shown}: is of an image of {} bytes; {} has {}",
            pages.image_bytes,
            device.describe(),
            device.len_bytes()
        ));
    }
    let write = |error: io::Error| format!("{}: {error}", device.describe());
    for (offset_bytes, old) in &pages.list {
        device.write_at(*offset_bytes, old).map_err(write)?;
    }
    device.flush().map_err(write)?;
    Ok(pages.list.len())
}

struct Pages<'a> {
    image_bytes: u64,
    list: Vec<(u64, &'a [u8])>,
}

fn pages(bytes: &[u8]) -> Option<Pages<'_>> {
    let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    if crc32c(!0, body).to_le_bytes() != crc {
        return None;
    }
    let mut rest = body.strip_prefix(NAME)?;
    let word = |rest: &mut &[u8]| {
        let (word, after) = rest.split_first_chunk::<8>()?;
        let word = u64::from_le_bytes(*word);
        *rest = after;
        Some(word)
    };
    let image_bytes = word(&mut rest)?;
    let mut list = Vec::new();
    loop {
        let offset_bytes = word(&mut rest)?;
        if offset_bytes == END {
            return Some(Pages { image_bytes, list });
        }
        let length = word(&mut rest)?;
        if length > PAGE || offset_bytes.checked_add(length)? > image_bytes {
            return None;
        }
        let (old, after) = rest.split_at_checked(length as usize)?;
        rest = after;
        list.push((offset_bytes, old));
    }
}

/// Where the undo file of an image lies if nobody says.
pub fn default_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".undo");
    name.into()
}
