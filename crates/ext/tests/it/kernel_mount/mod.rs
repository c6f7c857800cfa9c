//! A mount by the kernel, as the judge.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

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
        // A child that another test is about to run may have a file of the mount open until then.
        for _ in 0..100 {
            let output = Command::new("umount").arg(&self.0).output();
            let output = output.expect("umount runs");
            if output.status.success() {
                return;
            }
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(message.contains("busy"), "{message}");
            sleep(Duration::from_millis(50));
        }
        panic!("{} stays busy", self.0.display());
    }
}
