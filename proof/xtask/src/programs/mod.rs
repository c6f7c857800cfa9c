//! `prove programs`: programs that people run, in a default mount of a fresh ext4 image.
//!
//! Each has a script, whose functions run one after the other in the mount, with the server killed
//! or another mount in between ([`Step`]). They tell what they found as the scripts of guests do
//! ([`crate::script`]). After each mount e2fsck and `finefs check` look at the image.
//!
//! | program | what it does |
//! |---|---|
//! | `git` | clones, commits, gc, worktrees; `git fsck` after each; `prove nfs` does the same |
//! | `cargo` | a crate built, run, tested, built again |
//! | `rsync` | a tree with all that files can have, twice: the second time nothing is transferred |
//! | `sqlite` | WAL mode; the writer killed, and the server |
//! | `inotify` | inotifywait sees what happens |
//! | `postgresql` (long) | pgbench; the database killed, and the server |
//! | `debootstrap` (long) | a Debian, and dpkg in it |
//! | `buildah` (long) | layers of containers, by overlayfs over the mount |
//!
//! Invariants:
//! 1. A script has namespaces of its own for processes, mounts and shared memory: with it goes what
//!    it has started or mounted, daemons too, before the mount is ended.
//! 2. A script knows nothing of the environment but PATH and proxies.

use crate::report::{self, Report};
use crate::schedule::CannotRun;
use crate::script::{FINISHED, FUNCTIONS, Script};
use crate::{kill, setup};
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::rng::Rng;
use finefs_harness::run;
use finefs_harness::server::{Kind, Mount, Server, What};
use finefs_harness::sets;
use finefs_harness::tools;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

mod repository;

pub(crate) use repository::{GIT, bundle};

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// The large ones too, whose packages are installed: PostgreSQL, debootstrap, buildah
    #[arg(long)]
    long: bool,
    /// Only these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// A part of a program's work.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// This function of the script, which must come to its end.
    Does(&'static str),
    /// This function, under which the server is killed once it is ready. Another mount follows.
    Killed(&'static str),
    /// The image is mounted anew.
    Remount,
}

/// A program.
#[derive(Debug)]
struct Program {
    name: &'static str,
    script: &'static str,
    image_mib: u64,
    /// Those of its mount; nearly all do without.
    options: &'static [&'static str],
    steps: &'static [Step],
    /// Of one step.
    limit: Duration,
    is_long: bool,
}

use Step::{Does, Killed, Remount};

const USUAL: Program = Program {
    name: "",
    script: "",
    image_mib: 1024,
    options: &[],
    steps: &[Does("work"), Remount, Does("again")],
    limit: Duration::from_secs(300),
    is_long: false,
};

const LARGE: Program = Program {
    image_mib: 4096,
    limit: Duration::from_secs(1800),
    is_long: true,
    ..USUAL
};

const PROGRAMS: &[Program] = &[
    Program {
        name: "git",
        script: GIT,
        steps: &[
            Does("clone"),
            Remount,
            Does("change"),
            Does("more"),
            Remount,
            Does("look"),
        ],
        ..USUAL
    },
    Program {
        name: "cargo",
        script: include_str!("cargo.sh"),
        ..USUAL
    },
    Program {
        name: "rsync",
        script: include_str!("rsync.sh"),
        ..USUAL
    },
    Program {
        name: "sqlite",
        script: include_str!("sqlite.sh"),
        steps: &[
            Does("begin"),
            Does("client_killed"),
            Killed("server_killed"),
            Does("sound"),
            Killed("server_killed"),
            Does("sound"),
        ],
        ..USUAL
    },
    Program {
        name: "inotify",
        script: include_str!("inotify.sh"),
        steps: &[Does("work")],
        ..USUAL
    },
    Program {
        name: "postgresql",
        script: include_str!("postgresql.sh"),
        // The database is another user's.
        options: &["allow_other"],
        steps: &[Does("work"), Killed("server_killed"), Does("after")],
        ..LARGE
    },
    Program {
        name: "debootstrap",
        script: include_str!("debootstrap.sh"),
        // apt's user works in there, and devices are made.
        options: &["allow_other", "suid", "dev"],
        ..LARGE
    },
    Program {
        name: "buildah",
        script: include_str!("buildah.sh"),
        options: &["suid", "dev"],
        ..LARGE
    },
];

