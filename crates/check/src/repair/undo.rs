//! Undo files: what lay where a repair or a resize has written.
//!
//! # Format
//! A line that names it, the lengths of the image before and after (8 bytes each), then pages:
//! offset and length (8 bytes each), the bytes; then all ones and the crc32c of everything before.
//! Numbers are little-endian. Files of the first version have one length: a repair keeps it. Where
//! the superblock can be read the first page is the UUID in it, by which a file of another image is
//! told. Files of e2fsprogs' own format, as `mkfs -z` writes them, are put back as well (`e2undo`).

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::checksum::crc32c;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

use super::e2undo;
use super::shadow::{Change, PAGE};

const NAME: &[u8; 14] = b"finefs undo 2\n";
const NAME_1: &[u8; 14] = b"finefs undo 1\n";
const END: u64 = u64::MAX;
/// Where the UUID lies.
const UUID_AT: u64 = SUPERBLOCK_OFFSET + 0x68;

/// An undo file that is to be written.
pub(crate) struct Undo<'a> {
    /// Where; there must be no such file.
    pub path: &'a Path,
    /// Bytes of the image before.
    pub old_bytes: u64,
    /// And after.
    pub new_bytes: u64,
    /// Parts that the image is cut off later: start and length.
    pub cut_off: &'a [(u64, u64)],
}

impl Undo<'_> {
    /// Writes the old bytes of all changes; durable when it returns.
    pub fn write(&self, device: &dyn BlockDevice, changes: &[Change]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(self.path)?;
        let outcome = self.fill(&mut file, device, changes);
        if outcome.is_err() {
            let _ = std::fs::remove_file(self.path);
        }
        outcome
    }

    fn fill(
        &self,
        file: &mut File,
        device: &dyn BlockDevice,
        changes: &[Change],
    ) -> io::Result<()> {
        let mut out = io::BufWriter::new(file);
        let mut crc = !0;
        let mut put = |bytes: &[u8]| {
            crc = crc32c(crc, bytes);
            out.write_all(bytes)
        };
        put(NAME)?;
        put(&self.old_bytes.to_le_bytes())?;
        put(&self.new_bytes.to_le_bytes())?;
        if let Some(uuid) = uuid_of(device) {
            put(&UUID_AT.to_le_bytes())?;
            put(&(uuid.len() as u64).to_le_bytes())?;
            put(&uuid)?;
        }
        for change in changes {
            // A device that was made longer first is cut off again.
            let length = self.old_bytes.saturating_sub(change.offset_bytes);
            let length = length.min(change.old.len() as u64);
            if length > 0 {
                put(&change.offset_bytes.to_le_bytes())?;
                put(&length.to_le_bytes())?;
                put(&change.old[..length as usize])?;
            }
        }
        let mut page = vec![0; PAGE as usize];
        for (start, length) in self.cut_off {
            let mut done = 0;
            while done < *length {
                let part = &mut page[..PAGE.min(length - done) as usize];
                device.read_at(start + done, part)?;
                put(&(start + done).to_le_bytes())?;
                put(&(part.len() as u64).to_le_bytes())?;
                put(part)?;
                done += part.len() as u64;
            }
        }
        put(&END.to_le_bytes())?;
        out.write_all(&crc.to_le_bytes())?;
        out.flush()?;
        out.get_ref().sync_all()
    }
}

/// The UUID of the file system on a device, if its superblock can be read.
fn uuid_of(device: &dyn BlockDevice) -> Option<[u8; 16]> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    Some(Superblock::parse(&bytes).ok()?.uuid())
}

/// Puts back what an undo file holds, of ours or of e2fsprogs, and the image's length; gives the
/// number of pages. Nothing is written unless the file is whole and of this image, as long as it
/// was before or is after.
pub fn undo(path: &Path, device: &Arc<dyn BlockDevice>) -> Result<usize, String> {
    if e2undo::is_one(path) {
        return e2undo::undo(path, device);
    }
    let shown = path.display();
    let (mut count, mut uuid) = (0, None);
    let lengths = read(path, &mut |offset_bytes, old| {
        match <[u8; 16]>::try_from(old) {
            Ok(found) if offset_bytes == UUID_AT => uuid = Some(found),
            _ => count += 1,
        }
        Ok(())
    })
    .map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            format!("{shown}: is no whole undo file")
        }
        _ => format!("{shown}: {error}"),
    })?;
    let has = device.len_bytes();
    if has != lengths.old && has != lengths.new {
        return Err(format!(
            "{shown}: is of an image of {} bytes; {} has {has}",
            lengths.old,
            device.describe(),
        ));
    }
    let is_of_another = |found: [u8; 16]| uuid.is_some_and(|uuid| uuid != found);
    if uuid_of(&**device).is_some_and(is_of_another) {
        return Err(format!(
            "{shown}: is of another file system than {}: their UUIDs differ",
            device.describe(),
        ));
    }
    let write = |error: io::Error| format!("{}: {error}", device.describe());
    if has < lengths.old {
        device.set_len_bytes(lengths.old).map_err(write)?;
    }
    read(path, &mut |offset_bytes, old| {
        device.write_at(offset_bytes, old)
    })
    .map_err(write)?;
    device.flush().map_err(write)?;
    if has > lengths.old {
        device.set_len_bytes(lengths.old).map_err(write)?;
    }
    Ok(count)
}

struct Lengths {
    old: u64,
    new: u64,
}

/// Reads an undo file and calls `each` with its pages; whether it is whole is known at its end.
fn read(path: &Path, each: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<Lengths> {
    let damaged = || io::Error::from(io::ErrorKind::InvalidData);
    let mut file = BufReader::new(File::open(path)?);
    let mut crc = !0;
    let mut take = |buffer: &mut [u8], counts: bool| {
        file.read_exact(buffer)?;
        if counts {
            crc = crc32c(crc, buffer);
        }
        Ok::<u32, io::Error>(crc)
    };
    let mut name = [0; NAME.len()];
    take(&mut name, true)?;
    let mut word = [0; 8];
    take(&mut word, true)?;
    let old = u64::from_le_bytes(word);
    let new = match &name {
        NAME => {
            take(&mut word, true)?;
            u64::from_le_bytes(word)
        }
        NAME_1 => old,
        _ => return Err(damaged()),
    };
    let mut page = vec![0; PAGE as usize];
    loop {
        let expected = take(&mut word, true)?;
        let offset_bytes = u64::from_le_bytes(word);
        if offset_bytes == END {
            let mut sum = [0; 4];
            take(&mut sum, false)?;
            let is_whole = sum == expected.to_le_bytes() && take(&mut [0], false).is_err();
            return match is_whole {
                true => Ok(Lengths { old, new }),
                false => Err(damaged()),
            };
        }
        take(&mut word, true)?;
        let length = u64::from_le_bytes(word);
        if length > PAGE || offset_bytes.checked_add(length).is_none_or(|end| end > old) {
            return Err(damaged());
        }
        let part = &mut page[..length as usize];
        take(part, true)?;
        each(offset_bytes, part)?;
    }
}

/// Where the undo file of an image lies if nobody says.
pub fn default_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".undo");
    name.into()
}
