//! `make package`: the Debian package and the static binary, each tried in a root of its own.
//!
//! | what | made by | tried in |
//! |---|---|---|
//! | `finefs_VERSION_ARCH.deb` | cargo-deb, of what `make install` installs | a new Debian |
//! | `finefs-VERSION-TARGET` | cargo, for musl | a root that holds nothing else |

use crate::setup;
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run;
use finefs_harness::sets;
use finefs_harness::tools;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What to do.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Also try both in roots of their own; as root
    #[arg(long = "try")]
    tried: bool,
}

const CARGO_DEB: (&str, &str) = ("cargo-deb", "3.8.0");
const LIMIT: Duration = Duration::from_secs(3000);
/// A Debian that has what the package depends on, and what the trial works with.
const DEBIAN: &[&str] = &["--variant=minbase", "--include=fuse3,e2fsprogs,mount"];
const IMAGE_MIB: u64 = 32;

/// Makes both in `target/package`.
pub fn run(options: &Options) -> Result<()> {
    // Named in the command line's Cargo.toml too.
    let into = tools::workspace().join("target/package");
    if into.exists() {
        fs::remove_dir_all(&into)?;
    }
    fs::create_dir_all(&into)?;
    let package = debian(&into)?;
    let alone = static_binary(&into)?;
    for made in [&package, &alone] {
        println!("{}: {} bytes", made.display(), fs::metadata(made)?.len());
    }
    if options.tried {
        ensure!(tools::is_root(), "trying them mounts: run it as root");
        setup::packages_of(|program| matches!(program, "mke2fs" | "losetup"))?;
        try_static(&alone)?;
        println!("{}: works in an empty root", alone.display());
        try_debian(&package)?;
        println!("{}: works in a new Debian", package.display());
    }
    Ok(())
}

fn debian(into: &Path) -> Result<PathBuf> {
    let stage = format!("DESTDIR={}", into.join("root").display());
    let places = ["install", "PREFIX=/usr", "HELPERDIR=/usr/sbin"];
    in_workspace(run::cmd("make", places).arg(stage))?;
    let cargo_deb = match tools::which(CARGO_DEB.0) {
        Some(program) => program,
        None => setup::from_crates_io(CARGO_DEB.0, CARGO_DEB.1)?,
    };
    let args = [
        "--no-build",
        "--strip",
        "--package",
        "finefs-cli",
        "--output",
    ];
    in_workspace(run::cmd(cargo_deb, args).arg(into))?;
    let mut made = fs::read_dir(into)?.filter_map(|entry| Some(entry.ok()?.path()));
    made.find(|path| path.extension().is_some_and(|name| name == "deb"))
        .context("cargo-deb made no package")
}

fn static_binary(into: &Path) -> Result<PathBuf> {
    setup::packaging()?;
    let target = tools::host()?.replace("-gnu", "-musl");
    let args = ["build", "--release", "--quiet", "-p", "finefs-cli"];
    in_workspace(run::cargo(args).args(["--target", &target]))
        .with_context(|| format!("is it there? rustup target add {target}"))?;
    let built = tools::target_dir().join(&target).join("release/finefs");
    let alone = into.join(format!("finefs-{}-{target}", env!("CARGO_PKG_VERSION")));
    run::ok(run::cmd("strip", ["-o"]).arg(&alone).arg(built))?;
    Ok(alone)
}

/// Runs a command of `make` or cargo.
fn in_workspace(command: &mut Command) -> Result<()> {
    let output = run::capture_with(command.current_dir(tools::workspace()), b"", LIMIT)?;
    run::expect_ok(&format!("{command:?}"), output)?;
    Ok(())
}

/// The static binary mounts, works and unmounts where there is nothing but it.
fn try_static(binary: &Path) -> Result<()> {
    let scratch = Scratch::new_in(&std::env::temp_dir())?;
    let root = scratch.path();
    fs::copy(binary, root.join("finefs"))?;
    prepare(root)?;
    let (mount, umount) = (["/finefs", "mount"], ["/finefs", "umount"]);
    work(root, &mount, &umount)
}

/// The package installs itself in a new Debian, whose mount(8) and umount(8) find it.
fn try_debian(package: &Path) -> Result<()> {
    setup::packaging()?;
    let scratch = Scratch::new_in(&std::env::temp_dir())?;
    let root = scratch.path();
    let mut command = run::cmd(tools::program("debootstrap"), DEBIAN);
    command.arg(codename()?).arg(root);
    let output = run::capture_with(&mut command, b"", LIMIT)?;
    run::expect_ok("debootstrap", output)?;
    prepare(root)?;
    fs::copy(package, root.join("finefs.deb"))?;
    inside(root, &["dpkg", "--install", "/finefs.deb"])?;
    let page = root.join("usr/share/man/man1/finefs-mount.1.gz");
    ensure!(page.exists(), "the package has no {}", page.display());
    work(root, &["mount", "-t", "fuse.finefs"], &["umount"])?;
    inside(root, &["dpkg", "--purge", "finefs"])?;
    let left = root.join("usr/sbin/mount.fuse.finefs");
    ensure!(!left.exists(), "dpkg --purge leaves {}", left.display());
    Ok(())
}

/// The name of the Debian that this machine runs.
fn codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release")?;
    let mut lines = text.lines();
    let name = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release has no codename")?.to_owned())
}

/// What a root needs besides programs: devices, /proc, an image and where to mount it.
fn prepare(root: &Path) -> Result<()> {
    for name in ["dev", "proc", "run", "tmp", "mnt"] {
        fs::create_dir_all(root.join(name))?;
    }
    for (name, major, minor) in [("dev/null", 1, 3), ("dev/fuse", 10, 229)] {
        let path = root.join(name);
        if !path.exists() {
            let device = makedev(major, minor);
            let mode = Mode::from_bits_truncate(0o666);
            mknodat(CWD, &path, FileType::CharacterDevice, mode, device)?;
        }
    }
    let args = ["-t", "proc", "proc"];
    run::ok(run::cmd(tools::program("mount"), args).arg(root.join("proc")))?;
    sets::find("ext4")?.make_image(&root.join("image"), IMAGE_MIB)
}

/// Mounts, writes, unmounts, and checks the image and what it holds.
fn work(root: &Path, mount: &[&str], umount: &[&str]) -> Result<()> {
    let text = "written through the mount";
    let file = root.join("mnt/file");
    let mount = [mount, &["/image", "/mnt"]].concat();
    let umount = [umount, &["/mnt"]].concat();
    inside(root, &mount)?;
    fs::write(&file, text)?;
    inside(root, &umount)?;
    ensure!(!file.exists(), "{umount:?} left the mount");
    sets::fsck(&root.join("image"))?;
    inside(root, &mount)?;
    let read = fs::read_to_string(&file)?;
    inside(root, &umount)?;
    ensure!(read == text, "the file came back as {read:?}");
    Ok(())
}

/// Runs a command with `root` as its root.
fn inside(root: &Path, command: &[&str]) -> Result<()> {
    let log = tempfile::NamedTempFile::new()?;
    // A file, since a server that stays in the background keeps a pipe open.
    let mut chroot = run::cmd(tools::program("chroot"), [root]);
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    chroot.args(command).env("PATH", path).stdin(Stdio::null());
    chroot.stdout(log.reopen()?).stderr(log.reopen()?);
    let (status, timed_out) = run::spawn(&mut chroot)?.wait_limit(LIMIT)?;
    let said = fs::read_to_string(log.path()).unwrap_or_default();
    ensure!(
        status.success() && !timed_out,
        "{command:?}: {status}\n{said}"
    );
    Ok(())
}
