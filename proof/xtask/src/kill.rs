//! Kills the server with SIGKILL at random moments of real work, and looks at what is left.
//!
//! Each time an image is mounted, by turns through io_uring and /dev/fuse, a load runs, by turns
//! PostMark, dbench and fio, and a writer syncs numbered files, replaces one file by renaming and
//! appends to another, and notes outside of the mount what was synced. Then the server is killed,
//! or, with `--cut`, first the server of the NBD export that the image lies on. Until then both the
//! server and the load must live, and the writer must not fail. finefs must mount the image again,
//! everything that was noted must be there, and after the unmount `e2fsck -fn` must find nothing;
//! nor may e2fsck on a copy of what the kill left, once it has replayed the journal.

use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::programs;
use finefs_harness::rng::Rng;
use finefs_harness::run::{self, Running};
use finefs_harness::server::{Mount, Server, What};
use finefs_harness::sets;
use finefs_harness::tools;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// How often the server is killed
    #[arg(long, default_value_t = 200)]
    times: u64,
    /// Feature sets of the image, by turns
    #[arg(long, default_values_t = ["ext4".to_owned(), "ext4-1k".to_owned(), "ext4-upstream".to_owned(), "ext3".to_owned()])]
    set: Vec<String>,
    /// Kill the server that has the image first (with --storage)
    #[arg(long)]
    cut: bool,
}

/// What the writer had synced when the server died.
#[derive(Debug, Default)]
struct Synced {
    /// Numbered files, each with its seed.
    files: Vec<(u64, u64)>,
    /// Versions of the file that is replaced.
    replaced: u64,
    /// Records in the file that is appended to.
    appended: u64,
}

const IMAGE_MIB: u64 = 128;
const RECORD: usize = 100;
/// A load that has made nothing after so long does not work.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long finefs goes on without its image.
const CUT: Duration = Duration::from_millis(100);

/// The first error that a writer met, and when.
type Failure = (Instant, std::io::Error);

/// What runs beside the writer when the server dies.
#[derive(Clone, Copy, Debug)]
enum Load {
    PostMark,
    /// Two clients.
    Dbench,
    /// Blocks written at random by two jobs, appends by another two, with fsync and fdatasync.
    Fio,
}

/// By turns.
const LOADS: [Load; 3] = [Load::PostMark, Load::Dbench, Load::Fio];

/// Kills and checks `times` times.
pub fn run(
    server: &Server,
    parent: &Path,
    options: &Options,
    seed: u64,
    report: &mut Report,
) -> Result<()> {
    let scratch = Scratch::new_in(parent)?;
    let count = options.set.len() as u64;
    ensure!(count > 0, "no feature set");
    for (index, name) in options.set.iter().enumerate() {
        let set = sets::find(name)?;
        let times = options.times / count + u64::from((index as u64) < options.times % count);
        let image = scratch.path().join(format!("{name}.img"));
        set.make_image(&image, IMAGE_MIB)?;
        report.proof(&format!("kill -9/{name}, {times} times"), || {
            let mut rng = Rng::new(seed ^ (index as u64) << 32);
            let (mut files, mut records, mut versions) = (0, 0, 0);
            for time in 0..times {
                // Each image begins with another one, so that few kills are under all of them too.
                let turn = index as u64 + time;
                let load = LOADS[turn as usize % LOADS.len()];
                // Of one turn and the next: what one transport has left the other finds.
                let servers = [server.turn(turn), server.turn(turn + 1)];
                let synced = once(&servers, &scratch, &image, load, options.cut, &mut rng);
                let synced = synced.with_context(|| {
                    format!("kill {} of {times} under {load:?}, seed {seed}", time + 1)
                })?;
                files += synced.files.len();
                records += synced.appended;
                versions += synced.replaced;
            }
            let is_proof = times == 0 || files as u64 + records + versions > 0;
            ensure!(is_proof, "nothing was synced before a kill");
            Ok(format!(
                "synced and there: {files} files, {records} records, {versions} replacements"
            ))
        });
        std::fs::remove_file(&image)?;
    }
    Ok(())
}

