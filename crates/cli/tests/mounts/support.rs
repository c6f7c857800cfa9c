//! What the tests of mounts share: images, mounts that do not outlive a failed test, file work.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use tempfile::TempDir;

/// How long anything may take that takes moments.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// True where these tests can run; says so where not.
pub fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    can
}

/// A directory with a mount point in it; what is mounted there goes when it is dropped.
pub struct Place {
    directory: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place::at(TempDir::new().unwrap())
    }

    /// Not where a test may put something else.
    pub fn outside_of_tmp() -> Place {
        Place::at(TempDir::new_in("/var/tmp").unwrap())
    }

    fn at(directory: TempDir) -> Place {
        fs::create_dir(directory.path().join("mnt")).unwrap();
        Place { directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn mount_point(&self) -> PathBuf {
        self.path().join("mnt")
    }

    /// A new image of the type "ext4" and so on.
    pub fn image(&self, kind: &str) -> PathBuf {
        let image = self.path().join("image");
        let file = fs::File::create(&image).unwrap();
        file.set_len(64 << 20).unwrap();
        let made = Command::new("mke2fs")
            .args(["-q", "-F", "-t", kind])
            .arg(&image)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        image
    }

    /// A copy of finefs that other users may run: where it was built may be closed to them. Made by
    /// another process: what this one has open for writing, a child that another test starts just
    /// then has open too, and a program in that state cannot be run (ETXTBSY).
    pub fn program(&self) -> PathBuf {
        let program = self.path().join("finefs");
        let mut install = Command::new("install");
        let output = install.arg(env!("CARGO_BIN_EXE_finefs")).arg(&program);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        program
    }

    /// True when it is mounted, and its server gone.
    pub fn is_dead(&self) -> bool {
        let asked = fs::metadata(self.mount_point().join("a name"));
        self.is_mounted() && asked.is_err_and(|e| e.raw_os_error() == Some(libc::ENOTCONN))
    }

    pub fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let needle = format!(" {} ", self.mount_point().display());
        table.lines().any(|line| line.contains(&needle))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(self.mount_point())
                .output();
        }
    }
}

/// Sets a parameter of the kernel's FUSE, and puts it back; the lock on its file keeps it from
/// other programs that do so meanwhile.
pub struct RingSwitch(Option<(String, fs::File)>);

const ENABLE_RING: &str = "/sys/module/fuse/parameters/enable_uring";

impl RingSwitch {
    pub fn set(to: &str) -> RingSwitch {
        let locked = fs::File::open(ENABLE_RING)
            .ok()
            .filter(|file| rustix::fs::flock(file, FlockOperation::LockExclusive).is_ok());
        let before = fs::read_to_string(ENABLE_RING).ok();
        match before.zip(locked) {
            Some(found) if fs::write(ENABLE_RING, to).is_ok() => RingSwitch(Some(found)),
            _ => {
                eprintln!("no io_uring of FUSE here");
                RingSwitch(None)
            }
        }
    }
}

impl Drop for RingSwitch {
    fn drop(&mut self) {
        if let Some((before, _)) = &self.0 {
            let _ = fs::write(ENABLE_RING, before.trim());
        }
    }
}

/// The command under test.
pub fn finefs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
    command.stdin(Stdio::null());
    command
}

