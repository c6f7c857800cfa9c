//! `prove reiserfs`: the kernel that still has reiserfs as the judge.
//!
//! Images are made by mkreiserfs and filled by a guest ([`crate::guest`]), some of which are killed
//! under way. Each is mounted by finefs, read-only, and then, a copy of it, by a guest: both make
//! the same manifest (names, attributes, checksums, extended attributes) by the same script, and
//! the manifests must be the same. finefs must not have changed a byte of the image.
//!
//! The other way round, finefs fills an image (`written/*`), a guest goes on with it and is killed,
//! finefs goes on with that and is killed; each time reiserfsck must find nothing, and both must
//! show the same.
//!
//! | image | what is in it |
//! |---|---|
//! | `3.6`, `3.6-killed` | everything; the latter must be replayed |
//! | `BYTES-HASH` | block sizes 512 to 8192, each with another hash of names |
//! | `notail`, `large` | no tails; a tree of many leaves |
//! | `journal` | a small journal (the third magic word), which goes round |
//! | `external` | a journal on another disk |
//! | `3.5`, `3.5-journal` | format 3.5, also with both journals |
//! | `converted` | format 3.5, which the kernel makes 3.6 when it goes on with it |
//!
//! Linux 6.1 takes directories of format 3.5 with short names for damaged (it asks for 24 bytes an
//! entry, where `.` and `..` have 35 together), also those that it has just made. So there finefs
//! makes all directories, none of which is ever empty, and all names are long. Where `.` and `..`
//! come to stand in a leaf without the other names, the proof is tried with another tree.

mod speed;

use crate::guest::{Guests, Machine};
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use finefs_harness::run;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;
use finefs_harness::tools;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// All images, not only one that has everything in it
    #[arg(long)]
    long: bool,
    /// Only proofs whose names hold this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Only measure dbench and PostMark in the guest, on reiserfs and ext4
    #[arg(long)]
    speed: bool,
    /// Put the images here, compressed, instead of removing them
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

const MODULES: [&str; 3] = ["virtio_pci", "virtio_blk", "reiserfs"];
const PROGRAMS: [&str; 5] = ["getfattr", "setfattr", "setfacl", "lsattr", "chattr"];
const MANIFEST: &str = include_str!("reiserfs/manifest.sh");
const CONTENTS: &str = include_str!("reiserfs/contents.sh");
const FILL: &str = include_str!("reiserfs/fill.sh");
const GO_ON: &str = include_str!("reiserfs/go_on.sh");
const LOOK: &str = include_str!("reiserfs/look.sh");
/// How long a guest changes things before it is killed.
const UNTIL_KILL: Duration = Duration::from_millis(2500);
/// Room for a manifest.
const MANIFEST_BYTES: u64 = 8 << 20;
/// Room for the usual journal, and more.
const JOURNAL_BYTES: u64 = 40 << 20;

/// An image.
struct Case {
    name: &'static str,
    mkfs: &'static [&'static str],
    options: &'static str,
    mib: u64,
    files: u32,
    is_killed: bool,
    /// It is always made.
    is_short: bool,
    /// The journal lies on another disk.
    has_own_disk: bool,
    /// What each name begins with.
    prefix: &'static str,
}

const BASE: Case = Case {
    name: "",
    mkfs: &[],
    options: "user_xattr,acl,attrs",
    mib: 64,
    files: 400,
    is_killed: false,
    is_short: false,
    has_own_disk: false,
    prefix: "",
};

/// Format 3.5, which has no attributes.
const OLD: Case = Case {
    mkfs: &["--format", "3.5"],
    options: "rw",
    prefix: "a-name-of-an-old-directory-",
    ..BASE
};

const CASES: &[Case] = &[
    Case {
        name: "3.6-killed",
        is_killed: true,
        is_short: true,
        ..BASE
    },
    Case {
        name: "3.6",
        ..BASE
    },
    Case {
        name: "512-tea",
        mkfs: &["-b", "512", "--hash", "tea"],
        ..BASE
    },
    Case {
        name: "1024-rupasov",
        mkfs: &["-b", "1024", "--hash", "rupasov"],
        ..BASE
    },
    Case {
        name: "2048-r5",
        mkfs: &["-b", "2048"],
        is_killed: true,
        ..BASE
    },
    Case {
        name: "notail",
        options: "user_xattr,acl,attrs,notail",
        ..BASE
    },
    Case {
        name: "large",
        mib: 192,
        files: 6000,
        ..BASE
    },
    Case {
        name: "journal",
        mkfs: &["-s", "600"],
        is_killed: true,
        ..BASE
    },
    Case {
        name: "external",
        has_own_disk: true,
        is_killed: true,
        ..BASE
    },
];