/// Kills the first server, and looks by the other.
fn once(
    [server, other]: &[Server; 2],
    scratch: &Scratch,
    image: &Path,
    load: Load,
    cut: bool,
    rng: &mut Rng,
) -> Result<Synced> {
    let dir = scratch.subdir("mnt")?;
    let mut mount = server.mount_in_foreground(What::Image(image), &dir, &["commit=1"])?;
    for left in std::fs::read_dir(&dir)? {
        let left = left?.path();
        if left.is_dir() && !left.ends_with("lost+found") {
            std::fs::remove_dir_all(left)?;
        }
    }
    let place = dir.join("load");
    for made in [&place, &dir.join("synced")] {
        std::fs::create_dir(made)?;
    }
    File::open(&dir)?.sync_all()?;
    let mut running = load.start(scratch, &place, rng)?;
    wait_for_files(&place)?;
    let is_over = AtomicBool::new(false);
    let pause = Duration::from_millis(rng.range(20, 1500));
    let writer_seed = rng.next_u64();
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&dir.join("synced"), writer_seed, &is_over));
        std::thread::sleep(pause);
        let alive = all_alive(&mut mount, &mut running);
        let from = Instant::now();
        if cut {
            mount.cut_storage();
            std::thread::sleep(CUT);
        }
        let killed = mount.kill();
        is_over.store(true, Ordering::SeqCst);
        let written = writer.join();
        alive.and(killed).map(|()| (written, from))
    });
    drop(running);
    let (Ok((synced, failure)), from) = written? else {
        bail!("the writer panicked")
    };
    expect_none_before(from, failure)?;
    e2fsck_copy(scratch, image)?;
    let mount = other.mount(What::Image(image), &dir, &[])?;
    let checked = check(&dir.join("synced"), &synced);
    mount.unmount()?;
    checked?;
    sets::fsck(image)?;
    Ok(synced)
}

impl Load {
    /// Starts it; it goes on for longer than the server lives.
    fn start(self, scratch: &Scratch, place: &Path, rng: &mut Rng) -> Result<Running> {
        let seed = rng.below(1000);
        let mut command = match self {
            Load::PostMark => {
                let script = scratch.path().join("postmark");
                let words = format!(
                    "set location {}\nset number 300\nset transactions 1000000\nset size 500 10000\n\
                     set seed {seed}\nrun\nquit\n",
                    place.display()
                );
                std::fs::write(&script, words)?;
                let mut command = run::cmd(tools::program("postmark"), [] as [&str; 0]);
                command.arg(&script);
                command
            }
            Load::Dbench => {
                let mut command = run::cmd(tools::program("dbench"), ["-t", "600", "-c"]);
                command.args([programs::DBENCH_LOAD, "-D"]).arg(place);
                command.arg("2");
                command
            }
            Load::Fio => {
                let common = [
                    // Its processes leave the process group, and would outlive it.
                    "--thread",
                    "--ioengine=psync",
                    "--fallocate=none",
                    "--time_based",
                    "--runtime=600",
                    "--numjobs=2",
                    "--size=4M",
                ];
                let mut command = run::cmd(tools::program("fio"), common);
                command.arg(format!("--randseed={seed}"));
                command.arg(format!("--directory={}", place.display()));
                command.args(["--name=blocks", "--rw=randwrite", "--bs=4k", "--fsync=16"]);
                command.args(["--name=appended", "--rw=write", "--bs=700"]);
                command.args(["--file_append=1", "--fdatasync=16"]);
                command
            }
        };
        // fio keeps its state in the current directory.
        command
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        run::spawn(&mut command)
    }
}

