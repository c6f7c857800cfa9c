//! nfs-ganesha (Debian: nfs-ganesha, nfs-ganesha-mem, nfs-ganesha-vfs), and the rpcbind that it
//! does not start without. Both need root.

use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run::{self, Running};
use finefs_harness::tools;
use finefs_nfs_client::load::Target;

use super::{Candidate, START_LIMIT, free_port, here, wait_for};

const RPCBIND: u16 = 111;
const MEMORY: &str = "/mem";

/// Starts one server with both back ends, and rpcbind if nobody is there.
pub(super) fn start(scratch: &Scratch) -> Result<(Vec<Candidate>, Option<Running>)> {
    ensure!(tools::is_root(), "it needs root");
    let program = tools::which("ganesha.nfsd").context("there is no ganesha.nfsd")?;
    let rpcbind = rpcbind()?;
    let directory = scratch.subdir("served")?;
    let [nfs, mount, locks] = [free_port()?, free_port()?, free_port()?];
    let path = directory.display();
    let config = format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {nfs}; MNT_Port = {mount}; \
         NLM_Port = {locks}; Enable_RQUOTA = false; Bind_addr = 127.0.0.1; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         EXPORT_DEFAULTS {{ Access_Type = RW; Squash = No_Root_Squash; SecType = sys; \
         Protocols = 3; Transports = TCP; }}\n\
         EXPORT {{ Export_Id = 1; Path = {MEMORY}; Pseudo = {MEMORY}; FSAL {{ Name = MEM; }} }}\n\
         EXPORT {{ Export_Id = 2; Path = {path}; Pseudo = /vfs; FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = WARN; }}\n"
    );
    let file = scratch.path().join("ganesha.conf");
    std::fs::write(&file, config)?;
    let mut command = run::cmd(program, ["-F", "-f"]);
    command.arg(&file).arg("-L").arg(scratch.path().join("log"));
    command.arg("-p").arg(scratch.path().join("pid"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut running = run::spawn(&mut command)?;
    wait_for(here(nfs), &mut running)?;
    let target = |path: String| Target {
        nfs: here(nfs),
        mount: here(mount),
        locks: here(locks),
        path,
    };
    let memory = Candidate {
        name: "ganesha-mem",
        target: target(MEMORY.into()),
        channel: None,
        running: None,
    };
    let files = Candidate {
        name: "ganesha-vfs",
        target: target(path.to_string()),
        channel: None,
        running: Some(running),
    };
    Ok((vec![memory, files], rpcbind))
}

fn rpcbind() -> Result<Option<Running>> {
    let is_there = || TcpStream::connect(here(RPCBIND)).is_ok();
    if is_there() {
        return Ok(None);
    }
    let program = tools::which("rpcbind").context("there is no rpcbind")?;
    let mut command = run::cmd(program, ["-f"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let running = run::spawn(&mut command)?;
    let deadline = Instant::now() + START_LIMIT;
    while !is_there() {
        ensure!(Instant::now() < deadline, "rpcbind does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Some(running))
}
