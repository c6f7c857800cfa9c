//! `prove nfs`: the kernel's NFS client as the judge.
//!
//! The kernel of the machine may have no NFS client, and root of the machine is not needed: a guest
//! ([`crate::guest`]) mounts what `finefs serve` serves over qemu's own network, runs a script and
//! tells line by line what it found. The server runs on this machine; it is killed and started
//! again while the guest works.
//!
//! | proof | what the guest does |
//! |---|---|
//! | `ext4`, and `memory` for long | copies, tar, links, renames, modes, large and open files |
//! | `pjdfstest`, `fsx`, `dbench`, `git` | runs these programs (`programs`) |
//! | `killed` | writes and syncs, while the server dies and comes back |
//! | `locks` | locks, of two guests against each other, while the server in a third is killed (`lan`) |
//! | `soak` | there is none: clients of this process come, go and die (`soak`) |

mod lan;
mod programs;
mod soak;

use self::programs::{On, Programs};
use crate::guest::{Guest, Guests, Machine};
use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::run::{self, Running};
use finefs_harness::sets;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// How often the server is killed under the guest
    #[arg(long, default_value_t = 2)]
    kills: u32,
    /// Everything runs for long, and on both file systems; the soak takes ten minutes
    #[arg(long)]
    long: bool,
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Memory,
    Ext4,
    Pjdfstest,
    Fsx,
    Dbench,
    Git,
    Killed,
    Locks,
    Soak,
}

const IMAGE_MIB: u64 = 256;
const SERVER_LIMIT: Duration = Duration::from_secs(30);
/// How long the guest works between two kills.
const BETWEEN_KILLS: Duration = Duration::from_secs(6);
const MODULES: [&str; 3] = ["virtio_pci", "virtio_net", "nfsv3"];

/// How the scripts mount.
const ATTACH: &str = include_str!("nfs/attach.sh");
const WORK: &str = include_str!("nfs/work.sh");
const SYNCS: &str = include_str!("nfs/syncs.sh");

/// Runs the proofs.
pub fn run(
    finefs: &Path,
    parent: &Path,
    options: &Options,
    seed: u64,
    report: &mut Report,
) -> Result<()> {
    let guests = Guests::new(parent)?;
    let mut prove = |part: Part, name: &str, proof: &dyn Fn() -> Result<String>| {
        if options.only.is_empty() || options.only.contains(&part) {
            report.proof(name, proof);
        }
    };
    let (many, big_mib) = if options.long { (5000, 50) } else { (1000, 8) };
    let work = format!("MANY={many}\nBIG_MIB={big_mib}\n{WORK}");
    // On ext4 the script does the same, and e2fsck looks at the result.
    if options.long || options.only.contains(&Part::Memory) {
        prove(Part::Memory, "nfs/memory", &|| {
            let server = Server::start(finefs, &["--memory", "-o", "size=512m"], 0)?;
            let note = run_script(&guests, &work, server.port)?.finish()?;
            server.end()?;
            Ok(note)
        });
    }
    prove(Part::Ext4, "nfs/ext4", &|| {
        let image = image(&guests, "ext4")?;
        let server = Server::start(finefs, &[&image.to_string_lossy()], 0)?;
        let note = run_script(&guests, &work, server.port)?.finish()?;
        server.end()?;
        sets::fsck(&image)?;
        Ok(note)
    });
    let programs = Programs {
        guests: &guests,
        finefs,
        is_long: options.long,
    };
    for on in On::BOTH {
        let name = |program| format!("nfs/{program}/{}", on.name());
        // How NFS says what the namespace says does not depend on the store.
        if on == On::Memory || options.long {
            prove(Part::Pjdfstest, &name("pjdfstest"), &|| {
                programs.pjdfstest(on)
            });
        }
        if on == On::Ext4 || options.long {
            prove(Part::Dbench, &name("dbench"), &|| programs.dbench(on));
            prove(Part::Git, &name("git"), &|| programs.git(on));
        }
        if on == On::Memory || options.long {
            prove(Part::Fsx, &name("fsx"), &|| programs.fsx(on));
        }
    }
    prove(Part::Killed, "nfs/killed", &|| {
        killed(&guests, finefs, options.kills)
    });
    prove(Part::Locks, "nfs/locks", &|| lan::locks(&guests, finefs));
    prove(Part::Soak, "nfs/soak", &|| {
        soak::soak(&guests, finefs, seed, options.long)
    });
    Ok(())
}

/// A server under test.
struct Server {
    running: Running,
    port: u16,
}

impl Server {
    /// Starts it at a port, or at any that is free, and waits until it listens.
    fn start(finefs: &Path, what: &[&str], port: u16) -> Result<Server> {
        // Freed at once, and given to nobody else soon.
        let port = match port {
            0 => TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port(),
            port => port,
        };
        let mut command = run::cmd(finefs, ["serve", "-f", "--squash", "none", "--nfs"]);
        command.arg(format!("127.0.0.1:{port}")).args(what);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut running = run::spawn(&mut command)?;
        let deadline = Instant::now() + SERVER_LIMIT;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = running.try_wait()? {
                bail!("{command:?} ended with {status}");
            }
            ensure!(Instant::now() < deadline, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Server { running, port })
    }

    fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = i32::try_from(self.running.pid()).ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        Ok(rustix::process::kill_process(
            pid.context("it has a number")?,
            signal,
        )?)
    }

    /// Ends it as its user does.
    fn end(mut self) -> Result<()> {
        self.signal(rustix::process::Signal::TERM)?;
        let (status, timed_out) = self.running.wait_limit(SERVER_LIMIT)?;
        ensure!(
            status.success() && !timed_out,
            "the server ended with {status}"
        );
        Ok(())
    }

    fn kill(mut self) -> Result<()> {
        self.signal(rustix::process::Signal::KILL)?;
        self.running.wait_limit(SERVER_LIMIT)?;
        Ok(())
    }
}

fn image(guests: &Guests, set: &str) -> Result<PathBuf> {
    let image = guests.dir().join("image");
    sets::find(set)?.make_image(&image, IMAGE_MIB)?;
    Ok(image)
}

fn run_script(guests: &Guests, script: &str, port: u16) -> Result<Guest> {
    guests.start(&Machine {
        modules: &MODULES,
        // By its path: the shell prefers its own, which does not compare.
        programs: &["tar"],
        has_network: true,
        script: &format!("PORT={port}\n{ATTACH}{script}"),
        ..Machine::default()
    })
}

/// The server dies and comes back while the guest writes and syncs.
fn killed(guests: &Guests, finefs: &Path, kills: u32) -> Result<String> {
    let image = image(guests, "ext4")?;
    let path = image.to_string_lossy().into_owned();
    let mut server = Server::start(finefs, &[&path], 0)?;
    let port = server.port;
    let mut guest = run_script(guests, &format!("KILLS={kills}\n{SYNCS}"), port)?;
    for kill in 0..kills {
        guest.wait_for(&format!("ROUND {kill}"))?;
        std::thread::sleep(BETWEEN_KILLS);
        server.kill()?;
        server = Server::start(finefs, &[&path], port)?;
    }
    let note = guest.finish()?;
    server.end()?;
    sets::fsck(&image)?;
    Ok(note)
}
