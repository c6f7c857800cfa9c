//! The crash simulator as a program. `xtask prove crash` runs it; the module `crash` of the library
//! says what it does.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use finefs_sim::Limits;
use finefs_testkit::crash::base::{Base, PROFILES, Profile, Reach};
use finefs_testkit::crash::dbench;
use finefs_testkit::crash::faults;
use finefs_testkit::crash::judge::Effort;
use finefs_testkit::crash::lies;
use finefs_testkit::crash::mix;
use finefs_testkit::crash::report::Report;
use finefs_testkit::crash::single::{Lie, in_parallel, judge_all};
use finefs_testkit::crash::threads::{self, Shape, Work};
use finefs_testkit::crash::workload::{Generator, setup};

/// The kinds of workloads, in the order in which they run.
const KINDS: [&str; 10] = [
    "sequences of 1",
    "sequences of 2",
    "sequences of 3",
    "threads",
    "mail",
    "dbench",
    "records",
    "large files",
    FAILING,
    LYING,
];
const FAILING: &str = "failing device";
const LYING: &str = "lying device";

/// A part of the name of a kind of workloads. A typing error must not look like a run that found
/// nothing.
fn part_of_a_kind(part: &str) -> Result<String, String> {
    if KINDS.iter().any(|kind| kind.contains(part)) {
        Ok(part.to_owned())
    } else {
        Err(format!(
            "no kind contains it; there are: {}",
            KINDS.join(", ")
        ))
    }
}

/// Tries what crashes can leave of images, and counts what is wrong with it
#[derive(Parser, Debug)]
struct Options {
    /// Only these images; all without it
    #[arg(long, value_parser = PossibleValuesParser::new(PROFILES.iter().map(|profile| profile.name)))]
    image: Vec<String>,
    /// Only kinds of workloads whose names contain this
    #[arg(long, value_parser = part_of_a_kind)]
    only: Vec<String>,
    /// List the images and the kinds of workloads that are asked for, and do nothing
    #[arg(long)]
    list: bool,
    /// Same seed, same work
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// All workloads and many states, for hours
    #[arg(long)]
    long: bool,
    /// At most so many workloads of two and as many of three operations, by chance, for each image
    #[arg(long, default_value_t = usize::MAX)]
    most: usize,
    /// Every state goes through fsck
    #[arg(long)]
    fsck_all: bool,
    /// The superblock can be torn too
    #[arg(long)]
    torn_superblock: bool,
    /// The image is reached through an NBD server that serves requests in any order
    #[arg(long)]
    nbd: bool,
    /// Every flush is ignored: violations must be found
    #[arg(long)]
    without_flushes: bool,
    /// The flush before each commit block is ignored: violations must be found
    #[arg(long, conflicts_with = "without_flushes")]
    without_barrier: bool,
    /// Do not list examples of what is wrong
    #[arg(long)]
    quiet: bool,
    /// Write the counts into this file, as a table in Markdown
    #[arg(long)]
    table: Option<std::path::PathBuf>,
}

impl Options {
    fn lie(&self) -> Lie {
        match (self.without_flushes, self.without_barrier) {
            (true, _) => Lie::NoFlush,
            (_, true) => Lie::NoBarrierBeforeCommit,
            _ => Lie::None,
        }
    }

