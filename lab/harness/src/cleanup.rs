//! What must be undone when a proof ends, fails or is interrupted.
//!
//! Data model: one list of things that this process made: processes, mounts, temporary directories.
//! Whoever makes one holds an [`Entry`]; dropping it takes the thing off the list. A thread waits
//! for SIGINT, SIGTERM and SIGHUP, ends the processes and undoes the rest of the list backwards.
//!
//! Invariants:
//! 1. Only own mount points are unmounted and only own process ids are signalled.
//! 2. A temporary directory is not removed while anything is mounted below it, or the removal would
//!    eat the mounted tree.
//!
//! Locking: one mutex guards the list; it is never held while a program runs.

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a process may take to end when it is asked to.
const END_LIMIT: Duration = Duration::from_secs(10);
/// The same of one that gives [`END_LIMIT`] to others before it ends, and then undoes the rest.
pub const CLEANUP_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone)]
enum Thing {
    Process(u32),
    Mount(PathBuf),
    Directory(PathBuf),
    Acl(PathBuf),
    LoopDevice(PathBuf),
    File(PathBuf, String),
}

struct List {
    next_id: u64,
    things: Vec<(u64, Thing)>,
}

static LIST: Mutex<List> = Mutex::new(List {
    next_id: 0,
    things: Vec::new(),
});

/// Set once the program was told to stop.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Does not return once the program was told to stop: whoever starts or removes something calls
/// this, so that nothing new comes up behind the cleaning thread, which ends the program.
pub fn halt_if_interrupted() {
    while INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn list() -> MutexGuard<'static, List> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A registered thing; it leaves the list when this is dropped.
#[derive(Debug)]
pub struct Entry(u64);

impl Drop for Entry {
    fn drop(&mut self) {
        list().things.retain(|(id, _)| *id != self.0);
    }
}

fn register(thing: Thing) -> Entry {
    let mut list = list();
    list.next_id += 1;
    let id = list.next_id;
    list.things.push((id, thing));
    Entry(id)
}

/// Registers a process that leads its own group.
pub fn process(pid: u32) -> Entry {
    register(Thing::Process(pid))
}

/// Registers a mount point.
pub fn mount(dir: &Path) -> Entry {
    register(Thing::Mount(dir.to_owned()))
}

/// Registers an ACL that was put on `file`, which had none.
pub fn acl(file: &Path) -> Entry {
    register(Thing::Acl(file.to_owned()))
}

/// Registers what a file (a parameter of the kernel) held before.
pub fn file(file: &Path, content: &str) -> Entry {
    register(Thing::File(file.to_owned(), content.to_owned()))
}

/// Registers a loop device.
pub fn loop_device(device: &Path) -> Entry {
    register(Thing::LoopDevice(device.to_owned()))
}

/// Takes the file off a loop device, as soon as nothing has it open.
pub fn detach(device: &Path) {
    let _ = Command::new("losetup").arg("--detach").arg(device).status();
}

/// Takes the ACL off `file`.
pub fn remove_acl(file: &Path) {
    let _ = Command::new("setfacl").arg("-b").arg(file).status();
}

/// Asks the process groups that these lead to end, all at once, and kills what is left of them
/// after a while: a proof that runs proofs must not keep them from cleaning up themselves.
fn end_groups(pids: &[u32], limit: Duration) {
    let leaders = pids.iter().filter_map(|pid| Pid::from_raw(*pid as i32));
    let asked: Vec<Pid> = leaders
        .filter(|leader| kill_process_group(*leader, Signal::TERM).is_ok())
        .collect();
    let deadline = Instant::now() + limit;
    for leader in asked {
        while test_kill_process_group(leader).is_ok() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

/// Kills the process group that `pid` leads.
pub fn kill_group(pid: u32) {
    signal_group(pid, Signal::KILL);
}

/// Asks the process group that `pid` leads to end.
pub(crate) fn ask_group(pid: u32) {
    signal_group(pid, Signal::TERM);
}

fn signal_group(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process_group(pid, signal);
    }
}

/// True while there is a process in the group that `pid` leads, or led.
pub(crate) fn has_group(pid: u32) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| test_kill_process_group(pid).is_ok())
}

/// Starts the thread that undoes everything on SIGINT, SIGTERM and SIGHUP and exits with 130.
pub fn install_signal_handler() -> Result<()> {
    install_signal_handler_with(END_LIMIT)
}

/// The same where what was started has so long to end: [`CLEANUP_LIMIT`], if it has such a thread
/// itself.
pub fn install_signal_handler_with(end_limit: Duration) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            eprintln!("interrupted: cleaning up");
            INTERRUPTED.store(true, Ordering::SeqCst);
            // Twice: a thread may just have started something that was not on the list yet. It
            // starts nothing more.
            undo_all(end_limit);
            std::thread::sleep(Duration::from_millis(300));
            undo_all(end_limit);
            std::process::exit(130);
        }
    });
    Ok(())
}

fn undo_all(end_limit: Duration) {
    let things: Vec<Thing> = list()
        .things
        .iter()
        .map(|(_, thing)| thing.clone())
        .collect();
    let process = |thing: &Thing| match thing {
        Thing::Process(pid) => Some(*pid),
        _ => None,
    };
    let processes: Vec<u32> = things.iter().filter_map(process).collect();
    end_groups(&processes, end_limit);
    for thing in things.into_iter().rev() {
        match thing {
            Thing::Process(_) => {}
            Thing::Mount(dir) => force_unmount(&dir),
            Thing::Directory(dir) => remove_tree(&dir),
            Thing::Acl(file) => remove_acl(&file),
            Thing::LoopDevice(device) => detach(&device),
            Thing::File(file, content) => drop(std::fs::write(file, content)),
        }
    }
}

