//! `finefs df`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use serde::Serialize;

use super::session::{Context, Session, print_json};
use super::units::Units;
use super::{Where, text};
use crate::CliResult;
use crate::output::print;

/// Show the space of images, as df(1)
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Df {
    /// The images
    #[arg(value_name = "IMAGE", required = true)]
    operands: Vec<OsString>,
    /// Sizes as 1.5K, 23M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Inodes
    #[arg(short, long)]
    inodes: bool,
    /// Sizes in KiB, as without it
    #[arg(short)]
    kibibytes: bool,
    /// Sizes in MiB
    #[arg(short, conflicts_with = "human_readable")]
    mebibytes: bool,
    /// Sizes in units of so many bytes, or with k, m, g
    #[arg(short = 'B', long, value_name = "SIZE",
          conflicts_with_all = ["human_readable", "kibibytes", "mebibytes"])]
    block_size: Option<Units>,
    /// Local file systems, which all of them are
    #[arg(short, long)]
    local: bool,
    /// As without it: what is in the image counts
    #[arg(long, overrides_with = "sync")]
    no_sync: bool,
    /// The same
    #[arg(long, overrides_with = "no_sync")]
    sync: bool,
    /// With the head lines that POSIX has
    #[arg(short = 'P', long)]
    portability: bool,
    /// The sum of all, too
    #[arg(long)]
    total: bool,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// The space of an image.
#[derive(Serialize)]
struct Space {
    image: String,
    block_size: u32,
    size_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    inodes: u64,
    inodes_used: u64,
    inodes_free: u64,
}

impl Df {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs df", &self.place);
        let mut spaces = Vec::new();
        for operand in &session.operands(&self.operands) {
            let at = session.read(operand);
            let Some(at) = session.check(at) else {
                continue;
            };
            let found = at.fs.statfs();
            let bytes = |blocks: u64| blocks * u64::from(found.block_size_bytes);
            spaces.push(Space {
                image: at.address.image.display().to_string(),
                block_size: found.block_size_bytes,
                size_bytes: bytes(found.blocks),
                used_bytes: bytes(found.blocks - found.blocks_free),
                free_bytes: bytes(found.blocks_free),
                available_bytes: bytes(found.blocks_available),
                inodes: found.inodes,
                inodes_used: found.inodes - found.inodes_free,
                inodes_free: found.inodes_free,
            });
        }
        if self.total && !self.json {
            spaces.push(sum(&spaces));
        }
        if self.json {
            print_json(&spaces)?;
        } else if !spaces.is_empty() {
            print(&self.table(&spaces))?;
        }
        session.end()
    }

    fn table(&self, spaces: &[Space]) -> String {
        let units = match &self.block_size {
            _ if self.human_readable => Units::Human,
            _ if self.mebibytes => Units::of(1 << 20),
            Some(units) => units.clone(),
            None => Units::of(1024),
        };
        let is_plain = self.portability && units == Units::of(1024);
        let title = match is_plain {
            true => "1024-blocks".to_owned(),
            false => units.title(),
        };
        let head = match (self.inodes, &units) {
            (true, _) => ["Filesystem", "Inodes", "IUsed", "IFree", "IUse%"],
            (false, Units::Human) => ["Filesystem", &title, "Used", "Avail", "Use%"],
            _ if self.portability => ["Filesystem", &title, "Used", "Available", "Capacity"],
            _ => ["Filesystem", &title, "Used", "Available", "Use%"],
        };
        let number = |bytes: u64| match (self.inodes, self.human_readable) {
            (true, false) => bytes.to_string(),
            (true, true) => text::human(bytes),
            (false, _) => units.shown(bytes),
        };
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(spaces.iter().map(|space| {
            let (all, used, free) = match self.inodes {
                true => (space.inodes, space.inodes_used, space.inodes_free),
                false => (space.size_bytes, space.used_bytes, space.available_bytes),
            };
            [
                space.image.clone(),
                number(all),
                number(used),
                number(free),
                percent(used, free),
            ]
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: [usize; 5] = std::array::from_fn(|column| width(column).unwrap_or(0));
        let line = |row: &[String; 5]| {
            let first = format!("{:<1$}", row[0], widths[0]);
            let rest = row.iter().zip(widths).skip(1);
            let rest: Vec<String> = rest
                .map(|(cell, width)| format!("{cell:>width$}"))
                .collect();
            format!("{first} {}\n", rest.join(" "))
        };
        rows.iter().map(line).collect()
    }
}

fn sum(spaces: &[Space]) -> Space {
    let all = |part: fn(&Space) -> u64| spaces.iter().map(part).sum();
    Space {
        image: "total".to_owned(),
        block_size: 0,
        size_bytes: all(|space| space.size_bytes),
        used_bytes: all(|space| space.used_bytes),
        free_bytes: all(|space| space.free_bytes),
        available_bytes: all(|space| space.available_bytes),
        inodes: all(|space| space.inodes),
        inodes_used: all(|space| space.inodes_used),
        inodes_free: all(|space| space.inodes_free),
    }
}

/// Rounded up, as df has it.
fn percent(used: u64, free: u64) -> String {
    match used + free {
        0 => "-".to_owned(),
        all => format!("{}%", (u128::from(used) * 100).div_ceil(u128::from(all))),
    }
}