/// Images that finefs fills.
const WRITTEN: &[Case] = &[
    Case {
        name: "3.6",
        ..BASE
    },
    Case {
        name: "512-tea",
        mkfs: &["-b", "512", "--hash", "tea"],
        ..BASE
    },
    Case {
        name: "1024-rupasov",
        mkfs: &["-b", "1024", "--hash", "rupasov"],
        ..BASE
    },
    Case {
        name: "large",
        mib: 192,
        files: 6000,
        ..BASE
    },
    Case {
        name: "journal",
        mkfs: &["-s", "600"],
        ..BASE
    },
    Case {
        name: "external",
        has_own_disk: true,
        is_short: true,
        ..BASE
    },
    Case {
        name: "3.5",
        is_short: true,
        ..OLD
    },
    Case {
        name: "3.5-journal",
        mkfs: &[
            "--format", "3.5", "-b", "1024", "-s", "600", "--hash", "tea",
        ],
        has_own_disk: true,
        ..OLD
    },
    Case {
        name: "converted",
        options: "conv",
        ..OLD
    },
];

/// What Linux 6.1 says of `.` and `..` without other names, in format 3.5.
const SHORT_DIRECTORY: &str = "item entry count seems wrong *3.5*";

/// So many trees are tried.
const TREES_MAX: usize = 4;

/// Runs the proofs.
pub fn run(finefs: &Path, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let guests = Guests::new(parent)?;
    if options.speed {
        report.proof("reiserfs/speed", || speed::run(&guests));
        return Ok(());
    }
    let proof = Proof { guests, finefs };
    let mut prove = |name: &str, is_short: bool, prove: &dyn Fn() -> Result<String>| {
        let is_wanted = options.only.as_ref().is_none_or(|only| name.contains(only));
        if is_wanted && (options.long || is_short) {
            report.proof(name, prove);
        }
    };
    for case in CASES {
        let name = format!("reiserfs/{}", case.name);
        prove(&name, case.is_short, &|| proof.case(case, options));
    }
    for case in WRITTEN {
        let name = format!("reiserfs/written/{}", case.name);
        prove(&name, case.is_short, &|| proof.written_for_linux(case));
    }
    let old: &[&str] = &["--format", "3.5"];
    prove("reiserfs/3.5-empty", true, &|| proof.empty(old));
    prove("reiserfs/8192", false, &|| proof.empty(&["-b", "8192"]));
    Ok(())
}

struct Proof<'a> {
    guests: Guests,
    finefs: &'a Path,
}

/// A file system, and what its journal lies on where that is another.
struct Disks {
    image: PathBuf,
    journal: Option<PathBuf>,
}

impl Disks {
    fn all(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.image)
            .chain(&self.journal)
            .map(|path| &**path)
    }

    /// Makes the file system.
    fn make(&self, mib: u64, mkfs: &[&str]) -> Result<()> {
        let Some(path) = &self.journal else {
            return make(&self.image, mib, mkfs);
        };
        File::create(path)?.set_len(JOURNAL_BYTES)?;
        // The kernel wants the number of a device in the superblock.
        let attached = run::ok(run::cmd("losetup", ["--find", "--show"]).arg(path))?.stdout;
        let device = attached.trim();
        let made = make(&self.image, mib, &[mkfs, &["-j", device]].concat());
        run::ok(&mut run::cmd("losetup", ["--detach", device]))?;
        made
    }

    /// Copies of both.
    fn copy(&self, to: &Disks) -> Result<()> {
        for (from, to) in self.all().zip(to.all()) {
            run::ok(run::cmd("cp", ["--sparse=always"]).arg(from).arg(to))?;
        }
        Ok(())
    }

    fn checksums(&self) -> Result<String> {
        self.all().map(checksum).collect()
    }

    /// What a mount by finefs is told of it.
    fn options(&self) -> Vec<String> {
        let journal = self.journal.iter();
        journal
            .map(|path| format!("journal_path={}", path.display()))
            .collect()
    }

    /// reiserfsck must find nothing when it has replayed the journal.
    fn check(&self) -> Result<()> {
        sets::reiserfsck(&self.image, self.journal.as_deref())
    }
}