/// Unmounts `dir` if something is mounted there: politely for a few seconds, then lazily.
pub fn force_unmount(dir: &Path) {
    for attempt in 0..20 {
        if !is_mounted(dir) {
            return;
        }
        let quiet = |program: &str, args: &[&str]| {
            Command::new(program)
                .args(args)
                .arg(dir)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        if quiet("umount", &[]) || quiet("fusermount3", &["-u"]) {
            continue;
        }
        if attempt >= 15 {
            let _ = quiet("umount", &["-l"]) || quiet("fusermount3", &["-u", "-z"]);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The mount points in this namespace, as the kernel lists them.
fn mount_points() -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(field.replace("\\040", " ")))
        .collect()
}

/// True when `dir` is a mount point.
pub fn is_mounted(dir: &Path) -> bool {
    mount_points().iter().any(|point| point == dir)
}

fn remove_tree(dir: &Path) {
    let mut below: Vec<PathBuf> = mount_points()
        .into_iter()
        .filter(|point| point.starts_with(dir))
        .collect();
    below.sort();
    for point in below.iter().rev() {
        force_unmount(point);
    }
    if mount_points().iter().any(|point| point.starts_with(dir)) {
        eprintln!("left in place, still mounted: {}", dir.display());
        return;
    }
    let _ = std::fs::remove_dir_all(dir);
}

/// A temporary directory that is removed on drop, unless something is still mounted below it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _entry: Entry,
}

impl Scratch {
    /// Makes a fresh directory below `parent`.
    pub fn new_in(parent: &Path) -> Result<Self> {
        halt_if_interrupted();
        std::fs::create_dir_all(parent)?;
        let path = tempfile::Builder::new()
            .prefix("finefs-prove-")
            .tempdir_in(parent)?
            .keep();
        let path = path.canonicalize()?;
        let entry = register(Thing::Directory(path.clone()));
        Ok(Self {
            path,
            _entry: entry,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new, empty directory `name` inside.
    pub fn subdir(&self, name: &str) -> Result<PathBuf> {
        halt_if_interrupted();
        let dir = self.path.join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        halt_if_interrupted();
        remove_tree(&self.path);
    }
}

/// The environment variable that names a program's directory in memory, for files that would wait
/// for the disk.
pub const IN_MEMORY: &str = "FINEFS_IN_MEMORY";

/// What is used where [`IN_MEMORY`] is not set; not every machine has it.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// Temporary directories for another program, on the disk and in memory. What it leaves there when
/// it is killed, mounts too, goes with them.
#[derive(Debug)]
pub struct TempDirs {
    /// Each with the variable that names it.
    dirs: Vec<(&'static str, Scratch)>,
}

impl TempDirs {
    /// Makes them. As in `/tmp`, every user may make files there.
    pub fn new() -> Result<TempDirs> {
        let mut dirs = vec![("TMPDIR", Scratch::new_in(&std::env::temp_dir())?)];
        let memory = Path::new(SHARED_MEMORY);
        if memory.is_dir() {
            dirs.push((IN_MEMORY, Scratch::new_in(memory)?));
        }
        for (_, dir) in &dirs {
            std::fs::set_permissions(dir.path(), Permissions::from_mode(0o1777))?;
        }
        Ok(TempDirs { dirs })
    }

    /// Tells a program of them, before it starts.
    pub fn tell(&self, command: &mut Command) {
        command.envs(self.dirs.iter().map(|(name, dir)| (name, dir.path())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    /// The second ends only after the first: none waits to be asked until another has ended.
    #[test]
    fn all_are_asked_to_end_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let start = |number: u32, then: &str| {
            let script = format!("trap '{then}; exit 7' TERM; touch {number}; sleep 60 & wait");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).current_dir(dir.path());
            shell.process_group(0).spawn().unwrap()
        };
        let mut first = start(1, "touch ended");
        let mut second = start(2, "until [ -e ended ]; do sleep 0.01; done");
        while !["1", "2"].iter().all(|name| dir.path().join(name).exists()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // As parents do: what has ended is no group any more only when it is waited for.
        let pids = [second.id(), first.id()];
        let both = std::thread::spawn(move || [second.wait(), first.wait()]);
        end_groups(&pids, END_LIMIT);
        for status in both.join().unwrap() {
            assert_eq!(status.unwrap().code(), Some(7));
        }
    }

    #[test]
    fn what_a_program_leaves_goes_with_its_directories() {
        let dirs = TempDirs::new().unwrap();
        let script = "for d in $TMPDIR $FINEFS_IN_MEMORY; do touch $d/left && stat -c %a $d; done";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env_remove(IN_MEMORY);
        dirs.tell(&mut shell);
        let output = shell.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let paths = dirs.dirs.iter().map(|(_, dir)| dir.path().to_owned());
        let paths: Vec<PathBuf> = paths.collect();
        assert!(paths.iter().all(|path| path.join("left").exists()));
        assert_eq!(said, "1777\n".repeat(paths.len()));
        drop(dirs);
        assert!(!paths.iter().any(|path| path.exists()));
    }
}
