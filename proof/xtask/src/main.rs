//! `cargo run -p xtask --release -- COMMAND`: the project's own tasks and proofs. `--help` lists
//! them.

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand};
use finefs_harness::export::Storage;
use finefs_harness::fuse_ring::Transport;
use finefs_harness::programs::{self, FULL, QUICK};
use finefs_harness::server::{Kind, Server};
use finefs_harness::{cleanup, compare, sets, snapshot, tools};
use std::path::PathBuf;
use std::process::ExitCode;
use xtask::report::Report;
use xtask::{
    acl, bad_input, boot, build, ceph, crash, differential, encrypted, fsx, fuzz, images, kill,
    lock_teeth, memory, mkfs, nfs, package, pjdfstest, python, reiserfs, tsan, unprivileged,
};
use xtask::{check, demo, matrix, public_api, setup, soak, style, suite, teeth};

#[derive(Parser)]
#[command(about = "Tasks and proofs of finefs")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the proofs need and is missing
    Setup,
    /// Prove something in a mount
    Prove(Prove),
    /// Compare two trees: contents, modes, owners, times, xattrs, hard links, holes
    Compare {
        /// The tree that is right
        source: PathBuf,
        /// Its copy
        copy: PathBuf,
    },
    /// Check the rules of style over the whole workspace
    Style {
        /// Another workspace than this one
        #[arg(long)]
        root: Option<PathBuf>,
    },
    /// Compare what the published crates offer with the lists in proof/xtask/public-api
    PublicApi {
        /// Renew the lists
        #[arg(long)]
        update: bool,
    },
    /// Show finefs at work beside fuse2fs
    Demo(demo::Options),
    /// Format, lints, the tests beside the code, and a mount: for each change
    Check,
    /// Everything that `make test` runs
    Test(suite::Options),
    /// Known holes in what finefs is built of, by the RustSec database
    Advisories,
    /// A Debian package and a static binary, in target/package
    Package(package::Options),
    /// The Python package, in target/wheels
    Wheel,
    /// Fuzz the disk format, whole images and FUSE messages
    Fuzz(fuzz::Options),
    /// The inner part of a workload, in a process of its own
    #[command(subcommand, hide = true)]
    Worker(Worker),
}

#[derive(Subcommand)]
enum Worker {
    Storm {
        dir: PathBuf,
        worker: u64,
        seed: u64,
        operations: u64,
    },
    Many {
        dir: PathBuf,
        worker: u64,
        each: u64,
        phase: String,
    },
    Walk {
        dir: PathBuf,
    },
    Soak {
        dir: PathBuf,
        seed: u64,
        seconds: u64,
    },
    Unprivileged {
        source: PathBuf,
        mount: PathBuf,
    },
    Differential(differential::lockstep::Task),
}

#[derive(Args)]
struct Prove {
    /// Who serves the mounts
    #[arg(long, global = true, default_value = "finefs")]
    server: Kind,
    /// The finefs binary, where it is not target/release/finefs
    #[arg(long, global = true)]
    finefs: Option<PathBuf>,
    /// How requests reach finefs: found, through io_uring, through /dev/fuse, or by turns
    #[arg(long, global = true, default_value = "alternate")]
    transport: Transport,
    /// Where finefs finds the images that it mounts
    #[arg(long, global = true, default_value = "file")]
    storage: Storage,
    /// Where images and trees are made
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
    /// Same seed, same work
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    #[command(subcommand)]
    what: What,
}

impl Prove {
    fn server(&self) -> Result<Server> {
        let server = Server::new(self.server, self.finefs.as_deref())?;
        Ok(server
            .reached_by(self.transport)
            .with_images_on(self.storage))
    }
}

#[derive(Args)]
struct Chosen {
    /// Only these feature sets; all without it
    #[arg(long)]
    set: Vec<String>,
    /// Small sizes everywhere
    #[arg(long)]
    quick: bool,
}

