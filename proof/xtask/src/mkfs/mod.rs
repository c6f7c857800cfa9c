//! `finefs mkfs` beside mke2fs: given the same command line, time, UUID and hash seed, both make
//! the same bytes, but for what [`Allowed`] explains; or both refuse.
//!
//! finefs is called through links with mke2fs's names. Each image is clean for e2fsck; the kernel
//! mounts ours if it mounts mke2fs's; some are filled to the last block by the kernel and by
//! finefs. Beside the table there are sizes and switches by chance.

mod images;
mod table;

use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::cleanup::{self, Scratch};
use finefs_harness::rng::Rng;
use finefs_harness::run::{self, Output};
use finefs_harness::tools;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use table::{Allowed, REFUSED, SETS, Set, Then};

/// What to run.
#[derive(clap::Args, Debug, Default)]
pub struct Options {
    /// Images of sizes and switches by chance
    #[arg(long, default_value_t = 60)]
    pub random: u64,
    /// Only command lines that contain this; `chance` for sizes and switches by chance
    #[arg(long)]
    pub only: Option<String>,
}

const UUID: &str = "11111111-2222-4333-8444-555555555555";
const HASH_SEED: &str = "66666666-7777-4888-9999-aaaaaaaaaaaa";
const TIME: &str = "1700000000";
/// mke2fs fails so where one group would have 8 inodes; ours has 16 then.
const TOO_FEW_INODES: [&str; 2] = ["Illegal inode number", "Could not allocate inode"];
/// What Debian installs, so that the machine's own file does not matter.
const CONFIGURATION: &str = "\
[defaults]
base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
default_mntopts = acl,user_xattr
enable_periodic_fsck = 0
blocksize = 4096
inode_size = 256
inode_ratio = 16384
[fs_types]
ext3 = {
  features = has_journal
}
ext4 = {
  features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
}
small = {
  blocksize = 1024
  inode_ratio = 4096
}
floppy = {
  blocksize = 1024
  inode_ratio = 8192
}
big = {
  inode_ratio = 32768
}
huge = {
  inode_ratio = 65536
}
news = {
  inode_ratio = 4096
}
largefile4 = {
  inode_ratio = 4194304
  blocksize = -1
}
";

/// Where the programs and images are.
struct Bench {
    scratch: Scratch,
    finefs: PathBuf,
    links: PathBuf,
    configuration: PathBuf,
}

/// Runs the table and the sizes by chance.
pub fn run(
    finefs: &Path,
    parent: &Path,
    options: &Options,
    seed: u64,
    report: &mut Report,
) -> Result<()> {
    let bench = Bench::new(finefs, parent)?;
    let wanted = |set: &Set| {
        let line = line(set);
        options
            .only
            .as_ref()
            .is_none_or(|only| line.contains(only.as_str()))
    };
    for set in SETS.iter().filter(|set| wanted(set)) {
        report.proof(&line(set), || bench.made(set));
    }
    for set in REFUSED.iter().filter(|set| wanted(set)) {
        report.proof(&format!("refused: {}", line(set)), || bench.refused(set));
    }
    if options.only.as_deref().is_none_or(|only| only == "chance") {
        let name = format!("{} by chance, seed {seed}", options.random);
        report.proof(&name, || bench.by_chance(options.random, seed));
        report.proof("a block device that held something", || bench.device());
    }
    Ok(())
}

