//! Installs what the proofs need and is missing: Debian packages, and tools from crates.io.

use anyhow::{Result, bail};
use finefs_harness::run;
use finefs_harness::tools;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program and the Debian package that has it.
const PACKAGES: &[(&str, &str)] = &[
    ("fio", "fio"),
    ("dbench", "dbench"),
    ("postmark", "postmark"),
    // The test of pages: 124 MB to fetch, 414 MB on the disk.
    ("chromium", "chromium"),
    ("fusermount3", "fuse3"),
    ("fuse2fs", "fuse2fs"),
    ("mke2fs", "e2fsprogs"),
    ("setfattr", "attr"),
    ("setfacl", "acl"),
    ("fsverity", "fsverity"),
    ("xfs_io", "xfsprogs"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("mksquashfs", "squashfs-tools"),
    ("sqlite3", "sqlite3"),
    ("git", "git"),
    ("rsync", "rsync"),
    ("inotifywait", "inotify-tools"),
    // Programs in C that use the library.
    ("pkg-config", "pkg-config"),
    ("losetup", "mount"),
    ("valgrind", "valgrind"),
    ("setpriv", "util-linux"),
    ("mkreiserfs", "reiserfsprogs"),
    ("qemu-img", "qemu-utils"),
    ("nbdkit", "nbdkit"),
    ("openssl", "openssl"),
    ("sfdisk", "fdisk"),
    // Guests with the kernel's NFS client, and with its reiserfs.
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("nfs-ls", "libnfs-utils"),
    ("umoci", "umoci"),
];

/// Conformance tools: crate, binary and version. pjdfstest needs libacl at build time on some
/// systems, so its header package comes first.
const CRATES: &[(&str, &str)] = &[("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Builds wheels. Without what it has for other systems and for uploads.
const MATURIN: (&str, &str) = ("maturin", "1.16.0");

const LIMIT: Duration = Duration::from_secs(1500);

/// Licences, sources and duplicates of what is built: three minutes to install on two cores.
const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");

/// Installs what is missing; says what it does.
pub fn run() -> Result<()> {
    system()?;
    conformance_tools()?;
    cargo_deny()?;
    Ok(())
}

/// The part of it that is Debian's.
pub fn system() -> Result<()> {
    packages()?;
    python()?;
    Ok(())
}

/// The conformance tools; says which there are.
pub fn conformance_tools() -> Result<String> {
    let mut there = Vec::new();
    for (name, version) in CRATES {
        from_crates_io(name, version)?;
        there.push(format!("{name} {version}"));
    }
    Ok(there.join(", "))
}

/// Held while something is fetched or built into the directory of tools: proofs that run side by
/// side may need the same.
fn lock() -> Result<File> {
    let place = tools::tools_dir();
    std::fs::create_dir_all(&place)?;
    let file = File::create(place.join("lock"))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Debian's Python with what the tests of the package import: other Pythons that come first in PATH
/// may lack it.
pub fn python() -> Result<PathBuf> {
    let python = PathBuf::from("/usr/bin/python3");
    let has_all = || {
        let mut command = run::cmd(&python, ["-c", "import pytest, fsspec"]);
        run::capture(&mut command).is_ok_and(|output| output.status.success())
    };
    if !has_all() {
        apt_install(&["python3", "python3-pytest", "python3-fsspec"])?;
    }
    Ok(python)
}

/// The program maturin, installed when it is missing.
pub fn maturin() -> Result<PathBuf> {
    from_crates_io_with(MATURIN.0, MATURIN.1, &["--no-default-features"])
}

/// The program cargo-deny, installed when it is missing; without optimisation, which takes minutes
/// to build and would save seconds of its run.
pub fn cargo_deny() -> Result<PathBuf> {
    match tools::which(CARGO_DENY.0) {
        Some(program) => Ok(program),
        None => from_crates_io_with(CARGO_DENY.0, CARGO_DENY.1, &["--debug"]),
    }
}

/// What `make package` alone needs: debootstrap, and a compiler for C in static programs.
pub fn packaging() -> Result<()> {
    these(&[("debootstrap", "debootstrap"), ("musl-gcc", "musl-tools")])
}

/// What `prove programs --long` alone needs: the database, pgbench and the checks among it, which
/// Debian does not put into PATH.
pub fn postgresql() -> Result<()> {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let mut places = (versions.into_iter().flatten().flatten()).map(|entry| entry.path());
    let needed = ["postgres", "pgbench", "pg_amcheck"];
    if places.any(|place| {
        needed
            .iter()
            .all(|name| place.join("bin").join(name).exists())
    }) {
        return Ok(());
    }
    let clusters = || -> Vec<PathBuf> {
        let versions = std::fs::read_dir("/etc/postgresql").into_iter().flatten();
        let clusters = versions
            .flatten()
            .map(|version| version.path().join("main"));
        clusters.filter(|cluster| cluster.exists()).collect()
    };
    let before = clusters();
    apt_install(&["postgresql"])?;
    // Debian makes a cluster of the machine, and may start it.
    for made in clusters().iter().filter(|made| !before.contains(made)) {
        let version = made.parent().and_then(Path::file_name).unwrap_or_default();
        let mut drop = run::cmd("pg_dropcluster", ["--stop"]);
        run::ok(drop.arg(version).arg("main"))?;
    }
    Ok(())
}

/// What `prove ceph` alone needs: the daemons and tools of a cluster, and RBD for qemu-nbd, which
/// is no program of its own.
pub fn ceph() -> Result<()> {
    let programs = ["ceph-mon", "ceph-osd", "rbd", "qemu-nbd"];
    let has_block_driver = has_qemu_module("block-rbd.so");
    if has_block_driver && programs.iter().all(|name| tools::which(name).is_some()) {
        return Ok(());
    }
    let packages = [
        "ceph-mon",
        "ceph-osd",
        "ceph-common",
        "qemu-utils",
        "qemu-block-extra",
    ];
    apt_install(&packages)
}

/// Whether qemu has a module of this name.
fn has_qemu_module(name: &str) -> bool {
    let architectures = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten();
    architectures
        .map(|entry| entry.path().join("qemu").join(name))
        .any(|module| module.exists())
}

/// The Debian packages only.
pub fn packages() -> Result<()> {
    packages_of(|_| true)
}

/// The Debian packages of the programs that are chosen.
pub fn packages_of(chosen: impl Fn(&str) -> bool) -> Result<()> {
    let chosen = PACKAGES.iter().filter(|(program, _)| chosen(program));
    these(&chosen.copied().collect::<Vec<_>>())
}

/// The Debian packages of these programs, where a program is missing.
pub fn these(packages: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(program, _)| tools::which(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    apt_install(&missing)
}

fn apt_install(packages: &[&str]) -> Result<()> {
    println!("installing {}", packages.join(" "));
    apt(&["update", "-q"])?;
    let args = ["install", "-q", "-y", "--no-install-recommends"];
    apt(&[&args[..], packages].concat())
}

fn apt(args: &[&str]) -> Result<()> {
    let mut command = match (tools::is_root(), tools::which("sudo")) {
        (true, _) => run::cmd("apt-get", args),
        (false, Some(sudo)) => run::cmd(sudo, [&["apt-get"], args].concat()),
        (false, None) => bail!(
            "apt-get {}: needs root, and there is no sudo",
            args.join(" ")
        ),
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    let output = run::capture_with(&mut command, b"", LIMIT)?;
    run::expect_ok(&format!("apt-get {}", args.join(" ")), output)?;
    Ok(())
}

/// Of which package the guest's kernel is: it depends on the one of today.
const KERNEL_PACKAGE: &str = "linux-image-amd64";

/// A kernel that boots in qemu, unpacked and not installed.
pub struct GuestKernel {
    /// What is booted.
    pub image: PathBuf,
    root: PathBuf,
    version: String,
}

impl GuestKernel {
    /// The files of these modules and of those that they need, in the order of loading.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut found: Vec<PathBuf> = Vec::new();
        for name in names {
            let mut command = run::cmd(tools::program("modprobe"), ["--show-depends", name]);
            command
                .arg("-d")
                .arg(&self.root)
                .args(["-S", &self.version]);
            for line in run::ok(&mut command)?.stdout.lines() {
                let path = line
                    .strip_prefix("insmod ")
                    .map(str::trim)
                    .map(PathBuf::from);
                found.extend(path.filter(|path| !found.contains(path)));
            }
        }
        Ok(found)
    }
}

/// Debian's kernel, fetched and unpacked into the directory of tools when it is missing.
pub fn guest_kernel() -> Result<GuestKernel> {
    let _lock = lock()?;
    packages_of(|program| matches!(program, "qemu-system-x86_64" | "busybox" | "depmod"))?;
    let root = tools::tools_dir().join("guest-kernel");
    let found = || -> Result<Option<GuestKernel>> {
        let Ok(versions) = std::fs::read_dir(root.join("lib/modules")) else {
            return Ok(None);
        };
        let versions = versions.collect::<std::io::Result<Vec<_>>>()?;
        let Some(version) = versions.first() else {
            return Ok(None);
        };
        let version = version.file_name().to_string_lossy().into_owned();
        Ok(Some(GuestKernel {
            image: root.join(format!("boot/vmlinuz-{version}")),
            root: root.clone(),
            version,
        }))
    };
    if let Some(kernel) = found()? {
        return Ok(kernel);
    }
    println!("fetching {KERNEL_PACKAGE} for the guest");
    let depends = run::ok(&mut run::cmd("apt-cache", ["depends", KERNEL_PACKAGE]))?.stdout;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "));
    let Some(package) = package else {
        bail!("{KERNEL_PACKAGE} depends on no kernel:\n{depends}");
    };
    let unpacked = tools::tools_dir().join("guest-kernel.new");
    fetch(&[package], &unpacked)?;
    for version in std::fs::read_dir(unpacked.join("lib/modules"))? {
        let mut command = run::cmd(tools::program("depmod"), ["-b"]);
        run::ok(command.arg(&unpacked).arg(version?.file_name()))?;
    }
    std::fs::rename(&unpacked, &root)?;
    match found()? {
        Some(kernel) => Ok(kernel),
        None => bail!("{package} has no modules"),
    }
}

/// What a guest needs to lock: rpcbind, rpc.statd and the libraries that other machines may lack.
const SERVICES: &[&str] = &[
    "rpcbind",
    "nfs-common",
    "libtirpc3",
    "libtirpc-common",
    "libwrap0",
    "libnsl2",
    "libcap2",
    "libkeyutils1",
];

/// The directory where these are unpacked, and not installed; fetched when it is missing.
pub fn guest_services() -> Result<PathBuf> {
    let _lock = lock()?;
    let root = tools::tools_dir().join("guest-services");
    if root.exists() {
        return Ok(root);
    }
    println!("fetching {} for the guest", SERVICES.join(" "));
    let unpacked = tools::tools_dir().join("guest-services.new");
    fetch(SERVICES, &unpacked)?;
    std::fs::rename(&unpacked, &root)?;
    Ok(root)
}

/// What a small system is made of, with all that these depend on.
const SYSTEM: &[&str] = &[
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "grep",
    "mount",
    "sed",
];

/// The directory where a small Debian system is unpacked; fetched when it is missing.
pub fn debian_system() -> Result<PathBuf> {
    let _lock = lock()?;
    packages_of(|program| program == "umoci")?;
    let root = tools::tools_dir().join("debian-system");
    if root.exists() {
        return Ok(root);
    }
    println!("fetching a small system for the guest");
    let mut command = run::cmd("apt-cache", ["depends", "--recurse", "--important"]);
    let depends = run::ok(command.args(SYSTEM))?.stdout;
    // Lines without indentation are packages; those in brackets are provided by others.
    let mut packages: Vec<&str> = depends
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric()))
        .collect();
    packages.sort_unstable();
    packages.dedup();
    let unpacked = tools::tools_dir().join("debian-system.new");
    fetch(&packages, &unpacked)?;
    std::fs::rename(&unpacked, &root)?;
    Ok(root)
}

/// Fetches Debian packages and unpacks them into a directory.
fn fetch(packages: &[&str], into: &Path) -> Result<()> {
    let fetched = tempfile::tempdir()?;
    let mut command = run::cmd("apt-get", ["download", "-q"]);
    command.args(packages).current_dir(&fetched);
    let output = run::capture_with(&mut command, b"", LIMIT)?;
    run::expect_ok("apt-get download", output)?;
    std::fs::create_dir_all(into)?;
    for entry in std::fs::read_dir(&fetched)? {
        let mut command = run::cmd("dpkg-deb", ["-x"]);
        run::ok(command.arg(entry?.path()).arg(into))?;
    }
    Ok(())
}

/// A conformance tool, installed when it is missing.
pub fn conformance_tool(name: &str) -> Result<PathBuf> {
    match CRATES.iter().find(|(known, _)| *known == name) {
        Some((name, version)) => from_crates_io(name, version),
        None => bail!("{name} is none of the conformance tools"),
    }
}

/// The program of the crate `name`, installed in this version when it is missing.
pub fn from_crates_io(name: &str, version: &str) -> Result<PathBuf> {
    from_crates_io_with(name, version, &[])
}

fn from_crates_io_with(name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let _lock = lock()?;
    let root = tools::tools_dir();
    let marker = root.join(format!("{name}-{version}"));
    let binary = root.join("bin").join(name);
    if marker.exists() && binary.exists() {
        return Ok(binary);
    }
    println!("installing {name} {version} from crates.io");
    let mut command = run::cargo(["install", "--quiet", "--locked", "--force"]);
    command.args(["--version", version, "--root"]).arg(&root);
    let build = root.join("build");
    command.arg("--target-dir").arg(&build).args(options);
    let output = run::capture_with(command.arg(name), b"", LIMIT)?;
    run::expect_ok(&format!("cargo install {name}"), output)?;
    std::fs::remove_dir_all(build)?;
    std::fs::write(marker, "")?;
    Ok(binary)
}
