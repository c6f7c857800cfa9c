//! A guest: Debian's kernel in qemu, without virtualisation, up in a few seconds.
//!
//! For what the kernel of this machine does not have (an NFS client, reiserfs), or what it must not
//! be asked to do. The guest has nothing but busybox, the modules and programs that it is given,
//! and a script, which tells on its console what it found ([`crate::script`]).

use crate::script::{FINISHED, FUNCTIONS, Script};
use crate::setup;
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run;
use finefs_harness::tools;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a guest may take, which has no processor of its own.
const GUEST_LIMIT: Duration = Duration::from_secs(900);
const POWER_OFF_LIMIT: Duration = Duration::from_secs(30);

/// What the guest runs first: file systems of the kernel, modules, network, script, end.
const INIT: &str = include_str!("guest/init.sh");

/// What a guest has.
#[derive(Debug, Default)]
pub struct Machine<'a> {
    /// Modules of its kernel, loaded in this order, what they need before them.
    pub modules: &'a [&'a str],
    /// Programs of this machine, by their names or paths, with their libraries.
    pub programs: &'a [&'a str],
    /// Files of this machine, and where the guest has them.
    pub files: &'a [(&'a Path, &'a str)],
    /// Disks: vda, vdb and so on. What the guest has written is in the file, also if it is killed.
    pub disks: &'a [&'a Path],
    /// Its processor, by qemu's name; the usual one where this is empty.
    pub cpu: &'a str,
    /// It reaches this machine as 10.0.2.2.
    pub has_network: bool,
    /// What it runs, by busybox's sh.
    pub script: &'a str,
}

/// What is needed to start guests.
pub struct Guests {
    kernel: setup::GuestKernel,
    scratch: Scratch,
}

/// A guest that runs.
pub struct Guest(Script);

impl Guests {
    /// With files in a directory of their own below `parent`.
    pub fn new(parent: &Path) -> Result<Guests> {
        Ok(Guests {
            kernel: setup::guest_kernel()?,
            scratch: Scratch::new_in(parent)?,
        })
    }

    /// A directory for what the guests work on; it is removed with this.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// Starts a guest that runs a script.
    pub fn start(&self, machine: &Machine<'_>) -> Result<Guest> {
        let archive = self.pack("initrd", machine.modules, |root| {
            for program in machine.programs {
                add_program(root, program)?;
            }
            for (file, place) in machine.files {
                add_file(root, file, place)?;
            }
            std::fs::write(root.join("script"), [FUNCTIONS, machine.script].concat())?;
            Ok(std::fs::write(root.join("init"), INIT)?)
        })?;
        let network = match machine.has_network {
            true => "user,model=virtio-net-pci",
            false => "none",
        };
        let mut arguments = vec!["-nic".to_owned(), network.to_owned()];
        if !machine.cpu.is_empty() {
            arguments.extend(["-cpu".to_owned(), machine.cpu.to_owned()]);
        }
        for disk in machine.disks {
            let disk = disk.display();
            arguments.push("-drive".to_owned());
            arguments.push(format!(
                "file={disk},format=raw,if=virtio,cache=writethrough"
            ));
        }
        self.boot(&archive, &arguments, "")
    }

    /// Packs what a guest starts from: busybox, the modules in their order, and what `fill` puts
    /// there, its first program `init` among it.
    pub fn pack(
        &self,
        name: &str,
        modules: &[&str],
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let root = self.scratch.path().join("root");
        if root.exists() {
            std::fs::remove_dir_all(&root)?;
        }
        for dir in ["bin", "proc", "sys", "dev", "mnt", "tmp", "modules"] {
            std::fs::create_dir_all(root.join(dir))?;
        }
        std::fs::copy(tools::program("busybox"), root.join("bin/busybox"))?;
        let mut order = Vec::new();
        for module in self.kernel.modules(modules)? {
            let name = module.file_name().context("a module is a file")?;
            let name = name.to_string_lossy().into_owned();
            std::fs::copy(&module, root.join("modules").join(&name))?;
            order.push(name);
        }
        std::fs::write(root.join("modules/order"), order.join("\n") + "\n")?;
        fill(&root)?;
        run::ok(run::cmd("chmod", ["755"]).arg(root.join("init")))?;
        let archive = self.scratch.path().join(name);
        let pack = format!("find . | busybox cpio -o -H newc > {}", archive.display());
        run::ok(run::cmd("sh", ["-c", &pack]).current_dir(&root))?;
        Ok(archive)
    }

