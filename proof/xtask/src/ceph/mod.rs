//! `prove ceph`: an image on Ceph's RBD, which finefs reaches through qemu-nbd.
//!
//! A cluster of Debian's packages, one monitor and one OSD on this machine, has a new block device
//! each time. finefs builds a tree onto it, checks and compares it there; mounts it, where PostMark
//! works while the OSD is killed and started again; and what `rbd export` then gives is judged by
//! e2fsck.

use crate::report::Report;
use crate::setup;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::export::Export;
use finefs_harness::programs::{self, QUICK};
use finefs_harness::run::{self, Running};
use finefs_harness::server::{Server, What};
use finefs_harness::tree::Tree;
use finefs_harness::{rng::Rng, sets};
use std::ffi::OsStr;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CONFIGURATION: &str = include_str!("ceph.conf");
const START_LIMIT: Duration = Duration::from_secs(60);
const POOL: &str = "rbd";
const DEVICE_SIZE: &str = "512M";

/// How long the cluster does without its OSD.
const GAP: Duration = Duration::from_secs(3);
/// How long PostMark has run then.
const BEFORE_GAP: Duration = Duration::from_millis(500);

/// Runs the proofs.
pub fn run(server: &Server, parent: &Path, seed: u64, report: &mut Report) -> Result<()> {
    setup::ceph()?;
    let scratch = Scratch::new_in(parent)?;
    let mut cluster = Cluster::start(&scratch.subdir("cluster")?, &mut Rng::new(seed))?;
    let set = sets::find("ext4")?;
    let tree = Tree::make(&scratch.path().join("tree"), QUICK.tree(set, seed))?;
    report.proof("ceph/build, check, diff", || {
        let device = cluster.device("built")?;
        let url = device.url();
        let finefs = |words: &[&str]| {
            let mut command = run::cmd(server.binary(), words);
            run::ok(&mut command).with_context(|| words.join(" "))
        };
        let source = tree.root.to_str().context("the path is text")?;
        finefs(&["build", "--quiet", "--force", &url, source])?;
        finefs(&["check", &url])?;
        finefs(&["diff", &url, source])?;
        device.end()?;
        sets::fsck(&cluster.exported("built", &scratch)?)?;
        Ok("equal".into())
    });
    report.proof("ceph/PostMark, the OSD killed", || {
        let device = cluster.device("worked")?;
        let url = device.url();
        run::ok(&mut run::cmd(server.binary(), ["mkfs", "--quiet", &url]))?;
        let dir = scratch.subdir("mnt")?;
        let mount = server.mount(What::Image(Path::new(&url)), &dir, &["commit=1"])?;
        let is_back = AtomicBool::new(false);
        let rounds = std::thread::scope(|scope| {
            let work = scope.spawn(|| rounds_until(&is_back, &dir));
            std::thread::sleep(BEFORE_GAP);
            let outcome = cluster.restart_osd();
            is_back.store(true, Ordering::Relaxed);
            let rounds = work.join();
            outcome?;
            rounds.unwrap_or_else(|_| bail!("a thread panicked"))
        })?;
        std::fs::write(dir.join("note"), "written\n")?;
        mount.unmount()?;
        let note = format!("{url}:/note");
        let read = run::ok(&mut run::cmd(server.binary(), ["cat", &note]))?.stdout;
        ensure!(read == "written\n", "the note is {read:?}");
        device.end()?;
        sets::fsck(&cluster.exported("worked", &scratch)?)?;
        Ok(format!("{rounds} rounds, {} s without it", GAP.as_secs()))
    });
    Ok(())
}

/// Runs PostMark again and again, once more when the OSD is back.
fn rounds_until(is_back: &AtomicBool, dir: &Path) -> Result<u32> {
    let shape = programs::Shape {
        files: 500,
        transactions: 5000,
    };
    let mut round = 0;
    loop {
        let was_back = is_back.load(Ordering::Relaxed);
        let place = dir.join(format!("round{round}"));
        std::fs::create_dir(&place)?;
        programs::run_postmark(&place, 2, shape, false)?;
        File::open(&place)?.sync_all()?;
        round += 1;
        if was_back {
            return Ok(round);
        }
    }
}

