//! Programs of every day in a mount: tar, cp, grep, git, cargo, PostMark and rm on trees of small
//! files, on finefs with several options and on the kernel's ext4 by turns; what finefs is asked
//! meanwhile.
//!
//! All steps run one after the other on a fresh default ext4 image: what `tar x` wrote, the
//! following read back, and rm removes. Each is timed from the start of the program to its end;
//! making the image, mounting and unmounting are outside.

use crate::options::{Binary, ImageDir};
use crate::result::median;
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::fuse_ring::Transport;
use finefs_harness::run;
use finefs_harness::server::{Kind, What};
use finefs_harness::sets;
use finefs_harness::tree::{Plan, Tree};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::variant::{DEFAULT, Variant};

/// What is measured, and how often.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    binary: Binary,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Files of the tree
    #[arg(long, default_value_t = 8_000, value_parser = clap::value_parser!(u64).range(400..))]
    files: u64,
    /// Only these variants, by their names in the table
    #[arg(long)]
    variant: Vec<String>,
    /// Count by kind what a default mount is asked, too
    #[arg(long)]
    requests: bool,
    #[command(flatten)]
    images: ImageDir,
}

const IMAGE_MIB: u64 = 4096;
const MAX_FILE: u64 = 32 << 10;
const MAX_XATTR: usize = 100;
const SEED: u64 = 1;

/// In the order of the table, what the others are compared with last.
const VARIANTS: [Variant; 9] = [
    DEFAULT,
    Variant {
        name: "-o cpu_latency=off",
        options: &["cpu_latency=off"],
        ..DEFAULT
    },
    Variant {
        name: "-o cpu_latency=poll",
        options: &["cpu_latency=poll"],
        ..DEFAULT
    },
    Variant {
        name: "-o noxattr",
        options: &["noxattr"],
        ..DEFAULT
    },
    Variant {
        name: "-o writeback_cache",
        options: &["writeback_cache"],
        ..DEFAULT
    },
    Variant {
        name: "io_uring",
        transport: Transport::Ring,
        ..DEFAULT
    },
    Variant {
        name: "finefs --memory",
        is_in_memory: true,
        ..DEFAULT
    },
    Variant {
        name: "kernel's ext4",
        kind: Kind::Kernel,
        ..DEFAULT
    },
    Variant {
        name: "kernel's ext4, CPUs kept awake",
        kind: Kind::Kernel,
        is_kept_awake: true,
        ..DEFAULT
    },
];

/// What the programs work on, outside of the mounts.
struct Sources {
    tree: Tree,
    archive: PathBuf,
    repository: PathBuf,
    home: PathBuf,
}

/// A step: what it is called, what precedes it untimed, and the program.
struct Step {
    name: &'static str,
    prepare: Option<fn(&Sources, &Path) -> Result<()>>,
    command: fn(&Sources, &Path) -> Command,
}

