//! Threads that read /dev/fuse look for the next request for a moment before they sleep
//! (`cpu_latency=poll`, and `auto` where the machine's latency cannot be bounded:
//! [`crate::cpu_latency`]). Those of rings do not: their CPU is the program's.
//!
//! # Why
//! A program that does one thing after the other asks again some tens of microseconds after the
//! answer. A thread that sleeps meanwhile leaves its CPU idle, and has to be woken.
//!
//! # How
//! As KVM's halt polling: a thread looks for as long as its window says, then sleeps. The window
//! grows where the request came soon enough that looking longer would have met it, and closes where
//! it did not, or where others have use for the CPU. None looks where there is no other CPU for the
//! program, nor on battery, unless asked for.
//!
//! One thread looks at a time. The others do not sleep at the device meanwhile, where each request
//! would wake them: they read it once a millisecond, in case a request keeps the one that looked.
//!
//! # References
//! `Documentation/virt/kvm/halt-polling.rst` of Linux.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cpu_latency::{POWER_SUPPLIES, WakeupLatency, is_on_battery};

/// A window's first length, and its longest.
const WINDOW_MIN: Duration = Duration::from_micros(20);
const WINDOW_MAX: Duration = Duration::from_micros(200);

/// How often threads read the device while another looks.
const BESIDE: Duration = Duration::from_millis(1);

/// Between two looks a thread that takes longer has lost its CPU meanwhile.
const LOST: Duration = Duration::from_micros(50);

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
    /// Where the kernel tells what the power is from.
    power_supplies: Box<Path>,
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
        (cpus > 1).then(|| Polling::new(is_asked_for, POWER_SUPPLIES.as_ref()))
    }

    fn new(is_asked_for: bool, power_supplies: &Path) -> Polling {
        Polling {
            is_taken: AtomicBool::new(false),
            is_asked_for,
            power_supplies: power_supplies.into(),
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
            let is_so = is_on_battery(&self.power_supplies);
            self.has_battery_power.store(is_so, Ordering::Relaxed);
        }
        !self.has_battery_power.load(Ordering::Relaxed)
    }

    /// Looks for a request by `is_there` for as long as the window says.
    pub(crate) fn look(
        &self,
        window: &mut Window,
        mut is_there: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<Looked> {
        if window.0 == Duration::ZERO || !self.may_look() {
            return Ok(Looked::InVain);
        }
        if self.is_taken.swap(true, Ordering::Acquire) {
            std::thread::sleep(BESIDE);
            return Ok(match is_there()? {
                true => Looked::Found,
                false => Looked::Beside,
            });
        }
        let found = look(window, &mut is_there);
        self.is_taken.store(false, Ordering::Release);
        Ok(match found? {
            true => Looked::Found,
            false => Looked::InVain,
        })
    }
}

/// What a look came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Looked {
    /// There is a request, or the end has come.
    Found,
    /// There was none: sleep until there is.
    InVain,
    /// Another thread looks. Look again.
    Beside,
}

/// The window closes for a thread that lost its CPU: others have use for that.
fn look(window: &mut Window, is_there: &mut dyn FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let began = Instant::now();
    let mut last = Duration::ZERO;
    loop {
        for _ in 0..PAUSES {
            std::hint::spin_loop();
        }
        if is_there()? {
            return Ok(true);
        }
        let now = began.elapsed();
        if now - last > LOST {
            window.0 = Duration::ZERO;
        }
        if now >= window.0 {
            return Ok(false);
        }
        last = now;
    }
}

impl Window {
    /// A request came after so long a wait.
    pub(crate) fn learn(&mut self, waited: Duration) {
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
    fn windows_grow_while_requests_come_soon_and_close_when_they_do_not() {
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
    fn one_thread_looks_at_a_time_and_the_others_come_back() {
        let polling = Polling::new(true, POWER_SUPPLIES.as_ref());
        let mut window = Window(Duration::from_secs(60));
        let mut looks = 0;
        let third = || {
            looks += 1;
            Ok(looks == 3)
        };
        // Where the machine is busy the thread loses its CPU.
        let looked = polling.look(&mut window, third).expect("no error");
        let lost = window.0 == Duration::ZERO;
        assert!(looked == Looked::Found || lost && looked == Looked::InVain);
        let mut window = Window(WINDOW_MAX);
        polling.is_taken.store(true, Ordering::Relaxed);
        let beside = polling.look(&mut window, || Ok(false));
        assert_eq!(beside.expect("no error"), Looked::Beside);
        let found = polling.look(&mut window, || Ok(true));
        assert_eq!(found.expect("no error"), Looked::Found);
        let mut closed = Window::default();
        let no_look = || panic!("its window is closed");
        let looked = polling.look(&mut closed, no_look).expect("no error");
        assert_eq!(looked, Looked::InVain);
    }
    #[test]
    fn on_battery_no_thread_looks_unless_asked_for() {
        let supplies = tempfile::tempdir().unwrap();
        let battery = supplies.path().join("BAT0");
        std::fs::create_dir(&battery).unwrap();
        std::fs::write(battery.join("type"), "Battery\n").unwrap();
        let status = |is: &str| std::fs::write(battery.join("status"), is).unwrap();
        let look = |polling: &Polling| {
            let mut window = Window(WINDOW_MAX);
            let looked = polling.look(&mut window, || Ok(true));
            looked.expect("no error")
        };
        status("Discharging\n");
        let polling = Polling::new(false, supplies.path());
        assert_eq!(look(&polling), Looked::InVain);
        let asked_for = Polling::new(true, supplies.path());
        assert_eq!(look(&asked_for), Looked::Found);
        // It is looked at again after a while.
        status("Charging\n");
        std::thread::sleep(Duration::from_millis(1000 * POWER_SECONDS + 100));
        assert_eq!(look(&polling), Looked::Found);
        status("Discharging\n");
        std::thread::sleep(Duration::from_millis(1000 * POWER_SECONDS + 100));
        assert_eq!(look(&polling), Looked::InVain);
    }
}
