//! Finds out whether the kernel works on an image file behind our back: through a loop device; and
//! where a server of finefs has an image mounted.
//!
//! The kernel does not take a flock on a loop device's backing file, so this looks into sysfs. A
//! file that is attached by a path of another mount namespace is not seen; that is the limit of
//! what an ordinary user can find out. Who opens a loop device through us takes that flock.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A loop device that an image file is attached to.
pub(crate) struct LoopUse {
    /// "/dev/loop3"
    pub device: String,
    pub is_read_only: bool,
    /// It goes when nothing has it open any more.
    pub is_transient: bool,
    /// Where it is mounted, if it is (in this mount namespace).
    pub mounted_at: Option<String>,
}

/// The loop devices whose backing file is the file with this device and inode number.
pub(crate) fn loops_of(file_device: u64, file_inode: u64) -> Vec<LoopUse> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let mut uses = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("loop") {
            continue;
        }
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let Ok(metadata) = fs::metadata(Path::new(backing.trim_end_matches('\n'))) else {
            continue;
        };
        if (metadata.dev(), metadata.ino()) != (file_device, file_inode) {
            continue;
        }
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        uses.push(LoopUse {
            device: format!("/dev/{name}"),
            is_read_only: read("ro").trim() == "1",
            is_transient: read("loop/autoclear").trim() == "1",
            mounted_at: mount_point_of(read("dev").trim()),
        });
    }
    uses
}

/// The file below a loop device, or below the one that this is a partition of.
pub(crate) fn backing_file_of(device: &Metadata) -> Option<PathBuf> {
    let number = device.rdev();
    let (major, minor) = (libc::major(number), libc::minor(number));
    let place = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let names = ["loop/backing_file", "../loop/backing_file"];
    let read = |name: &&str| fs::read(place.join(name)).ok();
    let mut path = names.iter().find_map(read)?;
    path.pop_if(|byte| *byte == b'\n');
    Some(OsString::from_vec(path).into())
}

/// The first mount point of the device "major:minor".
fn mount_point_of(device: &str) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // "36 35 98:0 /mnt1 /mnt2 rw,noatime ...": the third field is the device, the fifth the place.
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == device).then(|| fields.nth(1).map(str::to_owned))?
    })
}

/// Where a server of finefs has the image with this metadata mounted, if this process sees the
/// mount.
pub(crate) fn served_at(image: &Metadata) -> Option<String> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let mut lines = table.split(|&byte| byte == b'\n');
    lines.find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let place = fields.nth(4)?;
        fields.find(|field| *field == b"-")?;
        let kind = fields.next()?;
        let is_finefs = kind == b"fuse.finefs" || kind == b"fuseblk.finefs";
        let source = unescape(fields.next()?);
        let is_it = is_finefs
            && Path::new(&source).is_absolute()
            && fs::metadata(&source).is_ok_and(|source| is_same(&source, image));
        is_it.then(|| unescape(place).to_string_lossy().into_owned())
    })
}

/// The same file, or two names of one block device.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let both_devices = one.file_type().is_block_device() && other.file_type().is_block_device();
    match both_devices {
        true => one.rdev() == other.rdev(),
        false => (one.dev(), one.ino()) == (other.dev(), other.ino()),
    }
}

/// The kernel writes blank, tab, newline and backslash as `\ooo`.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}