/// How long after it is ready the server is killed, at most.
const KILL_WITHIN_MS: u64 = 600;
/// How long a script may go on without its server.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Runs the programs.
pub fn run(
    server: &Server,
    parent: &Path,
    options: &Options,
    seed: u64,
    report: &mut Report,
) -> Result<()> {
    for name in &options.only {
        let known: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        let is_known = known.contains(&&**name);
        ensure!(
            is_known,
            "no program {name:?}; there are: {}",
            known.join(", ")
        );
    }
    let is_chosen = |program: &&Program| match options.only.is_empty() {
        true => options.long || !program.is_long,
        false => options.only.iter().any(|name| name == program.name),
    };
    for program in PROGRAMS.iter().filter(is_chosen) {
        let name = format!("programs/{}", program.name);
        let started = Instant::now();
        let spinner = report::spinner(&name);
        let outcome = installed(program.name).and_then(|()| prove(program, server, parent, seed));
        spinner.finish_and_clear();
        let why = outcome
            .as_ref()
            .err()
            .and_then(|error| error.downcast_ref());
        match why {
            Some(CannotRun(why)) => report.skip(&name, &format!("skipped: {why}")),
            None => {
                report.outcome(&name, started.elapsed(), outcome);
            }
        }
    }
    Ok(())
}

/// Installs what the program needs.
fn installed(name: &str) -> Result<()> {
    match name {
        "postgresql" => setup::postgresql(),
        "debootstrap" => setup::these(&[("debootstrap", "debootstrap")]),
        "buildah" => {
            let packages = [("buildah", "buildah"), ("busybox", "busybox-static")];
            let installed = setup::these(&packages);
            installed.map_err(|error| CannotRun(format!("cannot be installed: {error:#}")).into())
        }
        _ => setup::packages_of(|program| match name {
            "git" => program == "git",
            "rsync" => ["rsync", "setfattr", "setfacl"].contains(&program),
            "sqlite" => program == "sqlite3",
            "inotify" => program == "inotifywait",
            _ => false,
        }),
    }
}

/// One program on an image of its own.
fn prove(program: &Program, server: &Server, parent: &Path, seed: u64) -> Result<String> {
    let scratch = Scratch::new_in(parent)?;
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
    let place = Place {
        image: scratch.path().join("image"),
        dir: scratch.subdir("mnt")?,
        outside: scratch.subdir("outside")?,
        settings: settings(program, &scratch)?,
        program,
        server,
    };
    sets::find("ext4")?.make_image(&place.image, program.image_mib)?;
    let mut rng = Rng::new(seed);
    let mut mount = place.mount()?;
    let mut checks = 0;
    for step in program.steps {
        let done = match *step {
            Does(function) => place.done(function),
            Killed(function) => {
                let pause = Duration::from_millis(rng.below(KILL_WITHIN_MS));
                mount = place.killed(mount, function, pause, &scratch)?;
                Ok(0)
            }
            Remount => {
                mount.unmount()?;
                sets::fsck(&place.image)?;
                mount = place.mount()?;
                Ok(0)
            }
        };
        checks += done.with_context(|| format!("{step:?}"))?;
    }
    mount.unmount()?;
    sets::fsck(&place.image)?;
    ensure!(checks > 0, "nothing was checked");
    Ok(format!("{checks} checks"))
}

