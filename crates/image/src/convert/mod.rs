//! From one disk format to another.
//!
//! | Module | Thing |
//! |---|---|
//! | `frame` | a partition table around a file system |
//! | `sink` | what is written: files of each format, or an export of a server |
//!
//! What reads as zeros is neither read nor written where both formats know of that. A file is made
//! beside its place and renamed; on a server's export the bytes go to where they belong, those at
//! its start last: one that was written in part begins with zeros.

mod frame;
mod sink;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use finefs_block::{Access, BlockDevice, PartitionDevice, Patience};
pub use finefs_disk::Format;
use serde::Serialize;

use crate::beside::check_unused;
use crate::error::{Error, Result};
use crate::{address, partition};
use frame::Frame;
use sink::Sink;

/// So much is read at once: several requests of a server's.
const STEP_BYTES: u64 = 4 << 20;
/// Zeros of this size and place are left out.
const HOLE_BYTES: usize = 64 << 10;
/// The largest unit of a format that is written. Steps and holes are multiples of it.
const UNIT_BYTES: u64 = 4096;

/// How to convert.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the input is; by its first bytes without it, and then one that is shorter than the file
    /// system or the partitions on it is refused.
    pub from: Option<Format>,
    /// Where in the input to begin.
    pub offset_bytes: u64,
    /// What to make.
    pub to: Format,
    /// Put a GUID partition table around it.
    pub has_table: bool,
    /// What is at the output's place may be lost.
    pub may_replace: bool,
}

/// How far it is; shared with who shows it.
#[derive(Default)]
pub struct Progress {
    /// Bytes of the disk.
    pub bytes_all: AtomicU64,
    /// Bytes that are done.
    pub bytes: AtomicU64,
    /// Set from outside: stop, and leave nothing, or an export without its start.
    pub stop: Arc<AtomicBool>,
}

/// What was made. The names are those of the command's JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Converted {
    /// Where it is.
    pub image: String,
    /// The formats.
    pub from: &'static str,
    /// The format of the output.
    pub to: &'static str,
    /// Bytes of the disk.
    pub size_bytes: u64,
    /// Bytes of it that are no zeros, as far as is known.
    pub data_bytes: u64,
    /// Where the partition with what was converted starts, if there is a table around it.
    pub partition_start_bytes: Option<u64>,
}

/// The format that the name of an output asks for.
pub fn format_of_name(path: &Path) -> Option<Format> {
    if finefs_disk::is_url(path.as_os_str()) {
        return Some(Format::Raw);
    }
    Some(match path.extension()?.to_str()? {
        "qcow2" => Format::Qcow2,
        "vmdk" => Format::Vmdk,
        "vhd" | "vpc" => Format::Vhd,
        "simg" => Format::AndroidSparse,
        "img" | "raw" | "ext4" | "ext3" | "ext2" => Format::Raw,
        _ => return None,
    })
}

/// Converts the disk that `input` names, or a partition of it.
///
/// # Errors
/// What cannot be read or written, by its name. What was at the output's place is still there then,
/// unless that is on a server, and the error says so.
pub fn convert(
    input: &OsStr,
    output: &Path,
    options: &Options,
    progress: &Progress,
) -> Result<Converted> {
    let open = finefs_disk::Options {
        access: Access::ReadOnly,
        has_barriers: true,
        patience: Patience {
            limit: Duration::from_secs(60),
            tell: |_| {},
        },
        format: options.from,
    };
    let shown = input.display().to_string();
    let failed = |error: std::io::Error| Error::host(shown.clone(), error);
    if output.is_file() && options.may_replace {
        // Before the input is open, which may be the same.
        check_unused(output)?;
    }
    if finefs_disk::is_url(output.as_os_str()) && address::split(input).0 == output {
        let reason = "is what is read, too, and would be overwritten before; convert it to a file";
        return Err(Error::new(output.display().to_string(), reason));
    }
    let (mut disk, from) = address::open_disk(input, &open)?;
    if options.offset_bytes > 0 {
        disk = Arc::new(PartitionDevice::new(disk, options.offset_bytes, None).map_err(failed)?);
    }
    if options.from.is_none() {
        check_length(&shown, &*disk)?;
    }
    let mut partition_start_bytes = None;
    if options.has_table {
        let frame = Frame::new(disk).map_err(failed)?;
        partition_start_bytes = Some(frame::START_BYTES);
        disk = Arc::new(frame);
    }
    let length = disk.len_bytes();
    progress.bytes_all.store(length, Ordering::Relaxed);
    let mut sink = Sink::create(output, options.to, length, options.may_replace)?;
    let copied = copy(&*disk, &mut sink, &failed, progress);
    let data_bytes = copied.map_err(|error| sink.explained(error))?;
    let size_bytes = sink.finish()?;
    Ok(Converted {
        image: output.display().to_string(),
        from: from.name(),
        to: options.to.name(),
        size_bytes,
        data_bytes,
        partition_start_bytes,
    })
}

