//! `finefs build`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use finefs::MasterKey;
use finefs_image::build::{self, Added, Free, Mapped, Owner, Owners, Platform, Rules, Source};
use finefs_image::{Address, Images};
use serde::Serialize;

use crate::destination::Destination;
use crate::image::building::{say_left_out, watched};
use crate::image::members::Excluded;
use crate::image::{copying, stop, text};
use crate::journals::Journals;
use crate::mke2fs::Besides;
use crate::switches::{Switches, Whose, time_from_environment};
use crate::{CliResult, Failure, accounts, keys, output, size};

/// Make an image of directories, archives and container images, later ones over earlier ones
///
/// The image is made beside its place and renamed when it is whole; a block device or partition is
/// filled. It is as large as its files need, and the same bytes each time that it is built of the
/// same files: UUID and time follow from them, and times of access are those of the last change.
#[derive(Args)]
pub(crate) struct Build {
    /// The image to make, or a block device or partition (IMAGE@p2, with --force), or - for
    /// standard output; with --onto also IMAGE:/PATH
    image: PathBuf,
    /// Directories, tar archives (plain or compressed by gzip, zstd or xz), - for standard input,
    /// container images (oci:DIR, oci-archive:FILE, docker-archive:FILE, docker://REFERENCE),
    /// squashfs images, and lists of files (list:FILE, as composefs-dump(5) has them)
    #[arg(required = true)]
    source: Vec<PathBuf>,
    /// The size: bytes, or with k, m, g, t; as large as it must be without it
    #[arg(long, value_parser = size::bytes)]
    size: Option<u64>,
    /// Space that is left for more: bytes, or with k, m, g, t, or % of what the files take
    #[arg(long, value_name = "SIZE", value_parser = free, default_value = "0")]
    #[arg(conflicts_with = "size")]
    free: Free,
    /// Whose everything is: numbers, or names of this machine; without one of both that of the
    /// sources
    #[arg(long, value_name = "[USER][:GROUP]", value_parser = owner)]
    owner: Option<Owner>,
    /// Whose the root directory is
    #[arg(long, value_name = "[USER][:GROUP]", value_parser = owner)]
    root_owner: Option<Owner>,
    /// Users from FROM on become those from TO on; COUNT of them, 1 without it
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = mapped)]
    map_users: Vec<Mapped>,
    /// The same for groups
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = mapped)]
    map_groups: Vec<Mapped>,
    #[command(flatten)]
    excluded: Excluded,
    /// For what container images are to be, as linux/arm64; without it the only one there is, or
    /// that for this machine
    #[arg(long, value_name = "OS/ARCH")]
    platform: Option<Platform>,
    /// Label the files for SELinux as this file_contexts file says
    #[arg(long, value_name = "FILE")]
    file_contexts: Option<PathBuf>,
    /// What becomes of whiteouts of layers
    #[arg(long, value_enum, default_value = "applied")]
    whiteouts: Whiteouts,
    /// Put the sources into an image that is there, over the files that it has
    #[arg(long, conflicts_with_all = ["size", "free", "force", "seed", "defaults", "Switches"])]
    onto: bool,
    /// A key of encrypted files of images, in binary; may be given several times
    #[arg(long = "key", value_name = "FILE", value_parser = crate::keys::parser())]
    keys: Vec<MasterKey>,
    #[command(flatten)]
    journals: Journals,
    /// Replace an image that is there
    #[arg(short = 'F', long)]
    force: bool,
    /// UUID and hash seed come from this text instead of from the files
    #[arg(long, value_name = "TEXT")]
    seed: Option<String>,
    /// Whose default features ext4 has
    #[arg(long, value_enum, default_value = "debian")]
    defaults: Whose,
    /// Threads; without it one for each CPU, 8 at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// Say what was made as JSON, for scripts
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Say nothing
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    switches: Switches,
}

/// What becomes of whiteouts.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Whiteouts {
    /// They take away what container images have below, and are gone
    Applied,
    /// They are also kept as overlayfs has them, those of archives too: for a lower layer
    Overlayfs,
}

