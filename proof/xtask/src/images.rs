//! Damaged and unusual images: each is either refused in one line, or mounts read-only and survives
//! a walk that reads everything; no byte of it changes, and the server neither crashes nor hangs
//! nor takes memory without bound. A copy that e2fsck has repaired can be written, and stays good.

use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::cleanup::{self, Scratch};
use finefs_harness::run::{self, Output, Running};
use finefs_harness::sets;
use finefs_harness::tools;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How the images are walked.
#[derive(clap::Args, Debug, Default)]
pub struct Options {
    /// The directory with the images; without it `../shared/images` beside the workspace, if there
    #[arg(long)]
    pub from: Option<PathBuf>,
    /// Only images whose names contain this
    #[arg(long)]
    pub only: Option<String>,
    /// A repaired copy of each image is worked on, not only of every third
    #[arg(long)]
    pub long: bool,
}

/// Without `--long`, and where no images are named, of one image in so many a copy is repaired.
const REPAIRED: usize = 3;

/// Address space of the server: a limit against runaway allocation, far above what it should need.
const ADDRESS_SPACE: u64 = 6 << 30;
/// Memory in use that the server may reach on an image of some MiB.
const RESIDENT_MIB: u64 = 512;
const WALK_LIMIT: Duration = Duration::from_secs(60);
const START_LIMIT: Duration = Duration::from_secs(20);
/// A damaged directory tree may have loops.
const MOST_ENTRIES: usize = 100_000;
/// A damaged inode may claim any size.
const MOST_BYTES: u64 = 64 << 20;

/// Where the images are looked for when nothing is said.
pub fn beside() -> PathBuf {
    tools::workspace().join("../shared/images")
}

/// Every image in the directory.
pub fn run(finefs: &Path, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let from = options.from.clone().unwrap_or_else(beside);
    if !from.is_dir() {
        report.skip("images", &format!("no directory {}", from.display()));
        return Ok(());
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(&from)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e == "gz" || e == "bz2" || e == "img")
        })
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            options
                .only
                .as_ref()
                .is_none_or(|only| name.contains(only.as_str()))
        })
        .collect();
    files.sort();
    ensure!(!files.is_empty(), "{}: no image", from.display());
    let scratch = Scratch::new_in(parent)?;
    let all = options.long || options.only.is_some();
    for (number, file) in files.into_iter().enumerate() {
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        report.proof(&format!("images/{name}"), || one(finefs, &scratch, &file));
        if !all && !number.is_multiple_of(REPAIRED) {
            continue;
        }
        if tools::is_root() {
            let repaired = format!("images/{name} repaired");
            report.proof(&repaired, || repaired_copy(finefs, &scratch, &file));
        } else {
            report.skip(&format!("images/{name} repaired"), "needs root");
        }
    }
    Ok(())
}

fn one(finefs: &Path, scratch: &Scratch, compressed: &Path) -> Result<String> {
    let image = scratch.path().join("image");
    unpack(compressed, &image)?;
    let before = digest(&image)?;
    let outcome = mount_and_walk(finefs, scratch, &image);
    let info = info(finefs, &image);
    let name = compressed.display().to_string();
    let checked = check_agrees(finefs, scratch, &image, &name);
    ensure!(digest(&image)? == before, "the image was written");
    std::fs::remove_file(&image)?;
    info?;
    Ok(format!("{}; {}", outcome?, checked?))
}

/// On these images `e2fsck -n` begins again and again.
const ENDLESS: [&str; 2] = ["f_illitable_flexbg-", "f_misstable-"];
/// How long it is given there, and elsewhere.
const ENDLESS_LIMIT: Duration = Duration::from_secs(5);
const JUDGE_LIMIT: Duration = Duration::from_secs(60);

/// What e2fsck 1.47.0 does not put right in three runs, or not without an external journal.
const BEYOND_REPAIR: [&str; 3] = ["f_crashdisk-", "f_ea_inode_fast_symlink-", "f_ext_journal-"];

fn is_among(names: &[&str], image: &str) -> bool {
    names.iter().any(|name| image.contains(name))
}

