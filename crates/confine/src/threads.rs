//! What each thread must do for itself: give up capabilities, new privileges and files.
//!
//! The kernel has no call for that which reaches all threads (before Landlock's of 7.0). So each
//! gets a signal whose handler makes the calls, one thread after the other, until a look at
//! /proc/self/task finds none that was not asked: what a confined thread starts is confined. The C
//! library changes users of all threads in the same way, and libpsx capabilities.
//!
//! # Unsafe
//! Raw system calls, in a signal handler: they take numbers, and two structures on its stack. It
//! touches nothing else but atomics and errno, which it puts back.
//!
//! # References
//! signal-safety(7), nptl(7), capset(2), landlock_restrict_self(2); libpsx(3).

use std::collections::HashSet;
use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a thread may take to hear of it.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_micros(50);

/// _LINUX_CAPABILITY_VERSION_3
const CAPABILITIES: u32 = 0x2008_0522;
const NO_RULESET: i32 = -1;

/// For the handler: the ruleset, or [`NO_RULESET`].
static RULESET: AtomicI32 = AtomicI32::new(NO_RULESET);
/// For the handler: capabilities that stay.
static KEPT: AtomicU32 = AtomicU32::new(0);
/// From the handler: no answer yet, 0, or an errno.
static ANSWER: AtomicI32 = AtomicI32::new(NO_ANSWER);
const NO_ANSWER: i32 = -1;
/// One at a time.
static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// struct __user_cap_header_struct
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    process: c_int,
}

/// Makes the calls for the thread that runs it; 0 or an errno.
fn restrict_here(ruleset: i32, kept: u32) -> i32 {
    let header = CapabilityHeader {
        version: CAPABILITIES,
        process: 0,
    };
    // Effective, permitted and inheritable ones, twice 32 bits of each.
    let left = [kept, kept, 0, 0, 0, 0];
    let succeeded = |result: c_long| match result {
        0 => 0,
        // SAFETY: errno of this thread.
        _ => unsafe { *libc::__errno_location() },
    };
    // SAFETY: numbers only, as prctl(2) has them.
    let result = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let mut errno = succeeded(result);
    if errno == 0 && ruleset != NO_RULESET {
        // SAFETY: numbers only; the ruleset is open until all threads have answered.
        let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) };
        errno = succeeded(result);
    }
    if errno == 0 {
        // SAFETY: both structures are as capset(2) has them for this version, and only read.
        let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, left.as_ptr()) };
        errno = succeeded(result);
    }
    errno
}

extern "C" fn on_signal(_: c_int) {
    // SAFETY: errno of this thread; what was interrupted finds it as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let answer = restrict_here(
        RULESET.load(Ordering::Acquire),
        KEPT.load(Ordering::Acquire),
    );
    // SAFETY: as above.
    unsafe { *errno = before };
    ANSWER.store(answer, Ordering::Release);
}

/// Has every thread give up capabilities, but those `kept` that it has, and new privileges, and
/// keep to the ruleset.
pub(crate) fn restrict_all(ruleset: Option<BorrowedFd<'_>>, kept: u32) -> io::Result<()> {
    if IS_BUSY.swap(true, Ordering::AcqRel) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let ruleset = ruleset.map_or(NO_RULESET, |ruleset| ruleset.as_raw_fd());
    RULESET.store(ruleset, Ordering::Release);
    let kept = kept & permitted()?;
    KEPT.store(kept, Ordering::Release);
    // This one last: it has to see the others.
    let done = restrict_others().and_then(|()| match restrict_here(ruleset, kept) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    });
    IS_BUSY.store(false, Ordering::Release);
    done
}

/// The first 32 capabilities that this thread may have; see proc_pid_status(5).
fn permitted() -> io::Result<u32> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let mut lines = status.lines();
    let all = lines.find_map(|line| line.strip_prefix("CapPrm:"));
    let all = all.and_then(|all| u64::from_str_radix(all.trim(), 16).ok());
    Ok(all.map_or(0, |all| all as u32))
}

fn restrict_others() -> io::Result<()> {
    // The C library keeps the first ones for itself.
    let signal = libc::SIGRTMAX();
    let before = handle(signal, on_signal as *const () as usize)?;
    let mut asked = HashSet::from([own_thread()]);
    // After an error the handler stays: a thread may hear late.
    while ask_new(signal, &mut asked)? {}
    handle(signal, before)?;
    Ok(())
}

/// Asks threads that were not asked before; false where there is none.
fn ask_new(signal: c_int, asked: &mut HashSet<i32>) -> io::Result<bool> {
    let mut found = false;
    for entry in std::fs::read_dir("/proc/self/task")? {
        let name = entry?.file_name();
        let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if asked.insert(thread) {
            found = true;
            ask(thread, signal)?;
        }
    }
    Ok(found)
}

/// Has one thread restrict itself, unless it ends meanwhile.
fn ask(thread: i32, signal: c_int) -> io::Result<()> {
    ANSWER.store(NO_ANSWER, Ordering::Release);
    // SAFETY: numbers only; the signal has a handler.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, signal) };
    if sent != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(()),
            _ => Err(error),
        };
    }
    let place = format!("/proc/self/task/{thread}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ANSWER.load(Ordering::Acquire) {
            0 => return Ok(()),
            NO_ANSWER if !Path::new(&place).exists() => return Ok(()),
            NO_ANSWER if Instant::now() > deadline => return Err(io::ErrorKind::TimedOut.into()),
            NO_ANSWER => std::thread::sleep(LOOK),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn own_thread() -> i32 {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::gettid() }
}

/// Sets what handles a signal; what did before.
fn handle(signal: c_int, handler: usize) -> io::Result<usize> {
    // SAFETY: all zeroes are a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both structures live through the call, and the handler is one of signal(7).
    match unsafe { libc::sigaction(signal, &raw const action, &raw mut before) } {
        0 => Ok(before.sa_sigaction),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes all threads this user's, who is in this group alone.
pub(crate) fn become_user(user: u32, group: u32) -> io::Result<()> {
    let check = |result: c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: numbers only, and no list of groups. The C library reaches all threads.
    check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresgid(group, group, group) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(user, user, user) })
}
