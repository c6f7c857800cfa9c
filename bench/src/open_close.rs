//! Opening and closing one of ten files at random, from four threads.

use anyhow::{Context, Result, anyhow};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xtask::rng::Rng;

const FILES: u64 = 10;
const THREADS: u64 = 4;

/// Pairs of open and close per second in `dir`, over `time`.
pub fn rate(dir: &Path, time: Duration) -> Result<f64> {
    let files: Vec<PathBuf> = (0..FILES)
        .map(|number| dir.join(format!("f{number}")))
        .collect();
    for file in &files {
        std::fs::write(file, b"contents").with_context(|| file.display().to_string())?;
    }
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let total: u64 = std::thread::scope(|scope| -> Result<u64> {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (files, stop) = (&files, &stop);
                scope.spawn(move || -> Result<u64> {
                    let mut rng = Rng::new(thread);
                    let mut done = 0;
                    while !stop.load(Ordering::Relaxed) {
                        drop(File::open(rng.pick(files))?);
                        done += 1;
                    }
                    Ok(done)
                })
            })
            .collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let mut total = 0;
        for thread in threads {
            total += thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(total)
    })?;
    let rate = total as f64 / started.elapsed().as_secs_f64();
    for file in &files {
        std::fs::remove_file(file)?;
    }
    Ok(rate)
}
