//! `finefs quota`
//!
//! A report opens the image for inspection only, as `finefs info` does; what a mount has not
//! written yet is written first. In another user's mount nobody but root can do either: everybody
//! asks the server for his own rows.

mod names;
mod own;
mod set;

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use finefs_block::Access;
use finefs_ext::{ExtOptions, ExtStore, QUOTA_REPAIR, QuotaEntry, QuotaKind, QuotaReport};
use serde::Serialize;

use self::names::names;
use crate::journals::Journals;
use crate::target::{disk_of, find};
use crate::{CliResult, Failure, output, size, sync};

/// Show what users, groups and projects have and may have, as repquota(8), and set it
///
/// Of an image that has the feature quota. In another user's mount you see what you and your groups
/// have, as quota(1) shows it.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Quota {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    report: Report,
}

#[derive(Subcommand)]
enum Action {
    Set(set::Set),
    Grace(set::Grace),
}

#[derive(Args)]
struct Report {
    /// The image, or the directory that it is mounted at; ./set and ./grace where it is called so
    #[arg(value_name = "IMAGE|DIR", required = true)]
    target: Option<PathBuf>,
    /// Users; without any of these all that the image keeps
    #[arg(short, long)]
    users: bool,
    /// Groups
    #[arg(short, long)]
    groups: bool,
    /// Projects
    #[arg(short = 'P', long)]
    projects: bool,
    /// Also those that have nothing
    #[arg(short, long)]
    verbose: bool,
    /// Numbers instead of names
    #[arg(short, long)]
    numeric: bool,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::bytes)]
    offset: u64,
    #[command(flatten)]
    journals: Journals,
}

/// One kind as scripts read it. Space in bytes, times in seconds.
#[derive(Serialize)]
struct Table {
    kind: &'static str,
    space_grace: u32,
    inode_grace: u32,
    entries: Vec<Record>,
}

#[derive(Serialize)]
struct Record {
    id: u32,
    name: Option<String>,
    space: u64,
    space_soft: u64,
    space_hard: u64,
    space_until: u64,
    inodes: u64,
    inodes_soft: u64,
    inodes_hard: u64,
    inodes_until: u64,
}

impl Quota {
    pub(crate) fn run(self) -> CliResult<()> {
        match self.action {
            Some(Action::Set(set)) => set.run(),
            Some(Action::Grace(grace)) => grace.run(),
            None => self.report.run(),
        }
    }
}

impl Report {
    fn run(self) -> CliResult<()> {
        let target = self.target.clone().unwrap_or_default();
        let tables: Vec<Table> = self
            .reports(&target)?
            .iter()
            .filter(|report| self.is_wanted(report.kind))
            .map(|report| self.table(report))
            .collect();
        if self.json {
            let text = serde_json::to_string_pretty(&tables).map_err(Failure::new)?;
            return output::print(&(text + "\n"));
        }
        let place = target.display().to_string();
        if tables.is_empty() {
            return Err(Failure::new(format!(
                "{place}: keeps no such quota; see tune2fs -O quota -Q"
            )));
        }
        for table in &tables {
            output::print(&table.text(&place))?;
        }
        Ok(())
    }

    fn reports(&self, target: &Path) -> CliResult<Vec<QuotaReport>> {
        let place = target.display();
        let mut image = target.to_owned();
        if image.is_dir() {
            let mount = find(&image)?;
            let source = Path::new(&mount.source);
            if !source.is_absolute() && !finefs_disk::is_url(source.as_os_str()) {
                return Err(Failure::new(format!(
                    "{place}: a file system in memory keeps no quotas"
                )));
            }
            if own::must_ask(&mount) {
                let reports = own::reports(&image);
                return reports.map_err(|why| Failure::new(format!("{place}: {why}")));
            }
            sync::everything(&mount).map_err(|why| Failure::new(format!("{place}: {why}")))?;
            image = PathBuf::from(&mount.source);
        }
        let (image, start) = disk_of(&image)?;
        let offset = start.unwrap_or(self.offset);
        let device = finefs::front_end::open_device(&image, Access::Inspect, offset)
            .map_err(Failure::new)?;
        let options = ExtOptions {
            is_read_only: true,
            journal: self.journals.open_for(&image, offset)?,
            ..ExtOptions::default()
        };
        let store = ExtStore::open(device, &options).map_err(Failure::new)?;
        let reports = store.quotas();
        reports.map_err(|error| Failure::new(format!("{place}: {error}; {QUOTA_REPAIR}")))
    }

