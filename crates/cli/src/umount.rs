//! `finefs umount`
//!
//! Returns when the image is complete. The server holds a lock (flock(2)) on the image it may
//! write from before the mount until after the final write-out, so waiting for that lock is
//! waiting for the image. Whether the write-out succeeded the server tells (`channel`), which is
//! asked for that before the unmount. A server that died has nothing to tell: the image, which is
//! marked in use while mounted, then still bears the mark.
//!
//! The user that has mounted it has chosen what is shown as mounted: only a name that this user or
//! root has given is opened, and only a file or a block device. Of another user's mount the
//! server's word is all there is.
//!
//! Of a memory file system there is no image, but the server's end is waited for all the same: its
//! memory is free then, and its socket gone.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use finefs::front_end::Format;
use finefs_block::Access;
use finefs_fuse::MountPoint;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};

use crate::channel::{Channel, EndWatch, WRITE_OUT};
use crate::target::Target;
use crate::{CliResult, Failure, progress};

/// How long a server that was killed may take to let go of its image.
const DEATH_PATIENCE: Duration = Duration::from_secs(2);

/// Unmount, or end what is served, and return when everything is on the image
#[derive(Args)]
#[command(visible_alias = "unmount")]
pub(crate) struct Umount {
    /// The directory that it is mounted at, the image, or the address that it is served at
    #[arg(value_name = "DIR|IMAGE|ADDRESS:PORT")]
    target: PathBuf,
    /// Detach it even if it is busy; it ends when its last user goes, which is not waited for
    #[arg(short, long)]
    lazy: bool,
}

impl Umount {
    pub(crate) fn run(self) -> CliResult<()> {
        let mount = match Target::find(&self.target)? {
            Target::Mount(mount) => mount,
            Target::Served(channel, name) => return stop(&channel, &name),
        };
        let place = mount.path.display();
        // Opened before, as afterwards the path could name something else.
        let image = open_image(&mount);
        let channel = Channel::of(&mount).ok().filter(Channel::is_open);
        // Asked only then: of a server that hangs it would wait.
        let is_dead = channel.is_none() && mount.is_dead();
        if self.lazy && !is_mounted_elsewhere(&mount) {
            // Nobody finds its server afterwards, to let calls go on that wait.
            let thawed = channel.as_ref().map_or(Ok(()), Channel::thaw_if_frozen);
            thawed.map_err(|reason| Failure::new(format!("{place}: {reason}")))?;
        }
        let end = channel.and_then(|channel| channel.watch_end());
        let detached = progress::during(&format!("unmounting {place}"), || {
            // A process that still has something open in a dead mount can do nothing with it.
            finefs_fuse::detach(&mount.path, self.lazy || is_dead)
        });
        detached.map_err(|error| Failure::new(format!("{place}: {error}")))?;
        if self.lazy || is_mounted_still(&mount) {
            return Ok(());
        }
        if !has_image(&mount) {
            let _ = progress::during(&format!("ending {place}"), || end.and_then(EndWatch::wait));
            return Ok(());
        }
        if is_dead && image.as_ref().is_some_and(is_in_use) {
            // By another mount of it, which has recovered it.
            return Ok(());
        }
        let source = mount.source.to_string_lossy();
        let report = progress::during(&format!("writing out {source}"), || {
            let report = end.and_then(EndWatch::wait);
            // Without a word it may have died, or have taken too long.
            let wait = |image| wait_for(image, WRITE_OUT);
            image.as_ref().map_or(Ok(()), wait).map(|()| report)
        });
        let report = report
            .map_err(|error| Failure::new(format!("{source}: cannot wait for it: {error}")))?;
        match report {
            // Its server has not written it, and nobody is to be blamed for what it was like
            // before.
            None if mount.is_read_only => Ok(()),
            None if !is_trusted(&mount) => Err(Failure::new(format!(
                "{source}: unmounted, but its server has not told whether everything is on it; \
                 check it"
            ))),
            // What could not be opened then is not opened now.
            None if image.is_none() && !is_url(&mount) => Ok(()),
            report => check_completeness(Path::new(&mount.source), report),
        }
    }
}

/// Ends what is served. Its server tells when, and how.
fn stop(channel: &Channel, name: &str) -> CliResult<()> {
    let fail = |reason: String| Failure::new(format!("{name}: {reason}"));
    let end = channel.watch_end();
    channel.stop().map_err(fail)?;
    let ended = progress::during(&format!("ending {name}"), || end.and_then(EndWatch::wait));
    match ended {
        Some(outcome) => outcome.map_err(Failure),
        None => Err(fail(
            "its server has ended without a word; check it".to_owned(),
        )),
    }
}