pub fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// Runs a command. A child that another test is about to start holds our open files until it
/// executes, so "busy" is given a moment.
fn run_patiently(command: &mut Command) -> Output {
    let start = Instant::now();
    loop {
        let output = run(command);
        let message = String::from_utf8_lossy(&output.stderr);
        if !message.contains("target is busy") || start.elapsed() > PATIENCE {
            return output;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a command that must succeed and print nothing to stderr.
pub fn succeed(command: &mut Command) {
    let output = run_patiently(command);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && message.is_empty(),
        "{command:?}: {}: {message}",
        output.status
    );
}

/// Runs a command that must fail with one line of `finefs: ...`; gives the line.
pub fn fail(command: &mut Command) -> String {
    let output = run(command);
    the_line(command, output)
}

/// Unmounts what cannot be written out; gives the line that tells of it.
pub fn unmount_with_loss(dir: &Path) -> String {
    let mut command = finefs();
    command.arg("umount").arg(dir);
    let output = run_patiently(&mut command);
    let line = the_line(&command, output);
    assert!(!line.contains("busy"), "{line}");
    line
}

fn the_line(command: &Command, output: Output) -> String {
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{command:?}: {message}");
    assert!(message.starts_with("finefs: "), "{message}");
    message
}

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until nobody holds the image for writing.
pub fn wait_for_image(image: &Path) {
    let file = fs::File::open(image).unwrap();
    wait_until("the image is released", || {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok()
    });
}

/// e2fsck must find nothing to say about the image.
pub fn check(image: &Path) {
    let output = run(Command::new("e2fsck").arg("-fn").arg(image));
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Mounts an image at `mount_point`, with more arguments of `finefs mount`.
pub fn mount(image: &Path, mount_point: &Path, arguments: &[&str]) {
    let mut command = finefs();
    command.arg("mount").args(arguments);
    succeed(command.arg(image).arg(mount_point));
}

/// Mounts a file system in memory.
pub fn mount_memory(place: &Place, arguments: &[&str]) {
    let mut command = finefs();
    command.args(["mount", "--memory"]).args(arguments);
    succeed(command.arg(place.mount_point()));
}

/// A connection to the server of a mount.
pub fn connect(place: &Place) -> io::Result<UnixStream> {
    let device = place.mount_point().metadata()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    UnixStream::connect(format!("/run/finefs/mount-{major}:{minor}"))
}

/// Mounts what was not cleanly unmounted, which says so.
pub fn mount_again(options: &str, image: &Path, mount_point: &Path) {
    let output = run(finefs()
        .args(["mount", "-o", options])
        .arg(image)
        .arg(mount_point));
    assert!(output.status.success(), "{output:?}");
}

/// Starts `finefs mount -f` and waits until it is mounted and can be asked: where the kernel gave
/// it the number of a mount that has just gone, that one's server may answer for a moment.
pub fn mount_in_front(place: &Place, arguments: &[&str]) -> Child {
    let child = finefs()
        .args(["mount", "-f"])
        .args(arguments)
        .arg(place.mount_point())
        .spawn()
        .unwrap();
    wait_until("mounted", || place.is_mounted());
    wait_until("its own server answers", || {
        let peer = connect(place).and_then(|stream| Ok(socket_peercred(stream)?));
        peer.is_ok_and(|peer| peer.pid == Pid::from_child(&child))
    });
    child
}

/// Unmounts with `finefs umount`.
pub fn unmount(place: &Place) {
    succeed(finefs().arg("umount").arg(place.mount_point()));
}

/// Makes image, directory and mount point an ordinary user's, who also gets a program.
pub fn give_to_user(place: &Place, image: &Path) {
    for path in [place.path(), image, &place.mount_point()] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    place.program();
}

/// Runs a script of the shell as an ordinary user who may open a device of FUSE.
pub fn run_as_user(place: &Place, script: &str) {
    run_script(place, script, "user sh -c \"$SCRIPT\"");
}

/// Runs a script of the shell as root, which has the function `user` for commands of such a user.
pub fn run_beside_user(place: &Place, script: &str) {
    run_script(place, script, "eval \"$SCRIPT\"");
}

fn run_script(place: &Place, script: &str, run_it: &str) {
    let prepare = r#"
        set -e
        mknod "$PLACE/fuse" c 10 229
        chmod 666 "$PLACE/fuse"
        mount --bind "$PLACE/fuse" /dev/fuse
        user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
    "#;
    let output = run(Command::new("unshare")
        .args(["-m", "sh", "-c", &format!("{prepare}{run_it}")])
        .env("PLACE", place.path())
        .env("SCRIPT", script));
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
