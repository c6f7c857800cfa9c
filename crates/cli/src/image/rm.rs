//! `finefs rm` and `finefs rmdir`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use super::Where;
use super::session::{At, Context, Session};
use crate::output::print;
use crate::{CliResult, progress};

/// Remove files from an image, as rm(1)
#[derive(Args)]
pub(crate) struct Rm {
    /// The files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Directories with all that is in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// What is not there is no error
    #[arg(short, long)]
    force: bool,
    /// Empty directories
    #[arg(short, long)]
    dir: bool,
    /// Say what is removed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    place: Where,
}

/// Remove empty directories from an image, as rmdir(1)
#[derive(Args)]
pub(crate) struct Rmdir {
    /// The directories
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Those above too, as far as they are empty then
    #[arg(short, long)]
    parents: bool,
    /// A directory that is not empty is no error
    #[arg(long)]
    ignore_fail_on_non_empty: bool,
    /// Say what is removed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    place: Where,
}

impl Rm {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let session = Session::new(context, "finefs rm", &self.place);
        session.edit_each(&self.operands, |_, at| match self.remove(at) {
            Err(error) if self.force && error.is_missing() => Ok(()),
            Ok(()) if self.verbose => say_removed(at),
            done => done,
        })
    }

    fn remove(&self, at: &At) -> finefs_image::Result<()> {
        let (_, name) = finefs_image::address::split_path(at.path());
        if name == "." {
            return Err(at.refused("the root, . and .. are not removed"));
        }
        let found = at.told(at.fs.symlink_metadata(at.path()))?;
        at.told(match (found.is_dir(), self.recursive, self.dir) {
            (false, _, _) => at.fs.remove_file(at.path()),
            (true, true, _) => {
                let message = format!("removing {}", at.address);
                progress::during(&message, || at.fs.remove_dir_all(at.path()))
            }
            (true, false, true) => at.fs.remove_dir(at.path()),
            (true, false, false) => return Err(at.refused("is a directory (-r removes it)")),
        })
    }
}

impl Rmdir {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let session = Session::new(context, "finefs rmdir", &self.place);
        session.edit_each(&self.operands, |_, at| self.remove(at))
    }

    fn remove(&self, at: &At) -> finefs_image::Result<()> {
        let mut at = at.clone();
        loop {
            let removed = at.told(at.fs.remove_dir(at.path()));
            match removed {
                Err(error)
                    if self.ignore_fail_on_non_empty && error.errno() == Some(libc::ENOTEMPTY) =>
                {
                    return Ok(());
                }
                removed => removed?,
            }
            if self.verbose {
                say_removed(&at)?;
            }
            match at.path().parent() {
                Some(parent) if self.parents && parent.parent().is_some() => {
                    at = at.with(parent);
                }
                _ => return Ok(()),
            }
        }
    }
}

fn say_removed(at: &At) -> finefs_image::Result<()> {
    print(&format!("removed '{}'\n", at.address)).map_err(|failure| at.refused(&failure.0))
}
