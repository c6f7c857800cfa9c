//! `prove nfs`: the kernel's NFS client as the judge.
//!
//! The kernel of the machine may have no NFS client, and root of the machine is not needed: so
//! Debian's kernel boots in qemu, without virtualisation, in a few seconds, with nothing but
//! busybox and the modules of the client. It mounts what `finefs serve` serves over qemu's own
//! network, runs a script and tells line by line what it found. The server runs on this machine; it
//! is killed and started again while the guest works.
//!
//! | proof | what the guest does |
//! |---|---|
//! | `memory`, `ext4` | trees copied in and out, links, renames, modes, 5,000 names, 50 MiB, files that are removed while they are open |
//! | `killed` | writes and syncs, while the server dies and comes back |
//! | `locks`, if asked for | locks, of two guests against each other (`lan`) |

mod lan;

use crate::report::Report;
use crate::setup;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run::{self, Running};
use finefs_harness::sets;
use finefs_harness::tools;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// How often the server is killed under the guest
    #[arg(long, default_value_t = 2)]
    kills: u32,
    /// Also three guests that lock against each other, which takes as long as the rest
    #[arg(long)]
    locks: bool,
}

const IMAGE_MIB: u64 = 256;
/// How long the guest may take, which has no processor of its own.
const GUEST_LIMIT: Duration = Duration::from_secs(900);
const SERVER_LIMIT: Duration = Duration::from_secs(30);
/// How long the guest works between two kills.
const BETWEEN_KILLS: Duration = Duration::from_secs(6);
const MODULES: [&str; 3] = ["virtio_pci", "virtio_net", "nfsv3"];

/// What the guest runs first: network, mount, script, end.
const INIT: &str = include_str!("nfs/init.sh");
/// The functions of the scripts.
const FUNCTIONS: &str = include_str!("nfs/functions.sh");
const WORK: &str = include_str!("nfs/work.sh");
const SYNCS: &str = include_str!("nfs/syncs.sh");

/// Runs the proofs.
pub fn run(finefs: &Path, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let kernel = setup::guest_kernel()?;
    let scratch = Scratch::new_in(parent)?;
    let guest = Guest { kernel, scratch };
    report.proof("nfs/memory", || {
        let server = Server::start(finefs, &["--memory", "-o", "size=512m"], 0)?;
        let note = guest.run(WORK, server.port)?.finish()?;
        server.end()?;
        Ok(note)
    });
    report.proof("nfs/ext4", || {
        let image = guest.image("ext4")?;
        let server = Server::start(finefs, &[&image.to_string_lossy()], 0)?;
        let note = guest.run(WORK, server.port)?.finish()?;
        server.end()?;
        sets::fsck(&image)?;
        Ok(note)
    });
    report.proof("nfs/killed", || guest.killed(finefs, options.kills));
    if options.locks {
        report.proof("nfs/locks", || lan::locks(&guest, finefs));
    }
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

/// What is needed to start a guest.
struct Guest {
    kernel: setup::GuestKernel,
    scratch: Scratch,
}

/// A guest that runs.
struct InGuest {
    running: Running,
    lines: std::sync::mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Guest {
    fn image(&self, set: &str) -> Result<PathBuf> {
        let image = self.scratch.path().join("image");
        sets::find(set)?.make_image(&image, IMAGE_MIB)?;
        Ok(image)
    }

    /// Packs what a guest starts from: busybox, the modules in their order, and what `fill` puts
    /// there, its first program among it.
    fn pack(&self, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let root = self.scratch.path().join("root");
        if root.exists() {
            std::fs::remove_dir_all(&root)?;
        }
        for dir in ["bin", "proc", "sys", "dev", "mnt", "tmp", "modules"] {
            std::fs::create_dir_all(root.join(dir))?;
        }
        std::fs::copy(tools::program("busybox"), root.join("bin/busybox"))?;
        let mut order = Vec::new();
        for module in self.kernel.modules(&MODULES)? {
            let name = module.file_name().context("a module is a file")?;
            let name = name.to_string_lossy().into_owned();
            std::fs::copy(&module, root.join("modules").join(&name))?;
            order.push(name);
        }
        std::fs::write(root.join("modules/order"), order.join("\n") + "\n")?;
        fill(&root)?;
        run::ok(run::cmd("chmod", ["755"]).arg(root.join("init")))?;
        let archive = self.scratch.path().join(name);
        let pack = format!("find . | busybox cpio -o -H newc > {}", archive.display());
        run::ok(run::cmd("sh", ["-c", &pack]).current_dir(&root))?;
        Ok(archive)
    }

    fn run(&self, script: &str, port: u16) -> Result<InGuest> {
        let archive = self.pack("initrd", |root| {
            std::fs::write(root.join("script"), [FUNCTIONS, script].concat())?;
            Ok(std::fs::write(root.join("init"), INIT)?)
        })?;
        let network = ["-nic", "user,model=virtio-net-pci"];
        self.boot(&archive, &network, &format!("nfsport={port}"))
    }

    /// Starts a guest; `told` stands on its kernel's command line.
    fn boot(&self, archive: &Path, network: &[&str], told: &str) -> Result<InGuest> {
        let mut command: Command = run::cmd("qemu-system-x86_64", ["-accel", "tcg", "-m", "384"]);
        command.args(["-nographic", "-no-reboot"]).args(network);
        command.arg("-kernel").arg(&self.kernel.image);
        command.arg("-initrd").arg(archive);
        command.arg("-append");
        // The kernel counts interrupts of the timer, and gives up where the machine is too busy.
        let usual = "console=ttyS0 quiet panic=-1 no_timer_check";
        command.arg(format!("{usual} {told}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = run::spawn(&mut command)?;
        let out = running.take_stdout().context("stdout is piped")?;
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(|line| line.ok()) {
                if sender.send(line.trim_end().to_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(InGuest {
            running,
            lines,
            seen: Vec::new(),
        })
    }

    /// The server dies and comes back while the guest writes and syncs.
    fn killed(&self, finefs: &Path, kills: u32) -> Result<String> {
        let image = self.image("ext4")?;
        let path = image.to_string_lossy().into_owned();
        let mut server = Server::start(finefs, &[&path], 0)?;
        let port = server.port;
        let mut guest = self.run(&format!("KILLS={kills}\n{SYNCS}"), port)?;
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
}

impl InGuest {
    /// Reads on until a line says this.
    fn wait_for(&mut self, word: &str) -> Result<()> {
        let deadline = Instant::now() + GUEST_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                bail!(
                    "the guest ended, or said for too long nothing:\n{}",
                    run::tail(&self.seen.join("\n"))
                );
            };
            ensure!(
                !line.starts_with("FAILED"),
                "{line}\n{}",
                run::tail(&self.seen.join("\n"))
            );
            let is_it = line.ends_with(word);
            self.seen.push(line);
            if is_it {
                return Ok(());
            }
        }
    }

    /// Waits for the end; gives what the guest counted.
    fn finish(mut self) -> Result<String> {
        self.wait_for("FINISHED")?;
        let checks = self.checks();
        ensure!(checks > 0, "the guest checked nothing");
        self.end()?;
        Ok(format!("{checks} checks by the guest"))
    }

    /// What it has found good.
    fn checks(&self) -> usize {
        let good = self.seen.iter().filter(|line| line.starts_with("good "));
        good.count()
    }

    /// Waits until it is off.
    fn end(mut self) -> Result<()> {
        let (_, timed_out) = self.running.wait_limit(SERVER_LIMIT)?;
        ensure!(!timed_out, "the guest does not power off");
        Ok(())
    }
}
