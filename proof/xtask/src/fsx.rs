//! fsx: random reads, writes, mapped accesses and truncates of one file, each read checked.

use crate::report::Report;
use anyhow::{Result, bail};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;
use finefs_harness::tools;
use std::path::Path;

/// How fsx is run.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Operations of each run
    #[arg(long, default_value_t = 20_000)]
    pub operations: u64,
    /// Seeds, one run each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3])]
    pub seeds: Vec<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            operations: 20_000,
            seeds: vec![1, 2, 3],
        }
    }
}

/// Relative weights of the operations. Up to 1 MiB, so that indirect blocks and extents both come
/// into play. Without a msync after each mapped write, which would make it a test of fsync's speed;
/// fsync has its own small weight.
pub(crate) const CONFIG: &str = "flen = 1048576\nnomsyncafterwrite = true\n\
    [opsize]\nmax = 65536\n\
    [weights]\n\
    close_open = 1.0\ninvalidate = 1.0\nmapread = 10.0\nmapwrite = 10.0\nread = 10.0\nwrite = 10.0\n\
    truncate = 10.0\nfsync = 0.5\nfdatasync = 0.5\nposix_fallocate = 5.0\nsendfile = 2.0\n\
    posix_fadvise = 1.0\ncopy_file_range = 5.0\n";

/// On a memory mount, on ext4 with extents and with indirect blocks, and on reiserfs.
pub fn run(server: &Server, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let scratch = Scratch::new_in(parent)?;
    let config = scratch.path().join("fsx.toml");
    std::fs::write(&config, CONFIG)?;
    for on in [
        "memory",
        "ext4",
        "ext4-1k",
        "ext4-bigalloc",
        "ext4-indirect",
        sets::REISERFS,
    ] {
        if server.kind == Kind::Fuse2fs && ["memory", sets::REISERFS].contains(&on) {
            report.skip(
                &format!("fsx/fuse2fs/{on}"),
                "fuse2fs has no such file system",
            );
            continue;
        }
        report.proof(&format!("fsx/{}/{on}", server.kind), || {
            run_on(server, &scratch, &config, on, options)
        });
    }
    report.proof("fsx/an injected error fails", || {
        injected(&scratch, &config)
    });
    Ok(())
}

/// fsx can leave out one operation; when that is a write, a later read must notice.
fn injected(scratch: &Scratch, config: &Path) -> Result<String> {
    for step in 500..530 {
        let file = scratch.path().join(format!("injected{step}"));
        let step = step.to_string();
        match fsx(config, &file, 1, 2000, &["--inject", &step]) {
            Ok(()) => {}
            Err(error) if format!("{error}").contains("[ERROR fsx]") => {
                return Ok(format!("noticed that operation {step} was left out"));
            }
            Err(error) => return Err(error),
        }
    }
    bail!("fsx noticed none of 30 operations left out")
}

fn run_on(
    server: &Server,
    scratch: &Scratch,
    config: &Path,
    on: &str,
    options: &Options,
) -> Result<String> {
    let dir = scratch.subdir("mnt")?;
    let image = scratch.path().join("fsx.img");
    let what = if on == "memory" {
        What::Memory(256)
    } else {
        sets::make(on, &image, 256)?;
        What::Image(&image)
    };
    let mount = server.mount(what, &dir, &[])?;
    // Side by side, so that the mount has several at once.
    std::thread::scope(|scope| {
        let runs: Vec<_> = options
            .seeds
            .iter()
            .map(|seed| {
                let file = dir.join(format!("seed{seed}"));
                scope.spawn(move || fsx(config, &file, *seed, options.operations, &[]))
            })
            .collect();
        runs.into_iter()
            .try_for_each(|run| run.join().expect("a run does not panic"))
    })?;
    mount.unmount()?;
    if on != "memory" {
        sets::check(on, &image)?;
    }
    Ok(format!(
        "{} x {} operations",
        options.seeds.len(),
        options.operations
    ))
}

fn fsx(config: &Path, file: &Path, seed: u64, operations: u64, more: &[&str]) -> Result<()> {
    let (seed, operations) = (seed.to_string(), operations.to_string());
    let mut command = run::cmd(tools::tool("fsx")?, ["-S", &seed, "-N", &operations]);
    command.args(more).arg("-f").arg(config);
    // What fsx saves after a failure is of no use in a directory that is about to go.
    command
        .arg("-P")
        .arg(config.parent().unwrap_or(Path::new("/tmp")))
        .arg(file);
    run::ok(&mut command)?;
    Ok(())
}
