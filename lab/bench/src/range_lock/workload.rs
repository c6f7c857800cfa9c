//! Who asks for what: threads that take and release ranges of one file as fast as they can.

use super::candidate::{Candidate, FILE_BYTES};
use finefs_harness::rng::Rng;
use finefs_workloads::affinity;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;

/// Which ranges the threads ask for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Overlap {
    /// Each a random block of its own part of the file
    Disjoint,
    /// So, but one time in ten all ask for the same block
    Tenth,
    /// All ask for the whole file
    Full,
}

/// One measurement.
#[derive(Clone, Copy)]
pub struct Workload {
    pub overlap: Overlap,
    pub threads: usize,
    pub reads_percent: u64,
    pub copy_bytes: usize,
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Default)]
pub struct Rates {
    /// Requests per second, of all threads.
    pub total: f64,
    /// The slowest thread's rate over the mean of all: 1 is fair.
    pub slowest_share: f64,
}

/// What one thread did.
struct Run {
    done: u64,
    started: Instant,
    ended: Instant,
}

impl Workload {
    /// Measures a candidate.
    pub fn run<C: Candidate>(&self, candidate: &C) -> Rates {
        let (stop, start) = (AtomicBool::new(false), Barrier::new(self.threads + 1));
        let runs: Vec<Run> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads as u64)
                .map(|thread| {
                    let (stop, start) = (&stop, &start);
                    scope.spawn(move || {
                        affinity::bind_by_turns(thread as usize);
                        start.wait();
                        let started = Instant::now();
                        let done = self.run_thread(candidate, thread, stop);
                        let ended = Instant::now();
                        Run {
                            done,
                            started,
                            ended,
                        }
                    })
                })
                .collect();
            start.wait();
            // Every thread must have its turns on a CPU.
            let turns = (self.threads as u32).div_ceil(8);
            std::thread::sleep(self.time * turns);
            stop.store(true, Ordering::Relaxed);
            threads
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .collect()
        });
        let total = runs.iter().map(|run| run.done).sum::<u64>() as f64;
        let slowest = runs.iter().map(|run| run.done).min().unwrap_or(0) as f64;
        // From the first start to the last end: the main thread may come to a CPU late itself.
        let started = runs.iter().map(|run| run.started).min();
        let ended = runs.iter().map(|run| run.ended).max();
        let elapsed = match (started, ended) {
            (Some(started), Some(ended)) => ended - started,
            _ => Duration::ZERO,
        };
        Rates {
            total: total / elapsed.as_secs_f64(),
            slowest_share: slowest * self.threads as f64 / total.max(1.0),
        }
    }

    fn run_thread<C: Candidate>(&self, candidate: &C, thread: u64, stop: &AtomicBool) -> u64 {
        let part_blocks = FILE_BYTES / BLOCK / self.threads as u64;
        let first_block = thread * part_blocks;
        let mut rng = Rng::new(thread + 1);
        let from = vec![1_u8; self.copy_bytes];
        let mut to = vec![0_u8; self.copy_bytes];
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            // One number for all choices, so that they cost little beside the lock.
            let random = rng.next_u64();
            let range = match self.overlap {
                Overlap::Full => 0..FILE_BYTES,
                Overlap::Tenth if (random >> 8 & 0xffff) < 6554 => blocks(0),
                Overlap::Disjoint | Overlap::Tenth => {
                    blocks(first_block + (((random >> 32) * part_blocks) >> 32))
                }
            };
            let is_write = ((random & 0xff) * 100) >> 8 >= self.reads_percent;
            candidate.hold(range, is_write, || {
                if self.copy_bytes > 0 {
                    to.copy_from_slice(std::hint::black_box(&from));
                    std::hint::black_box(&mut to);
                }
            });
            done += 1;
        }
        done
    }
}

fn blocks(block: u64) -> Range<u64> {
    block * BLOCK..(block + 1) * BLOCK
}