/// True when the file system is mounted at another place too (`mount --bind`): its server goes on.
fn is_mounted_still(mount: &MountPoint) -> bool {
    places_of(mount) > 0
}

/// The same, while it is mounted here.
fn is_mounted_elsewhere(mount: &MountPoint) -> bool {
    places_of(mount) > 1
}

fn places_of(mount: &MountPoint) -> usize {
    let is_it =
        |other: &&MountPoint| (other.device, &other.source) == (mount.device, &mount.source);
    finefs_fuse::mounts().map_or(0, |all| all.iter().filter(is_it).count())
}

/// False for a memory file system.
fn has_image(mount: &MountPoint) -> bool {
    Path::new(&mount.source).is_absolute() || finefs_disk::is_url(mount.source.as_os_str())
}

fn is_url(mount: &MountPoint) -> bool {
    finefs_disk::is_url(mount.source.as_os_str())
}

/// Whether somebody holds the image for writing, and goes on to do so.
fn is_in_use(image: &File) -> bool {
    wait_for(image, DEATH_PATIENCE).is_err()
}

/// What is shown as mounted was named by this user or by root.
fn is_trusted(mount: &MountPoint) -> bool {
    let me = rustix::process::geteuid().as_raw();
    mount.owner.is_some_and(|owner| owner == 0 || owner == me)
}

/// The image, if there is one that this user may open.
fn open_image(mount: &MountPoint) -> Option<File> {
    (has_image(mount) && is_trusted(mount)).then(|| open_storage(Path::new(&mount.source)).ok())?
}

/// Opens a file or a block device, and nothing that would wait or act upon it.
fn open_storage(path: &Path) -> io::Result<File> {
    // This opens nothing yet: what it is is looked at before.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(same, flags, Mode::empty())?.into())
}

/// Waits until nobody holds the image for writing, but not for longer than `patience`: anybody who
/// may read a file can lock it.
fn wait_for(image: &File, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        let lock = || rustix::fs::flock(image, FlockOperation::NonBlockingLockShared);
        match rustix::io::retry_on_intr(lock) {
            // A storage without locks: then there was none to wait for either.
            Ok(()) | Err(rustix::io::Errno::NOLCK | rustix::io::Errno::OPNOTSUPP) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it stays locked"));
            }
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(50));
    }
}

/// Fails when the final write-out did, by the server's report or, without one, by the image.
fn check_completeness(image: &Path, report: Option<Result<(), String>>) -> CliResult<()> {
    match report {
        Some(Ok(())) => Ok(()),
        Some(Err(line)) => Err(Failure(line)),
        None => match look_inside(image) {
            Some((false, checker)) => Err(Failure::new(format!(
                "{}: unmounted, but not completely written out (its server ended early); check \
                 it with {checker}",
                image.display()
            ))),
            // Clean; or a part of a larger image, of which nothing is known here.
            _ => Ok(()),
        },
    }
}

/// Whether an image is clean, and which program checks it.
fn look_inside(image: &Path) -> Option<(bool, &'static str)> {
    let device = finefs::front_end::open_device(image, Access::Inspect, 0).ok()?;
    match finefs::front_end::format_of(&*device)? {
        Format::Ext => {
            let info = finefs_ext::ImageInfo::gather(device).ok()?;
            Some((info.is_clean, finefs_ext::CHECKER))
        }
        Format::Reiserfs => {
            let info = finefs_reiser::ImageInfo::gather(device).ok()?;
            Some((info.is_clean, finefs_reiser::CHECKER))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_the_writer_goes() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let writer = File::open(image.path()).unwrap();
        rustix::fs::flock(&writer, FlockOperation::LockExclusive).unwrap();
        let reader = File::open(image.path()).unwrap();
        let waiting = std::thread::spawn(move || wait_for(&reader, Duration::from_secs(60)));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!waiting.is_finished());
        drop(writer);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn nobody_waits_for_ever() {
        let image = tempfile::NamedTempFile::new().unwrap();
        rustix::fs::flock(image.as_file(), FlockOperation::LockExclusive).unwrap();
        let reader = open_storage(image.path()).unwrap();
        let waited = wait_for(&reader, Duration::from_millis(20));
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn only_files_and_block_devices_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        for path in [&fifo, Path::new("/dev/null"), directory.path()] {
            assert!(open_storage(path).is_err(), "{}", path.display());
        }
    }
}