/// Where they do not agree: e2fsck 1.47.0 takes a short link's target for block numbers when it has
/// large attributes (later ones do not), looks for an external journal, which finefs does not, and
/// where the journal's superblock tells of an error it writes even with -n, which fails.
const KNOWN: [&str; 3] = ["f_ea_inode_fast_symlink", "f_ext_journal", "f_jnl_errno"];

/// `finefs check` and e2fsck agree whether an image is clean. Where the journal must be replayed,
/// e2fsck judges a copy on which it was.
fn check_agrees(finefs: &Path, scratch: &Scratch, image: &Path, name: &str) -> Result<String> {
    let mut command = run::cmd(finefs, ["check", "--json"]);
    let ours = run::capture_with(command.arg(image), b"", START_LIMIT)?;
    ensure!(
        !ours.timed_out && [0, 4, 8].contains(&ours.code()),
        "finefs check ended with {}:\n{}",
        ours.code(),
        run::tail(&ours.both())
    );
    let copy = scratch.path().join("judged");
    std::fs::copy(image, &copy)?;
    let mut said = String::new();
    if ours.stdout.contains("\"journal-dirty\"") || ours.stdout.contains("\"journal-log\"") {
        let words = ["-y", "-E", "journal_only"];
        let replay = run::capture(run::cmd(tools::program("e2fsck"), words).arg(&copy))?;
        said = replay.both();
    }
    let mut judge = run::cmd(tools::program("e2fsck"), ["-fn"]);
    let limit = match is_among(&ENDLESS, name) {
        true => ENDLESS_LIMIT,
        false => JUDGE_LIMIT,
    };
    let theirs = run::capture_with(judge.arg(&copy), b"", limit)?;
    std::fs::remove_file(&copy)?;
    if theirs.timed_out {
        ensure!(is_among(&ENDLESS, name), "e2fsck does not end");
        return Ok("e2fsck finds no end".to_owned());
    }
    said += &theirs.both();
    let is_clean = theirs.code() == 0 && !has_questions(&said);
    let is_known = is_among(&KNOWN, name);
    ensure!(
        (ours.code() == 0) == is_clean || is_known,
        "finefs check ended with {}, e2fsck with {}:\n{}\n{}",
        ours.code(),
        theirs.code(),
        run::tail(&ours.both()),
        run::tail(&said)
    );
    let report: serde_json::Value = serde_json::from_str(&ours.stdout).unwrap_or_default();
    Ok(match ours.code() {
        0 => "clean".to_owned(),
        4 => format!("{} errors", report["errors"]),
        _ => "cannot be checked".to_owned(),
    })
}

/// Whether e2fsck has asked something that is not a matter of taste. Of what it asks before its
/// passes its exit status says nothing.
fn has_questions(said: &str) -> bool {
    const TASTE: [&str; 4] = ["count wrong", "in the future", "Optimize?", "supersedes"];
    let text = said.replace("\nFix? no", "  Fix? no");
    text.lines().any(|line| {
        let asks = line.trim_end().ends_with("? no") || line.contains("superblock is corrupt");
        let asks = asks || line.contains("replay was aborted");
        // What the replay found, and put right.
        let asks = asks || line.ends_with("journal? yes") || line.contains("checksum error found");
        asks && !TASTE.iter().any(|known| line.contains(known))
    })
}