    fn is_wanted(&self, kind: QuotaKind) -> bool {
        let is_named = match kind {
            QuotaKind::User => self.users,
            QuotaKind::Group => self.groups,
            QuotaKind::Project => self.projects,
        };
        is_named || !(self.users || self.groups || self.projects)
    }

    fn table(&self, report: &QuotaReport) -> Table {
        let names = match self.numeric {
            true => HashMap::new(),
            false => names(report.kind),
        };
        let shown = |entry: &&QuotaEntry| {
            self.verbose || entry.space_bytes > 0 || entry.inodes > 0 || entry.is_limited()
        };
        let entries = report.entries.iter().filter(shown);
        let entries = entries.map(|entry| Record {
            id: entry.id,
            name: names.get(&entry.id).cloned(),
            space: entry.space_bytes,
            space_soft: entry.space_soft * 1024,
            space_hard: entry.space_hard * 1024,
            space_until: entry.space_until,
            inodes: entry.inodes,
            inodes_soft: entry.inodes_soft,
            inodes_hard: entry.inodes_hard,
            inodes_until: entry.inodes_until,
        });
        Table {
            kind: match report.kind {
                QuotaKind::User => "user",
                QuotaKind::Group => "group",
                QuotaKind::Project => "project",
            },
            space_grace: report.info.space_grace,
            inode_grace: report.info.inode_grace,
            entries: entries.collect(),
        }
    }
}

impl Table {
    /// As repquota prints it.
    fn text(&self, place: &str) -> String {
        let mut title = self.kind.to_owned();
        title[..1].make_ascii_uppercase();
        let mut text = format!(
            "*** Report for {} quotas on {place}\n\
             Block grace time: {}; Inode grace time: {}\n\
             {:25}Block limits                File limits\n\
             {title:<16}{:>7}{:>8}{:>8}  grace {:>7}{:>6}{:>6}  grace\n{}\n",
            self.kind,
            span(u64::from(self.space_grace)),
            span(u64::from(self.inode_grace)),
            "",
            "used",
            "soft",
            "hard",
            "used",
            "soft",
            "hard",
            "-".repeat(70),
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        for entry in &self.entries {
            let space = Side::new(entry.space, entry.space_soft, entry.space_until, now);
            let inodes = Side::new(entry.inodes, entry.inodes_soft, entry.inodes_until, now);
            let unnamed = format!("#{}", entry.id);
            let name = entry.name.as_ref().unwrap_or(&unnamed);
            let _ = writeln!(
                text,
                "{name:<10}{}{}{:>11}{:>8}{:>8} {:>6} {:>7}{:>6}{:>6} {:>6}",
                space.mark,
                inodes.mark,
                entry.space.div_ceil(1024),
                entry.space_soft / 1024,
                entry.space_hard / 1024,
                space.left,
                entry.inodes,
                entry.inodes_soft,
                entry.inodes_hard,
                inodes.left,
            );
        }
        text + "\n"
    }
}

/// What is told about a soft limit.
struct Side {
    mark: char,
    left: String,
}

impl Side {
    fn new(has: u64, soft: u64, until: u64, now: u64) -> Side {
        match soft != 0 && has > soft {
            true => Side {
                mark: '+',
                left: match until.checked_sub(now) {
                    Some(left) if left > 0 => span(left),
                    _ => "none".to_owned(),
                },
            },
            false => Side {
                mark: '-',
                left: String::new(),
            },
        }
    }
}

/// A time as repquota writes it.
fn span(seconds: u64) -> String {
    match seconds / 86_400 {
        0 | 1 => format!("{:02}:{:02}", seconds / 3600, seconds / 60 % 60),
        days => format!("{days}days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_look_as_those_of_repquota() {
        let table = Table {
            kind: "user",
            space_grace: 604_800,
            inode_grace: 3600,
            entries: vec![Record {
                id: 1000,
                name: None,
                space: 4096,
                space_soft: 2048,
                space_hard: 8192,
                space_until: 1,
                inodes: 2,
                inodes_soft: 0,
                inodes_hard: 9,
                inodes_until: 0,
            }],
        };
        let text = table.text("image");
        assert!(text.starts_with("*** Report for user quotas on image\n"));
        assert!(text.contains("Block grace time: 7days; Inode grace time: 01:00"));
        let line = text.lines().find(|line| line.starts_with("#1000"));
        let words: Vec<&str> = line.expect("it is there").split_whitespace().collect();
        assert_eq!(words, ["#1000", "+-", "4", "2", "8", "none", "2", "0", "9"]);
    }
}
