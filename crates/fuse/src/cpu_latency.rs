//! InodeConfig CPUs from falling asleep between requests (`cpu_latency=`).
//!
//! # Why
//! A request is a switch to the server and one back. Where both CPUs have nothing else to do, each
//! side goes idle meanwhile and has to be woken, and waking an idle CPU can cost more than all the
//! rest: tens of microseconds in a virtual machine or from a deep sleep state. The kernel lets a
//! program bound that by a latency request, which holds for the whole machine and costs power; so
//! it is made only where the user asks, and held only while requests come.
//!
//! # Data model
//! Server threads count requests, each on its CPU's line, and ring when the governor sleeps. The
//! governor looks every [`WINDOW`]: with at least [`BUSY_REQUESTS`] since the last look the request
//! is held, with none it is given up and the governor sleeps.
//!
//! # References
//! `Documentation/power/pm_qos_interface.rst` of Linux (/dev/cpu_dma_latency).

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use finefs_locks::PerCpuCounter;

const DEVICE: &str = "/dev/cpu_dma_latency";
/// Takes a request back: PM_QOS_DEFAULT_VALUE.
const NO_REQUEST: i32 = -1;
const WINDOW: Duration = Duration::from_millis(10);
/// A round trip now and then is not worth keeping the machine awake.
const BUSY_REQUESTS: i64 = 10;

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
    /// Starts the governor, which allows a wake-up to take at most so long while requests come.
    pub(crate) fn start(latency_us: u32) -> io::Result<CpuLatency> {
        let device = File::options().write(true).open(DEVICE).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cpu_latency: cannot open {DEVICE}: {error}"),
            )
        })?;
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
                move || shared.govern(&mut |is_held| hold(&device, is_held, latency_us))
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
    fn govern(&self, hold: &mut dyn FnMut(bool)) {
        let mut seen = self.requests.exact();
        let mut is_held = false;
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(WINDOW);
            let now = self.requests.exact();
            let came = now - seen;
            seen = now;
            let is_wanted = came >= BUSY_REQUESTS;
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
            move || shared.govern(&mut |is_held| to_us.send(is_held).unwrap())
        });
        let cpu_latency = CpuLatency {
            thread: governor.thread().clone(),
            shared: Arc::clone(&shared),
            governor: Some(governor),
        };
        for _ in 0..3 {
            // Nothing is held for single requests.
            cpu_latency.note();
            std::thread::sleep(4 * WINDOW);
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
}
