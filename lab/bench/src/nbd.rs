//! PostMark in process on a file that nbdkit serves, beside the same file without it, by turns; and
//! fsyncs of one thread and of many over a link with a delay.
//!
//! Each measurement gets a fresh default ext4 image. PostMark must last for several commits, which
//! come every second: before the first hardly anything is sent. The link is a proxy in this process
//! that hands on what comes, in both directions, half a round trip later: requests and replies that
//! are on their way together stay together.

use crate::options::ImageDir;
use crate::result::median;
use crate::workload;
use anyhow::{Context, Result, anyhow, ensure};
use finefs::ImageOptions;
use finefs_harness::cleanup::Scratch;
use finefs_harness::export::Export;
use finefs_harness::run;
use finefs_harness::sets;
use finefs_workloads::InProcess;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How much to measure.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Rounds; each runs both sides, and the one that begins changes
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// PostMark's transactions, of each thread
    #[arg(long, default_value_t = 1_000_000)]
    transactions: u64,
    /// Threads of PostMark
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Round trip of the link, in milliseconds
    #[arg(long, default_value_t = 2)]
    round_trip_ms: u64,
    /// Threads that sync beside one
    #[arg(long, default_value_t = 64)]
    syncers: u64,
    /// Seconds of each measurement of syncs
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    images: ImageDir,
}

const IMAGE_MIB: u64 = 1024;
const FILE_BYTES: usize = 4096;

/// The rate over NBD is meant to be at least so much of that on a file.
const GOAL: f64 = 0.7;
/// Many threads that sync are meant to sync so many times as often as one.
const GOAL_SYNCS: f64 = 20.0;

/// PostMark lasts for at least so many commits.
const COMMITS_MIN: u32 = 3;
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// nbdkit with an image in its memory.
fn serve(image: &Path) -> Result<Export> {
    let size = format!("{IMAGE_MIB}M");
    let export = Export::start("nbdkit", &["memory".as_ref(), size.as_ref()])?;
    let mut fill = run::cmd("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw"]);
    run::ok(fill.arg(image).arg(export.url()))?;
    Ok(export)
}

fn url(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

/// Runs it and prints medians and ratios.
pub fn run(options: &Options) -> Result<()> {
    let scratch = options.images.scratch()?;
    let mut rates = [const { Vec::new() }; 2];
    for round in 0..options.rounds {
        for turn in 0..2 {
            let side = (round + turn) % 2;
            let image = scratch.path().join("image");
            let _ = std::fs::remove_file(&image);
            sets::find("ext4")?.make_image(&image, IMAGE_MIB)?;
            let rate = match side {
                0 => postmark(&image, options)?,
                _ => {
                    let export = Export::start("nbdkit", &["file".as_ref(), image.as_os_str()])?;
                    postmark(Path::new(&export.url()), options).context("over NBD")?
                }
            };
            rates[side].push(rate);
        }
    }
    let [file, nbd] = rates
        .each_ref()
        .map(|rates| median(rates).unwrap_or(f64::NAN));
    println!(
        "PostMark in process, {} threads, transactions per second with the close; medians of {}:\n\
         file {file:.0}, by nbdkit {nbd:.0}: {:.2} of it (goal {GOAL})\n",
        options.threads,
        options.rounds,
        nbd / file
    );
    let mut rates = [const { Vec::new() }; 2];
    for _ in 0..options.rounds {
        for (side, threads) in [1, options.syncers].into_iter().enumerate() {
            rates[side].push(syncs(&scratch, threads, options)?);
        }
    }
    let [one, many] = rates
        .each_ref()
        .map(|rates| median(rates).unwrap_or(f64::NAN));
    println!(
        "files made, {FILE_BYTES} bytes written and synced per second over {} ms:\n\
         1 thread {one:.0}, {} threads {many:.0}: {:.1} times (goal {GOAL_SYNCS})",
        options.round_trip_ms,
        options.syncers,
        many / one
    );
    Ok(())
}

fn postmark(image: &Path, options: &Options) -> Result<f64> {
    let file_system = ImageOptions::new()
        .commit_interval(COMMIT_INTERVAL)
        .open(image)?;
    let root = file_system.open_dir(".")?;
    let target = InProcess::new(file_system, root, "image".to_owned());
    let started = Instant::now();
    let report = workload::postmark(&target, options.threads, 1000, options.transactions)?;
    let file_system = target.file_system().clone();
    drop(target);
    file_system.close()?;
    let took = started.elapsed();
    ensure!(
        took >= COMMITS_MIN * COMMIT_INTERVAL,
        "{took:?} are too short for {COMMITS_MIN} commits: more transactions are needed"
    );
    Ok(report.operations as f64 / took.as_secs_f64())
}

fn syncs(scratch: &Scratch, threads: u64, options: &Options) -> Result<f64> {
    let image = scratch.path().join("image");
    let _ = std::fs::remove_file(&image);
    sets::find("ext4")?.make_image(&image, IMAGE_MIB)?;
    let export = serve(&image)?;
    let link = scratch.path().join("link");
    let _ = std::fs::remove_file(&link);
    let half = Duration::from_micros(options.round_trip_ms * 500);
    serve_link(&link, export.socket().to_owned(), half)?;
    let fs = ImageOptions::new().open(url(&link))?;
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (fs, stop, done) = (&fs, &stop, &done);
                scope.spawn(move || -> Result<()> {
                    let own = format!("t{thread}");
                    fs.create_dir(&own)?;
                    let own = fs.open_dir(&own)?;
                    let data = [thread as u8; FILE_BYTES];
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let file = own.create(format!("f{number}"))?;
                        file.write_all_at(&data, 0)?;
                        file.sync_all()?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs_f64(options.seconds));
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(())
    })?;
    let rate = done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    fs.close()?;
    Ok(rate)
}

/// Listens at `link`, and hands on what comes to `server` and back, each way after `delay`.
fn serve_link(link: &Path, server: PathBuf, delay: Duration) -> Result<()> {
    let listener = UnixListener::bind(link)?;
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) else {
                return;
            };
            let (Ok(to_server), Ok(to_client)) = (server.try_clone(), client.try_clone()) else {
                return;
            };
            hand_on(client, to_server, delay);
            hand_on(server, to_client, delay);
        }
    });
    Ok(())
}

/// One direction of a connection, until its end.
fn hand_on(mut from: UnixStream, mut to: UnixStream, delay: Duration) {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let due = Instant::now() + delay;
            if sender.send((due, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
}