    /// Whether a kind of workloads is asked for.
    fn is_wanted(&self, kind: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| kind.contains(part.as_str()))
    }

    fn profiles(&self) -> Vec<&'static Profile> {
        let is_wanted = |profile: &&Profile| {
            self.image.is_empty() || self.image.iter().any(|name| name == profile.name)
        };
        PROFILES.iter().filter(is_wanted).collect()
    }

    /// The kinds of workloads that are asked for and make sense with such an image.
    fn kinds(&self, profile: &Profile) -> Vec<&'static str> {
        let makes_sense = |kind: &str| match kind {
            FAILING => profile.is_journaled && self.lie() == Lie::None,
            LYING => profile.is_journaled && profile.has_checksums && self.lie() == Lie::None,
            _ => true,
        };
        let mut kinds = KINDS.to_vec();
        kinds.retain(|kind| self.is_wanted(kind) && makes_sense(kind));
        kinds
    }

    /// An error unless there is something to do.
    fn check(&self) -> Result<(), String> {
        if self
            .profiles()
            .iter()
            .any(|profile| !self.kinds(profile).is_empty())
        {
            return Ok(());
        }
        Err(format!(
            "nothing to do: no workload of {:?} makes sense with the images {:?} and these devices",
            self.only, self.image
        ))
    }

    fn effort(&self, profile: &Profile) -> Effort {
        let (states, one_in) = match (profile.is_journaled, self.long) {
            // The sums of space do not tell what leaks.
            (true, _) if !profile.format.has_constant_totals() => (12, 60),
            (true, false) => (12, 150),
            (true, true) => (40, 100),
            // e2fsck repairs each of them.
            (false, false) => (3, 1),
            (false, true) => (12, 1),
        };
        Effort {
            limits: Limits {
                exhaustive_writes: match (profile.is_journaled, self.long) {
                    (true, false) => 3,
                    (true, true) => 6,
                    (false, _) => 1,
                },
                states,
                // A torn block of metadata is more than e2fsck can be asked to repair.
                unit_sectors: match profile.is_journaled {
                    true => 1,
                    false => profile.block_sectors,
                },
                whole_sectors: match self.torn_superblock {
                    true => 0..0,
                    false => profile.format.whole_sectors(),
                },
            },
            fsck_one_in: if self.fsck_all { 1 } else { one_in },
            recovery_one_in: 100,
            epochs: usize::MAX,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        for profile in options.profiles() {
            println!("{}: {}", profile.name, options.kinds(profile).join(", "));
        }
    }
    let outcome = options.check().and_then(|()| match options.list {
        true => Ok(None),
        false => run(&options).map(Some),
    });
    match outcome {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(report)) => {
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
    let mut rows = String::new();
    if options.is_wanted("dbench")
        && let Some(why) = &dbench::load().1
    {
        println!("a small load of our own is replayed instead of dbench's: {why}");
    }
    for profile in options.profiles() {
        sum.add(one_image(options, profile, &mut rows)?);
    }
    if let Some(path) = &options.table {
        let head = "| image | workloads | number | epochs | states | distinct | by fsck | \
                    during recovery | violations |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n";
        let all = row("all", "", &sum);
        std::fs::write(path, format!("{head}{rows}{all}"))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(sum)
}

fn row(image: &str, kind: &str, report: &Report) -> String {
    format!(
        "| {image} | {kind} | {} | {} | {} | {} | {} | {} | {} |\n",
        report.workloads,
        report.epochs,
        report.states,
        report.distinct,
        report.by_fsck,
        report.during_recovery,
        report.violated()
    )
}

/// All kinds of workloads on one kind of image; adds a row of the table for each.
fn one_image(options: &Options, profile: &Profile, rows: &mut String) -> Result<Report, String> {
    let mut base = Base::new(profile, &setup())?;
    let mut shared = Base::new(profile, &threads::setup())?;
    if options.nbd {
        (base.reach, shared.reach) = (Reach::Nbd, Reach::Nbd);
    }
    let generator = Generator::new(&base.model, &base.limits);
    let (long, seed) = (options.long, options.seed);
    let effort = &options.effort(profile);
    let few = |count: usize| {
        if profile.is_journaled {
            count
        } else {
            count / 10
        }
    };
    let sequences = |workloads: Vec<_>| judge_all(&base, &workloads, effort, options.lie(), seed);
    let runs = |work, count: usize, operations| {
        let shape = Shape {
            threads: match work {
                Work::Mail | Work::Large => 2,
                Work::Dbench => 3,
                Work::Anything | Work::Records => 4,
            },
            operations,
            work,
        };
        let effort = Effort {
            epochs: if long { 400 } else { few(60) },
            ..effort.clone()
        };
        let one = |number| {
            let seed = mix(seed ^ mix(number as u64));
            threads::judge_run(&shared, shape, &effort, options.lie(), seed)
        };
        // Each is several threads of its own.
        in_parallel(count, one)
    };
    let mut sum = Report::default();
    let kinds = options.kinds(profile);
    let mut kind = |name: &str, work: &dyn Fn() -> Report| {
        debug_assert!(KINDS.contains(&name), "{name}");
        if !kinds.contains(&name) {
            return;
        }
        let started = Instant::now();
        let report = work();
        let seconds = started.elapsed().as_secs_f64();
        println!("{:<15} {name:<16} {seconds:6.1} s  {report}", profile.name);
        for example in report.examples.iter().filter(|_| !options.quiet) {
            println!("  {:?}: {}", example.kind, example.text);
        }
        rows.push_str(&row(profile.name, name, &report));
        sum.add(report);
    };
    kind("sequences of 1", &|| {
        let mut all = generator.all(1);
        if !profile.is_journaled && !long {
            all = generator.sample(1, 12, seed);
        }
        sequences(all)
    });
    kind("sequences of 2", &|| {
        let all = match (long, profile.is_journaled) {
            (true, true) => {
                let all = generator.all(2);
                match all.len() > options.most {
                    true => generator.sample(2, options.most, seed),
                    false => all,
                }
            }
            (true, false) => generator.sample(2, 500.min(options.most), seed),
            (false, _) => generator.sample(2, few(400.min(options.most)), seed),
        };
        sequences(all)
    });
    kind("sequences of 3", &|| {
        let count = if long { 3000 } else { 200 };
        let count = count.min(options.most);
        sequences(generator.sample(3, few(count), mix(seed)))
    });
    let several = |many: usize| if long { many } else { 4 };
    kind("threads", &|| runs(Work::Anything, several(60), 60));
    kind("mail", &|| runs(Work::Mail, several(40), 150));
    let part = if long { 400 } else { 120 };
    kind("dbench", &|| runs(Work::Dbench, several(40), part));
    kind("records", &|| runs(Work::Records, several(40), 80));
    kind("large files", &|| {
        runs(Work::Large, if long { 20 } else { 2 }, 80)
    });
    kind(FAILING, &|| {
        let effort = Effort {
            epochs: 3,
            ..effort.clone()
        };
        let most = if long { usize::MAX } else { 24 };
        faults::judge_all(&base, &effort, most, seed)
    });
    kind(LYING, &|| {
        let most = if long { usize::MAX } else { 60 };
        lies::judge_all(&base, most, seed)
    });
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_is_found_by_its_name() {
        for profile in PROFILES {
            assert!(finefs_testkit::crash::base::profile(profile.name).is_some());
        }
        Options::parse_from(["finefs-crash", "--long", "--image", "ext3"]);
    }

    #[test]
    fn what_matches_nothing_is_refused_with_what_there_is() {
        let parsed = |args: &[&str]| {
            let args = std::iter::once(&"finefs-crash").chain(args);
            Options::try_parse_from(args).map_err(|error| error.to_string())
        };
        for (args, known) in [
            (["--image", "ext5"], PROFILES[0].name),
            (["--image", "ext"], PROFILES[1].name),
            (["--only", "mial"], "large files"),
        ] {
            let error = parsed(&args).expect_err("it matches nothing");
            assert!(error.contains(args[1]) && error.contains(known), "{error}");
        }
        let check = |args: &[&str]| parsed(args).unwrap().check();
        for args in [
            &["--image", "ext2", "--only", "lying"] as &[_],
            &["--only", "failing device", "--without-flushes"],
        ] {
            assert!(
                check(args).unwrap_err().contains("nothing to do"),
                "{args:?}"
            );
        }
        for args in [
            &[] as &[_],
            &["--image", "ext2", "--image", "ext4-1k", "--only", "lying"],
            &["--only", "sequences", "--without-barrier"],
        ] {
            assert_eq!(check(args), Ok(()), "{args:?}");
        }
    }
}