/// Refuses a disk that is shorter than what is on it.
fn check_length(name: &str, disk: &dyn BlockDevice) -> Result<()> {
    let length = disk.len_bytes();
    let (what, needed) = match finefs::front_end::length_of_truncated(disk) {
        Some(needed) => ("the file system has", needed),
        None => match partition::end_of_table(disk) {
            Some(end) if end > length => ("its partitions reach to", end),
            _ => return Ok(()),
        },
    };
    let reason = format!(
        "the image is truncated: {what} {needed} bytes, the image {length}; get the whole image, \
         or have what is there converted by naming its format: -f raw"
    );
    Err(Error::new(name, reason))
}

/// Whether there are zeros at a place, and how far that is dealt with at once: up to a multiple of
/// what formats have as their unit, or the end.
fn step_at(disk: &dyn BlockDevice, at: u64) -> std::io::Result<(bool, u64)> {
    let length = disk.len_bytes();
    let extent = disk.extent_at(at, length - at)?;
    let whole = (at + extent.length_bytes) / UNIT_BYTES * UNIT_BYTES;
    Ok(match extent.is_zero {
        true if at + extent.length_bytes == length => (true, length - at),
        true if whole > at => (true, whole - at),
        // Less than a unit of zeros is read with what comes behind them.
        _ => {
            let end = at + extent.length_bytes.min(STEP_BYTES);
            (false, end.next_multiple_of(UNIT_BYTES).min(length) - at)
        }
    })
}

/// Gives the bytes that were written as data.
fn copy(
    disk: &dyn BlockDevice,
    sink: &mut Sink,
    failed: &dyn Fn(std::io::Error) -> Error,
    progress: &Progress,
) -> Result<u64> {
    let length = disk.len_bytes();
    let mut buffer = vec![0; STEP_BYTES.min(length) as usize];
    let mut data_bytes = 0;
    let mut at = 0;
    while at < length {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(sink.interrupted());
        }
        let (is_zero, step_bytes) = step_at(disk, at).map_err(failed)?;
        if is_zero {
            sink.zeros(at, step_bytes)?;
            at += step_bytes;
        } else {
            let step = &mut buffer[..step_bytes as usize];
            disk.read_at(at, step).map_err(failed)?;
            let mut done = 0;
            // Up to a multiple of the holes' size, so that they lie where storage can leave them.
            while done < step.len() {
                let to_border = HOLE_BYTES - (at as usize + done) % HOLE_BYTES;
                let part = &step[done..(done + to_border).min(step.len())];
                let place = at + done as u64;
                if part.iter().all(|byte| *byte == 0) {
                    sink.zeros(place, part.len() as u64)?;
                } else {
                    sink.data(place, part)?;
                    data_bytes += part.len() as u64;
                }
                done += part.len();
            }
            at += step.len() as u64;
        }
        progress.bytes.store(at, Ordering::Relaxed);
    }
    Ok(data_bytes)
}
