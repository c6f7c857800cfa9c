//! `prove boot`: what finefs builds is a root file system that a kernel boots.
//!
//! A small Debian system, made of packages that are unpacked and not installed, is built into an
//! image: from its directory, and from a container image that umoci makes of it. A guest
//! ([`crate::guest`]) mounts the image as its root and goes on with the system's own programs:
//! every name, mode, owner and byte must be there. Then it works in it, and e2fsck and finefs look
//! at what it left.

use crate::guest::Guests;
use crate::report::Report;
use crate::setup;
use anyhow::{Context, Result, ensure};
use finefs_harness::run;
use finefs_harness::sets;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const MODULES: [&str; 3] = ["virtio_pci", "virtio_blk", "ext4"];
const START: &str = include_str!("boot/start.sh");
const INIT: &str = include_str!("boot/init.sh");
/// What the guest is to find, in the format of `init.sh`.
const SHAPE: &str = "find . -printf '%M 0:0 %y /%P %l\\n' | \
                     grep -v ' /\\(proof/shape\\|proc\\|sys\\|dev\\) $' | sort";
const SUMS: &str = "find . -type f ! -path './proof/*' -printf '/%P\\0' | sort -z | \
                    sed -z 's|^/||' | xargs -0 md5sum | sed 's|  |  /|'";

/// Runs the proofs.
pub fn run(finefs: &Path, parent: &Path, report: &mut Report) -> Result<()> {
    let guests = Guests::new(parent)?;
    let proof = Proof { guests, finefs };
    let tree = proof.tree()?;
    report.proof("boot/directory", || proof.boots(tree.as_os_str().to_str()));
    report.proof("boot/container image", || {
        let layout = proof.container_image(&tree)?;
        proof.boots(Some(&format!("oci:{}:latest", layout.display())))
    });
    Ok(())
}

struct Proof<'a> {
    guests: Guests,
    finefs: &'a Path,
}

impl Proof<'_> {
    /// The system with its first program, and lists of what is in it.
    fn tree(&self) -> Result<PathBuf> {
        let tree = self.guests.dir().join("tree");
        let system = setup::debian_system()?;
        run::ok(run::cmd("cp", ["-a"]).arg(system).arg(&tree))?;
        for dir in ["proof", "proc", "sys", "dev", "root"] {
            std::fs::create_dir_all(tree.join(dir))?;
        }
        let init = tree.join("sbin/init");
        std::fs::create_dir_all(init.parent().context("it is in a directory")?)?;
        std::fs::write(&init, INIT)?;
        std::fs::set_permissions(&init, Permissions::from_mode(0o755))?;
        for (name, command) in [("sums", SUMS), ("shape", SHAPE)] {
            let mut shell = run::cmd("sh", ["-c", command]);
            let listed = run::ok(shell.current_dir(&tree).env("LC_ALL", "C"))?.stdout;
            std::fs::write(tree.join("proof").join(name), listed)?;
        }
        Ok(tree)
    }

    /// The same as a container image of one layer.
    fn container_image(&self, tree: &Path) -> Result<PathBuf> {
        let layout = self.guests.dir().join("layout");
        let image = format!("{}:latest", layout.display());
        run::ok(run::cmd("umoci", ["init", "--layout"]).arg(&layout))?;
        run::ok(&mut run::cmd("umoci", ["new", "--image", &image]))?;
        let mut insert = run::cmd("umoci", ["insert", "--image", &image]);
        run::ok(insert.arg(tree).arg("/"))?;
        Ok(layout)
    }

    fn boots(&self, source: Option<&str>) -> Result<String> {
        let image = self.guests.dir().join("root.img");
        let mut build = run::cmd(self.finefs, ["build", "--quiet", "--force"]);
        build.args(["--owner", "0:0", "--free", "64M"]).arg(&image);
        run::ok(build.arg(source.context("the path is text")?))?;
        sets::fsck(&image)?;
        let archive = self.guests.pack("initrd", &MODULES, |root| {
            Ok(std::fs::write(root.join("init"), START)?)
        })?;
        let drive = format!("file={},format=raw,if=virtio", image.display());
        let arguments = ["-nic", "none", "-drive", &drive];
        let done = self.guests.boot(&archive, &arguments, "")?.finish()?;
        sets::fsck(&image)?;
        let note = format!("{}:/note", image.display());
        let note = run::ok(&mut run::cmd(self.finefs, ["cat", &note]))?.stdout;
        ensure!(note == "written by the guest\n", "the note is {note:?}");
        Ok(done)
    }
}
