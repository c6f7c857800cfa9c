//! nfs-ganesha (Debian: nfs-ganesha, nfs-ganesha-mem, nfs-ganesha-vfs), the rpcbind that it does
//! not start without, and the rpc.statd (nfs-common) that it gives no lock without. They need root.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run::{self, Running};
use finefs_harness::server::{Kind, Mount, Server, What};
use finefs_harness::tools;
use finefs_nfs_client::load::{Prepared, Target};

use super::{Candidate, START_LIMIT, free_port, here, make_image, wait_for};

const RPCBIND: u16 = 111;
/// As rpcinfo calls it.
const STATUS_MONITOR: &str = "status";
const MEMORY: &str = "/mem";

/// What must outlive the server, ended backwards.
#[derive(Default)]
pub(super) struct Needed {
    statd: Option<Running>,
    rpcbind: Option<Running>,
    mount: Option<Mount>,
}

/// Starts one server with both back ends.
pub(super) fn start(
    scratch: &Scratch,
    connections: usize,
    needed: &mut Needed,
) -> Result<Vec<Candidate>> {
    ensure!(tools::is_root(), "it needs root");
    let program = tools::which("ganesha.nfsd").context("there is no ganesha.nfsd")?;
    needed.rpcbind = rpcbind()?;
    needed.statd = statd(scratch)?;
    let directory = scratch.subdir("served")?;
    let image = make_image(scratch, "ganesha-image")?;
    let kernel = Server::new(Kind::Kernel, None)?;
    needed.mount = Some(kernel.mount(What::Image(&image), &directory, &[])?);
    let [nfs, mount, locks] = [free_port()?, free_port()?, free_port()?];
    let path = directory.display().to_string();
    let config = configuration([nfs, mount, locks], &path);
    let file = scratch.path().join("ganesha.conf");
    std::fs::write(&file, config)?;
    let mut command = run::cmd(program, ["-F", "-f"]);
    command.arg(&file).arg("-L").arg(scratch.path().join("log"));
    command.arg("-p").arg(scratch.path().join("pid"));
    let mut running = start_quietly(&mut command)?;
    wait_for(here(nfs), &mut running)?;
    let prepare = |path: &str| {
        let target = Target {
            nfs: here(nfs),
            mount: here(mount),
            locks: here(locks),
            path: path.into(),
        };
        Prepared::new(target, connections).with_context(|| format!("nfs-ganesha, {path}"))
    };
    let memory = Candidate {
        name: "ganesha-mem",
        prepared: prepare(MEMORY)?,
        channel: None,
        running: None,
    };
    let files = Candidate {
        name: "ganesha-vfs",
        prepared: prepare(&path)?,
        channel: None,
        running: Some(running),
    };
    Ok(vec![memory, files])
}

/// Its configuration: a memory file system, and a directory; locks from the start on, also those of
/// version 3.
fn configuration([nfs, mount, locks]: [u16; 3], path: &str) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {nfs}; MNT_Port = {mount}; \
         NLM_Port = {locks}; Enable_RQUOTA = false; Bind_addr = 127.0.0.1; }}\n\
         NFSv4 {{ Graceless = true; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         EXPORT_DEFAULTS {{ Access_Type = RW; Squash = No_Root_Squash; SecType = sys; \
         Protocols = 3; Transports = TCP; }}\n\
         EXPORT {{ Export_Id = 1; Path = {MEMORY}; Pseudo = {MEMORY}; FSAL {{ Name = MEM; }} }}\n\
         EXPORT {{ Export_Id = 2; Path = {path}; Pseudo = /vfs; FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = WARN; }}\n"
    )
}

/// Starts rpcbind, unless somebody is at its port.
fn rpcbind() -> Result<Option<Running>> {
    let is_there = || TcpStream::connect(here(RPCBIND)).is_ok();
    if is_there() {
        return Ok(None);
    }
    let program = tools::which("rpcbind").context("there is no rpcbind")?;
    // Where it notes that it runs.
    std::fs::create_dir_all("/run/rpcbind")?;
    let running = start_quietly(&mut run::cmd(program, ["-f"]))?;
    wait_until("rpcbind", is_there)?;
    Ok(Some(running))
}

/// Starts rpc.statd with its state in the temporary directory, unless rpcbind knows one.
fn statd(scratch: &Scratch) -> Result<Option<Running>> {
    let asks = tools::which("rpcinfo").context("there is no rpcinfo")?;
    let is_there = || {
        let mut command = run::cmd(&asks, ["-T", "tcp", "127.0.0.1", STATUS_MONITOR]);
        run::capture(&mut command).is_ok_and(|answered| answered.status.success())
    };
    if is_there() {
        return Ok(None);
    }
    let program = tools::which("rpc.statd").context("there is no rpc.statd")?;
    let state = scratch.subdir("statd")?;
    for list in ["sm", "sm.bak"] {
        std::fs::create_dir(state.join(list))?;
    }
    let mut command = run::cmd(program, ["-F", "--no-notify", "-P"]);
    let running = start_quietly(command.arg(&state))?;
    wait_until("rpc.statd", is_there)?;
    Ok(Some(running))
}

fn start_quietly(command: &mut Command) -> Result<Running> {
    run::spawn(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    )
}

fn wait_until(what: &str, is_there: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    while !is_there() {
        ensure!(Instant::now() < deadline, "{what} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