impl Build {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        let sources = self.source.iter().map(|path| Source::of(path));
        let sources: finefs_image::Result<Vec<Source>> = sources.collect();
        let sources = sources.map_err(Failure::new)?;
        let jobs = self.jobs.map_or_else(copying::jobs, usize::from);
        let mut rules = Rules {
            owners: Owners {
                all: self.owner.unwrap_or_default(),
                root: self.root_owner.unwrap_or_default(),
                users: self.map_users,
                groups: self.map_groups,
            },
            platform: self.platform,
            time_max: time_from_environment(false)?,
            file_contexts: self.file_contexts,
            choice: self.excluded.choice().map_err(Failure::new)?,
            keeps_whiteouts: self.whiteouts == Whiteouts::Overlayfs,
            keys: self.keys,
            journals: self.journals.paths,
            ..Rules::default()
        };
        if self.onto {
            let added = run_onto(&self.image, &sources, &rules, jobs)?;
            say_left_out(&added.left_out);
            say_notes(self.quiet, &added.image, &added.notes);
            tell(self.json, self.quiet, &added, &report_added(&added))?;
            return Ok(status(&added.left_out));
        }
        let mut besides = Besides::default();
        let names_reserved_blocks = self.switches.names_reserved_blocks();
        let mut file_system = self.switches.options(None, &mut besides)?;
        if besides.offset_bytes.is_some() {
            return Err(Failure::new("-E offset: an image is built from its start"));
        }
        file_system.defaults = self.defaults.into();
        file_system.seed = self.seed;
        file_system.time = rules.time_max;
        if !names_reserved_blocks {
            file_system.reserved_percent = 0.0;
        }
        if self.root_owner.is_none() && file_system.root_owner != (0, 0) {
            rules.owners.root = file_system.root_owner.into();
        }
        let options = build::Options {
            rules,
            file_system,
            is_repeatable: true,
            size_bytes: self.size,
            free: self.free,
            may_replace: self.force,
            jobs,
        };
        let destination = Destination::of(&self.image)?;
        let is_output = destination.is_output();
        if is_output && self.json {
            return Err(Failure::new("--json: standard output has the image"));
        }
        let built = run_to(destination, &sources, &options)?;
        let shown = match is_output {
            true => "standard output",
            false => &built.file_system.image,
        };
        say_notes(self.quiet, shown, &built.file_system.notes);
        if !is_output {
            tell(self.json, self.quiet, &built, &report(&built))?;
        }
        Ok(status(&built.left_out))
    }
}

/// Puts sources into an image that is there, with a progress bar.
fn run_onto(image: &Path, sources: &[Source], rules: &Rules, jobs: usize) -> CliResult<Added> {
    let address = Address::of_image(image.as_os_str());
    keys::tell_of(&rules.keys);
    let mut images = Images::new(None)
        .with_keys(rules.keys.clone())
        .with_journals(rules.journals.clone());
    let added =
        watched(&mut |progress| build::onto(&mut images, &address, sources, rules, jobs, progress));
    let closed = images.close();
    let added = added?.or_else(|error| give_up(error.to_string()))?;
    closed.map_err(Failure::new)?;
    Ok(added)
}

/// Says what was made, as it is wanted.
pub(crate) fn tell(
    as_json: bool,
    is_quiet: bool,
    made: &impl Serialize,
    report: &str,
) -> CliResult<()> {
    if as_json {
        let text = serde_json::to_string_pretty(made).map_err(Failure::new)?;
        output::print(&(text + "\n"))?;
    } else if !is_quiet {
        output::print(report)?;
    }
    Ok(())
}

/// Says what the user should know.
pub(crate) fn say_notes(is_quiet: bool, image: &str, notes: &[String]) {
    for note in notes.iter().filter(|_| !is_quiet) {
        output::say(format!("{image}: {note}"));
    }
}

