//! The crash simulator as a program. `xtask prove crash` runs it; the module `crash` of the library
//! says what it does.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use finefs_block::sim::Limits;
use finefs_testkit::crash::base::{Base, PROFILES, Profile};
use finefs_testkit::crash::judge::Effort;
use finefs_testkit::crash::report::Report;
use finefs_testkit::crash::single::{Lie, judge_all};
use finefs_testkit::crash::workload::{Generator, setup};

/// Tries what crashes can leave of ext images, and counts what is wrong with it
#[derive(Parser, Debug)]
struct Options {
    /// Only these images; all without it
    #[arg(long)]
    image: Vec<String>,
    /// Same seed, same work
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// All workloads and many states, for hours
    #[arg(long)]
    long: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(report) => {
            println!("{report}");
            ExitCode::from(u8::from(report.violated() > 0))
        }
        Err(text) => {
            eprintln!("finefs-crash: {text}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<Report, String> {
    let mut sum = Report::default();
    for profile in PROFILES {
        if options.image.is_empty() || options.image.iter().any(|name| name == profile.name) {
            sum.add(one_image(options, profile)?);
        }
    }
    Ok(sum)
}

fn one_image(options: &Options, profile: &Profile) -> Result<Report, String> {
    let base = Base::new(profile, &setup())?;
    let generator = Generator::new(&base.model, &base.limits);
    let mut sum = Report::default();
    let workloads = generator.all(1);
    let effort = Effort {
        limits: Limits {
            exhaustive_writes: 4,
            states: 20,
        },
        e2fsck_one_in: 50,
        recovery_one_in: 50,
        epochs: usize::MAX,
    };
    let started = Instant::now();
    let report = judge_all(&base, &workloads, effort, Lie::None, options.seed);
    println!(
        "{:<16} sequences of 1 {report} {:.1} s",
        profile.name,
        started.elapsed().as_secs_f64()
    );
    for example in &report.examples {
        println!("{:?}: {}", example.kind, example.text);
    }
    sum.add(report);
    Ok(sum)
}
