//! Finds out whether the kernel works on an image file behind our back: through a loop device.
//!
//! The kernel does not take a flock on a loop device's backing file, so this looks into sysfs. A
//! file that is attached by a path of another mount namespace is not seen; that is the limit of
//! what an ordinary user can find out.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A loop device that an image file is attached to.
pub(crate) struct LoopUse {
    /// "/dev/loop3"
    pub device: String,
    pub is_read_only: bool,
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
            mounted_at: mount_point_of(read("dev").trim()),
        });
    }
    uses
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
