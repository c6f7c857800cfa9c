//! `finefs-bench nfs`: NFS servers by turns under one load.
//!
//! | server | what it serves |
//! |---|---|
//! | `null` | nothing: it answers at once, in this process |
//! | `memory`, `image` | `finefs serve` of memory, of an ext4 image |
//! | `image-async` | the same with `--async`: changes of names are answered before they are durable |
//! | `ganesha-mem`, `ganesha-vfs` | nfs-ganesha's memory back end; a like image, mounted by the kernel |
//!
//! nfs-ganesha answers changes of names before they are durable, whatever its client asks; so
//! `image-async` is what does the same as `ganesha-vfs`.

mod ganesha;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use finefs_cli::channel::Channel;
use finefs_harness::cleanup::Scratch;
use finefs_harness::run::{self, Running};
use finefs_harness::{sets, tools};
use finefs_lockmeter::Snapshot;
use finefs_lockmeter::control::{Reply, Request};
use finefs_nfs_client::load::{Load, Prepared, Target, rate};
use finefs_nfs_client::null;

use crate::result::median;

const START_LIMIT: Duration = Duration::from_secs(60);
const IMAGE_MIB: u64 = 2048;
/// Those that finefs is compared with.
const CEILING: &str = "null";
const RIVALS: [&str; 2] = ["ganesha-mem", "ganesha-vfs"];
/// The ratios that the table ends with.
const RATIOS: &str =
    " memory / null | memory / ganesha | image / ganesha | image-async / ganesha |";

/// How the servers are loaded.
#[derive(Args, Debug)]
pub struct Options {
    /// Times that each server has its turn
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Seconds of each run; five rounds of all servers take some five minutes by the default
    #[arg(long, value_name = "S", default_value_t = 0.4)]
    seconds: f64,
    /// Connections
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4, 16])]
    connections: Vec<usize>,
    /// Calls under way on each connection
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Where the image is made, and the directory that nfs-ganesha serves
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The command finefs
    #[arg(long, value_name = "FILE")]
    finefs: Option<PathBuf>,
}

/// A server that can be asked.
struct Candidate {
    name: &'static str,
    prepared: Prepared,
    /// Of finefs, which counts its locks.
    channel: Option<Channel>,
    /// Ended when this is dropped.
    running: Option<Running>,
}