/// Success where the image has all entries of its sources.
pub(crate) fn status(left_out: &[String]) -> ExitCode {
    match left_out.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Builds with a progress bar, and says what was left out. A signal ends the program.
pub(crate) fn run(
    image: &Path,
    sources: &[Source],
    options: &build::Options,
) -> CliResult<build::Built> {
    run_to(Destination::Named(image.to_owned()), sources, options)
}

fn run_to(
    destination: Destination,
    sources: &[Source],
    options: &build::Options,
) -> CliResult<build::Built> {
    let image = destination.path();
    let built = watched(&mut |progress| build::build(&image, sources, options, progress))?;
    let built = match built {
        Ok(built) => {
            destination.finish()?;
            built
        }
        Err(error) => {
            let reason = destination.shown(&error);
            drop(destination);
            give_up(reason)?
        }
    };
    say_left_out(&built.left_out);
    Ok(built)
}

/// Where a signal was the reason, that is the status of the program.
pub(crate) fn give_up<T>(reason: String) -> CliResult<T> {
    if stop::watch_signals()?.load(Ordering::Relaxed) {
        output::say(reason);
        std::process::exit(i32::from(stop::INTERRUPTED));
    }
    Err(Failure::new(reason))
}

fn report_added(added: &Added) -> String {
    format!(
        "{}: {} files with {} of data\n",
        added.image,
        added.files,
        text::human(added.data_bytes)
    )
}

/// What was made, in a line.
pub(crate) fn report(built: &build::Built) -> String {
    let made = &built.file_system;
    format!(
        "{}: {} of {}, {} files with {} of data, {} free, UUID {}\n",
        made.image,
        made.fs_type,
        text::human(made.size_bytes),
        built.files,
        text::human(built.data_bytes),
        text::human(made.free_blocks * u64::from(made.block_size)),
        made.uuid,
    )
}

fn free(text: &str) -> Result<Free, String> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent = percent
                .parse()
                .ok()
                .filter(|it| (0.0..=10_000.0).contains(it));
            let percent = percent.ok_or("not a percentage; give 10% for a tenth")?;
            Ok(Free::Percent(percent))
        }
        None => size::bytes(text).map(Free::Bytes),
    }
}

fn owner(text: &str) -> Result<Owner, String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    if user.is_empty() && group.is_empty() {
        return Err("give USER, USER:GROUP or :GROUP, as numbers or names".to_owned());
    }
    let one = |text: &str, what: &str, table: &str| match text {
        "" => Ok(None),
        text => {
            let found = accounts::number_of(text, table).filter(|id| *id != u32::MAX);
            let missing = || format!("there is no {what} '{text}' here; give a number");
            found.map(Some).ok_or_else(missing)
        }
    };
    Ok(Owner {
        user: one(user, "user", accounts::USERS)?,
        group: one(group, "group", accounts::GROUPS)?,
    })
}

fn mapped(text: &str) -> Result<Mapped, String> {
    let fields: Option<Vec<u32>> = text.split(':').map(id).collect();
    let (from, to, count) = match fields.as_deref() {
        Some([from, to]) => (*from, *to, 1),
        Some([from, to, count]) => (*from, *to, *count),
        _ => return Err("give numbers, FROM:TO or FROM:TO:COUNT".to_owned()),
    };
    let is_in_range = |start: u32| start.checked_add(count).is_some();
    match is_in_range(from) && is_in_range(to) {
        true => Ok(Mapped { from, to, count }),
        false => Err(format!("leads beyond {}, the highest number", u32::MAX - 1)),
    }
}

/// A number of a user or group; the highest means nobody to the system.
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_users_are_read() {
        let both = |user, group| Ok(Owner { user, group });
        assert_eq!(owner("0:5"), Ok((0, 5).into()));
        assert_eq!(owner("7"), both(Some(7), None));
        assert_eq!(owner("7:"), both(Some(7), None));
        assert_eq!(owner(":7"), both(None, Some(7)));
        assert_eq!(owner("root:root"), both(Some(0), Some(0)));
        for bad in ["", ":", "no such:0", "0:no such", "4294967295:0", "1:2:3"] {
            assert!(owner(bad).is_err(), "{bad}");
        }
        let range = |from, to, count| Ok(Mapped { from, to, count });
        assert_eq!(mapped("1000:0"), range(1000, 0, 1));
        assert_eq!(mapped("0:100000:65536"), range(0, 100_000, 65_536));
        assert!(mapped("1").is_err());
        // The highest number means nobody.
        assert_eq!(mapped("0:4294967290:5"), range(0, 4_294_967_290, 5));
        assert!(mapped("0:4294967290:6").is_err());
        assert!(mapped("4294967290:0:6").is_err());
    }

    #[test]
    fn space_to_leave_is_bytes_or_a_share() {
        assert_eq!(free("10m"), Ok(Free::Bytes(10 << 20)));
        assert_eq!(free("12.5%"), Ok(Free::Percent(12.5)));
        assert!(free("-1%").is_err());
        assert!(free("x").is_err());
    }
}
