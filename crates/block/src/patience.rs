//! Waiting for a server of finefs that is about to end: umount(8) returns when the kernel has ended
//! a mount, and the server then still has to write out what is left.
//!
//! Only such a server is waited for, which has said so ([`crate::Claim`]). Between the end of a
//! mount and what the server says about it a moment passes; so one that has said that it has the
//! image, and whose mount is not there, is waited for too, a few seconds; and so is a loop device
//! that goes by itself, which the kernel lets go of a moment after umount(8). Any other use is an
//! error at once.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::file::{Access, FileDevice, OpenError, OpenErrorKind, Outlook};

/// How long a server may need to notice that its mount has ended, or to mount; or a loop device to
/// go.
const NOTICE: Duration = Duration::from_secs(3);

/// How long udev may look at a block device.
const LOOK: Duration = Duration::from_secs(1);

/// How often it is tried again.
const INTERVAL: Duration = Duration::from_millis(20);

/// After how long the user is told.
const SILENCE: Duration = Duration::from_secs(1);

/// How long a server that is about to end is waited for, and who is told.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For one that writes out what is left.
    pub limit: Duration,
    /// Called once, when the wait has lasted a second, with the path of the image.
    pub tell: fn(&Path),
}

impl Patience {
    /// For an end of this kind.
    fn time(&self, outlook: Outlook) -> Duration {
        match outlook {
            Outlook::Lasting => Duration::ZERO,
            Outlook::Looking => LOOK.min(self.limit),
            Outlook::Unmounted => NOTICE.min(self.limit),
            Outlook::Ending => self.limit,
        }
    }

    /// Opens the image at `path` when that server has ended. See [`FileDevice::open`].
    pub fn open(&self, path: &Path, access: Access) -> Result<FileDevice, OpenError> {
        let start = Instant::now();
        let mut is_told = false;
        loop {
            let error = match FileDevice::open(path, access) {
                Ok(device) => return Ok(device),
                Err(error) => error,
            };
            let OpenErrorKind::InUse { outlook, .. } = error.kind else {
                return Err(error);
            };
            if start.elapsed() >= self.time(outlook) {
                return Err(error);
            }
            if !is_told && start.elapsed() >= SILENCE {
                is_told = true;
                (self.tell)(path);
            }
            std::thread::sleep(INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(60);

    fn patience(limit: Duration) -> Patience {
        Patience {
            limit,
            tell: |_| {},
        }
    }

    fn outlook(error: OpenError) -> Outlook {
        match error.kind {
            OpenErrorKind::InUse { outlook, .. } => outlook,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_that_ends_is_waited_for() {
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let server = FileDevice::open(file.path(), Access::ReadWrite).unwrap();
            let claim = server.claim().unwrap();
            claim.mark_served();
            claim.mark_ending();
            let short = patience(Duration::from_millis(100)).open(file.path(), access);
            assert_eq!(outlook(short.unwrap_err()), Outlook::Ending);
            let path = file.path().to_owned();
            let waiting = std::thread::spawn(move || patience(LONG).open(&path, access).map(drop));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waiting.is_finished());
            drop((server, claim));
            waiting.join().unwrap().unwrap();
        }
    }

    /// As in the moment between the end of a mount and the server's notice of it.
    #[test]
    fn a_server_without_a_mount_is_waited_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let server = FileDevice::open(file.path(), Access::ReadOnly).unwrap();
        server.claim().unwrap().mark_served();
        let path = file.path().to_owned();
        let open = move || patience(LONG).open(&path, Access::ReadWrite).map(drop);
        let waiting = std::thread::spawn(open.clone());
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        drop(server);
        waiting.join().unwrap().unwrap();
        // It has gone as if it had never been.
        let other = FileDevice::open(file.path(), Access::ReadWrite).unwrap();
        assert_eq!(outlook(open().unwrap_err()), Outlook::Lasting);
        drop(other);
    }

    /// What marks it and what keeps it do not go at the same moment.
    #[test]
    fn a_server_may_end_while_it_is_looked_for() {
        const ROUNDS: usize = 500;
        let file = tempfile::NamedTempFile::new().unwrap();
        for _ in 0..ROUNDS {
            let server = FileDevice::open(file.path(), Access::ReadWrite).unwrap();
            server.claim().unwrap().mark_ending();
            let ending = std::thread::spawn(|| drop(server));
            while let Err(error) = FileDevice::open(file.path(), Access::ReadOnly) {
                assert_ne!(outlook(error), Outlook::Lasting);
            }
            ending.join().unwrap();
        }
    }

    #[test]
    fn others_are_not_waited_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = FileDevice::open(file.path(), Access::ReadWrite).unwrap();
        let tried = || patience(LONG).open(file.path(), Access::ReadWrite);
        assert_eq!(outlook(tried().unwrap_err()), Outlook::Lasting);
        // It serves without a mount.
        other.claim().unwrap().mark_exported();
        let error = tried().unwrap_err();
        assert!(error.to_string().contains("finefs serve"), "{error}");
        assert_eq!(outlook(error), Outlook::Lasting);
        drop(other);
    }

    #[test]
    fn the_user_is_told_of_a_long_wait() {
        static TOLD: std::sync::Mutex<Vec<std::path::PathBuf>> = std::sync::Mutex::new(Vec::new());
        let file = tempfile::NamedTempFile::new().unwrap();
        let server = FileDevice::open(file.path(), Access::ReadWrite).unwrap();
        server.claim().unwrap().mark_ending();
        let patience = Patience {
            limit: LONG,
            tell: |path| TOLD.lock().unwrap().push(path.to_owned()),
        };
        let path = file.path().to_owned();
        let waiting = std::thread::spawn(move || patience.open(&path, Access::ReadWrite).map(drop));
        while TOLD.lock().unwrap().is_empty() {
            assert!(!waiting.is_finished());
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(server);
        waiting.join().unwrap().unwrap();
        assert_eq!(*TOLD.lock().unwrap(), [file.path()]);
    }
}