/// Rates by load, connections and server.
type Rates = BTreeMap<(usize, usize, &'static str), Vec<f64>>;

/// Runs the comparison.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.seconds > 0.0, "--seconds: give more than 0");
    let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = Scratch::new_in(&parent)?;
    let finefs = tools::finefs(options.finefs.as_deref())?;
    let connections = options.most_connections();
    let mut candidates = vec![null_server(connections)?];
    let finefs = |name, what: &[&str]| serve(&finefs, name, what, connections);
    candidates.push(finefs("memory", &["--memory", "-o", "size=2g"])?);
    for (name, more) in [("image", &[][..]), ("image-async", &["--async"])] {
        let image = make_image(&scratch, name)?;
        let image = image.to_string_lossy();
        let what = [&[&*image], more].concat();
        candidates.push(finefs(name, &what)?);
    }
    let mut needed = ganesha::Needed::default();
    match ganesha::start(&scratch, connections, &mut needed) {
        Ok(found) => candidates.extend(found),
        Err(error) => eprintln!("without nfs-ganesha: {error:#}"),
    }
    let (mut rates, mut failed) = (Rates::new(), BTreeSet::new());
    for round in 0..options.rounds {
        for (load_at, load) in Load::ALL.into_iter().enumerate() {
            for connections in &options.connections {
                for candidate in &candidates {
                    let key = (load_at, *connections, candidate.name);
                    if failed.contains(&key) {
                        continue;
                    }
                    eprintln!(
                        "round {}: {}, {connections} connections, {}",
                        round + 1,
                        load.name(),
                        candidate.name
                    );
                    let measured = measure(options, candidate, load, *connections);
                    match measured {
                        Ok(rate) => rates.entry(key).or_default().push(rate),
                        // What a rival cannot do is left out of its row.
                        Err(error) if candidate.is_rival() => {
                            eprintln!("{error:#}");
                            failed.insert(key);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }
    let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name).collect();
    print!("{}", markdown(&rates, &names));
    contention(options, &candidates)?;
    for candidate in candidates {
        candidate.end()?;
    }
    drop(needed);
    Ok(())
}

impl Options {
    fn most_connections(&self) -> usize {
        self.connections.iter().copied().max().unwrap_or(1)
    }
}

/// An image of the usual kind in the temporary directory.
fn make_image(scratch: &Scratch, name: &str) -> Result<PathBuf> {
    let image = scratch.path().join(name);
    sets::find("ext4")?.make_image(&image, IMAGE_MIB)?;
    Ok(image)
}

fn measure(
    options: &Options,
    candidate: &Candidate,
    load: Load,
    connections: usize,
) -> Result<f64> {
    let depth = usize::from(options.depth);
    let time = Duration::from_secs_f64(options.seconds);
    let measured = rate(&candidate.prepared, load, (connections, depth), time);
    measured.with_context(|| format!("{}, {}", candidate.name, load.name()))
}

fn null_server(connections: usize) -> Result<Candidate> {
    let address = null::start()?;
    Ok(Candidate {
        name: CEILING,
        prepared: Prepared::new(at_one_port(address), connections)?,
        channel: None,
        running: None,
    })
}

fn at_one_port(address: SocketAddr) -> Target {
    Target {
        nfs: address,
        mount: address,
        locks: address,
        path: "/".into(),
    }
}

/// A port of this machine that is free, and given to nobody else soon.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn here(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Starts `finefs serve`.
fn serve(
    finefs: &Path,
    name: &'static str,
    what: &[&str],
    connections: usize,
) -> Result<Candidate> {
    let address = here(free_port()?);
    let mut command = run::cmd(finefs, ["serve", "-f", "--squash", "none", "--nfs"]);
    command.arg(address.to_string()).args(what);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut running = run::spawn(&mut command)?;
    wait_for(address, &mut running)?;
    Ok(Candidate {
        name,
        prepared: Prepared::new(at_one_port(address), connections)?,
        channel: Some(Channel::of_address(address)),
        running: Some(running),
    })
}

/// Waits until a server listens.
fn wait_for(address: SocketAddr, running: &mut Running) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    while std::net::TcpStream::connect(address).is_err() {
        if let Some(status) = running.try_wait()? {
            bail!("the server ended with {status}");
        }
        ensure!(Instant::now() < deadline, "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Candidate {
    fn is_rival(&self) -> bool {
        RIVALS.contains(&self.name)
    }

    fn end(self) -> Result<()> {
        let Some(mut running) = self.running else {
            return Ok(());
        };
        let pid = i32::try_from(running.pid()).ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        let pid = pid.context("it has a number")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let (status, timed_out) = running.wait_limit(START_LIMIT)?;
        // Only ours is asked to end well.
        let is_well = self.channel.is_none() || (status.success() && !timed_out);
        ensure!(is_well, "{} ended with {status}", self.name);
        Ok(())
    }
}

/// A table for each load: a row for each number of connections, medians, and finefs's ratios.
fn markdown(rates: &Rates, names: &[&'static str]) -> String {
    let mut text = String::new();
    let middle = |load, connections, name| {
        let key = (load, connections, name);
        rates.get(&key).and_then(|rates| median(rates))
    };
    for (at, load) in Load::ALL.into_iter().enumerate() {
        let _ = write!(text, "| {}, per second, connections |", load.name());
        for name in names {
            let _ = write!(text, " {name} |");
        }
        let ratios = RATIOS.matches('|').count();
        let _ = write!(
            text,
            "{RATIOS}\n|---|{}",
            "---:|".repeat(names.len() + ratios)
        );
        text.push('\n');
        let rows = rates.keys().filter(|(load, ..)| *load == at);
        let mut rows: Vec<usize> = rows.map(|(_, connections, _)| *connections).collect();
        rows.dedup();
        for connections in rows {
            let of = |name| middle(at, connections, name);
            let _ = write!(text, "| {connections} |");
            for name in names {
                match of(name) {
                    Some(rate) => drop(write!(text, " {rate:.0} |")),
                    None => text.push_str(" |"),
                }
            }
            let rival = RIVALS.into_iter().filter_map(of).reduce(f64::max);
            for (ours, other) in [
                (of("memory"), of(CEILING)),
                (of("memory"), rival),
                (of("image"), rival),
                (of("image-async"), rival),
            ] {
                match (ours, other) {
                    (Some(ours), Some(other)) if other > 0.0 => {
                        let _ = write!(text, " {:.2} |", ours / other);
                    }
                    _ => text.push_str(" |"),
                }
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

/// How contended the locks of finefs are, each load with most connections.
fn contention(options: &Options, candidates: &[Candidate]) -> Result<()> {
    let connections = options.most_connections();
    let counted = candidates.iter().filter(|it| it.channel.is_some());
    let names: Vec<&str> = counted.map(|candidate| candidate.name).collect();
    println!(
        "| acquisitions that wait, {connections} connections | {} |\n|---|{}",
        names.join(" | "),
        "---:|".repeat(names.len())
    );
    for load in Load::ALL {
        print!("| {} |", load.name());
        for candidate in candidates {
            let Some(channel) = &candidate.channel else {
                continue;
            };
            let ask = |request| channel.meter(request).map_err(anyhow::Error::msg);
            ask(Request::SetFull(true))?;
            let before = snapshot(ask(Request::Snapshot)?)?;
            measure(options, candidate, load, connections)?;
            let after = snapshot(ask(Request::Snapshot)?)?;
            ask(Request::SetFull(false))?;
            match after.since(&before).contention() {
                Some(contention) => print!(" {contention} |"),
                None => print!(" |"),
            }
        }
        println!();
    }
    Ok(())
}

fn snapshot(reply: Reply) -> Result<Snapshot> {
    match reply {
        Reply::Snapshot(snapshot) => Ok(snapshot),
        _ => bail!("the server gives the wrong answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_ratios_to_the_better_rival() {
        let mut rates = Rates::new();
        for (name, rate) in [
            ("null", 200.0),
            ("memory", 100.0),
            ("image", 80.0),
            ("image-async", 90.0),
            ("ganesha-mem", 10.0),
            ("ganesha-vfs", 20.0),
        ] {
            rates.insert((0, 16, name), vec![rate]);
        }
        let ours = ["null", "memory", "image", "image-async"];
        let text = markdown(&rates, &[&ours[..], &RIVALS].concat());
        let row = "| 16 | 200 | 100 | 80 | 90 | 10 | 20 | 0.50 | 5.00 | 4.00 | 4.50 |";
        assert!(text.contains(row), "{text}");
    }
}
