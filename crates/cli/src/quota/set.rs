//! `finefs quota set` and `finefs quota grace`

use std::path::PathBuf;

use clap::Args;
use finefs::ImageOptions;
use finefs::front_end::namespace::ID_MAX;
use finefs_ext::QuotaKind;

use super::names::names;
use crate::journals::Journals;
use crate::quota_order::{Order, Owners, Setting};
use crate::target::{Target, disk_of};
use crate::{CliResult, Failure, size};

/// Set what a user, group or project may have, as setquota(8)
///
/// Of an image, or of what is mounted or served. A mount enforces limits, these too, with the
/// option usrquota, grpquota or prjquota.
#[derive(Args)]
pub(super) struct Set {
    #[command(flatten)]
    place: Place,
    /// The name, or the number
    #[arg(value_name = "NAME")]
    name: String,
    /// Space that it may have for long, in KiB or with K, M, G, T; 0 for any
    #[arg(value_name = "SOFT", value_parser = space)]
    soft: u64,
    /// Space that it may have at most
    #[arg(value_name = "HARD", value_parser = space)]
    hard: u64,
    /// Inodes that it may have for long, or with k, m, g for thousands and so on; 0 for any
    #[arg(value_name = "ISOFT", value_parser = inodes)]
    inodes_soft: u64,
    /// Inodes that it may have at most
    #[arg(value_name = "IHARD", value_parser = inodes)]
    inodes_hard: u64,
}

/// Set how long all may stay above their soft limits, as setquota(8) -t
#[derive(Args)]
pub(super) struct Grace {
    #[command(flatten)]
    place: Place,
    /// For space: seconds, or as 7days
    #[arg(value_name = "TIME", value_parser = grace)]
    space: u32,
    /// For inodes
    #[arg(value_name = "ITIME", value_parser = grace)]
    inodes: u32,
}

/// Where, and whose.
#[derive(Args)]
struct Place {
    /// The image, the directory that it is mounted at, or the address that it is served at
    #[arg(value_name = "IMAGE|DIR")]
    target: PathBuf,
    /// Of users; so it is without any of these
    #[arg(short, long, group = "owners")]
    user: bool,
    /// Of groups
    #[arg(short, long, group = "owners")]
    group: bool,
    /// Of projects
    #[arg(short = 'P', long, group = "owners")]
    project: bool,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::bytes)]
    offset: u64,
    #[command(flatten)]
    journals: Journals,
}

impl Set {
    pub(super) fn run(self) -> CliResult<()> {
        let id = self.place.id(&self.name)?;
        self.place.carry_out(Setting::Limits {
            id,
            space_soft: self.soft,
            space_hard: self.hard,
            inodes_soft: self.inodes_soft,
            inodes_hard: self.inodes_hard,
        })
    }
}

impl Grace {
    pub(super) fn run(self) -> CliResult<()> {
        self.place.carry_out(Setting::Grace {
            space: self.space,
            inodes: self.inodes,
        })
    }
}

impl Place {
    fn kind(&self) -> QuotaKind {
        match (self.group, self.project) {
            (true, _) => QuotaKind::Group,
            (_, true) => QuotaKind::Project,
            _ => QuotaKind::User,
        }
    }

    /// By number, or by name as this machine has it.
    fn id(&self, name: &str) -> CliResult<u32> {
        if let Ok(id) = name.parse() {
            return match id <= ID_MAX {
                true => Ok(id),
                false => Err(Failure::new(format!("{name}: nobody has this number"))),
            };
        }
        let known = names(self.kind());
        let id = known.into_iter().find(|(_, known)| known == name);
        id.map(|(id, _)| id).ok_or_else(|| {
            let (kind, file) = match self.kind() {
                QuotaKind::User => ("user", "/etc/passwd"),
                QuotaKind::Group => ("group", "/etc/group"),
                QuotaKind::Project => ("project", "/etc/projid"),
            };
            Failure::new(format!("{name}: no {kind} of {file}; give the number"))
        })
    }