const STEPS: [Step; 11] = [
    Step {
        name: "tar x",
        prepare: Some(|_, dir| Ok(std::fs::create_dir(dir.join("tar"))?)),
        command: |sources, dir| {
            let mut command = run::cmd("tar", ["-xpf"]);
            command.arg(&sources.archive).arg("-C").arg(dir.join("tar"));
            command
        },
    },
    Step {
        name: "grep -r",
        prepare: None,
        command: |_, dir| {
            // Found in no file, which is status 1.
            let line = "grep -r -q 'no such line' \"$0\"; [ $? = 1 ]";
            let mut command = run::cmd("sh", ["-c", line]);
            command.arg(dir.join("tar"));
            command
        },
    },
    Step {
        name: "tar c",
        prepare: None,
        command: |sources, dir| {
            let mut command = run::cmd("tar", ["-cf"]);
            command.arg(sources.home.join("out.tar"));
            command.arg("-C").arg(dir.join("tar")).arg(".");
            command
        },
    },
    Step {
        name: "cp -a",
        prepare: None,
        command: |sources, dir| {
            let mut command = run::cmd("cp", ["-a"]);
            command.arg(&sources.tree.root).arg(dir.join("cp"));
            command
        },
    },
    Step {
        name: "git clone",
        prepare: None,
        command: |sources, dir| {
            let mut command = sources.git(&["clone", "-q", "--no-hardlinks"]);
            command.arg(&sources.repository).arg(dir.join("clone"));
            command
        },
    },
    Step {
        name: "git status",
        prepare: None,
        command: |sources, dir| sources.git_in(&dir.join("clone"), &["status", "--porcelain"]),
    },
    Step {
        name: "git add",
        prepare: Some(|sources, dir| {
            run::ok(&mut sources.git_in(&dir.join("tar"), &["init", "-q"])).map(drop)
        }),
        command: |sources, dir| sources.git_in(&dir.join("tar"), &["add", "-A"]),
    },
    Step {
        name: "git commit",
        prepare: None,
        command: |sources, dir| sources.git_in(&dir.join("tar"), &["commit", "-q", "-m", "all"]),
    },
    Step {
        name: "cargo build",
        prepare: Some(|_, dir| make_crate(&dir.join("crate"))),
        command: |_, dir| {
            let mut command = run::cmd("cargo", ["build", "--quiet", "--offline"]);
            command.current_dir(dir.join("crate"));
            command.env_remove("CARGO_TARGET_DIR");
            command
        },
    },
    Step {
        name: "PostMark",
        prepare: Some(|_, dir| Ok(std::fs::create_dir(dir.join("postmark"))?)),
        command: |_, dir| {
            let program = std::env::current_exe().unwrap_or_else(|_| "finefs-bench".into());
            let mut command = Command::new(program);
            command.args(["postmark", "--number", "1000", "--transactions", "5000"]);
            command.arg("--dir").arg(dir.join("postmark"));
            command
        },
    },
    Step {
        name: "rm -r",
        prepare: None,
        command: |_, dir| {
            let mut command = run::cmd("rm", ["-r", "-f"]);
            command.arg(dir.join("cp"));
            command
        },
    },
];

/// A crate of some modules that needs no other.
fn make_crate(dir: &Path) -> Result<()> {
    const MODULES: usize = 40;
    let sources = dir.join("src");
    std::fs::create_dir_all(&sources)?;
    let manifest = "[package]\nname = \"everyday\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    std::fs::write(dir.join("Cargo.toml"), format!("{manifest}\n[workspace]\n"))?;
    let mut main = String::new();
    for module in 0..MODULES {
        let text = "pub fn sum(to: u64) -> u64 {\n    (0..to).sum()\n}\n";
        std::fs::write(sources.join(format!("part{module}.rs")), text)?;
        main += &format!("mod part{module};\n");
    }
    let calls = (0..MODULES).map(|module| format!("part{module}::sum(9)"));
    let sum = calls.collect::<Vec<_>>().join(" + ");
    main += &format!("\nfn main() {{\n    println!(\"{{}}\", {sum});\n}}\n");
    Ok(std::fs::write(sources.join("main.rs"), main)?)
}

impl Sources {
    fn make(scratch: &Scratch, files: u64) -> Result<Self> {
        let plan = Plan {
            files: usize::try_from(files)?,
            max_size: MAX_FILE,
            xattr_max: MAX_XATTR,
            seed: SEED,
        };
        let path = |name| scratch.path().join(name);
        let sources = Self {
            tree: Tree::make(&path("tree"), plan)?,
            archive: path("tree.tar"),
            repository: path("repository"),
            home: scratch.subdir("home")?,
        };
        let mut tar = run::cmd("tar", ["-cf"]);
        tar.arg(&sources.archive).arg("-C").arg(&sources.tree.root);
        run::ok(tar.arg("."))?;
        run::ok(
            run::cmd("cp", ["-r"])
                .arg(&sources.tree.root)
                .arg(&sources.repository),
        )?;
        for args in [
            &["init", "-q"][..],
            &["add", "-A"],
            &["commit", "-q", "-m", "all"],
        ] {
            run::ok(&mut sources.git_in(&sources.repository, args))?;
        }
        run::ok(&mut sources.git_in(&sources.repository, &["gc", "-q"]))?;
        Ok(sources)
    }

