//! `make demo`: finefs builds an ext4 image of a real tree beside mke2fs -d, changes a file in it
//! without a mount, and mounts one, beside fuse2fs on a like image in the same run.
//!
//! The part that mounts and works runs as an ordinary user where that is possible; started by root,
//! it changes to one. Root is then needed for nothing but installing what is missing.

use crate::fuse_device;
use crate::report::spinner;
use crate::setup;
use crate::unprivileged::USER;
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::compare::{Relation, expect_equal};
use finefs_harness::programs::{Shape, run_postmark};
use finefs_harness::run;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets::{self, TimeRange};
use finefs_harness::snapshot::Snapshot;
use finefs_harness::tools;
use finefs_harness::tree::copy_parts;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How the demo is run.
#[derive(clap::Args, Debug, Default)]
pub struct Options {
    /// The finefs binary; without it one is built
    #[arg(long)]
    pub finefs: Option<PathBuf>,
    /// Only the part that works, in this directory, as the user that runs it
    #[arg(long, hide = true)]
    pub inner: Option<PathBuf>,
}

const LIMIT: Duration = Duration::from_secs(1200);
const IMAGE_MIB: u64 = 2048;
const POSTMARK: Shape = Shape {
    files: 1000,
    transactions: 500,
};
const PROCESSES: u64 = 8;
/// The real tree is cut to about this many files, and for fuse2fs to a part of it.
const MOST_FILES: usize = 15_000;
const MOST_FILES_FUSE2FS: usize = 1500;

/// Installs, builds, and shows.
pub fn run(options: &Options) -> Result<()> {
    let finefs = options.finefs.as_deref();
    if let Some(home) = &options.inner {
        return show(&tools::finefs(finefs)?, home);
    }
    setup::packages()?;
    if finefs.is_none() {
        println!("building finefs");
        let mut build = run::cargo(["build", "--release", "--quiet", "-p", "finefs-cli"]);
        let output = run::capture_with(build.current_dir(tools::workspace()), b"", LIMIT)?;
        run::expect_ok("cargo build --release -p finefs-cli", output)?;
    }
    let scratch = Scratch::new_in(&std::env::temp_dir())?;
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
    let home = scratch.subdir("home")?;
    let bin = scratch.subdir("bin")?;
    for (from, name) in [
        (tools::finefs(finefs)?, "finefs"),
        (std::env::current_exe()?, "xtask"),
    ] {
        std::fs::copy(from, bin.join(name))?;
    }
    let mut _access = None;
    let mut inner = if tools::is_root() {
        _access = fuse_device::allow(USER)?;
        chown(&home, Some(USER.0), Some(USER.0))?;
        println!("going on as an ordinary user (uid {})\n", USER.0);
        USER.cmd(bin.join("xtask"))
    } else {
        run::cmd(bin.join("xtask"), [] as [&str; 0])
    };
    inner
        .arg("demo")
        .arg("--inner")
        .arg(&home)
        .arg("--finefs")
        .arg(bin.join("finefs"));
    let (status, _) = run::spawn(&mut inner)?.wait_limit(LIMIT)?;
    ensure!(status.success(), "the demo failed: {status}");
    Ok(())
}

/// What one server reached.
struct Rates {
    postmark: f64,
    copy: f64,
}

fn show(finefs: &Path, home: &Path) -> Result<()> {
    let source = stage_real_tree(home, MOST_FILES, "tree")?;
    let small = stage_real_tree(home, MOST_FILES_FUSE2FS, "small-tree")?;
    let built = build(finefs, home, &source)?;
    let ours = work(&Server::new(Kind::Finefs, Some(finefs))?, home, &source)?;
    let theirs = work(&Server::new(Kind::Fuse2fs, None)?, home, &small)?;

    println!("\n{:<50}{:>10}{:>10}{:>9}", "", "finefs", "others", "ratio");
    let rows = [
        ("image built (mke2fs -d), files/s", built.ours, built.theirs),
        (
            "PostMark, 8 processes (fuse2fs), transactions/s",
            ours.postmark,
            theirs.postmark,
        ),
        (
            "4 parallel copies (fuse2fs), files/s",
            ours.copy,
            theirs.copy,
        ),
    ];
    for (what, ours, theirs) in rows {
        println!(
            "{what:<50}{ours:>10.0}{theirs:>10.0}{:>8.1}x",
            ours / theirs
        );
    }
    println!(
        "\nPostMark: {} files and {} transactions in each process, the whole run timed. fuse2fs copies \
         only a part\nof the tree ({} files), since it becomes slower with each file.",
        POSTMARK.files, POSTMARK.transactions, small.files
    );
    Ok(())
}

