//! Keeps CPUs from falling asleep between requests (`cpu_latency=`).
//!
//! # Why
//! A request is a switch to the server and one back. Where both CPUs have nothing else to do, each
//! side goes idle meanwhile and has to be woken, and waking an idle CPU can cost more than all the
//! rest: tens of microseconds in a virtual machine or from a deep sleep state. The kernel lets a
//! program bound that by a latency request, which holds for the whole machine and costs power; so
//! it is held only while requests come, and, where nobody asked for it, never on battery.
//!
//! # Data model
//! Server threads count requests, each on its CPU's line, and ring when the governor sleeps. The
//! governor looks every [`WINDOW`]: with at least [`BUSY_REQUESTS`] since the last look the request
//! is held, with none it is given up and the governor sleeps. Where the power comes from is looked
//! at before the request is made and each [`POWER_WINDOWS`] while it is held.
//!
//! # References
//! `Documentation/power/pm_qos_interface.rst` and `Documentation/ABI/testing/sysfs-class-power` of
//! Linux (/dev/cpu_dma_latency, /sys/class/power_supply).

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use finefs_locks::PerCpuCounter;

const DEVICE: &str = "/dev/cpu_dma_latency";
/// Where the kernel tells what the power is from.
pub(crate) const POWER_SUPPLIES: &str = "/sys/class/power_supply";
/// Takes a request back: PM_QOS_DEFAULT_VALUE.
const NO_REQUEST: i32 = -1;
const WINDOW: Duration = Duration::from_millis(10);
/// A round trip now and then is not worth keeping the machine awake.
const BUSY_REQUESTS: i64 = 10;
/// A second.
const POWER_WINDOWS: u32 = 100;

/// How soon an idle CPU must be awake while requests come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WakeupLatency {
    /// At once, where this process may ask for it; elsewhere as [`WakeupLatency::Polled`]. Not on
    /// battery.
    #[default]
    Auto,
    /// As the machine is set up; but a server thread looks for the next request for up to 200
    /// microseconds before it sleeps.
    Polled,
    /// As the machine is set up.
    Unbounded,
    /// After so many microseconds at most; root only.
    AtMostUs(u32),
}

/// Counts requests and keeps the CPUs awake while they come.
pub(crate) struct CpuLatency {
    shared: Arc<Shared>,
    governor: Option<JoinHandle<()>>,
    thread: Thread,
}

struct Shared {
    requests: PerCpuCounter,
    sleeps: AtomicBool,
    is_over: AtomicBool,
}

impl CpuLatency {
    /// Starts the governor, if there is anything to bound.
    pub(crate) fn start(latency: WakeupLatency) -> io::Result<Option<CpuLatency>> {
        let device = || File::options().write(true).open(DEVICE);
        match latency {
            WakeupLatency::Unbounded | WakeupLatency::Polled => Ok(None),
            WakeupLatency::Auto => match device() {
                Ok(device) => {
                    Self::govern(device, 0, || !is_on_battery(POWER_SUPPLIES.as_ref())).map(Some)
                }
                Err(error) => {
                    log::debug!("cpu_latency: cannot open {DEVICE}: {error}");
                    Ok(None)
                }
            },
            WakeupLatency::AtMostUs(us) => {
                let device = device().map_err(|error| {
                    let what = format!("cpu_latency: cannot open {DEVICE}: {error}");
                    io::Error::new(error.kind(), what)
                })?;
                Self::govern(device, us, || true).map(Some)
            }
        }
    }

    fn govern(
        device: File,
        latency_us: u32,
        mut may_hold: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<CpuLatency> {
        let shared = Arc::new(Shared {
            requests: PerCpuCounter::new(0),
            sleeps: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let latency_us = i32::try_from(latency_us).unwrap_or(i32::MAX);
        let governor = std::thread::Builder::new()
            .name("cpu-latency".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let mut hold = |is_held| hold(&device, is_held, latency_us);
                    shared.govern(&mut may_hold, &mut hold);
                }
            })?;
        let thread = governor.thread().clone();
        Ok(CpuLatency {
            shared,
            governor: Some(governor),
            thread,
        })
    }

    /// A request has come.
    pub(crate) fn note(&self) {
        self.shared.requests.add(1);
        // A ring that this misses is made up for by the next request.
        if self.shared.sleeps.load(Ordering::Relaxed)
            && self.shared.sleeps.swap(false, Ordering::Relaxed)
        {
            self.thread.unpark();
        }
    }
}

impl Drop for CpuLatency {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.thread.unpark();
        if let Some(governor) = self.governor.take() {
            // A panic was logged where it happened.
            let _ = governor.join();
        }
    }
}