    fn carry_out(&self, setting: Setting) -> CliResult<()> {
        let order = Order {
            owners: match self.kind() {
                QuotaKind::User => Owners::Users,
                QuotaKind::Group => Owners::Groups,
                QuotaKind::Project => Owners::Projects,
            },
            setting,
        };
        let place = self.target.display();
        let done = match Target::find(&self.target) {
            Ok(target) => target
                .channel()
                .and_then(|channel| channel.set_quota(&order)),
            // A directory is no image.
            Err(error) if self.target.is_dir() => return Err(error),
            Err(_) => self.on_image(&order)?,
        };
        done.map_err(|reason| Failure::new(format!("{place}: {reason}")))
    }

    /// For an image that nobody has open.
    fn on_image(&self, order: &Order) -> CliResult<Result<(), String>> {
        let (image, start) = disk_of(&self.target)?;
        let offset = start.unwrap_or(self.offset);
        let mut options = ImageOptions::new().offset_bytes(offset);
        if let Some(journal) = self.journals.path_for(&image, offset)? {
            options = options.journal(journal);
        }
        let opened = finefs::front_end::open_image(&image, options).map_err(Failure::new)?;
        let done = match opened.namespace.is_read_only() {
            false => order.apply(&opened.namespace),
            true => Err(opened.notes.join("; ")),
        };
        let closed = opened.namespace.shut_down();
        Ok(done.and_then(|()| closed.map_err(|error| error.to_string())))
    }
}

/// Space in units of 1024 bytes, as setquota has it.
fn space(text: &str) -> Result<u64, String> {
    let (number, exponent) = with_unit(text);
    let unit = 1024_u64.checked_pow(exponent.unwrap_or(1));
    let space = number.parse::<u64>().ok();
    let bytes = space
        .zip(unit)
        .and_then(|(space, unit)| space.checked_mul(unit));
    bytes.ok_or_else(|| "give KiB, or a number with K, M, G or T".to_owned())
}

fn inodes(text: &str) -> Result<u64, String> {
    let (number, exponent) = with_unit(text);
    let unit = 1000_u64.checked_pow(exponent.unwrap_or(0));
    let count = number.parse::<u64>().ok();
    let count = count
        .zip(unit)
        .and_then(|(count, unit)| count.checked_mul(unit));
    count.ok_or_else(|| "give a number, or one with k, m, g or t".to_owned())
}

/// A number, and the power that its unit stands for.
fn with_unit(text: &str) -> (&str, Option<u32>) {
    let unit = text
        .chars()
        .next_back()
        .map(|last| last.to_ascii_lowercase());
    let exponent = unit.and_then(|unit| "kmgt".find(unit));
    match exponent {
        Some(exponent) => (&text[..text.len() - 1], Some(exponent as u32 + 1)),
        None => (text, None),
    }
}

fn grace(text: &str) -> Result<u32, String> {
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => Some(seconds),
        Err(_) => humantime::parse_duration(text)
            .ok()
            .map(|time| time.as_secs()),
    };
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
    seconds.ok_or_else(|| "give seconds, or a time as 7days".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_setquota() {
        for (text, bytes) in [("0", 0), ("5", 5 << 10), ("5K", 5 << 10), ("2g", 2 << 30)] {
            assert_eq!(space(text), Ok(bytes), "{text}");
        }
        for (text, count) in [("7", 7), ("7k", 7000), ("1M", 1_000_000)] {
            assert_eq!(inodes(text), Ok(count), "{text}");
        }
        for text in ["", "k", "-1", "1.5g", "20000000000T"] {
            assert!(space(text).is_err() && inodes(text).is_err(), "{text}");
        }
        assert_eq!(grace("3600"), Ok(3600));
        assert_eq!(grace("7days"), Ok(604_800));
        assert!(grace("soon").is_err() && grace("5000000000").is_err());
    }
}
