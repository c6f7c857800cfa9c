//! Unmounting beside other tests.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Unmounts. A child that another test is about to start holds our open files until it executes, so
/// "busy" is given a moment; and a loop device lets go of its image a moment after the unmount.
///
/// # Errors
/// What umount(8) says, or that the image stays in use.
pub fn unmount(place: &Path) -> io::Result<()> {
    let backing = backing(place);
    let start = Instant::now();
    loop {
        let output = Command::new("umount").arg(place).output()?;
        if output.status.success() {
            break;
        }
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        if !message.contains("busy") || start.elapsed() > PATIENCE {
            return Err(io::Error::other(message));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let Some((told, image)) = backing else {
        return Ok(());
    };
    while fs::read_to_string(&told).is_ok_and(|now| now == image) {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("{image} stays in use")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Where the kernel tells the image of the loop device that is mounted there, and what it tells. A
/// device that is not let go with its mount is not waited for.
fn backing(place: &Path) -> Option<(PathBuf, String)> {
    let device = fs::metadata(place).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let told = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/loop/backing_file"));
    let lasts = fs::read_to_string(told.with_file_name("autoclear"))
        .ok()?
        .trim()
        == "0";
    let image = fs::read_to_string(&told).ok()?;
    (!lasts).then_some((told, image))
}
