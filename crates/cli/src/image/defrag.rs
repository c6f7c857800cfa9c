//! `finefs defrag`, in images and in mounts. In a mount the kernel is walked, and the server moves
//! the blocks of each file, by its number.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use finefs::{FileKind, OpenOptions};
use finefs_fuse::MountPoint;
use finefs_image::walk::{Step, Walk};
use finefs_image::{Access, Error};
use serde::Serialize;

use super::Where;
use super::session::{At, Context, Session, print_json};
use crate::channel::Channel;
use crate::output::print;
use crate::{CliResult, progress, sync};

/// Move the blocks of files together, as e4defrag(8)
///
/// Each file whose blocks then lie in fewer runs is copied to other blocks, 64 MiB at a time;
/// contents and times stay, and a crash leaves either place.
#[derive(Args)]
pub(crate) struct Defrag {
    /// Files, or directories with all below: IMAGE:/PATH, or in a mount; IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH|PATH", required = true)]
    operands: Vec<OsString>,
    /// Change nothing; list the files that lie in several runs
    #[arg(short, long)]
    check: bool,
    /// List what was moved
    #[arg(short, long)]
    verbose: bool,
    /// As JSON, for scripts: the files that lay in several runs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// A file that lay in several runs of blocks.
#[derive(Serialize)]
struct Line {
    path: String,
    runs_before: u64,
    runs_after: u64,
}

/// What was found below an operand.
#[derive(Default)]
struct Found {
    files: u64,
    lines: Vec<Line>,
}

impl Found {
    fn add(&mut self, path: String, (runs_before, runs_after): (u64, u64)) {
        self.files += 1;
        if runs_before > 1 {
            self.lines.push(Line {
                path,
                runs_before,
                runs_after,
            });
        }
    }
}

impl Defrag {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs defrag", &self.place);
        let mut all = Vec::new();
        for operand in &session.operands(&self.operands) {
            let place = operand.display().to_string();
            let mount = match session.is_in_shell() {
                true => None,
                false => mount_of(operand),
            };
            let found = progress::during(&format!("looking through {place}"), || match mount {
                Some(mount) => self.in_mount(&mut session, &mount, Path::new(operand)),
                None => self.in_image(&mut session, operand),
            });
            let Some(found) = session.check(found) else {
                continue;
            };
            if !self.json {
                self.tell(&place, &found)?;
            }
            all.extend(found.lines);
        }
        if self.json {
            print_json(&all)?;
        }
        session.end()
    }

    fn tell(&self, place: &str, found: &Found) -> CliResult<()> {
        let mut text = String::new();
        let (mut before, mut after) = (0, 0);
        for line in &found.lines {
            before += line.runs_before;
            after += line.runs_after;
            text += &match (self.check, self.verbose) {
                (true, _) => format!("{:>8} {}\n", line.runs_before, line.path),
                (false, true) if line.runs_after < line.runs_before => {
                    let (before, after) = (line.runs_before, line.runs_after);
                    format!("{before:>8} -> {after} {}\n", line.path)
                }
                _ => String::new(),
            };
        }
        let (files, several) = (found.files, found.lines.len());
        let files = match files {
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        };
        text += &match several {
            0 => format!("{place}: {files}, none in several runs"),
            several => format!("{place}: {files}, {several} of them in {before} runs"),
        };
        text += &match self.check || several == 0 {
            true => "\n".to_owned(),
            false => format!(", now in {after}\n"),
        };
        print(&text)
    }

    fn in_image(&self, session: &mut Session, operand: &OsStr) -> finefs_image::Result<Found> {
        let address = session.address(operand)?;
        let access = match self.check {
            true => Access::Read,
            false => Access::Write,
        };
        let fs = session.images.open(&address, access)?;
        let at = At { fs, address };
        let mut found = Found::default();
        for step in Walk::new(&at.fs, &at.address) {
            let Some(Step::Enter(file)) = session.check(step) else {
                continue;
            };
            if file.attributes.kind != FileKind::Regular {
                continue;
            }
            let at = at.with(file.path);
            if let Some(runs) = session.check(at.told(self.move_file(&at))) {
                found.add(at.address.to_string(), runs);
            }
        }
        Ok(found)
    }

    /// In how many runs it lay and lies.
    fn move_file(&self, at: &At) -> finefs::Result<(u64, u64)> {
        let before = at.fs.open(at.path())?.runs()?;
        if self.check || before < 2 {
            return Ok((before, before));
        }
        let file = OpenOptions::new().write(true).open(&at.fs, at.path())?;
        Ok((before, file.defragment()?))
    }

    fn in_mount(
        &self,
        session: &mut Session,
        mount: &MountPoint,
        operand: &Path,
    ) -> finefs_image::Result<Found> {
        let refused = |reason: String| Error::new(operand.display().to_string(), reason);
        let channel = Channel::of(mount).map_err(refused)?;
        // What the kernel has not written yet has no place.
        sync::everything(mount).map_err(refused)?;
        let mut found = Found::default();
        for (path, ino) in files_below(session, operand) {
            let name = path.display().to_string();
            match channel.runs(ino, !self.check) {
                Ok(runs) => found.add(name, runs),
                Err(reason) => session.fail(format!("{name}: {reason}")),
            }
        }
        Ok(found)
    }
}

/// The mount in which a path of the host lies, if it is one of finefs.
fn mount_of(operand: &OsStr) -> Option<MountPoint> {
    let device = std::fs::symlink_metadata(operand).ok()?.dev();
    let number = (rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = finefs_fuse::mounts().ok()?;
    mounts
        .into_iter()
        .find(|mount| mount.device == number && mount.is_finefs())
}

/// The regular files from a path on, with their numbers, each once.
fn files_below(session: &mut Session, start: &Path) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut left = vec![(start.to_owned(), None)];
    while let Some((path, of)) = left.pop() {
        let found = std::fs::symlink_metadata(&path).and_then(|found| {
            if of.is_some_and(|device| device != found.dev()) {
                return Ok(());
            }
            if found.is_file() && seen.insert(found.ino()) {
                files.push((path.clone(), found.ino()));
            }
            if found.is_dir() {
                for entry in std::fs::read_dir(&path)? {
                    left.push((entry?.path(), Some(found.dev())));
                }
            }
            Ok(())
        });
        if let Err(error) = found {
            session.fail(format!("{}: {error}", path.display()));
        }
    }
    files.sort_unstable();
    files
}
