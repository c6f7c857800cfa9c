//! Nanoseconds since some moment of this process, read as cheaply as the machine allows.
//!
//! On x86-64 with an invariant time stamp counter, and on aarch64, a reading is one instruction and
//! a multiplication. The scale is measured against the system's monotonic clock over the first ten
//! milliseconds in which anybody reads this clock; until then, and elsewhere, it is that clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Long enough that the readings' own durations do not matter (some ten ns of ten million).
const CALIBRATION: Duration = Duration::from_millis(10);

/// Nanoseconds of a tick, times 2^32. 0 until it is known. Written after `FIRST_TICK`.
static SCALE: AtomicU64 = AtomicU64::new(0);
static FIRST_TICK: AtomicU64 = AtomicU64::new(0);
static FIRST: OnceLock<(Instant, Option<u64>)> = OnceLock::new();

/// Now, in nanoseconds since the first call.
#[inline]
pub(crate) fn now_ns() -> u64 {
    // Acquire: with the scale comes the first tick.
    let scale = SCALE.load(Ordering::Acquire);
    if scale != 0
        && let Some(ticks) = ticks()
    {
        let since = ticks.wrapping_sub(FIRST_TICK.load(Ordering::Relaxed));
        return ((u128::from(since) * u128::from(scale)) >> 32) as u64;
    }
    by_the_system()
}

#[cold]
fn by_the_system() -> u64 {
    let (instant, first_tick) = FIRST.get_or_init(|| (Instant::now(), steady_ticks()));
    let elapsed = instant.elapsed();
    let ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    if let (Some(first), Some(now), true) = (*first_tick, ticks(), elapsed >= CALIBRATION)
        && let Some(passed) = now.checked_sub(first).filter(|passed| *passed != 0)
        && let Ok(scale) = u64::try_from((u128::from(ns) << 32) / u128::from(passed))
    {
        FIRST_TICK.store(first, Ordering::Relaxed);
        SCALE.store(scale, Ordering::Release);
    }
    ns
}

/// The counter, if it runs at one rate on all CPUs and at all times.
fn steady_ticks() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        // "Invariant TSC": bit 8 of EDX of this leaf, where the leaf exists.
        const POWER: u32 = 0x8000_0007;
        if __cpuid(0x8000_0000).eax < POWER || __cpuid(POWER).edx & (1 << 8) == 0 {
            return None;
        }
    }
    ticks()
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> Option<u64> {
    // SAFETY: reads a register that user space may read; touches no memory.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn ticks() -> Option<u64> {
    let ticks: u64;
    // SAFETY: reads a register that user space may read; touches no memory.
    unsafe {
        std::arch::asm!("mrs {t}, cntvct_el0", t = out(reg) ticks, options(nomem, nostack));
    }
    Some(ticks)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn ticks() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_system() {
        now_ns();
        std::thread::sleep(CALIBRATION * 2);
        // From here on by ticks, where there are any.
        now_ns();
        let (ours, theirs) = (now_ns(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let ours = now_ns() - ours;
        let theirs = theirs.elapsed().as_nanos() as u64;
        let off = ours.abs_diff(theirs);
        assert!(off < theirs / 50, "{ours} against {theirs}");
    }
}
