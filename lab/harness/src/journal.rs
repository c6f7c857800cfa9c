//! Journals on a file beside the image. mke2fs and the kernel want them on block devices, so they
//! get loop devices.

use crate::cleanup;
use crate::run;
use crate::server::Kind;
use crate::tools;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

const JOURNAL_MIB: u64 = 32;

/// Where the journal of `image` lies.
pub fn beside(image: &Path) -> PathBuf {
    image.with_extension("journal")
}

/// Makes the journal of `image`, with blocks of `block` bytes; the device to tell mke2fs of.
pub fn make(image: &Path, block: &str) -> Result<LoopDevice> {
    let path = beside(image);
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    file.set_len(JOURNAL_MIB << 20)?;
    drop(file);
    let args = ["-q", "-F", "-O", "journal_dev", "-b", block];
    run::ok(run::cmd(tools::program("mke2fs"), args).arg(&path))?;
    LoopDevice::over(&path)
}

/// What a mount of an image is told of its journal.
#[derive(Debug)]
pub struct Told {
    /// A mount option.
    pub option: String,
    /// Stays until the image is mounted.
    _device: Option<LoopDevice>,
}

/// What a mount of `image` by a server of this kind is told of the journal beside it.
pub fn told(image: &Path, kind: Kind) -> Result<Told> {
    let path = beside(image);
    let device = match kind {
        Kind::Kernel => Some(LoopDevice::over(&path)?),
        Kind::Finefs | Kind::Fuse2fs => None,
    };
    let place = device.as_ref().map_or(path.as_path(), LoopDevice::path);
    Ok(Told {
        option: format!("journal_path={}", place.display()),
        _device: device,
    })
}

/// A file as a block device. When this is dropped, it goes as soon as nothing has it open.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _entry: cleanup::Entry,
}

impl LoopDevice {
    /// Over a file. Only root may.
    pub fn over(file: &Path) -> Result<LoopDevice> {
        let mut command = run::cmd(tools::program("losetup"), ["--find", "--show"]);
        let output = run::ok(command.arg(file))?;
        let path = PathBuf::from(output.stdout.trim());
        Ok(LoopDevice {
            _entry: cleanup::loop_device(&path),
            path,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        cleanup::detach(&self.path);
    }
}