/// Waits until the load has made something.
fn wait_for_files(place: &Path) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    while std::fs::read_dir(place)?.next().is_none() {
        ensure!(
            Instant::now() < deadline,
            "the load made nothing within {START_LIMIT:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// e2fsck recovers a copy of what the kill left, and then finds nothing.
pub(crate) fn e2fsck_copy(scratch: &Scratch, image: &Path) -> Result<()> {
    let copy = scratch.path().join("copy.img");
    run::ok(run::cmd("cp", ["--sparse=always"]).args([image, &copy]))?;
    let output = run::capture(run::cmd(tools::program("e2fsck"), ["-fy"]).arg(&copy))?;
    let said = output.both();
    ensure!(
        output.code() <= 1 && !sets::has_repaired(&said),
        "e2fsck -fy of a copy ended with {}:\n{}",
        output.code(),
        run::tail(&said)
    );
    sets::fsck(&copy)?;
    Ok(std::fs::remove_file(copy)?)
}

fn content(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let len = rng.range(1, 20_000);
    rng.bytes(len as usize)
}

fn record(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number ^ 0x5eed);
    rng.bytes(RECORD)
}

/// A kill says something only of a server that lives, and under a load.
fn all_alive(mount: &mut Mount, load: &mut Running) -> Result<()> {
    let server = mount.try_wait()?;
    ensure!(
        server.is_none(),
        "the server ended before the kill: {server:?}"
    );
    let load = load.try_wait()?;
    ensure!(load.is_none(), "the load ended before the kill: {load:?}");
    Ok(())
}

/// Writes and syncs until something fails: the kill makes it fail, and nothing before that may.
fn write(dir: &Path, seed: u64, is_over: &AtomicBool) -> (Synced, Option<Failure>) {
    let mut synced = Synced::default();
    let mut number = 0;
    while !is_over.load(Ordering::SeqCst) {
        if let Err(error) = write_one(dir, number, seed, &mut synced) {
            return (synced, Some((Instant::now(), error)));
        }
        number += 1;
    }
    (synced, None)
}

/// The writer may have failed only after `from`, just before which the kill began.
fn expect_none_before(from: Instant, failure: Option<Failure>) -> Result<()> {
    match failure {
        Some((at, error)) if at < from => Err(error).context("the writer failed before the kill"),
        _ => Ok(()),
    }
}

fn write_one(dir: &Path, number: u64, seed: u64, synced: &mut Synced) -> std::io::Result<()> {
    match number % 4 {
        0 => {
            let version = synced.replaced + 1;
            let new = dir.join("replaced.new");
            let mut file = File::create(&new)?;
            file.write_all(&content(version))?;
            file.sync_all()?;
            std::fs::rename(&new, dir.join("replaced"))?;
            File::open(dir)?.sync_all()?;
            synced.replaced = version;
        }
        1 => {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(dir.join("appended"))?;
            file.write_all(&record(synced.appended))?;
            file.sync_data()?;
            synced.appended += 1;
        }
        _ => {
            let own = seed.wrapping_add(number);
            let mut file = File::create_new(dir.join(format!("file{number}")))?;
            file.write_all(&content(own))?;
            file.sync_all()?;
            synced.files.push((number, own));
        }
    }
    Ok(())
}

/// Everything that was synced is there, whole; what was on its way is there whole or not.
fn check(dir: &Path, synced: &Synced) -> Result<()> {
    for (number, seed) in &synced.files {
        let name = format!("file{number}");
        let found = std::fs::read(dir.join(&name)).with_context(|| format!("{name} was synced"))?;
        ensure!(found == content(*seed), "{name} was synced and has changed");
    }
    if synced.replaced > 0 {
        let found = std::fs::read(dir.join("replaced")).context("replaced was synced")?;
        let versions = [synced.replaced, synced.replaced + 1];
        ensure!(
            versions.iter().any(|version| found == content(*version)),
            "replaced is neither version of {versions:?}"
        );
    }
    if synced.appended > 0 {
        let found = std::fs::read(dir.join("appended")).context("appended was synced")?;
        ensure!(
            found.len() as u64 >= synced.appended * RECORD as u64,
            "appended has {} bytes, {} records were synced",
            found.len(),
            synced.appended
        );
        for (number, bytes) in found.chunks(RECORD).enumerate() {
            ensure!(
                *bytes == record(number as u64),
                "record {number} of {} is not whole",
                synced.appended
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_before_the_kill_are_told() {
        let now = Instant::now();
        let failure = |at| Some((at, std::io::Error::other("no room")));
        let (before, after) = (now - Duration::from_secs(1), now + Duration::from_secs(1));
        let error = expect_none_before(now, failure(before)).unwrap_err();
        assert!(format!("{error:#}").contains("no room"));
        expect_none_before(now, failure(after)).unwrap();
        expect_none_before(now, None).unwrap();
    }
}