/// What stands before a script.
fn settings(program: &Program, scratch: &Scratch) -> Result<String> {
    match program.name {
        "git" => {
            let (bundle, files) = bundle(scratch.path())?;
            Ok(format!("BUNDLE={} FILES={files}", bundle.display()))
        }
        "postgresql" => Ok("SCALE=5 SECONDS_OF_BENCH=15".into()),
        _ => Ok(String::new()),
    }
}

/// Where a program works.
struct Place<'a> {
    image: PathBuf,
    dir: PathBuf,
    outside: PathBuf,
    settings: String,
    program: &'a Program,
    server: &'a Server,
}

impl Place<'_> {
    fn mount(&self) -> Result<Mount> {
        let what = What::Image(&self.image);
        match self.server.kind {
            // It must be our child to be killed.
            Kind::Finefs => {
                let options = self.program.options;
                self.server.mount_in_foreground(what, &self.dir, options)
            }
            _ => self.server.mount(what, &self.dir, self.program.options),
        }
    }

    /// Starts a function of the script.
    fn start(&self, function: &str) -> Result<Script> {
        let text = [
            "exec 2>&1",
            FUNCTIONS,
            include_str!("functions.sh"),
            &self.settings,
            self.program.script,
            function,
            &format!("echo {FINISHED}"),
        ];
        let mut command = run::cmd("unshare", ["--mount", "--pid", "--ipc", "--fork"]);
        command.args(["--kill-child", "--mount-proc", "--", "sh", "-c"]);
        command.arg(text.join("\n")).current_dir(&self.dir);
        self.environment(&mut command)?;
        Script::start(&mut command)
    }

    /// Everything that the script knows of this machine.
    fn environment(&self, command: &mut Command) -> Result<()> {
        command.env_clear();
        let mut path: Vec<PathBuf> = cargo_dir().into_iter().collect();
        path.extend(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ));
        path.extend(["/usr/sbin".into(), "/sbin".into()]);
        command.env("PATH", std::env::join_paths(path)?);
        for (name, value) in std::env::vars_os() {
            let is_proxy = name.to_string_lossy().to_lowercase().ends_with("_proxy");
            if is_proxy {
                command.env(name, value);
            }
        }
        command.env("LC_ALL", "C").env("HOME", &self.outside);
        command.env("OUT", self.outside.join("out"));
        command
            .env("OUTSIDE", &self.outside)
            .env("PLACE", &self.dir);
        Ok(())
    }

    /// Runs a function to its end; how much it has checked.
    fn done(&self, function: &str) -> Result<usize> {
        let mut script = self.start(function)?;
        let ended = script.wait_for(FINISHED, self.program.limit);
        let why = script.said("SKIPPED ");
        if !why.is_empty() {
            return Err(CannotRun(why.trim_end().to_owned()).into());
        }
        ended?;
        let checks = script.checks();
        ensure!(!script.end(END_LIMIT)?, "it does not end");
        Ok(checks)
    }

    /// Kills the server under a function, looks at what is left, and mounts it again. By another
    /// server than finefs only the script is killed.
    fn killed(
        &self,
        mount: Mount,
        function: &str,
        pause: Duration,
        scratch: &Scratch,
    ) -> Result<Mount> {
        let mut script = self.start(function)?;
        script.wait_for("READY", self.program.limit)?;
        std::thread::sleep(pause);
        if self.server.kind == Kind::Finefs {
            mount.kill()?;
            // It may have something to note.
            script.end(END_LIMIT)?;
            kill::e2fsck_copy(scratch, &self.image)?;
        } else {
            script.end(Duration::ZERO)?;
            mount.unmount()?;
        }
        self.mount()
    }
}

/// Where the compiler is that has built this program: root may have none.
fn cargo_dir() -> Option<PathBuf> {
    let built_by = Path::new(env!("CARGO"));
    let cargo = match built_by.exists() {
        true => Some(built_by.to_owned()),
        false => tools::which("cargo"),
    };
    Some(cargo?.parent()?.to_owned())
}