    /// Starts a guest with these arguments of qemu; `told` stands on its kernel's command line.
    pub fn boot(
        &self,
        archive: &Path,
        arguments: &[impl AsRef<OsStr>],
        told: &str,
    ) -> Result<Guest> {
        let mut command = run::cmd("qemu-system-x86_64", ["-accel", "tcg", "-m", "384"]);
        command.args(["-nographic", "-no-reboot"]).args(arguments);
        command.arg("-kernel").arg(&self.kernel.image);
        command.arg("-initrd").arg(archive);
        command.arg("-append");
        // The kernel counts interrupts of the timer, and gives up where the machine is too busy.
        let usual = "console=ttyS0 quiet panic=-1 no_timer_check";
        command.arg(format!("{usual} {told}"));
        Ok(Guest(Script::start(&mut command)?))
    }
}

/// Copies a program into `bin`, and its libraries to where the loader looks for them.
fn add_program(root: &Path, name: &str) -> Result<()> {
    let program = tools::program(name);
    let name = program.file_name().context("a program is a file")?;
    std::fs::copy(&program, root.join("bin").join(name))?;
    for library in libraries_of(&program, &[])? {
        add_file(root, &library, &library.to_string_lossy())?;
    }
    Ok(())
}

/// Copies a file to where the guest has it.
fn add_file(root: &Path, file: &Path, place: &str) -> Result<()> {
    let to = root.join(place.trim_start_matches('/'));
    std::fs::create_dir_all(to.parent().context("a file is in a directory")?)?;
    std::fs::copy(file, to).with_context(|| file.display().to_string())?;
    Ok(())
}

/// The shared libraries of a program, the loader among them; they are looked for in `places` first.
pub fn libraries_of(program: &Path, places: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut command = run::cmd("ldd", [program]);
    command.env("LC_ALL", "C");
    command.env("LD_LIBRARY_PATH", std::env::join_paths(places)?);
    let listed = run::ok(&mut command)?.stdout;
    let paths = listed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with('/')).map(PathBuf::from)
    });
    Ok(paths.collect())
}

impl Guest {
    /// Reads on until a line says this.
    pub fn wait_for(&mut self, word: &str) -> Result<()> {
        self.0.wait_for(word, GUEST_LIMIT).context("a guest")
    }

    /// Ends it as a power failure does.
    pub fn kill(self) {
        drop(self.0);
    }

    /// Waits for the end; gives what the guest counted.
    pub fn finish(self) -> Result<String> {
        self.finish_with(|_| Ok(())).map(|(note, ())| note)
    }

    /// The same, and what is made of what the guest has said.
    pub fn finish_with<T>(mut self, made: impl FnOnce(&Guest) -> Result<T>) -> Result<(String, T)> {
        self.wait_for(FINISHED)?;
        let made = made(&self)?;
        let checks = self.checks();
        ensure!(checks > 0, "the guest checked nothing");
        self.end()?;
        Ok((format!("{checks} checks by the guest"), made))
    }

    /// Lines that it said behind this word.
    pub fn said(&self, word: &str) -> String {
        self.0.said(word)
    }

    /// What it has found good.
    pub fn checks(&self) -> usize {
        self.0.checks()
    }

    /// Waits until it is off.
    pub fn end(self) -> Result<()> {
        let timed_out = self.0.end(POWER_OFF_LIMIT)?;
        ensure!(!timed_out, "the guest does not power off");
        Ok(())
    }
}
