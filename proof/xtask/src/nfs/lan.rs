//! `nfs/locks`: three guests on a network of their own, without any part of this machine. One runs
//! `finefs serve`, with its port mapper; two are clients with the kernel's lock manager, and with
//! Debian's rpcbind and rpc.statd. They lock against each other, wait, and go on when the server
//! was killed and started again.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use finefs_harness::{run, tools};

use super::MODULES;
use crate::guest::{Guests, libraries_of};
use crate::setup;

const INIT: &str = include_str!("lan.sh");
const CLIENT: &str = include_str!("locks_client.sh");
/// What each guest does, from the first.
const SCRIPTS: [&str; 3] = [
    include_str!("locks1.sh"),
    include_str!("locks2.sh"),
    include_str!("locks3.sh"),
];
/// Their network: a multicast group on this machine's own interface.
const GROUP: &str = "230.77.13.1";

/// Runs the guests; gives how much they checked.
pub(super) fn locks(guests: &Guests, finefs: &Path) -> Result<String> {
    let services = setup::guest_services()?;
    let archive = guests.pack("lan", &MODULES, |root| fill(root, finefs, &services))?;
    // One for each run: proofs may run side by side.
    let port = std::net::UdpSocket::bind(("127.0.0.1", 0))?
        .local_addr()?
        .port();
    let mut running_guests = Vec::new();
    for number in 1..=SCRIPTS.len() {
        let net = format!("socket,id=lan,mcast={GROUP}:{port},localaddr=127.0.0.1");
        let card = format!("virtio-net-pci,netdev=lan,romfile=,mac=52:54:00:77:00:0{number}");
        let network = ["-netdev", &net, "-device", &card];
        running_guests.push(guests.boot(&archive, &network, &format!("guest={number}"))?);
    }
    // The last one first: the others wait for it, and what it says tells most.
    let mut checks = 0;
    for mut running in running_guests.into_iter().rev() {
        running.wait_for("FINISHED")?;
        checks += running.checks();
        running.end()?;
    }
    ensure!(checks > 0, "the guests checked nothing");
    Ok(format!("{checks} checks by three guests"))
}

/// What they start from, beside busybox and the modules: finefs, the services, their libraries.
fn fill(root: &Path, finefs: &Path, services: &Path) -> Result<()> {
    for dir in [
        "etc",
        "run",
        "var/lib/nfs/sm",
        "var/lib/nfs/sm.bak",
        "lib",
        "lib64",
    ] {
        std::fs::create_dir_all(root.join(dir))?;
    }
    std::fs::write(root.join("init"), INIT)?;
    for (number, script) in SCRIPTS.iter().enumerate() {
        let common = if number == 0 { "" } else { CLIENT };
        let script = [common, script].concat();
        std::fs::write(root.join(format!("script{}", number + 1)), script)?;
    }
    write_etc(root, services)?;
    let programs = [
        finefs.to_owned(),
        services.join("sbin/rpcbind"),
        services.join("sbin/rpc.statd"),
        // busybox need not have it.
        tools::program("flock"),
    ];
    let places = ["lib", "usr/lib"].map(|lib| services.join(lib).join("x86_64-linux-gnu"));
    let mut libraries = BTreeSet::new();
    for program in &programs {
        libraries.extend(libraries_of(program, &places)?);
        let name = program.file_name().context("a program is a file")?;
        // Without symbols, which are most of finefs, and which each guest would unpack.
        let mut strip = run::cmd("strip", ["-o"]);
        run::ok(strip.arg(root.join("bin").join(name)).arg(program))?;
    }
    for library in libraries {
        let name = library.file_name().context("a library is a file")?;
        // Where programs look for the loader, and the loader for the others.
        let is_loader = name.to_string_lossy().starts_with("ld-linux");
        let place = if is_loader { "lib64" } else { "lib" };
        std::fs::copy(&library, root.join(place).join(name))?;
    }
    Ok(())
}

/// What the services look up.
fn write_etc(root: &Path, services: &Path) -> Result<()> {
    let users = "root:x:0:0::/:/bin/sh\n_rpc:x:0:0::/:/bin/sh\nstatd:x:0:0::/:/bin/sh\n";
    std::fs::write(root.join("etc/passwd"), users)?;
    std::fs::write(root.join("etc/group"), "root:x:0:\n")?;
    let sources = "hosts: files\nservices: files\n";
    std::fs::write(root.join("etc/nsswitch.conf"), sources)?;
    // Without it rpcbind does not know its own port.
    let services_known = "sunrpc 111/tcp portmapper\nsunrpc 111/udp portmapper\n";
    std::fs::write(root.join("etc/services"), services_known)?;
    let mut hosts = "127.0.0.1 localhost\n".to_owned();
    for number in 1..=SCRIPTS.len() {
        hosts += &format!("192.168.77.{number} guest{number}\n");
    }
    std::fs::write(root.join("etc/hosts"), hosts)?;
    std::fs::copy(services.join("etc/netconfig"), root.join("etc/netconfig"))?;
    Ok(())
}