    /// git without the configuration of the machine or the user.
    fn git(&self, args: &[&str]) -> Command {
        let mut command = run::cmd("git", ["-c", "gc.auto=0", "-c", "user.name=bench"]);
        command
            .args(["-c", "user.email=bench@localhost"])
            .env("HOME", &self.home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .args(args);
        command
    }

    fn git_in(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = self.git(args);
        command.current_dir(dir);
        command
    }
}

/// Measures all and prints the tables.
pub fn run(options: &Options) -> Result<()> {
    let is_asked = |name: &str| {
        options.variant.is_empty() || options.variant.iter().any(|variant| variant == name)
    };
    let mut variants = Vec::new();
    for variant in VARIANTS.iter().filter(|variant| is_asked(variant.name)) {
        match variant.obstacle() {
            Some(obstacle) => eprintln!("left out: {}: {obstacle}", variant.name),
            None => variants.push(variant),
        }
    }
    ensure!(
        !variants.is_empty(),
        "none of {:?} can be measured",
        options.variant
    );
    let scratch = options.images.scratch()?;
    let sources = Sources::make(&scratch, options.files)?;
    let runs = options.rounds * variants.len() + usize::from(options.requests);
    let bar = ProgressBar::new((runs * STEPS.len()) as u64);
    let mut took = vec![vec![Vec::new(); STEPS.len()]; variants.len()];
    for round in 0..options.rounds {
        for turn in 0..variants.len() {
            // Each round begins with another.
            let which = (round + turn) % variants.len();
            let times = measure(options, &scratch, &sources, variants[which], &bar)?;
            for (all, time) in took[which].iter_mut().zip(times) {
                all.push(time.as_secs_f64());
            }
        }
    }
    let asked = match options.requests {
        true => Some(requests(options, &scratch, &sources, &bar)?),
        false => None,
    };
    bar.finish_and_clear();
    print(&variants, &took, options);
    asked.iter().for_each(print_requests);
    Ok(())
}

/// One run of all steps on a fresh image.
fn measure(
    options: &Options,
    scratch: &Scratch,
    sources: &Sources,
    variant: &Variant,
    bar: &ProgressBar,
) -> Result<Vec<Duration>> {
    let image = scratch.path().join("image");
    let _ = std::fs::remove_file(&image);
    sets::find("ext4")?.make_image(&image, IMAGE_MIB)?;
    let what = match variant.is_in_memory {
        true => What::Memory(IMAGE_MIB),
        false => What::Image(&image),
    };
    let _awake = variant.prepare()?;
    let server = options.binary.server(variant.kind)?;
    let server = server.reached_by(variant.transport);
    let mount = server.mount(what, &scratch.subdir("mnt")?, variant.options)?;
    let times = STEPS.iter().map(|step| {
        bar.inc(1);
        take(step, sources, mount.dir()).with_context(|| variant.name)
    });
    let times = times.collect::<Result<Vec<_>>>()?;
    mount.unmount()?;
    // The speed of something that damaged the image would be worth nothing.
    sets::fsck(&image)?;
    Ok(times)
}

fn take(step: &Step, sources: &Sources, dir: &Path) -> Result<Duration> {
    if let Some(prepare) = step.prepare {
        prepare(sources, dir).with_context(|| format!("before {}", step.name))?;
    }
    let output = run::ok(&mut (step.command)(sources, dir)).context(step.name)?;
    Ok(output.took)
}

/// What a mount was asked in each step: how many requests of which kind, most first.
type Asked = Vec<Vec<(String, u64)>>;

fn requests(
    options: &Options,
    scratch: &Scratch,
    sources: &Sources,
    bar: &ProgressBar,
) -> Result<Asked> {
    let (image, log) = (scratch.path().join("image"), scratch.path().join("log"));
    let _ = std::fs::remove_file(&image);
    sets::find("ext4")?.make_image(&image, IMAGE_MIB)?;
    let server = options.binary.server(Kind::Finefs)?.with_log(log.clone());
    let mount = server.mount(What::Image(&image), &scratch.subdir("mnt")?, &["debug"])?;
    let mut asked = Vec::new();
    let mut seen = 0;
    for step in &STEPS {
        if let Some(prepare) = step.prepare {
            prepare(sources, mount.dir())?;
            seen = std::fs::read(&log)?.len();
        }
        run::ok(&mut (step.command)(sources, mount.dir())).context(step.name)?;
        bar.inc(1);
        let text = std::fs::read_to_string(&log)?;
        asked.push(kinds(text.get(seen..).unwrap_or_default()));
        seen = text.len();
    }
    mount.unmount()?;
    Ok(asked)
}

/// The kinds of requests in a log made with `-o debug`.
fn kinds(log: &str) -> Vec<(String, u64)> {
    let mut counts = BTreeMap::<&str, u64>::new();
    for line in log.lines() {
        let kind = line.split_once(": debug: ").map(|(_, rest)| rest);
        let kind = kind.and_then(|rest| rest.split_once(" of node "));
        if let Some((kind, _)) = kind {
            *counts.entry(kind).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().map(|(k, n)| (k.to_owned(), n)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

fn print(variants: &[&Variant], took: &[Vec<Vec<f64>>], options: &Options) {
    println!(
        "Seconds on a tree of {} files, medians of {}; in brackets times those of the last row, \
         the median of the rounds'.\n",
        options.files, options.rounds
    );
    let kernel = variants
        .iter()
        .rposition(|variant| variant.kind == Kind::Kernel);
    let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
    println!("| | {} |", names.join(" | "));
    println!("|---|{}", "---:|".repeat(STEPS.len()));
    for (which, variant) in variants.iter().enumerate() {
        let cells = took[which].iter().enumerate().map(|(step, times)| {
            let middle = median(times).unwrap_or(f64::NAN);
            let beside = kernel.filter(|kernel| *kernel != which).and_then(|kernel| {
                let ratios = times.iter().zip(&took[kernel][step]);
                median(
                    &ratios
                        .map(|(time, kernel)| time / kernel)
                        .collect::<Vec<_>>(),
                )
            });
            match beside {
                Some(ratio) => format!(" {middle:.2} ({ratio:.1}) |"),
                None => format!(" {middle:.2} |"),
            }
        });
        println!("| {} |{}", variant.name, cells.collect::<String>());
    }
    print_default(variants, took);
}

/// What the default takes beside the fastest of the other options, and beside memory.
fn print_default(variants: &[&Variant], took: &[Vec<Vec<f64>>]) {
    let is_default = |variant: &Variant| variant.name == DEFAULT.name;
    let Some(default) = variants.iter().position(|variant| is_default(variant)) else {
        return;
    };
    let others = |is_in_memory: bool| {
        let others = variants.iter().enumerate().filter(move |(_, variant)| {
            variant.kind == Kind::Finefs
                && variant.is_in_memory == is_in_memory
                && !is_default(variant)
        });
        others.map(|(which, _)| which).collect::<Vec<_>>()
    };
    for (name, others) in [
        ("finefs / the fastest options", others(false)),
        ("finefs / --memory", others(true)),
    ] {
        let cells = (0..STEPS.len()).map(|step| {
            let middle = |which: usize| median(&took[which][step]).unwrap_or(f64::NAN);
            let best = others.iter().map(|which| middle(*which));
            let best = best.min_by(f64::total_cmp).unwrap_or(f64::NAN);
            format!(" {:.2} |", middle(default) / best)
        });
        println!("| {name} |{}", cells.collect::<String>());
    }
}

fn print_requests(asked: &Asked) {
    println!("\n| | requests | of these |\n|---|---:|---|");
    for (step, kinds) in STEPS.iter().zip(asked) {
        let all: u64 = kinds.iter().map(|(_, count)| count).sum();
        let list: Vec<_> = kinds
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        println!("| {} | {all} | {} |", step.name, list.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_kind() {
        let log = "2026-01-01T00:00:00Z finefs[7]: debug: lookup of node 1 by process 8: Ok(128)\n\
                   2026-01-01T00:00:00Z finefs[7]: debug: write of node 2 by process 8: Ok(8)\n\
                   2026-01-01T00:00:00Z finefs[7]: warning: something else\n\
                   2026-01-01T00:00:01Z finefs[7]: debug: write of node 2 by process 8: Ok(8)\n";
        let expected = [("write".to_owned(), 2), ("lookup".to_owned(), 1)];
        assert_eq!(kinds(log), expected);
    }
}