#[derive(Subcommand)]
enum What {
    /// Every workload on every feature set
    Matrix {
        #[command(flatten)]
        chosen: Chosen,
        /// Only these workloads; all without it
        #[arg(long)]
        workload: Vec<String>,
    },
    /// List feature sets and workloads
    List,
    /// Show that the proofs fail when something is changed behind their back
    Teeth,
    /// ACLs beside the kernel's ext4, with several users
    Acl(acl::Options),
    /// The POSIX conformance tests
    Pjdfstest(pjdfstest::Options),
    /// Random reads, writes and truncates of one file, each checked
    Fsx(fsx::Options),
    /// Damaged and unusual images
    Images(images::Options),
    /// finefs mkfs beside mke2fs, byte by byte
    Mkfs(mkfs::Options),
    /// Wrong arguments and images that cannot be mounted
    BadInput,
    /// A mount by an ordinary user
    Unprivileged,
    /// The locks under the thread sanitizer
    Tsan,
    /// Tests of locks and syncs fail when a line is left out on which a protocol hangs
    LockTeeth(lock_teeth::Options),
    /// What crashes at any moment leave on an image, simulated
    Crash(crash::Options),
    /// Devices that fail or lie, one request at a time, simulated
    Faults(crash::FaultOptions),
    /// Random operations beside the kernel's ext4
    Differential(differential::Options),
    /// Mixed load for long on an image that is nearly full
    Soak(soak::Options),
    /// The server's memory under a limit, with more files than it can hold
    Memory(memory::Options),
    /// What is left when the server is killed at random moments
    Kill(kill::Options),
    /// Programs that people run: git, cargo, rsync, SQLite; PostgreSQL, Debian, containers
    Programs(xtask::programs::Options),
    /// The kernel's NFS client, in a guest, over a served image
    Nfs(nfs::Options),
    /// reiserfs images that a guest's kernel fills, as finefs and as that kernel shows them
    Reiserfs(reiserfs::Options),
    /// Images that finefs builds, as tar, mke2fs and the kernel see them
    Build(build::Options),
    /// Encrypted images by turns with a guest's kernel, which has more ciphers
    Encrypted,
    /// A guest boots what finefs builds
    Boot,
    /// An image on a cluster of Ceph, through qemu-nbd
    Ceph,
    /// One workload, by its name (see `list`)
    #[command(external_subcommand)]
    Workload(Vec<String>),
}

impl What {
    /// It mounts by the kernel, too.
    fn needs_root(&self) -> bool {
        !matches!(
            self,
            What::Images(_)
                | What::Tsan
                | What::LockTeeth(_)
                | What::Crash(_)
                | What::Faults(_)
                | What::Nfs(_)
                | What::Encrypted
        )
    }
}

#[derive(Parser)]
struct OneWorkload {
    name: String,
    #[command(flatten)]
    chosen: Chosen,
}

fn main() -> ExitCode {
    let outcome = run();
    cleanup::halt_if_interrupted();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let cli = Cli::parse();
    match cli.command {
        Task::Worker(Worker::Storm {
            dir,
            worker,
            seed,
            operations,
        }) => {
            return programs::storm_worker(&dir, worker, seed, operations);
        }
        Task::Worker(Worker::Many {
            dir,
            worker,
            each,
            phase,
        }) => {
            return programs::many_worker(&dir, worker, each, &phase);
        }
        Task::Worker(Worker::Soak { dir, seed, seconds }) => {
            return soak::worker(&dir, seed, seconds);
        }
        Task::Worker(Worker::Differential(task)) => return differential::lockstep::work(&task),
        Task::Worker(Worker::Walk { dir }) => return images::walk_worker(&dir),
        Task::Worker(Worker::Unprivileged { source, mount }) => {
            return unprivileged::worker(&source, &mount);
        }
        Task::Test(_) | Task::Check | Task::Demo(_) => {
            cleanup::install_signal_handler_with(cleanup::CLEANUP_LIMIT)?;
        }
        _ => cleanup::install_signal_handler()?,
    }
    match cli.command {
        Task::Setup => setup::run(),
        Task::Prove(options) => prove(options),
        Task::Compare { source, copy } => {
            let (a, b) = (
                snapshot::Snapshot::take(&source)?,
                snapshot::Snapshot::take(&copy)?,
            );
            let relation = compare::Relation::Copy(sets::TimeRange::Nanoseconds34Bit);
            compare::expect_equal(("source", &a), ("copy", &b), relation)?;
            println!("{} entries are equal", a.entries.len());
            Ok(())
        }
        Task::Style { root } => style::run(&root.unwrap_or_else(tools::workspace)),
        Task::PublicApi { update } => {
            println!("public API: {}", public_api::run(update)?);
            Ok(())
        }
        Task::Demo(options) => demo::run(&options),
        Task::Check => check::run(),
        Task::Test(options) => suite::run(&options),
        Task::Advisories => suite::deny(&["advisories"]).map(drop),
        Task::Package(options) => package::run(&options),
        Task::Wheel => python::wheel().map(|wheel| println!("{}", wheel.display())),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Worker(_) => Ok(()),
    }
}

