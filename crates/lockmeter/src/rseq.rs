//! The CPU that a thread runs on, read from its rseq area.
//!
//! glibc 2.35 and later registers one `struct rseq` per thread with the kernel, which writes the
//! CPU number into it whenever the thread returns to user space on another CPU. The area lies at
//! `__rseq_offset` bytes from the thread pointer. The symbol is looked up at run time, so that the
//! program also runs with C libraries that do not have it.
//!
//! References: glibc manual, "Restartable Sequences"; Linux `include/uapi/linux/rseq.h`.

use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// The CPU that the thread ran on a moment ago, where the C library and the kernel keep it: a load,
/// where others call a function. `None` where they do not.
///
/// ```
/// if let Some(cpu) = finefs_lockmeter::rseq::current_cpu() {
///     println!("on CPU {cpu}");
/// }
/// ```
#[inline]
pub fn current_cpu() -> Option<usize> {
    let offset = match AREA_OFFSET.load(Ordering::Relaxed) {
        UNKNOWN => find_area()?,
        offset => offset,
    };
    // RSEQ_CPU_ID_UNINITIALIZED and ..._REGISTRATION_FAILED are negative.
    usize::try_from(read_cpu_id(offset)).ok()
}

/// The same, without looking for the area: `None` until it was found.
#[cfg(not(feature = "off"))]
#[inline(always)]
pub(crate) fn known_cpu() -> Option<usize> {
    match AREA_OFFSET.load(Ordering::Relaxed) {
        UNKNOWN => None,
        offset => usize::try_from(read_cpu_id(offset)).ok(),
    }
}

/// The area's offset, or UNKNOWN, which no offset is: the thread pointer's own place. It never
/// changes once it is known, so it does not matter which thread finds it.
static AREA_OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);
const UNKNOWN: isize = 0;
/// Set when it is known that there is no area.
static IS_WITHOUT: AtomicBool = AtomicBool::new(false);

#[cold]
fn find_area() -> Option<isize> {
    if IS_WITHOUT.load(Ordering::Relaxed) {
        return None;
    }
    let offset = area_offset();
    IS_WITHOUT.store(offset.is_none(), Ordering::Relaxed);
    AREA_OFFSET.store(offset.unwrap_or(UNKNOWN), Ordering::Relaxed);
    offset
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn area_offset() -> Option<isize> {
    // SAFETY: dlsym takes a valid C string. `__rseq_offset` is a `const ptrdiff_t` and
    // `__rseq_size` a `const unsigned int`, initialised before the program starts.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        // A size of 0 says that registration is switched off or failed.
        if offset.is_null() || size.is_null() || *size == 0 {
            None
        } else {
            Some(*offset)
        }
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
fn area_offset() -> Option<isize> {
    None
}

/// Offset of `cpu_id` in `struct rseq`.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
const CPU_ID_OFFSET: isize = 4;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[inline(always)]
fn read_cpu_id(area_offset: isize) -> i32 {
    let cpu_id: i32;
    // SAFETY: fs is the thread pointer of the x86-64 ABI. `area_offset` was published by the C
    // library for exactly this use: the thread's area lies there for as long as the thread lives.
    // `cpu_id` is an aligned 4-byte field that only the kernel writes, between instructions.
    unsafe {
        std::arch::asm!(
            "mov {cpu_id:e}, dword ptr fs:[{place}]",
            place = in(reg) area_offset + CPU_ID_OFFSET,
            cpu_id = out(reg) cpu_id,
            options(nostack, preserves_flags, readonly),
        );
    }
    cpu_id
}

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
#[inline(always)]
fn read_cpu_id(area_offset: isize) -> i32 {
    let thread_pointer: isize;
    // SAFETY: reads the thread pointer register.
    unsafe {
        std::arch::asm!(
            "mrs {tp}, tpidr_el0",
            tp = out(reg) thread_pointer,
            options(nomem, nostack, preserves_flags),
        );
    }
    let place = (thread_pointer + area_offset + CPU_ID_OFFSET) as *const i32;
    // SAFETY: the C library published the offset of the thread's area for exactly this use; the
    // area lies there for as long as the thread lives. Only the kernel writes it.
    unsafe { place.read_volatile() }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
fn read_cpu_id(_area_offset: isize) -> i32 {
    -1
}