/// Files of an image that was built, in a second, by finefs and by mke2fs -d.
struct BuildRates {
    ours: f64,
    theirs: f64,
}

/// Builds an image of a tree, and changes a file in it without a mount.
fn build(finefs: &Path, home: &Path, source: &Staged) -> Result<BuildRates> {
    let (image, other) = (home.join("built.img"), home.join("mke2fs.img"));
    let timed = |command: &mut std::process::Command, message| -> Result<f64> {
        let bar = spinner(message);
        let started = Instant::now();
        let output = run::capture_with(command, b"", LIMIT)?;
        bar.finish_and_clear();
        run::expect_ok(message, output)?;
        Ok(started.elapsed().as_secs_f64())
    };
    let mut command = run::cmd(finefs, ["build", "-q", "--free", "10%"]);
    let ours = timed(command.arg(&image).arg(&source.root), "finefs build")?;
    let mib = std::fs::metadata(&image)?.len().div_ceil(1 << 20);
    println!(
        "finefs: built an image of {} files, {mib} MiB, in {ours:.1} s",
        source.files
    );
    sets::fsck(&image)?;
    println!("finefs: e2fsck -fn finds nothing");
    // Room for what mke2fs needs more.
    let size = format!("{}M", mib + mib / 4);
    let mut command = run::cmd(tools::program("mke2fs"), ["-q", "-t", "ext4", "-d"]);
    command.arg(&source.root).arg(&other).arg(size);
    let theirs = timed(&mut command, "mke2fs -d")?;
    println!("mke2fs -d: the same in {theirs:.1} s");
    let file = format!("{}:/note", image.display());
    let written = run::capture_with(
        &mut run::cmd(finefs, ["cp", "-", &file]),
        b"changed\n",
        LIMIT,
    )?;
    run::expect_ok("finefs cp", written)?;
    let read = run::ok(&mut run::cmd(finefs, ["cat", &file]))?;
    ensure!(read.stdout == "changed\n", "finefs cat: {}", read.stdout);
    sets::fsck(&image)?;
    println!("finefs: wrote a file into it without a mount, and read it; e2fsck finds nothing");
    std::fs::remove_file(&image)?;
    std::fs::remove_file(&other)?;
    let files = source.files as f64;
    Ok(BuildRates {
        ours: files / ours,
        theirs: files / theirs,
    })
}

/// A copy of a real tree on this machine's disk.
struct Staged {
    root: PathBuf,
    files: usize,
}