impl Shared {
    fn govern(&self, may_hold: &mut dyn FnMut() -> bool, hold: &mut dyn FnMut(bool)) {
        let mut seen = self.requests.exact();
        let mut is_held = false;
        let mut is_allowed = false;
        let mut windows = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(WINDOW);
            let now = self.requests.exact();
            let came = now - seen;
            seen = now;
            let is_busy = came >= BUSY_REQUESTS;
            if is_busy && windows == 0 {
                is_allowed = may_hold();
            }
            windows = if is_busy {
                (windows + 1) % POWER_WINDOWS
            } else {
                0
            };
            let is_wanted = is_busy && is_allowed;
            if is_wanted != is_held {
                is_held = is_wanted;
                hold(is_held);
            }
            if came == 0 {
                self.sleeps.store(true, Ordering::Relaxed);
                while self.sleeps.load(Ordering::Relaxed) && !self.is_over.load(Ordering::Relaxed) {
                    std::thread::park();
                }
            }
        }
        if is_held {
            hold(false);
        }
    }
}

fn hold(mut device: &File, is_held: bool, latency_us: i32) {
    let value = if is_held { latency_us } else { NO_REQUEST };
    if let Err(error) = device.write_all(&value.to_ne_bytes()) {
        log::warn!("{DEVICE}: {error}");
    }
}

/// True where a battery of the machine is being used and no line gives power.
pub(crate) fn is_on_battery(supplies: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(supplies) else {
        return false;
    };
    let mut discharges = false;
    for supply in entries.flatten() {
        let shows = |name: &str, value: &str| {
            std::fs::read_to_string(supply.path().join(name)).is_ok_and(|text| text.trim() == value)
        };
        // The batteries of mice and the like have this scope.
        if shows("scope", "Device") {
            continue;
        }
        if shows("online", "1") {
            return false;
        }
        discharges |= shows("type", "Battery") && shows("status", "Discharging");
    }
    discharges
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn it_is_held_while_requests_come() {
        let shared = Arc::new(Shared {
            requests: PerCpuCounter::new(0),
            sleeps: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let (to_us, held) = channel();
        let governor = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.govern(&mut || true, &mut |is_held| to_us.send(is_held).unwrap())
        });
        let cpu_latency = CpuLatency {
            thread: governor.thread().clone(),
            shared: Arc::clone(&shared),
            governor: Some(governor),
        };
        // Until it has seen a window without requests.
        let rest = || {
            while !shared.sleeps.load(Ordering::Relaxed) {
                std::thread::sleep(WINDOW / 10);
            }
        };
        for _ in 0..3 {
            rest();
            // A stall below may have let it hold on once more.
            held.try_iter().for_each(drop);
            // Nothing is held for single requests.
            cpu_latency.note();
            rest();
            assert!(held.try_recv().is_err());
            while held.try_recv().is_err() {
                for _ in 0..BUSY_REQUESTS {
                    cpu_latency.note();
                }
                std::thread::sleep(WINDOW / 10);
            }
            assert!(!held.recv().unwrap(), "held on without requests");
        }
        drop(cpu_latency);
    }

    #[test]
    fn power_of_batteries_is_told_from_power_of_a_line() {
        let supplies = tempfile::tempdir().unwrap();
        let write = |name: &str, value: &str| {
            let path = supplies.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        };
        let is_on_battery = || is_on_battery(supplies.path());
        assert!(!is_on_battery(), "a machine without batteries");
        write("mouse/type", "Battery");
        write("mouse/scope", "Device");
        write("mouse/status", "Discharging");
        assert!(!is_on_battery(), "the mouse's battery");
        write("BAT0/type", "Battery");
        write("BAT0/status", "Discharging");
        assert!(is_on_battery());
        write("AC/type", "Mains");
        write("AC/online", "0");
        assert!(is_on_battery(), "a line without power");
        write("AC/online", "1");
        assert!(!is_on_battery(), "a weak line");
        write("BAT0/status", "Charging");
        assert!(!is_on_battery());
        assert!(!super::is_on_battery(&supplies.path().join("missing")));
    }

    #[test]
    fn nothing_is_held_where_it_is_not_allowed() {
        let shared = Arc::new(Shared {
            requests: PerCpuCounter::new(0),
            sleeps: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let (to_us, asked) = channel();
        let governor = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let mut may_hold = || {
                    to_us.send(()).unwrap();
                    false
                };
                shared.govern(&mut may_hold, &mut |is_held| assert!(!is_held));
            }
        });
        let cpu_latency = CpuLatency {
            thread: governor.thread().clone(),
            shared: Arc::clone(&shared),
            governor: None,
        };
        while asked.try_recv().is_err() {
            for _ in 0..BUSY_REQUESTS {
                cpu_latency.note();
            }
            std::thread::sleep(WINDOW / 10);
        }
        drop(cpu_latency);
        governor.join().unwrap();
    }
}