fn prove(options: Prove) -> Result<()> {
    let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut report = Report::default();
    if let What::List = options.what {
        for set in sets::SETS {
            println!("set {:<18} mke2fs {}", set.name, set.mke2fs.join(" "));
        }
        for workload in programs::ALL {
            println!("workload {}", workload.name);
        }
        return Ok(());
    }
    ensure!(
        tools::is_root() || !options.what.needs_root(),
        "this proof mounts by the kernel too: run it as root"
    );
    let server = || options.server();
    let finefs = || tools::finefs(options.finefs.as_deref());
    match &options.what {
        What::Matrix { chosen, workload } => {
            run_matrix(&options, &parent, chosen, workload, &mut report)?;
        }
        What::Workload(args) => {
            let words = std::iter::once("workload".to_owned()).chain(args.iter().cloned());
            let one = OneWorkload::parse_from(words);
            run_matrix(&options, &parent, &one.chosen, &[one.name], &mut report)?;
        }
        What::Teeth => teeth::run(&parent, options.seed, &mut report)?,
        What::Acl(own) => acl::run(&server()?, &parent, own, &mut report)?,
        What::Pjdfstest(own) => pjdfstest::run(&server()?, &parent, own, &mut report)?,
        What::Fsx(own) => fsx::run(&server()?, &parent, own, &mut report)?,
        What::Images(own) => {
            images::run(&finefs()?, &parent, own, &mut report)?;
        }
        What::Mkfs(own) => {
            mkfs::run(&finefs()?, &parent, own, options.seed, &mut report)?;
        }
        What::BadInput => {
            bad_input::run(&finefs()?, &parent, &mut report)?;
        }
        What::Unprivileged => {
            unprivileged::run(&server()?, &parent, &mut report)?;
        }
        What::Tsan => tsan::run(&mut report),
        What::LockTeeth(own) => lock_teeth::run(own, &mut report)?,
        What::Crash(own) => crash::run(own, options.seed, &mut report)?,
        What::Faults(own) => crash::run_faults(own, options.seed, &mut report)?,
        What::Differential(own) => {
            differential::run(&server()?, &parent, own, options.seed, &mut report)?;
        }
        What::Soak(own) => soak::run(&server()?, &parent, own, options.seed, &mut report)?,
        What::Memory(own) => memory::run(&server()?, &parent, own, &mut report)?,
        What::Kill(own) => kill::run(&server()?, &parent, own, options.seed, &mut report)?,
        What::Programs(own) => {
            xtask::programs::run(&server()?, &parent, own, options.seed, &mut report)?;
        }
        What::Nfs(own) => nfs::run(&finefs()?, &parent, own, options.seed, &mut report)?,
        What::Reiserfs(own) => reiserfs::run(&finefs()?, &parent, own, &mut report)?,
        What::Build(own) => build::run(&finefs()?, &parent, own, &mut report)?,
        What::Encrypted => encrypted::run(&parent, &mut report)?,
        What::Boot => boot::run(&finefs()?, &parent, &mut report)?,
        What::Ceph => ceph::run(&server()?, &parent, options.seed, &mut report)?,
        What::List => {}
    }
    report.finish()
}

fn run_matrix(
    options: &Prove,
    parent: &std::path::Path,
    chosen: &Chosen,
    workloads: &[String],
    report: &mut Report,
) -> Result<()> {
    let own = matrix::Options {
        server: options.server()?,
        size: if chosen.quick { QUICK } else { FULL },
        parent: parent.to_owned(),
        seed: options.seed,
        tamper: None,
    };
    let sets = matrix::chosen_sets(&chosen.set)?;
    matrix::run(&own, &sets, &matrix::chosen_workloads(workloads)?, report)
}
