//! Creating, writing and syncing small files from several threads.

use anyhow::{Result, anyhow};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FILE_BYTES: usize = 4096;

/// Files per second that `threads` threads made, wrote and synced in `dir`, over `time`. Each has a
/// directory of its own.
pub fn rate(dir: &Path, threads: u64, time: Duration) -> Result<f64> {
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let total: u64 = std::thread::scope(|scope| -> Result<u64> {
        let mut workers = Vec::new();
        for thread in 0..threads {
            let own = dir.join(format!("t{thread}"));
            std::fs::create_dir(&own)?;
            let stop = &stop;
            workers.push(scope.spawn(move || -> Result<u64> {
                let data = [thread as u8; FILE_BYTES];
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut file = File::create(own.join(format!("f{done}")))?;
                    file.write_all(&data)?;
                    file.sync_all()?;
                    done += 1;
                }
                Ok(done)
            }));
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let mut total = 0;
        for worker in workers {
            total += worker.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(total)
    })?;
    Ok(total as f64 / started.elapsed().as_secs_f64())
}