/// A monitor and an OSD; killed on drop.
struct Cluster {
    dir: PathBuf,
    osd: Running,
    _monitor: Running,
}

impl Cluster {
    fn start(dir: &Path, rng: &mut Rng) -> Result<Cluster> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let (high, low) = (rng.next_u64(), rng.next_u64());
        let fsid = format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0xfff,
            low & 0xffff_ffff_ffff
        );
        let text = CONFIGURATION
            .replace("@dir@", dir.to_str().context("the path is text")?)
            .replace("@port@", &port.to_string())
            .replace("@fsid@", &fsid);
        std::fs::write(dir.join("ceph.conf"), text)?;
        for made in ["mon", "osd"] {
            std::fs::create_dir(dir.join(made))?;
        }
        let key = [
            "--create-keyring",
            "--gen-key",
            "-n",
            "mon.",
            "--cap",
            "mon",
            "allow *",
        ];
        run::ok(run::cmd("ceph-authtool", key).arg(dir.join("keyring")))?;
        let address = format!("[v2:127.0.0.1:{port}]");
        let map = ["--create", "--fsid", &fsid, "--addv", "a", &address];
        run::ok(run::cmd("monmaptool", map).arg(dir.join("monmap")))?;
        let mut mkfs = tool(dir, "ceph-mon", &["--mkfs", "-i", "a", "--monmap"]);
        run::ok(mkfs.arg(dir.join("monmap")))?;
        let monitor = daemon(dir, "ceph-mon", "a")?;
        run::ok(&mut tool(dir, "ceph", &["mon", "stat"]))?;
        run::ok(&mut tool(dir, "ceph", &["osd", "create"]))?;
        run::ok(&mut tool(dir, "ceph-osd", &["--mkfs", "-i", "0"]))?;
        let osd = start_osd(dir)?;
        run::ok(&mut tool(dir, "ceph", &["osd", "pool", "create", POOL]))?;
        Ok(Cluster {
            dir: dir.to_owned(),
            osd,
            _monitor: monitor,
        })
    }

    /// A new block device, as an NBD server exports it.
    fn device(&self, name: &str) -> Result<Export> {
        let create = ["create", "--size", DEVICE_SIZE, name];
        run::ok(&mut tool(&self.dir, "rbd", &create))?;
        let conf = self.dir.join("ceph.conf");
        let place = format!("rbd:{POOL}/{name}:conf={}", conf.display());
        let args = ["-f", "raw", "--discard=unmap", &place].map(OsStr::new);
        Export::start("qemu-nbd", &args)
    }

    /// What is on a device, as a file.
    fn exported(&self, name: &str, scratch: &Scratch) -> Result<PathBuf> {
        let file = scratch.path().join(format!("{name}.img"));
        let mut export = tool(&self.dir, "rbd", &["export", "--no-progress", name]);
        run::ok(export.arg(&file))?;
        Ok(file)
    }

    /// Kills the OSD, and starts it again some time later.
    fn restart_osd(&mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(self.osd.pid() as i32).context("it has one")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        self.osd.wait_limit(START_LIMIT)?;
        std::thread::sleep(GAP);
        self.osd = start_osd(&self.dir)?;
        Ok(())
    }
}

/// A program of Ceph's on the cluster in `dir`.
fn tool(dir: &Path, program: &str, args: &[&str]) -> Command {
    let mut command = run::cmd(program, ["-c"]);
    command.arg(dir.join("ceph.conf")).args(args);
    command
}

/// Starts a daemon, whose messages are in its log.
fn daemon(dir: &Path, program: &str, id: &str) -> Result<Running> {
    run::spawn(tool(dir, program, &["-f", "-i", id]).stderr(Stdio::null()))
}

/// Starts the OSD, and waits until the monitor knows that it is up.
fn start_osd(dir: &Path) -> Result<Running> {
    let mut osd = daemon(dir, "ceph-osd", "0")?;
    let start = Instant::now();
    loop {
        if let Some(status) = osd.try_wait()? {
            bail!("ceph-osd: {status}");
        }
        let said = run::ok(&mut tool(dir, "ceph", &["osd", "stat"]))?.stdout;
        if said.contains("1 up") {
            return Ok(osd);
        }
        ensure!(
            start.elapsed() < START_LIMIT,
            "ceph-osd does not come up: {said}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}