fn work(server: &Server, home: &Path, source: &Staged) -> Result<Rates> {
    let name = server.kind;
    let (image, dir) = (
        home.join(format!("{name}.img")),
        home.join(format!("{name}-mnt")),
    );
    std::fs::create_dir(&dir)?;
    std::fs::File::create(&image)?.set_len(IMAGE_MIB << 20)?;
    let owner = format!(
        "root_owner={}:{}",
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    );
    let args = ["-q", "-F", "-t", "ext4", "-E", &owner];
    run::ok(run::cmd(tools::program("mke2fs"), args).arg(&image))?;
    println!("{name}: made an ext4 image of {IMAGE_MIB} MiB");
    let mount = server.mount(What::Image(&image), &dir, &[])?;
    println!("{name}: mounted it");

    let bar = spinner("PostMark");
    let took = run_postmark(mount.dir(), PROCESSES, POSTMARK, name == Kind::Fuse2fs)?;
    bar.finish_and_clear();
    let postmark = (PROCESSES * POSTMARK.transactions) as f64 / took.as_secs_f64();
    println!("{name}: PostMark with {PROCESSES} processes: {postmark:.0} transactions/s");

    let parts = entries(&source.root)?;
    let parts: Vec<&OsStr> = parts.iter().map(OsString::as_os_str).collect();
    let bar = spinner("copying");
    let started = Instant::now();
    copy_parts(&source.root, mount.dir(), &parts)?;
    let took = started.elapsed();
    bar.finish_and_clear();
    let copy = source.files as f64 / took.as_secs_f64();
    println!(
        "{name}: copied {} files in {:.1} s",
        source.files,
        took.as_secs_f64()
    );

    let made = Snapshot::take(&source.root)?.without_atimes();
    let compare = |when: &str| -> Result<()> {
        let seen = Snapshot::take(&dir)?.without_atimes();
        let relation = Relation::Copy(TimeRange::Nanoseconds34Bit);
        expect_equal(("source", &made), (when, &seen), relation)
    };
    // fuse2fs is here for its rates; what it keeps of modes and times is not ours to show.
    if name == Kind::Finefs {
        compare("mount")?;
        println!("{name}: compared the tree: equal");
    }
    println!(
        "{name}: unmounted in {:.1} s",
        mount.unmount()?.as_secs_f64()
    );
    sets::fsck(&image)?;
    println!("{name}: e2fsck -fn finds nothing");
    if name == Kind::Finefs {
        let mount = server.mount(What::Image(&image), &dir, &["ro"])?;
        compare("mounted again")?;
        mount.unmount()?;
        println!("{name}: mounted it again: the tree is still equal");
    }
    std::fs::remove_file(&image)?;
    Ok(Rates { postmark, copy })
}

/// Copies parts of a real tree, up to `most` files, into four directories of about equal size.
fn stage_real_tree(home: &Path, most: usize, name: &str) -> Result<Staged> {
    let root = home.join(name);
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    let places = [
        cargo.join("registry/src"),
        "/usr/share".into(),
        "/usr/include".into(),
    ];
    let mut staged = Staged {
        root: root.clone(),
        files: 0,
    };
    let mut sizes = [0usize; 4];
    for number in 0..4 {
        std::fs::create_dir_all(root.join(format!("part{number}")))?;
    }
    for place in &places {
        // In steps of one subdirectory, two levels down.
        for entry in subdirectories(place)
            .iter()
            .flat_map(|dir| subdirectories(dir))
        {
            let Some(files) = count(&entry, most / 4) else {
                continue;
            };
            if files == 0 || staged.files + files > most {
                continue;
            }
            let number = (0..4).min_by_key(|number| sizes[*number]).unwrap_or(0);
            let to = root
                .join(format!("part{number}"))
                .join(format!("{}", staged.files));
            let mut copy = run::cmd("cp", ["-a", "--"]);
            run::ok(copy.arg(&entry).arg(&to))
                .with_context(|| format!("copying {}", entry.display()))?;
            sizes[number] += files;
            staged.files += files;
        }
        if staged.files >= most * 9 / 10 {
            break;
        }
    }
    ensure!(
        staged.files > 100,
        "no real tree to copy was found on this machine"
    );
    Ok(staged)
}

fn entries(dir: &Path) -> Result<Vec<OsString>> {
    Ok(std::fs::read_dir(dir)?
        .map(|e| Ok(e?.file_name()))
        .collect::<std::io::Result<_>>()?)
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The number of files below `dir`; none when it has more than `most` or anything that this user
/// cannot read.
fn count(dir: &Path, most: usize) -> Option<usize> {
    let mut files = 0;
    for entry in std::fs::read_dir(dir).ok()? {
        let entry = entry.ok()?;
        let kind = entry.file_type().ok()?;
        if kind.is_dir() {
            files += count(&entry.path(), most)?;
        } else if kind.is_file() {
            std::fs::File::open(entry.path()).ok()?;
            files += 1;
        } else {
            files += 1;
        }
        if files > most {
            return None;
        }
    }
    Some(files)
}
