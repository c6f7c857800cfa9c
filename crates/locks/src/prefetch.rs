//! Cache lines, fetched before they are needed.

/// Asks the CPU to fetch the line in which `place` starts, to write it. Returns at once and changes
/// nothing; on processors other than x86-64 it does nothing.
///
/// A line that another CPU wrote last, read first and then written, crosses the machine twice: once
/// to be shared, once for the other copy to go. Fetched like this it crosses once, while other work
/// is done.
///
/// ```
/// let word = std::sync::atomic::AtomicU64::new(7);
/// finefs_locks::prefetch_to_write(&word);
/// assert_eq!(word.into_inner(), 7);
/// ```
#[inline(always)]
pub fn prefetch_to_write<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, feature = "shuttle", miri))))]
    // SAFETY: PREFETCHW is a hint: it never faults and changes no memory, register or flag. 64-bit
    // processors without it run it as a no-operation (Intel SDM volume 2, PREFETCHW).
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{place}]",
            place = in(reg) place,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, feature = "shuttle", miri)))))]
    let _ = place;
}

/// Asks the CPU to fetch the line in which `place` starts, to read it. Returns at once and changes
/// nothing; on processors other than x86-64 it does nothing. The address may be any: nothing has to
/// be there.
///
/// ```
/// finefs_locks::prefetch_to_read(&7);
/// finefs_locks::prefetch_to_read(std::ptr::null::<u64>());
/// ```
#[inline(always)]
pub fn prefetch_to_read<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, feature = "shuttle", miri))))]
    // SAFETY: PREFETCHT0 is a hint: it never faults, whatever the address, and changes nothing
    // (Intel SDM volume 2, PREFETCHh); every x86-64 processor has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, feature = "shuttle", miri)))))]
    let _ = place;
}
