//! Server threads look for the next request for a moment before they sleep (`cpu_latency=auto`,
//! where the machine's latency cannot be bounded: [`crate::cpu_latency`]).
//!
//! # Why
//! A program that does one thing after the other asks again some tens of microseconds after the
//! answer. A thread that sleeps meanwhile leaves its CPU idle, and has to be woken.
//!
//! # How
//! As KVM's halt polling: a thread looks for as long as its window says, then sleeps. The window
//! grows where the request came soon enough that looking longer would have met it, and goes where
//! it did not. None looks where there is no other CPU for the program, nor on battery, unless asked
//! for.
//!
//! One thread looks at a time. The others do not sleep at the device meanwhile, where each request
//! would wake them: they read it once a millisecond, in case a request keeps the one that looked.
//!
//! # References
//! `Documentation/virt/kvm/halt-polling.rst` of Linux.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cpu_latency::{WakeupLatency, on_battery};

/// A window's first length, and its longest.
const WINDOW_MIN: Duration = Duration::from_micros(20);
const WINDOW_MAX: Duration = Duration::from_micros(200);

/// How often threads read the device while another looks.
const BESIDE: Duration = Duration::from_millis(1);

/// So many seconds what the power is from is known.
const POWER_SECONDS: u64 = 1;

/// Pauses between two looks.
const PAUSES: usize = 20;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Polling {
    /// Some thread looks.
    is_taken: AtomicBool,
    /// Also on battery.
    is_asked_for: bool,
    started: Instant,
    /// When what the power is from was looked at, in seconds from the start, 0 for never.
    power_seconds: AtomicU64,
    has_battery_power: AtomicBool,
}

/// What a thread knows of its own waits.
#[derive(Debug, Default)]
pub(crate) struct Window(Duration);

impl Polling {
    /// Where it is asked for, or all that is left, and there is another CPU for the program;
    /// `is_bounded` where the machine's latency can be bounded.
    pub(crate) fn start(latency: WakeupLatency, is_bounded: bool) -> Option<Polling> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let is_asked_for = match latency {
            WakeupLatency::Polled => true,
            WakeupLatency::Auto if !is_bounded => false,
            _ => return None,
        };
        (cpus > 1).then(|| Polling::new(is_asked_for))
    }

    fn new(is_asked_for: bool) -> Polling {
        Polling {
            is_taken: AtomicBool::new(false),
            is_asked_for,
            started: Instant::now(),
            power_seconds: AtomicU64::new(0),
            has_battery_power: AtomicBool::new(false),
        }
    }

    fn may_look(&self) -> bool {
        if self.is_asked_for {
            return true;
        }
        let now = self.started.elapsed().as_secs() + 1;
        if now >= self.power_seconds.load(Ordering::Relaxed) + POWER_SECONDS {
            self.power_seconds.store(now, Ordering::Relaxed);
            self.has_battery_power
                .store(on_battery(), Ordering::Relaxed);
        }
        !self.has_battery_power.load(Ordering::Relaxed)
    }

    /// Waits for a request: looks for one (`is_there`), then sleeps (`sleep`). There may be none
    /// when it returns.
    pub(crate) fn wait(
        &self,
        window: &mut Window,
        mut is_there: impl FnMut() -> io::Result<bool>,
        sleep: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let began = Instant::now();
        if window.0 > Duration::ZERO && self.may_look() {
            if self.is_taken.swap(true, Ordering::Acquire) {
                std::thread::sleep(BESIDE);
                return Ok(());
            }
            let found = look(began, window.0, &mut is_there);
            self.is_taken.store(false, Ordering::Release);
            if found? {
                return Ok(());
            }
        }
        sleep()?;
        window.learn(began.elapsed());
        Ok(())
    }
}

fn look(
    began: Instant,
    window: Duration,
    is_there: &mut dyn FnMut() -> io::Result<bool>,
) -> io::Result<bool> {
    while began.elapsed() < window {
        for _ in 0..PAUSES {
            std::hint::spin_loop();
        }
        if is_there()? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Window {
    /// A request came after so long a sleep.
    fn learn(&mut self, waited: Duration) {
        self.0 = match waited < WINDOW_MAX {
            true => (self.0 * 2).clamp(WINDOW_MIN, WINDOW_MAX),
            false => Duration::ZERO,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_while_requests_come_soon_and_go_when_they_do_not() {
        let mut window = Window::default();
        window.learn(Duration::from_micros(100));
        assert_eq!(window.0, WINDOW_MIN);
        for _ in 0..10 {
            window.learn(Duration::from_micros(100));
        }
        assert_eq!(window.0, WINDOW_MAX);
        window.learn(Duration::from_millis(1));
        assert_eq!(window.0, Duration::ZERO);
    }

    #[test]
    fn one_thread_looks_at_a_time_and_the_others_do_not_sleep_at_the_device() {
        let polling = Polling::new(true);
        let mut window = Window(WINDOW_MAX);
        let mut looks = 0;
        let found = || {
            looks += 1;
            Ok(looks == 3)
        };
        let no_sleep = || panic!("it was found");
        polling.wait(&mut window, found, no_sleep).expect("found");
        assert_eq!(looks, 3);
        polling.is_taken.store(true, Ordering::Relaxed);
        let no_look = || panic!("another looks");
        let no_sleep = || panic!("another looks");
        polling
            .wait(&mut window, no_look, no_sleep)
            .expect("no error");
        let mut window = Window::default();
        let mut has_slept = false;
        let sleep = || {
            has_slept = true;
            Ok(())
        };
        polling.wait(&mut window, no_look, sleep).expect("no error");
        assert!(has_slept);
    }
}
