//! A file as a block device, for root.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device, which goes when it is dropped.
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Over a file.
    ///
    /// # Errors
    /// What losetup says: only root may, where there are loop devices.
    pub fn over(file: &Path) -> io::Result<LoopDevice> {
        LoopDevice::over_with(file, &[])
    }

    /// With more arguments of losetup(8).
    ///
    /// # Errors
    /// As [`LoopDevice::over`].
    pub fn over_with(file: &Path, arguments: &[&str]) -> io::Result<LoopDevice> {
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .args(arguments)
            .arg(file)
            .output()?;
        match output.status.success() {
            true => {
                let name = String::from_utf8_lossy(&output.stdout);
                Ok(LoopDevice(name.trim().into()))
            }
            false => {
                let reason = String::from_utf8_lossy(&output.stderr);
                Err(io::Error::other(reason.into_owned()))
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}