impl Proof<'_> {
    /// [`Proof::written`], again where Linux takes a directory of format 3.5 for damaged: see the
    /// head. How items lie in leaves depends on when commits came.
    fn written_for_linux(&self, case: &Case) -> Result<String> {
        for _ in 1..TREES_MAX {
            match self.written(case) {
                Err(error) if format!("{error:#}").contains(SHORT_DIRECTORY) => {}
                done => return done,
            }
        }
        self.written(case)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.guests.dir().join(name)
    }

    fn disks(&self, case: &Case, image: &str) -> Disks {
        let journal = case.has_own_disk.then(|| format!("{image}-journal"));
        Disks {
            image: self.path(image),
            journal: journal.map(|name| self.path(&name)),
        }
    }

    fn case(&self, case: &Case, options: &Options) -> Result<String> {
        let disks = self.disks(case, "image");
        disks.make(case.mib, case.mkfs)?;
        self.fill(&disks, case)?;
        if let Some(dir) = options.keep.as_ref().filter(|_| !case.has_own_disk) {
            keep(&disks.image, &dir.join(format!("{}.xz", case.name)))?;
        }
        let before = disks.checksums()?;
        let by_finefs = self.by_finefs(&disks)?;
        ensure!(disks.checksums()? == before, "finefs has changed the image");
        let by_kernel = self.by_kernel(&disks, case)?;
        same(&by_finefs, &by_kernel)?;
        Ok(format!("{} lines agree", by_kernel.lines().count()))
    }

    fn fill(&self, disks: &Disks, case: &Case) -> Result<()> {
        let ending = if case.is_killed { "killed" } else { "unmount" };
        self.guest_writes(
            disks,
            case,
            &format!("ENDING={ending}\n{FILL}"),
            case.is_killed,
        )
    }

    /// A guest runs a script on an image; to the end, or until it is killed under way.
    fn guest_writes(
        &self,
        disks: &Disks,
        case: &Case,
        script: &str,
        is_killed: bool,
    ) -> Result<()> {
        let settings = settings(case, "/bin/busybox", "/dev/vdb");
        let all: Vec<&Path> = disks.all().collect();
        let mut guest = self.guests.start(&Machine {
            modules: &MODULES,
            programs: &PROGRAMS,
            disks: &all,
            script: &format!("{settings}{CONTENTS}{script}"),
            ..Machine::default()
        })?;
        if is_killed {
            guest.wait_for("CHANGING")?;
            std::thread::sleep(UNTIL_KILL);
            guest.kill();
            return Ok(());
        }
        guest.finish().map(drop)
    }

    fn written(&self, case: &Case) -> Result<String> {
        let disks = self.disks(case, "image");
        disks.make(case.mib, case.mkfs)?;
        let filled = self.finefs_writes(&disks, case, "contents", false)?;
        let first = self
            .agreed(&disks, case)
            .context("as finefs has filled it")?;
        self.guest_writes(&disks, case, GO_ON, true)?;
        let second = self
            .agreed(&disks, case)
            .context("as the guest has left it")?;
        let changed = self.finefs_writes(&disks, case, "change", true)?;
        let last = self
            .agreed(&disks, case)
            .context("as the killed finefs has left it")?;
        ensure!(last != second, "the killed finefs has changed nothing");
        // What is left is put in order by a mount that ends well. The kernel has shown the same.
        self.finefs_writes(&disks, case, "ls", false)?;
        same(&self.by_finefs(&disks)?, &last).context("a mount has changed something")?;
        self.check_copy(&disks, case)?;
        ensure!(filled.is_empty() && changed.is_empty(), "{filled}{changed}");
        Ok(format!(
            "{} and {} lines agree",
            first.lines().count(),
            last.lines().count()
        ))
    }

    /// Runs a function of the script in a mount by finefs; to the end, or until finefs is killed
    /// under way. What the script complains of, until then.
    fn finefs_writes(
        &self,
        disks: &Disks,
        case: &Case,
        what: &str,
        is_killed: bool,
    ) -> Result<String> {
        let dir = self.path("mnt");
        std::fs::create_dir_all(&dir)?;
        let server = Server::new(Kind::Finefs, Some(self.finefs))?;
        let busybox = tools::program("busybox").display().to_string();
        let settings = settings(case, &busybox, "");
        let script = format!("{settings}{CONTENTS}{what} {}", dir.display());
        let mut command = run::cmd("busybox", ["sh", "-c", &script]);
        let mut options = disks.options();
        if is_killed {
            options.push("commit=1".to_owned());
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        if is_killed {
            let mount = server.mount_in_foreground(What::Image(&disks.image), &dir, &options)?;
            let complaints = self.path("complaints");
            command.stderr(File::create(&complaints)?);
            let writer = run::spawn(command.stdout(std::process::Stdio::null()))?;
            std::thread::sleep(UNTIL_KILL);
            let complaints = std::fs::read_to_string(complaints)?;
            mount.kill()?;
            drop(writer);
            return Ok(complaints);
        }
        let mount = server.mount(What::Image(&disks.image), &dir, &options)?;
        let wrote = run::ok(&mut command);
        mount.unmount()?;
        Ok(wrote?.stderr)
    }

    /// The manifest of an image, of which finefs and a guest's kernel show the same, and of which
    /// reiserfsck finds nothing when it has replayed the journal.
    fn agreed(&self, disks: &Disks, case: &Case) -> Result<String> {
        let by_finefs = self.by_finefs(disks)?;
        let by_kernel = self.by_kernel(disks, case)?;
        same(&by_finefs, &by_kernel)?;
        self.check_copy(disks, case)?;
        Ok(by_kernel)
    }

    /// reiserfsck, which replays the journal, judges a copy.
    fn check_copy(&self, disks: &Disks, case: &Case) -> Result<()> {
        let copy = self.disks(case, "copy");
        disks.copy(&copy)?;
        copy.check()
    }

    /// The manifest of what finefs shows.
    fn by_finefs(&self, disks: &Disks) -> Result<String> {
        let dir = self.path("mnt");
        std::fs::create_dir_all(&dir)?;
        let server = Server::new(Kind::Finefs, Some(self.finefs))?;
        let mut options = disks.options();
        options.push("ro".to_owned());
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mount = server.mount(What::Image(&disks.image), &dir, &options)?;
        let script = format!("{MANIFEST}manifest {}", dir.display());
        let manifest = run::ok(&mut run::cmd("busybox", ["sh", "-c", &script]));
        mount.unmount()?;
        Ok(manifest?.stdout)
    }

    /// The manifest of what the guest's kernel shows of a copy.
    fn by_kernel(&self, disks: &Disks, case: &Case) -> Result<String> {
        let (copy, out) = (self.disks(case, "copy"), self.path("manifest"));
        disks.copy(&copy)?;
        File::create(&out)?.set_len(MANIFEST_BYTES)?;
        let all = [&*copy.image, &*out].into_iter();
        let all: Vec<&Path> = all.chain(copy.journal.as_deref()).collect();
        let settings = settings(case, "/bin/busybox", "/dev/vdc");
        let guest = self.guests.start(&Machine {
            modules: &MODULES,
            programs: &PROGRAMS,
            disks: &all,
            script: &format!("{settings}{CONTENTS}{MANIFEST}{LOOK}"),
            ..Machine::default()
        })?;
        guest.finish()?;
        let mut bytes = Vec::new();
        File::open(&out)?.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let (length, manifest) = text.split_once('\n').context("there is a length")?;
        let length: usize = length.trim().parse()?;
        let manifest = manifest.trim_end_matches('\0');
        ensure!(manifest.len() >= length, "the guest's manifest is cut off");
        Ok(manifest.to_owned())
    }

    /// What no kernel can mount that there is (old directories with nothing in them, or blocks
    /// longer than its pages), as mkreiserfs leaves it.
    fn empty(&self, mkfs: &[&str]) -> Result<String> {
        let image = self.path("image");
        make(&image, 96, mkfs)?;
        let listed = run::ok(run::cmd(self.finefs, ["ls", "-a"]).arg(&image))?.stdout;
        ensure!(
            listed.split_whitespace().eq([".", ".."]),
            "ls shows {listed:?}"
        );
        let info = run::ok(run::cmd(self.finefs, ["info"]).arg(&image))?.stdout;
        ensure!(info.contains("read-write"), "info says {info}");
        Ok("an empty root".to_owned())
    }
}

