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
//!
//! Of format 3.5 there is only an empty one: Linux 6.1 takes its directories for damaged (it asks
//! for 24 bytes an entry, where `.` and `..` have 35 together). `crates/reiser/tests` makes more
//! of it, with reiserfsck as the judge.

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
}

const BASE: Case = Case {
    name: "",
    mkfs: &[],
    options: "user_xattr,acl,attrs",
    mib: 64,
    files: 400,
    is_killed: false,
    is_short: false,
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
];

/// Images that finefs fills.
const WRITTEN: &[Case] = &[
    Case {
        name: "3.6",
        is_short: true,
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
];

/// Runs the proofs.
pub fn run(finefs: &Path, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let guests = Guests::new(parent)?;
    let proof = Proof { guests, finefs };
    for case in CASES.iter().filter(|case| options.long || case.is_short) {
        report.proof(&format!("reiserfs/{}", case.name), || {
            proof.case(case, options)
        });
    }
    for case in WRITTEN.iter().filter(|case| options.long || case.is_short) {
        report.proof(&format!("reiserfs/written/{}", case.name), || {
            proof.written(case)
        });
    }
    report.proof("reiserfs/3.5", || proof.empty(&["--format", "3.5"]));
    if options.long {
        report.proof("reiserfs/8192", || proof.empty(&["-b", "8192"]));
        report.proof("reiserfs/external", || proof.external());
    }
    Ok(())
}

struct Proof<'a> {
    guests: Guests,
    finefs: &'a Path,
}