/// What a copy that e2fsck has repaired is good for: it is mounted for writing, worked on and
/// unmounted, and e2fsck finds nothing. What finefs does not write is mounted read-only, with a
/// reason.
fn repaired_copy(finefs: &Path, scratch: &Scratch, compressed: &Path) -> Result<String> {
    let image = scratch.path().join("image");
    unpack(compressed, &image)?;
    // The second run repairs what the first could not while it moved things.
    let repair = || run::capture(run::cmd(tools::program("e2fsck"), ["-fy"]).arg(&image));
    let first = repair()?;
    if repair()?.code() != 0 && repair()?.code() != 0 {
        let name = compressed.display().to_string();
        ensure!(
            is_among(&BEYOND_REPAIR, &name),
            "e2fsck cannot repair it (it ended with {})",
            first.code()
        );
        return Ok(format!(
            "e2fsck cannot repair it (it ended with {})",
            first.code()
        ));
    }
    let before = digest(&image)?;
    let point = MountPoint::new(scratch)?;
    let dir = &point.dir;
    let output = run::capture_with(
        run::cmd(finefs, ["mount"]).arg(&image).arg(dir),
        b"",
        START_LIMIT,
    )?;
    if !output.status.success() {
        let line = expect_refusal(&output)?;
        ensure!(
            line.contains("cannot be read"),
            "a repaired image is refused: {line}"
        );
        return Ok(format!("refused: {}", without_path(&line)));
    }
    let notes = output.both();
    let is_read_only = rustix::fs::statvfs(dir)?
        .f_flag
        .contains(rustix::fs::StatVfsMountFlags::RDONLY);
    let worked = if is_read_only {
        let reason = notes
            .lines()
            .find(|line| line.contains("mounted read-only"));
        let reason = reason.with_context(|| format!("read-only without a reason:\n{notes}"))?;
        let reasons = ["not writable yet", "external journal"];
        ensure!(
            reasons.iter().any(|known| reason.contains(known)),
            "a repaired image is not written: {reason}"
        );
        Ok(without_path(reason).to_owned())
    } else {
        work_a_little(dir)
    };
    run::unmount(run::cmd(finefs, ["umount"]).arg(dir), run::DEFAULT_LIMIT)?;
    let worked = worked?;
    if is_read_only {
        ensure!(digest(&image)? == before, "the image was written");
    } else {
        sets::e2fsck(&image)?;
    }
    std::fs::remove_file(&image)?;
    Ok(worked)
}

/// Makes, changes and removes a few things, as far as there is room, and reads them back.
fn work_a_little(dir: &Path) -> Result<String> {
    let own = dir.join("made by the proof");
    match std::fs::create_dir(&own) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            return Ok("written: no room".to_owned());
        }
        made => made.context("mkdir")?,
    }
    let mut bytes = 0;
    for number in 0..20_usize {
        let content = vec![number as u8 + 1; 300 * number];
        let file = own.join(format!("file {number}"));
        match std::fs::write(&file, &content) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                let _ = std::fs::remove_file(&file);
                break;
            }
            written => written.with_context(|| file.display().to_string())?,
        }
        ensure!(
            std::fs::read(&file)? == content,
            "{}: other bytes",
            file.display()
        );
        bytes += content.len();
        if number % 3 == 0 {
            std::fs::remove_file(&file)?;
        } else if number % 3 == 1 {
            std::fs::rename(&file, own.join(format!("renamed {number}")))?;
        }
    }
    let kept = std::fs::read_dir(&own)?.count();
    File::open(&own)?.sync_all()?;
    Ok(format!("written: {bytes} bytes, {kept} files stay"))
}

/// Writes the decompressed image sparsely.
fn unpack(from: &Path, to: &Path) -> Result<()> {
    let file = BufReader::new(File::open(from)?);
    let mut reader: Box<dyn Read> = match from.extension().and_then(|e| e.to_str()) {
        Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(file)),
        Some("bz2") => Box::new(bzip2::read::MultiBzDecoder::new(file)),
        _ => Box::new(file),
    };
    let mut out = File::create(to)?;
    let mut buffer = vec![0u8; 64 << 10];
    let mut len = 0u64;
    loop {
        let mut n = 0;
        while n < buffer.len() {
            match reader
                .read(&mut buffer[n..])
                .with_context(|| from.display().to_string())?
            {
                0 => break,
                more => n += more,
            }
        }
        if n == 0 {
            break;
        }
        if buffer[..n].iter().any(|byte| *byte != 0) {
            out.seek(SeekFrom::Start(len))?;
            out.write_all(&buffer[..n])?;
        }
        len += n as u64;
    }
    out.set_len(len)?;
    Ok(())
}

/// A digest of a file's bytes.
pub fn digest(path: &Path) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize())
}