/// What the scripts are told: where busybox is, and on which disk the guest finds the journal.
fn settings(case: &Case, source: &str, journal: &str) -> String {
    let journal = if case.has_own_disk { journal } else { "" };
    format!(
        "OPTIONS={}\nFILES={}\nP={}\nSOURCE={source}\nJOURNAL={journal}\n",
        case.options, case.files, case.prefix
    )
}

/// Makes an empty file system.
fn make(image: &Path, mib: u64, options: &[&str]) -> Result<()> {
    let _ = std::fs::remove_file(image);
    sets::make_reiserfs(image, mib, options)
}

fn checksum(image: &Path) -> Result<String> {
    Ok(run::ok(run::cmd("sha256sum", ["-b"]).arg(image))?.stdout)
}

/// Compresses an image into a file.
fn keep(image: &Path, to: &Path) -> Result<()> {
    let packed = std::process::Command::new("xz")
        .arg("-9ec")
        .arg(image)
        .output()?;
    ensure!(packed.status.success(), "xz fails");
    File::create(to)?.write_all(&packed.stdout)?;
    Ok(())
}

/// Fails with the first lines that differ.
fn same(by_finefs: &str, by_kernel: &str) -> Result<()> {
    let mut pairs = by_finefs.lines().zip(by_kernel.lines());
    if let Some((finefs, kernel)) = pairs.find(|(finefs, kernel)| finefs != kernel) {
        anyhow::bail!("finefs shows\n{finefs}\nthe kernel\n{kernel}");
    }
    let (finefs, kernel) = (by_finefs.lines().count(), by_kernel.lines().count());
    ensure!(
        finefs == kernel,
        "finefs shows {finefs} lines, the kernel {kernel}"
    );
    Ok(())
}