impl Proof<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.guests.dir().join(name)
    }

    fn case(&self, case: &Case, options: &Options) -> Result<String> {
        let image = self.path("image");
        make(&image, case.mib, case.mkfs)?;
        self.fill(&image, case)?;
        if let Some(dir) = &options.keep {
            keep(&image, &dir.join(format!("{}.xz", case.name)))?;
        }
        let before = checksum(&image)?;
        let by_finefs = self.by_finefs(&image)?;
        ensure!(checksum(&image)? == before, "finefs has changed the image");
        let by_kernel = self.by_kernel(&image)?;
        same(&by_finefs, &by_kernel)?;
        Ok(format!("{} lines agree", by_kernel.lines().count()))
    }

    fn fill(&self, image: &Path, case: &Case) -> Result<()> {
        let ending = if case.is_killed { "killed" } else { "unmount" };
        self.guest_writes(
            image,
            case,
            &format!("ENDING={ending}\n{FILL}"),
            case.is_killed,
        )
    }

    /// A guest runs a script on an image; to the end, or until it is killed under way.
    fn guest_writes(&self, image: &Path, case: &Case, script: &str, is_killed: bool) -> Result<()> {
        let settings = settings(case, "/bin/busybox");
        let mut guest = self.guests.start(&Machine {
            modules: &MODULES,
            programs: &PROGRAMS,
            disks: &[image],
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
        let image = self.path("image");
        make(&image, case.mib, case.mkfs)?;
        let filled = self.finefs_writes(&image, case, "contents", false)?;
        let first = self.agreed(&image).context("as finefs has filled it")?;
        self.guest_writes(&image, case, GO_ON, true)?;
        self.agreed(&image).context("as the guest has left it")?;
        let changed = self.finefs_writes(&image, case, "change", true)?;
        let last = self
            .agreed(&image)
            .context("as the killed finefs has left it")?;
        // What is left is put in order by a mount that ends well.
        self.finefs_writes(&image, case, "ls", false)?;
        ensure!(
            self.agreed(&image)? == last,
            "a mount has changed something"
        );
        ensure!(filled.is_empty() && changed.is_empty(), "{filled}{changed}");
        Ok(format!(
            "{} and {} lines agree",
            first.lines().count(),
            last.lines().count()
        ))
    }

    /// Runs a function of the script in a mount by finefs; to the end, or until finefs is killed
    /// under way. What it complains of.
    fn finefs_writes(
        &self,
        image: &Path,
        case: &Case,
        what: &str,
        is_killed: bool,
    ) -> Result<String> {
        let dir = self.path("mnt");
        std::fs::create_dir_all(&dir)?;
        let server = Server::new(Kind::Finefs, Some(self.finefs))?;
        let settings = settings(case, &tools::program("busybox").display().to_string());
        let script = format!("{settings}{CONTENTS}{what} {}", dir.display());
        let mut command = run::cmd("busybox", ["sh", "-c", &script]);
        if is_killed {
            let mount = server.mount_in_foreground(What::Image(image), &dir, &["commit=1"])?;
            let writer = run::spawn(command.stdout(std::process::Stdio::null()))?;
            std::thread::sleep(UNTIL_KILL);
            mount.kill()?;
            drop(writer);
            return Ok(String::new());
        }
        let mount = server.mount(What::Image(image), &dir, &[])?;
        let wrote = run::ok(&mut command);
        mount.unmount()?;
        Ok(wrote?.stderr)
    }

    /// The manifest of an image, of which finefs and a guest's kernel show the same, and of which
    /// reiserfsck finds nothing when it has replayed the journal.
    fn agreed(&self, image: &Path) -> Result<String> {
        let by_finefs = self.by_finefs(image)?;
        let by_kernel = self.by_kernel(image)?;
        same(&by_finefs, &by_kernel)?;
        let copy = self.path("copy");
        run::ok(run::cmd("cp", ["--sparse=always"]).arg(image).arg(&copy))?;
        sets::reiserfsck(&copy)?;
        Ok(by_kernel)
    }

    /// The manifest of what finefs shows.
    fn by_finefs(&self, image: &Path) -> Result<String> {
        let dir = self.path("mnt");
        std::fs::create_dir_all(&dir)?;
        let server = Server::new(Kind::Finefs, Some(self.finefs))?;
        let mount = server.mount(What::Image(image), &dir, &["ro"])?;
        let script = format!("{MANIFEST}manifest {}", dir.display());
        let manifest = run::ok(&mut run::cmd("busybox", ["sh", "-c", &script]));
        mount.unmount()?;
        Ok(manifest?.stdout)
    }

    /// The manifest of what the guest's kernel shows of a copy.
    fn by_kernel(&self, image: &Path) -> Result<String> {
        let (copy, out) = (self.path("copy"), self.path("manifest"));
        run::ok(run::cmd("cp", ["--sparse=always"]).arg(image).arg(&copy))?;
        File::create(&out)?.set_len(MANIFEST_BYTES)?;
        let guest = self.guests.start(&Machine {
            modules: &MODULES,
            programs: &PROGRAMS,
            disks: &[&copy, &out],
            script: &format!("{MANIFEST}{LOOK}"),
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

    /// What no kernel can mount that there is (old directories, or blocks longer than its pages),
    /// as mkreiserfs leaves it.
    fn empty(&self, mkfs: &[&str]) -> Result<String> {
        let image = self.path("image");
        make(&image, 96, mkfs)?;
        self.list_empty(&image)
    }

    /// A journal on another device.
    fn external(&self) -> Result<String> {
        let (image, journal) = (self.path("image"), self.path("journal"));
        File::create(&journal)?.set_len(64 << 20)?;
        // The tool wants block devices.
        let attached = run::ok(run::cmd("losetup", ["--find", "--show"]).arg(&journal))?.stdout;
        let device = attached.trim();
        let made = make(&image, 64, &["-j", device]);
        run::ok(&mut run::cmd("losetup", ["--detach", device]))?;
        made?;
        self.list_empty(&image)
    }

    fn list_empty(&self, image: &Path) -> Result<String> {
        let listed = run::ok(run::cmd(self.finefs, ["ls", "-a"]).arg(image))?.stdout;
        ensure!(
            listed.split_whitespace().eq([".", ".."]),
            "ls shows {listed:?}"
        );
        let info = run::ok(run::cmd(self.finefs, ["info"]).arg(image))?.stdout;
        ensure!(info.contains("Access by finefs"), "info says {info}");
        Ok("an empty root".to_owned())
    }
}

/// What the scripts are told.
fn settings(case: &Case, source: &str) -> String {
    format!(
        "OPTIONS={}\nFILES={}\nSOURCE={source}\n",
        case.options, case.files
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
