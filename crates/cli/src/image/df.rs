//! `finefs df`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use serde::Serialize;

use super::session::{Context, Session, print_json};
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
        let head = match (self.inodes, self.human_readable) {
            (true, _) => ["Filesystem", "Inodes", "IUsed", "IFree", "IUse%"],
            (false, true) => ["Filesystem", "Size", "Used", "Avail", "Use%"],
            (false, false) if self.mebibytes => {
                ["Filesystem", "1M-blocks", "Used", "Available", "Use%"]
            }
            (false, false) if self.portability => {
                ["Filesystem", "1024-blocks", "Used", "Available", "Capacity"]
            }
            (false, false) => ["Filesystem", "1K-blocks", "Used", "Available", "Use%"],
        };
        let number = |bytes: u64| match (self.inodes, self.human_readable) {
            (true, false) => bytes.to_string(),
            (_, true) => text::human(bytes),
            (false, false) if self.mebibytes => bytes.div_ceil(1 << 20).to_string(),
            (false, false) => bytes.div_ceil(1024).to_string(),
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