/// The command line, for people.
fn line(set: &Set) -> String {
    let mut words = vec![set.program.to_owned(), set.switches.to_owned()];
    if !set.extended.is_empty() {
        words.push(format!("-E {}", set.extended));
    }
    words.push(match set.kib {
        kib if kib.is_multiple_of(1 << 20) => format!("{}G", kib >> 20),
        kib if kib.is_multiple_of(1 << 10) => format!("{}M", kib >> 10),
        kib => format!("{kib}k"),
    });
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

impl Bench {
    fn new(finefs: &Path, parent: &Path) -> Result<Bench> {
        let scratch = Scratch::new_in(parent)?;
        let links = scratch.subdir("bin")?;
        for name in ["mke2fs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4"] {
            std::os::unix::fs::symlink(finefs.canonicalize()?, links.join(name))?;
        }
        let configuration = scratch.path().join("mke2fs.conf");
        std::fs::write(&configuration, CONFIGURATION)?;
        Ok(Bench {
            scratch,
            finefs: finefs.to_owned(),
            links,
            configuration,
        })
    }

    fn image(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Runs a program over a new file of the set's size.
    fn make(&self, program: &Path, set: &Set, image: &Path) -> Result<Output> {
        let _ = std::fs::remove_file(image);
        File::create(image)?
            .set_len(set.kib << 10)
            .context("this directory does not take such a file")?;
        let mut extended = format!("hash_seed={HASH_SEED}");
        if !set.extended.is_empty() {
            extended += &format!(",{}", set.extended);
        }
        let mut command = run::cmd(program, ["-q", "-F", "-U", UUID, "-E", &extended]);
        command.args(set.switches.split_whitespace()).arg(image);
        if !set.kib.is_multiple_of(4) {
            // Sizes of devices are whole pages; one that is given is not rounded.
            command.arg(format!("{}k", set.kib));
        }
        command
            .env("E2FSPROGS_FAKE_TIME", TIME)
            .env("MKE2FS_CONFIG", &self.configuration);
        run::capture(&mut command)
    }

    fn both(&self, set: &Set) -> Result<(Output, Output)> {
        let ours = self.links.join(set.program);
        let theirs = tools::program(set.program);
        Ok((
            self.make(&ours, set, &self.image("ours"))?,
            self.make(&theirs, set, &self.image("theirs"))?,
        ))
    }

    fn made(&self, set: &Set) -> Result<String> {
        let (ours, theirs) = match self.both(set) {
            Err(error) if set.kib > 16 << 30 => return Ok(format!("not here: {error:#}")),
            made => made?,
        };
        run::expect_ok("mke2fs", theirs)?;
        let took = ours.took;
        run::expect_ok("finefs", ours)?;
        let (ours, theirs) = (self.image("ours"), self.image("theirs"));
        let kib = images::compare(&ours, &theirs, set.allowed)?;
        check(&ours)?;
        let info = run::ok(run::cmd(&self.finefs, ["info"]).arg(&ours))?;
        ensure!(info.stdout.contains(UUID), "finefs info does not know it");
        let mut note = format!("{kib} KiB alike, {} ms", took.as_millis());
        if set.then != Then::Compare {
            let is_mounted = self.kernel_mounts(&theirs, false)?;
            let fills = set.then == Then::Fill;
            ensure!(
                self.kernel_mounts(&ours, fills)? == is_mounted,
                "the kernel mounts one of them only"
            );
            note += if is_mounted {
                ", mounted"
            } else {
                ", not mounted by this kernel"
            };
            check(&ours)?;
        }
        if set.then == Then::Fill {
            // A new one: that which the kernel has filled is full.
            run::expect_ok(
                "finefs",
                self.make(&self.links.join(set.program), set, &ours)?,
            )?;
            self.finefs_fills(&ours)?;
            check(&ours)?;
            note += ", filled";
        }
        for image in [ours, theirs] {
            std::fs::remove_file(image)?;
        }
        Ok(note)
    }

    fn refused(&self, set: &Set) -> Result<String> {
        let (ours, theirs) = self.both(set)?;
        ensure!(theirs.code() == 1, "mke2fs ended with {}", theirs.code());
        ensure!(ours.code() == 1, "finefs ended with {}", ours.code());
        ensure!(!ours.stderr.is_empty(), "finefs does not say why");
        let image = std::fs::read(self.image("ours"))?;
        ensure!(image.iter().all(|byte| *byte == 0), "something was written");
        let said = ours.stderr.lines().next().unwrap_or_default().to_owned();
        Ok(said.chars().take(60).collect())
    }

    /// True when the kernel mounts an image.
    fn kernel_mounts(&self, image: &Path, fills: bool) -> Result<bool> {
        let dir = self.scratch.subdir("kernel")?;
        let mounted = cleanup::mount(&dir);
        let mut command = run::cmd("mount", ["-o", "loop"]);
        let is_mounted = run::capture(command.arg(image).arg(&dir))?.code() == 0;
        if is_mounted {
            if fills {
                fill(&dir)?;
            }
            run::unmount(run::cmd("umount", [&dir]).arg("-d"), run::DEFAULT_LIMIT)?;
        }
        drop(mounted);
        std::fs::remove_dir(&dir)?;
        Ok(is_mounted)
    }

    fn finefs_fills(&self, image: &Path) -> Result<()> {
        let dir = self.scratch.subdir("finefs")?;
        let mounted = cleanup::mount(&dir);
        run::ok(run::cmd(&self.finefs, ["mount"]).arg(image).arg(&dir))?;
        fill(&dir)?;
        run::unmount(
            run::cmd(&self.finefs, ["umount"]).arg(&dir),
            run::DEFAULT_LIMIT,
        )?;
        drop(mounted);
        std::fs::remove_dir(&dir)?;
        Ok(())
    }

    /// Sizes and switches by chance: both make the same, or both refuse.
    fn by_chance(&self, count: u64, seed: u64) -> Result<String> {
        let mut rng = Rng::new(seed);
        let (mut alike, mut refused) = (0, 0);
        for _ in 0..count {
            let words = random_switches(&mut rng);
            let programs = ["mkfs.ext2", "mkfs.ext3", "mkfs.ext4"];
            let program = *rng.pick(&programs);
            let set = Set {
                program,
                // The table's sets live as long as the program; so do these few.
                switches: String::leak(words),
                extended: "",
                kib: match rng.below(3) {
                    0 => rng.range(30, 600),
                    1 => rng.range(600, 40_000),
                    _ => rng.range(40_000, 8_000_000),
                },
                // Small groups cut the journal into many extents.
                allowed: Allowed::OldExtents,
                then: Then::Compare,
            };
            let (ours, theirs) = self.both(&set)?;
            match (ours.code(), theirs.code()) {
                (0, 0) => {
                    images::compare(&self.image("ours"), &self.image("theirs"), set.allowed)
                        .with_context(|| line(&set))?;
                    check(&self.image("ours")).with_context(|| line(&set))?;
                    alike += 1;
                }
                (0, _)
                    if TOO_FEW_INODES
                        .iter()
                        .any(|line| theirs.stderr.contains(line)) =>
                {
                    check(&self.image("ours")).with_context(|| line(&set))?;
                }
                (1, 1) => refused += 1,
                (a, b) => bail!(
                    "{}: finefs ended with {a}, mke2fs with {b}\n{}{}",
                    line(&set),
                    ours.stderr,
                    theirs.stderr
                ),
            }
        }
        Ok(format!("{alike} alike, {refused} refused by both"))
    }

    /// A loop device full of ones: what must be zeros is.
    fn device(&self) -> Result<String> {
        let file = self.image("device");
        let bytes = vec![0xff; 64 << 20];
        std::fs::write(&file, &bytes)?;
        let attached = run::ok(run::cmd("losetup", ["--find", "--show"]).arg(&file))?;
        let device = attached.stdout.trim().to_owned();
        let made = (|| {
            for extended in ["discard", "nodiscard", "nodiscard,lazy_itable_init=0"] {
                std::fs::write(&device, &bytes)?;
                let mut command = run::cmd(&self.finefs, ["mkfs", "-q", "-F", "-E", extended]);
                run::ok(command.arg(&device))?;
                check(Path::new(&device))?;
            }
            Ok(())
        })();
        run::ok(&mut run::cmd("losetup", ["-d", &device]))?;
        std::fs::remove_file(&file)?;
        made.map(|()| "3 ways".to_owned())
    }
}

fn random_switches(rng: &mut Rng) -> String {
    let mut words = Vec::new();
    if rng.percent(60) {
        words.push(format!("-b {}", 1024 << rng.below(7)));
    }
    if rng.percent(20) {
        words.push(format!("-I {}", 128 << rng.below(4)));
    }
    if rng.percent(20) {
        words.push(format!("-N {}", rng.range(12, 40_000)));
    }
    if rng.percent(20) {
        words.push(format!("-g {}", 8 * rng.range(32, 1025)));
    }
    if rng.percent(20) {
        words.push(format!("-m {}", rng.below(51)));
    }
    let features = [
        "",
        "^resize_inode",
        "^flex_bg",
        "sparse_super2",
        "meta_bg,^resize_inode",
        "^has_journal",
        "metadata_csum,^flex_bg",
        "^metadata_csum,uninit_bg",
    ];
    let features = *rng.pick(&features);
    if !features.is_empty() {
        words.push(format!("-O {features}"));
    }
    words.join(" ")
}

fn check(image: &Path) -> Result<()> {
    let mut command = run::cmd(tools::program("e2fsck"), ["-fn"]);
    run::ok(command.arg(image)).map(drop)
}

/// Writes until nothing fits any more.
fn fill(dir: &Path) -> Result<()> {
    let piece = vec![0x5a; 64 << 10];
    let mut file = File::create(dir.join("filler"))?;
    let mut length = piece.len();
    while length > 0 {
        match file.write(&piece[..length]) {
            Ok(0) => bail!("nothing was written, and no error"),
            Ok(_) => {}
            // What is left is less than that.
            Err(error) if error.kind() == ErrorKind::StorageFull => length /= 2,
            Err(error) => return Err(error.into()),
        }
    }
    file.sync_all()?;
    let room = rustix::fs::statvfs(dir)?;
    ensure!(room.f_bavail <= 2, "{} blocks are left", room.f_bavail);
    Ok(())
}