/// Exactly one line on standard error, exit status 1, and no sign of a crash.
pub fn expect_refusal(output: &Output) -> Result<String> {
    ensure!(!output.timed_out, "hung instead of refusing");
    let lines: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    ensure!(
        output.code() == 1,
        "ended with {}:\n{}",
        output.code(),
        run::tail(&output.both())
    );
    ensure!(
        lines.len() == 1 && !lines[0].contains("panicked"),
        "{} lines instead of one:\n{}",
        lines.len(),
        run::tail(&output.stderr)
    );
    Ok(lines[0].to_owned())
}

fn info(finefs: &Path, image: &Path) -> Result<()> {
    for json in [false, true] {
        let mut command = run::cmd(finefs, ["info"]);
        command.arg(image).args(json.then_some("--json"));
        let output = run::capture_with(&mut command, b"", START_LIMIT)?;
        if output.status.success() && !output.timed_out {
            ensure!(!output.stdout.is_empty(), "finefs info said nothing");
            if json {
                let parsed = serde_json::from_str::<serde_json::Value>(&output.stdout);
                parsed.context("finefs info --json")?;
            }
        } else {
            expect_refusal(&output).context("finefs info")?;
        }
    }
    Ok(())
}

/// Where an image is mounted, which nothing else may be; unmounted on drop, or the next image would
/// be judged by this one.
struct MountPoint {
    dir: PathBuf,
    _entry: cleanup::Entry,
}

impl MountPoint {
    fn new(scratch: &Scratch) -> Result<MountPoint> {
        let dir = scratch.subdir("mnt")?;
        let is_free = !cleanup::is_mounted(&dir);
        ensure!(is_free, "{}: something is mounted here", dir.display());
        let entry = cleanup::mount(&dir);
        Ok(MountPoint { dir, _entry: entry })
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        cleanup::force_unmount(&self.dir);
    }
}

fn mount_and_walk(finefs: &Path, scratch: &Scratch, image: &Path) -> Result<String> {
    let point = MountPoint::new(scratch)?;
    let dir = &point.dir;
    let log = scratch.path().join("log");
    let limit = format!("--as={ADDRESS_SPACE}");
    let mut command = run::cmd(tools::program("prlimit"), [&limit, "--"]);
    command
        .arg(finefs)
        .args(["mount", "-f", "-o", "ro"])
        .arg(image)
        .arg(dir);
    let out = File::create(&log)?;
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    let started = Instant::now();
    let mut server = run::spawn(&mut command)?;
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    loop {
        if let Some(status) = server.try_wait()? {
            let took = started.elapsed();
            let output = Output {
                status,
                stdout: String::new(),
                stderr: said(),
                timed_out: false,
                took,
            };
            return Ok(format!(
                "refused: {}",
                without_path(&expect_refusal(&output)?)
            ));
        }
        if cleanup::is_mounted(dir) {
            break;
        }
        ensure!(
            started.elapsed() < START_LIMIT,
            "neither mounted nor refused:\n{}",
            said()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let walked = walk_and_unmount(finefs, dir, &mut server);
    drop(point);
    ensure!(
        !said().contains("panicked"),
        "the server panicked:\n{}",
        run::tail(&said())
    );
    walked.with_context(|| format!("the server said:\n{}", run::tail(&said())))
}

fn walk_and_unmount(finefs: &Path, dir: &Path, server: &mut Running) -> Result<String> {
    let mut command = run::cmd(std::env::current_exe()?, ["worker", "walk"]);
    let output = run::capture_with(command.arg(dir), b"", WALK_LIMIT)?;
    if let Some(status) = server.try_wait()? {
        bail!("the server ended during the walk: {status}");
    }
    let walk = run::expect_ok("the walk", output)?;
    let resident = resident_mib(server.pid());
    run::unmount(run::cmd(finefs, ["umount"]).arg(dir), run::DEFAULT_LIMIT)?;
    let (status, killed) = server.wait_limit(START_LIMIT)?;
    ensure!(
        !killed && status.success(),
        "the server ended with {status} after the unmount"
    );
    ensure!(resident < RESIDENT_MIB, "the server took {resident} MiB");
    Ok(format!("mounted: {}, {resident} MiB", walk.stdout.trim()))
}

/// The most memory that `pid` ever had in use.
fn resident_mib(pid: u32) -> u64 {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        })
        .map_or(0, |kib| kib >> 10)
}

