//! A mount by the kernel, as the judge.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use finefs_sim::unmount;

/// A mount by the kernel; ends when it is dropped.
pub struct KernelMount(PathBuf);

impl KernelMount {
    /// Mounts; `None` where nothing can be mounted.
    pub fn new(image: &Path, place: &Path, options: &str) -> Option<KernelMount> {
        let _ = fs::create_dir(place);
        let output = Command::new("mount")
            .args(["-o", options])
            .arg(image)
            .arg(place)
            .output()
            .ok()?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            // Only where nothing can be mounted at all may the test be passed over.
            assert!(
                !message.contains("wrong fs type"),
                "the kernel refuses the image: {message}"
            );
            eprintln!("passed over: {message}");
            return None;
        }
        Some(KernelMount(place.to_owned()))
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        unmount(&self.0).unwrap();
    }
}
