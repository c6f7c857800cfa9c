//! A hint that a line will be written.

/// Fetches the line at `place` as its only owner, before it is looked at.
///
/// Who loads a word and then exchanges it asks for a line that another CPU has written twice: to read it, and
/// to have it alone. After this, once.
#[inline(always)]
pub(crate) fn to_write<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, feature = "shuttle", miri))))]
    // SAFETY: a hint to the cache: changes no memory and no register, and does not fault. Processors that do
    // not know it do nothing.
    unsafe {
        let address = std::ptr::from_ref(place).addr();
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nomem, nostack, preserves_flags));
    }
    let _ = place;
}
