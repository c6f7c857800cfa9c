//! Where servers put their sockets: a directory that only its owner can write, so that nobody else
//! can be there first.
//!
//! | whose server | tried in this order |
//! |---|---|
//! | root's | `/run/finefs`, `/tmp/finefs-0` |
//! | another user's | `$XDG_RUNTIME_DIR/finefs`, `/run/user/UID/finefs`, `/tmp/finefs-UID` |
//!
//! A directory counts if it is no symbolic link, belongs to that user, and nobody else may write
//! it. It is made with mode 0700. A client of another user (root) cannot know that user's
//! environment, and leaves out the first.
//!
//! # Which server replaces what
//! A socket has the name of a mount, whose number the kernel gives again as soon as the mount is
//! gone. So a new server takes the name from any that has it, and one that ends removes it only if
//! it is still its own. Both happen under a flock of the directory; one that another process keeps
//! is given up after a second.
//!
//! # References
//! XDG Base Directory Specification, `$XDG_RUNTIME_DIR`; unix(7); open(2) on O_NOFOLLOW.

use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::Uid;
use serde::{Deserialize, Serialize};

/// How long the directory's lock is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why there is no place for a socket: each place with its reason.
#[derive(Debug)]
pub(crate) struct NoPlace(Vec<(PathBuf, io::Error)>);

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = self.0.iter();
        let reasons = reasons.map(|(path, error)| format!("{}: {error}", path.display()));
        f.write_str(&reasons.collect::<Vec<_>>().join("; "))
    }
}

/// Where a server of this user may have its sockets.
pub(crate) fn places(owner: Uid) -> Vec<PathBuf> {
    let is_own = owner == rustix::process::geteuid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| is_own);
    list(owner, given)
}

fn list(owner: Uid, given: Option<OsString>) -> Vec<PathBuf> {
    let number = owner.as_raw();
    if owner.is_root() {
        return vec!["/run/finefs".into(), "/tmp/finefs-0".into()];
    }
    let given = given.map(PathBuf::from).filter(|path| path.is_absolute());
    let mut places: Vec<PathBuf> = given.into_iter().map(|path| path.join("finefs")).collect();
    let usual = PathBuf::from(format!("/run/user/{number}/finefs"));
    if !places.contains(&usual) {
        places.push(usual);
    }
    places.push(format!("/tmp/finefs-{number}").into());
    places
}

/// Fails unless it is a directory that only this user can write.
pub(crate) fn verify(path: &Path, owner: Uid) -> io::Result<()> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    // O_PATH: nothing of it is read, so nothing has to be permitted.
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let metadata = opened?.metadata()?;
    if metadata.uid() != owner.as_raw() {
        return Err(io::Error::other("belongs to another user"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(io::Error::other("others may write it"));
    }
    Ok(())
}

fn make(path: &Path, owner: Uid) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    verify(path, owner)
}

/// A socket in such a directory; its name goes when it is dropped.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Socket {
    directory: PathBuf,
    name: String,
    /// Device and inode number, so that no other's is removed.
    id: (u64, u64),
}

impl Socket {
    /// Listens under this name, at the first place where that is possible.
    pub(crate) fn listen(name: &str) -> Result<(Socket, UnixListener), NoPlace> {
        let owner = rustix::process::geteuid();
        Socket::listen_in(&places(owner), name, owner)
    }

    pub(crate) fn listen_in(
        places: &[PathBuf],
        name: &str,
        owner: Uid,
    ) -> Result<(Socket, UnixListener), NoPlace> {
        let mut reasons = Vec::new();
        for place in places {
            match make(place, owner).and_then(|()| bind(place, name)) {
                Ok(bound) => return Ok(bound),
                Err(error) => reasons.push((place.clone(), error)),
            }
        }
        Err(NoPlace(reasons))
    }

    /// Where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its name stays: another process has it.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _lock = lock(&self.directory);
        let path = self.directory.join(&self.name);
        let found = path.symlink_metadata();
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.id) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind(directory: &Path, name: &str) -> io::Result<(Socket, UnixListener)> {
    let _lock = lock(directory);
    // Nobody else has this name: what is there is left from a process of this number that was
    // killed.
    let new = directory.join(format!(".{name}.{}", std::process::id()));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    let placed = place(&new, &directory.join(name));
    if placed.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    let socket = Socket {
        directory: directory.to_owned(),
        name: name.to_owned(),
        id: placed?,
    };
    Ok((socket, listener))
}

/// Gives a new socket its name, taken from any that has it; device and inode number of the socket.
fn place(new: &Path, path: &Path) -> io::Result<(u64, u64)> {
    std::fs::set_permissions(new, Permissions::from_mode(0o600))?;
    let metadata = new.symlink_metadata()?;
    std::fs::rename(new, path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Keeps others from changing names, until dropped.
fn lock(directory: &Path) -> Option<File> {
    let file = File::open(directory).ok()?;
    let deadline = Instant::now() + PATIENCE;
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn me() -> Uid {
        rustix::process::geteuid()
    }

    #[test]
    fn places_are_the_users_own() {
        let user = Uid::from_raw(1000);
        let of = |owner, given: Option<&str>| list(owner, given.map(OsString::from));
        assert_eq!(of(Uid::ROOT, Some("/x"))[0], Path::new("/run/finefs"));
        let fallbacks = ["/run/user/1000/finefs", "/tmp/finefs-1000"].map(PathBuf::from);
        assert_eq!(of(user, None), fallbacks);
        assert_eq!(of(user, Some("relative")), fallbacks);
        assert_eq!(of(user, Some("/run/user/1000")), fallbacks);
        assert_eq!(of(user, Some("/x"))[0], Path::new("/x/finefs"));
    }

    #[test]
    fn a_place_that_others_can_write_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        make(&open, me()).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o700);
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let good = directory.path().join("good");
        let mut places = vec![open, link, file, directory.path().join("no/where")];
        let reasons = Socket::listen_in(&places, "name", me()).unwrap_err().0;
        assert_eq!(reasons.len(), 4, "{reasons:?}");
        places.push(good.clone());
        let (socket, _listener) = Socket::listen_in(&places, "name", me()).unwrap();
        assert_eq!(socket.path(), good.join("name"));
        let stranger = Uid::from_raw(me().as_raw() + 1);
        assert!(verify(&good, stranger).is_err());
    }

    #[test]
    fn a_new_server_takes_the_name_and_an_old_one_leaves_it() {
        let directory = tempfile::tempdir().unwrap();
        let places = [directory.path().join("place")];
        let listen = || Socket::listen_in(&places, "name", me()).unwrap();
        let (old, old_listener) = listen();
        let path = old.path();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        // Killed: its name stays.
        std::mem::forget(old);
        drop(old_listener);
        let (old, _old_listener) = listen();
        UnixStream::connect(&path).unwrap();
        let (new, listener) = listen();
        drop(old);
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        drop(new);
        assert!(!path.exists());
        assert_eq!(std::fs::read_dir(&places[0]).unwrap().count(), 0);
    }
}
