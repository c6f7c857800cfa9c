//! Undo files: what lay where a repair or a resize has written.
//!
//! # Format
//! A line that names it, the lengths of the image before and after (8 bytes each), then pages:
//! offset and length (8 bytes each), the number of its sectors that are written over (8 bytes: all,
//! or 0 for what is cut off) and the crc32c of what each of them becomes (4 bytes), the bytes; then
//! all ones and the crc32c of everything before. Numbers are little-endian. Files of the second
//! version have nothing on sectors, those of the first one length besides: a repair keeps it. Where
//! the superblock can be read the first page is the UUID in it, by which a file of another image is
//! told. Files of e2fsprogs' own format, as `mkfs -z` writes them, are put back as well (`e2undo`).
//!
//! An image whose sectors are neither as they were nor as they became was changed since. A write
//! that was interrupted leaves whole sectors.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::IfChecked;
use finefs_ext_disk::checksum::crc32c;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};

use super::shadow::{Change, PAGE};
use super::{ChangedSince, e2undo};
use crate::mmp;

const NAME: &[u8; 14] = b"finefs undo 3\n";
const NAME_2: &[u8; 14] = b"finefs undo 2\n";
const NAME_1: &[u8; 14] = b"finefs undo 1\n";
const END: u64 = u64::MAX;
/// What a disk writes as a whole.
const SECTOR: usize = 512;
/// Where the UUID lies.
const UUID_AT: u64 = SUPERBLOCK_OFFSET + 0x68;

/// Makes the name of a new file durable, where the file system does that.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    match File::open(parent.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all()) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

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
        let outcome = self
            .fill(&mut file, device, changes)
            .and_then(|()| sync_directory(self.path));
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
            put(&0_u64.to_le_bytes())?;
            put(&uuid)?;
        }
        for change in changes {
            // A device that was made longer first is cut off again.
            let length = self.old_bytes.saturating_sub(change.offset_bytes);
            let length = length.min(change.old.len() as u64);
            if length > 0 {
                put(&change.offset_bytes.to_le_bytes())?;
                put(&length.to_le_bytes())?;
                let new = change.new[..length as usize].chunks(SECTOR);
                put(&(new.len() as u64).to_le_bytes())?;
                for sector in new {
                    put(&crc32c(!0, sector).to_le_bytes())?;
                }
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
                put(&0_u64.to_le_bytes())?;
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
pub fn undo(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    changed: ChangedSince,
) -> Result<usize, String> {
    let shown = path.display();
    // Before it waits for other hosts.
    File::open(path).map_err(|error| format!("{shown}: {error}"))?;
    let if_checked = match changed {
        ChangedSince::Refused => IfChecked::Refused,
        ChangedSince::PutBack { .. } => IfChecked::TakenOver,
    };
    let named = |reason: String| format!("{}: {reason}", device.describe());
    let _held = mmp::hold(device, if_checked).map_err(named)?;
    match e2undo::is_one(path) {
        true => e2undo::undo(path, device, changed),
        false => put_back(path, device, changed),
    }
}

fn put_back(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    changed: ChangedSince,
) -> Result<usize, String> {
    let shown = path.display();
    let (mut count, mut uuid, mut strange) = (0, None, 0);
    let lengths = read(path, &mut |page| {
        match <[u8; 16]>::try_from(page.old) {
            Ok(found) if page.offset_bytes == UUID_AT => uuid = Some(found),
            _ => {
                count += 1;
                strange += usize::from(!page.is_known_on(&**device));
            }
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
    if strange > 0 && changed == ChangedSince::Refused {
        return Err(format!(
            "{}: was changed since {shown} was made, or is another copy: {strange} of {count} \
             pages are neither as they were nor as they were made then; --force puts them back all \
             the same",
            device.describe(),
        ));
    }
    let write = |error: io::Error| format!("{}: {error}", device.describe());
    if has < lengths.old {
        device.set_len_bytes(lengths.old).map_err(write)?;
    }
    read(path, &mut |page| {
        device.write_at(page.offset_bytes, page.old)
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

/// A page of an undo file.
struct Page<'a> {
    offset_bytes: u64,
    old: &'a [u8],
    /// The crc32c of what each sector becomes; none where nothing is written over it.
    new_crcs: &'a [u32],
}

impl Page<'_> {
    /// Whether each sector of it is on the device as it was or as it became. What cannot be read is
    /// to be made longer first.
    fn is_known_on(&self, device: &dyn BlockDevice) -> bool {
        let mut found = vec![0; self.old.len()];
        if device.read_at(self.offset_bytes, &mut found).is_err() {
            return true;
        }
        let marked = self.marked();
        let sectors = found.chunks(SECTOR).zip(self.new_crcs).enumerate();
        sectors.into_iter().all(|(index, (found, new_crc))| {
            let is_in = |page: &[u8]| page.chunks(SECTOR).nth(index) == Some(found);
            is_in(self.old) || crc32c(!0, found) == *new_crc || marked.as_deref().is_some_and(is_in)
        })
    }

    /// As it is while changes are written: the superblock in it marked as damaged.
    fn marked(&self) -> Option<Vec<u8>> {
        let at = usize::try_from(SUPERBLOCK_OFFSET.checked_sub(self.offset_bytes)?).ok()?;
        let mut bytes = self.old.to_vec();
        let place = bytes.get_mut(at..at + SUPERBLOCK_SIZE)?;
        let superblock: [u8; SUPERBLOCK_SIZE] = (&*place).try_into().ok()?;
        let marked = marked_as_damaged(Superblock::parse(&superblock).ok()?);
        place.copy_from_slice(marked.as_bytes());
        Some(bytes)
    }
}

/// A superblock as it is while changes are written.
pub(super) fn marked_as_damaged(mut superblock: Superblock) -> Superblock {
    superblock.set_state(superblock.state() | State::ERROR);
    superblock.update_checksum();
    superblock
}

/// Reads an undo file and calls `each` with its pages; whether it is whole is known at its end.
fn read(path: &Path, each: &mut dyn FnMut(Page<'_>) -> io::Result<()>) -> io::Result<Lengths> {
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
    let has_crcs = &name == NAME;
    let new = match &name {
        NAME | NAME_2 => {
            take(&mut word, true)?;
            u64::from_le_bytes(word)
        }
        NAME_1 => old,
        _ => return Err(damaged()),
    };
    let (mut page, mut new_crcs) = (vec![0; PAGE as usize], Vec::new());
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
        new_crcs.clear();
        if has_crcs {
            take(&mut word, true)?;
            let count = u64::from_le_bytes(word);
            if count > length.div_ceil(SECTOR as u64) {
                return Err(damaged());
            }
            for _ in 0..count {
                let mut crc = [0; 4];
                take(&mut crc, true)?;
                new_crcs.push(u32::from_le_bytes(crc));
            }
        }
        let part = &mut page[..length as usize];
        take(part, true)?;
        each(Page {
            offset_bytes,
            old: part,
            new_crcs: &new_crcs,
        })?;
    }
}

/// Where the undo file of an image lies if nobody says.
pub fn default_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".undo");
    name.into()
}
