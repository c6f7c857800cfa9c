//! Nanoseconds since some moment of this process, read as cheaply as the machine allows.
//!
//! On x86-64 with an invariant time stamp counter, and on aarch64, a reading is one instruction and
//! a multiplication. The scale is measured against the system's monotonic clock over the first ten
//! milliseconds (or longer, where a reading was interrupted) in which anybody reads this clock;
//! until then, and elsewhere, it is that clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Long enough that the readings' own durations do not matter (some ten ns of ten million).
const CALIBRATION: Duration = Duration::from_millis(10);
/// What is not known of the two clocks at the ends of the calibration may be one part in so many of
/// it.
const PRECISION: u32 = 1000;

/// Nanoseconds of a tick, times 2^32. 0 until it is known. Written after `FIRST_TICK`.
static SCALE: AtomicU64 = AtomicU64::new(0);
static FIRST_TICK: AtomicU64 = AtomicU64::new(0);
static FIRST: OnceLock<(Instant, Option<Reading>)> = OnceLock::new();

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
    let (instant, first) = FIRST.get_or_init(|| match is_steady() {
        true => Reading::best().map_or_else(
            || (Instant::now(), None),
            |first| (first.instant, Some(first)),
        ),
        false => (Instant::now(), None),
    });
    if let Some(first) = first
        && instant.elapsed() >= CALIBRATION
        && let Some(now) = Reading::best()
        && let Some(scale) = first.scale(&now)
    {
        FIRST_TICK.store(first.ticks, Ordering::Relaxed);
        SCALE.store(scale, Ordering::Release);
    }
    u64::try_from(instant.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Both clocks at almost the same time.
#[derive(Clone, Copy)]
struct Reading {
    instant: Instant,
    ticks: u64,
    /// The ticks were read at most so long after the instant: a thread may lose its CPU in between.
    doubt: Duration,
}

impl Reading {
    /// The closest of a few; none where there is no counter.
    fn best() -> Option<Reading> {
        let readings = (0..3).filter_map(|_| {
            let instant = Instant::now();
            let ticks = ticks()?;
            let doubt = instant.elapsed();
            Some(Reading {
                instant,
                ticks,
                doubt,
            })
        });
        readings.min_by_key(|reading| reading.doubt)
    }

    /// Nanoseconds of a tick, times 2^32, by a later reading; none when the two say too little.
    fn scale(&self, later: &Reading) -> Option<u64> {
        let passed = later.instant.checked_duration_since(self.instant)?;
        if (self.doubt + later.doubt) * PRECISION > passed {
            return None;
        }
        let ticks = later
            .ticks
            .checked_sub(self.ticks)
            .filter(|ticks| *ticks != 0)?;
        u64::try_from((passed.as_nanos() << 32) / u128::from(ticks)).ok()
    }
}

/// Whether there is a counter that runs at one rate on all CPUs and at all times.
fn is_steady() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        // "Invariant TSC": bit 8 of EDX of this leaf, where the leaf exists.
        const POWER: u32 = 0x8000_0007;
        if __cpuid(0x8000_0000).eax < POWER || __cpuid(POWER).edx & (1 << 8) == 0 {
            return false;
        }
    }
    ticks().is_some()
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

    /// Fails when the doubt is not looked at: a thread that lost its CPU within its first reading
    /// then made all times some 10,000 times too long.
    #[test]
    fn readings_that_are_far_apart_say_nothing() {
        let instant = Instant::now();
        let reading = |ms, ticks, doubt_us| Reading {
            instant: instant + Duration::from_millis(ms),
            ticks,
            doubt: Duration::from_micros(doubt_us),
        };
        let later = reading(10, 30_000, 5);
        let half = 1 << 31;
        assert_eq!(reading(0, 10_000, 5).scale(&later), Some(1000 * half));
        assert_eq!(reading(0, 29_000, 9_900).scale(&later), None);
        assert_eq!(reading(0, 10_000, 5).scale(&reading(10, 30_000, 6)), None);
        // After longer, the same doubt counts less.
        let much_later = reading(11, 32_000, 6);
        assert_eq!(reading(0, 10_000, 5).scale(&much_later), Some(1000 * half));
        // A counter that stood, or ran back.
        assert_eq!(reading(0, 30_000, 5).scale(&later), None);
        assert_eq!(reading(0, 30_001, 5).scale(&later), None);
    }

    #[test]
    fn agrees_with_the_system() {
        now_ns();
        std::thread::sleep(CALIBRATION * 2);
        // From here on by ticks, where there are any.
        now_ns();
        // This thread may lose its CPU at any place.
        let outer = Instant::now();
        let ours = now_ns();
        let inner = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        let inner = inner.elapsed();
        let ours = Duration::from_nanos(now_ns() - ours);
        let outer = outer.elapsed();
        assert!(ours > inner - inner / 50, "{ours:?} against {inner:?}");
        assert!(ours < outer + outer / 50, "{ours:?} against {outer:?}");
    }
}