fn without_path(line: &str) -> &str {
    line.split_once("/image")
        .map_or(line, |(_, rest)| rest.trim_start_matches([':', ' ']))
}

/// The walking process: reads everything below `dir`, prints a summary, and fails on any error that
/// damage does not explain.
pub fn walk_worker(dir: &Path) -> Result<()> {
    let mut walk = Walk::default();
    walk.directory(dir, 0);
    let errors: Vec<String> = walk
        .errors
        .iter()
        .map(|(what, count)| format!("{count} x {what}"))
        .collect();
    ensure!(
        walk.unexplained.is_empty(),
        "{}",
        walk.unexplained.join("\n")
    );
    println!(
        "{} entries, {} bytes, errors: [{}]",
        walk.entries,
        walk.bytes,
        errors.join(", ")
    );
    Ok(())
}

#[derive(Default)]
struct Walk {
    entries: usize,
    bytes: u64,
    errors: BTreeMap<String, usize>,
    unexplained: Vec<String>,
}

impl Walk {
    fn note(&mut self, path: &Path, doing: &str, error: &io::Error) {
        use rustix::io::Errno;
        let explained = [
            Errno::IO,
            Errno::UCLEAN,
            // Loops of directories, and encrypted files.
            Errno::NAMETOOLONG,
            Errno::LOOP,
            Errno::NOKEY,
            Errno::OPNOTSUPP,
        ];
        let errno = error.raw_os_error().unwrap_or(0);
        if explained.iter().any(|known| known.raw_os_error() == errno) {
            *self.errors.entry(format!("{doing}: {error}")).or_default() += 1;
        } else if self.unexplained.len() < 10 {
            self.unexplained
                .push(format!("{}: {doing}: {error}", path.display()));
        }
    }

    fn directory(&mut self, dir: &Path, depth: usize) {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => return self.note(dir, "open directory", &error),
        };
        for entry in entries {
            if self.entries >= MOST_ENTRIES || depth > 40 {
                return;
            }
            match entry {
                Ok(entry) => self.entry(&entry.path(), depth),
                Err(error) => return self.note(dir, "read directory", &error),
            }
        }
    }

    fn entry(&mut self, path: &Path, depth: usize) {
        self.entries += 1;
        let meta = match path.symlink_metadata() {
            Ok(meta) => meta,
            Err(error) => return self.note(path, "stat", &error),
        };
        self.xattrs(path);
        if meta.is_dir() {
            self.directory(path, depth + 1);
        } else if meta.is_symlink() {
            if let Err(error) = std::fs::read_link(path) {
                self.note(path, "readlink", &error);
            }
        } else if meta.is_file()
            && let Err(error) = self.file(path, meta.len())
        {
            self.note(path, "read", &error);
        }
    }

    /// The first bytes and the last.
    fn file(&mut self, path: &Path, size: u64) -> io::Result<()> {
        let mut file = File::open(path)?;
        self.bytes += io::copy(&mut (&mut file).take(MOST_BYTES), &mut io::sink())?;
        if size > MOST_BYTES {
            file.seek(SeekFrom::Start(size - MOST_BYTES.min(1 << 20)))?;
            self.bytes += io::copy(&mut file.take(MOST_BYTES), &mut io::sink())?;
        }
        Ok(())
    }

    fn xattrs(&mut self, path: &Path) {
        let mut names = vec![0u8; 64 << 10];
        let n = match rustix::fs::llistxattr(path, &mut names) {
            Ok(n) => n,
            Err(error) => return self.note(path, "listxattr", &error.into()),
        };
        for name in names[..n]
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            let mut value = vec![0u8; 64 << 10];
            if let Err(error) = rustix::fs::lgetxattr(path, name, &mut value) {
                self.note(path, "getxattr", &error.into());
            }
        }
    }
}
