//! Which system calls may be made: seccomp filters.
//!
//! # The filters
//! | Filter | Calls | Answer |
//! |---|---|---|
//! | fatal | execve, execveat, ptrace, process_vm_* | the process is killed |
//! | absent | clone3, whose arguments no filter sees | ENOSYS, upon which the C library calls clone |
//! | allowed | all that are not listed | EPERM |
//!
//! A server never runs a program: one that tries is no longer ours. Other calls may come from a
//! library that asks what there is, and goes on without it.
//!
//! # Cost
//! The kernel runs the filters once for each call when they are installed, and remembers those that
//! are allowed whatever their arguments (`seccomp_cache_check_allow` in Linux's `kernel/seccomp.c`,
//! since 5.11). So the calls of each request and of the image's I/O are listed without conditions:
//! 30 to 60 ns each on a machine where a pread takes 450, and 100 or so where an argument counts
//! (`cargo run --release -p finefs-confine --example cost`).
//!
//! # References
//! seccomp(2); `Documentation/userspace-api/seccomp_filter.rst`.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::Needs;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Requests, the image's I/O, waiting, memory, threads, questions of users.
const ALLOWED: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_io_uring_enter,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_lseek,
    libc::SYS_fadvise64,
    libc::SYS_flock,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_umask,
    libc::SYS_chdir,
    libc::SYS_setsid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_accept4,
    libc::SYS_socketpair,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Another filter answers.
    libc::SYS_clone3,
];

/// The same by older names.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Opening files; musl uses the older name.
const OPEN: &[c_long] = &[
    libc::SYS_openat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
];

/// Replacing and removing files.
const FILES: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    #[cfg(not(target_arch = "riscv64"))]
    libc::SYS_renameat,
];

/// Of `fcntl`: flags, and locks on the image.
const FCNTL: &[i32] = &[
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
];

/// Of `ioctl`: nothing that puts words into a terminal.
const IOCTL: &[u32] = &[
    // FUSE_DEV_IOC_CLONE
    0x8004_e500,
    // BLKDISCARD, BLKZEROOUT, BLKGETSIZE64
    0x1277,
    0x127f,
    0x8008_1272,
    // FIONBIO, TCGETS
    0x5421,
    0x5401,
];

/// PR_SET_VMA: names of memory, for who looks at the process.
const PR_SET_VMA: u32 = 0x5356_4d41;

const FATAL: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
];

const ABSENT: &[c_long] = &[libc::SYS_clone3];

/// True where the kernel has filters, and they are known for this machine.
pub(crate) fn are_filtered() -> bool {
    const ANSWERS: &str = "/proc/sys/kernel/seccomp/actions_avail";
    let answers = std::fs::read_to_string(ANSWERS).unwrap_or_default();
    let has = |answer: &str| answers.split_whitespace().any(|known| known == answer);
    has("errno") && has("kill_process") && target().is_ok()
}

fn target() -> Result<TargetArch, BackendError> {
    TargetArch::try_from(std::env::consts::ARCH)
}

/// The filters, in the order of their installation: after the last one, no more can be installed.
/// `has_file_rules`: something else says which files may be opened; else none may.
pub(crate) fn filters(
    needs: &Needs,
    has_file_rules: bool,
) -> Result<Vec<BpfProgram>, BackendError> {
    let errno = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
    let program = |rules: Rules, others: SeccompAction, listed: SeccompAction| {
        SeccompFilter::new(rules, others, listed, target()?)?.try_into()
    };
    let whole = |calls: &[c_long]| calls.iter().map(|call| (*call, Vec::new())).collect();
    use SeccompAction::{Allow, KillProcess};
    Ok(vec![
        program(whole(FATAL), Allow, KillProcess)?,
        program(whole(ABSENT), Allow, errno(libc::ENOSYS))?,
        program(allowed(needs, has_file_rules)?, errno(libc::EPERM), Allow)?,
    ])
}

fn allowed(needs: &Needs, has_file_rules: bool) -> Result<Rules, BackendError> {
    let whole = ALLOWED.iter().chain(OLDER);
    let mut rules: Rules = whole.map(|call| (*call, Vec::new())).collect();
    if has_file_rules || !needs.writable.is_empty() {
        rules.extend(OPEN.iter().map(|call| (*call, Vec::new())));
    }
    if !needs.writable.is_empty() {
        rules.extend(FILES.iter().map(|call| (*call, Vec::new())));
    }
    if needs.is_networked {
        rules.extend([libc::SYS_bind, libc::SYS_connect].map(|call| (call, Vec::new())));
        let internet = [libc::AF_INET, libc::AF_INET6].map(i32::unsigned_abs);
        rules.insert(libc::SYS_socket, one_of(0, internet)?);
    }
    let mut conditional = |call: c_long, listed: Vec<SeccompRule>| rules.insert(call, listed);
    let own = std::process::id();
    conditional(libc::SYS_tgkill, one_of(0, [own])?);
    conditional(libc::SYS_kill, one_of(0, [own])?);
    conditional(
        libc::SYS_fcntl,
        one_of(1, FCNTL.iter().map(|one| one.unsigned_abs()))?,
    );
    conditional(libc::SYS_ioctl, one_of(1, IOCTL.iter().copied())?);
    let names = [
        libc::PR_SET_NAME.unsigned_abs(),
        libc::PR_GET_NAME.unsigned_abs(),
        PR_SET_VMA,
    ];
    conditional(libc::SYS_prctl, one_of(0, names)?);
    // Threads, not processes.
    let thread = libc::CLONE_THREAD.unsigned_abs().into();
    conditional(libc::SYS_clone, vec![rule([masked(0, thread, thread)?])?]);
    // Memory is never run.
    let run = libc::PROT_EXEC.unsigned_abs().into();
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        conditional(call, vec![rule([masked(2, run, 0)?])?]);
    }
    // Limits are asked for, not set.
    conditional(libc::SYS_prlimit64, vec![rule([masked(2, u64::MAX, 0)?])?]);
    Ok(rules)
}

/// Any of these values of one argument.
fn one_of(
    argument: u8,
    values: impl IntoIterator<Item = u32>,
) -> Result<Vec<SeccompRule>, BackendError> {
    values
        .into_iter()
        .map(|value| rule([equal(argument, value)?]))
        .collect()
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

fn equal(argument: u8, value: u32) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        value.into(),
    )
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    let compared = SeccompCmpOp::MaskedEq(mask);
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, compared, value)
}
