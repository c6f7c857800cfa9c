//! The commands that read and edit images, without a mount and without root: each is a thin one
//! over the crate `finefs-image`, with names, options and statuses of coreutils.
//!
//! | Module | Thing |
//! |---|---|
//! | `ls`, `tree`, `stat`, `cat`, `find`, `du`, `df`, `diff`, `tar` (`members`) | reading |
//! | `cp`, `mv`, `rm`, `ln`, `make`, `chmod`, `owner` (`changes`), `trim`, `defrag` | what edits |
//! | `xattr`, `flags` | what reads and edits: getfattr and setfattr, lsattr and chattr |
//! | `building` | what build and tar share: progress, signals, what was left out |
//! | `copying` | what cp and mv share: progress, what could not be done |
//! | `stop` | signals that end a command where it can be ended |
//! | `destination` | where cp and mv put copies |
//! | `session` | the images of one command, its messages and its status; what commands share |
//! | `shell` | many commands on an image that is opened once |
//! | `text` | modes, sizes, times and names as text; `units`: --block-size; `clock`: local time |
//! | `mode` | chmod's modes; `date`: touch's times |
//! | `glob` | paths by patterns |
//! | `through` | paths of the host that are written and never replaced |
//! | `people` | names of users and groups, of the image |
//! | `record` | what files are, as JSON |

#[cfg(feature = "build")]
pub(crate) mod building;
mod cat;
mod changes;
mod chmod;
mod clock;
pub(crate) mod copying;
mod cp;
mod date;
mod defrag;
mod destination;
mod df;
mod diff;
mod du;
mod find;
mod flags;
mod glob;
mod ln;
mod ls;
mod make;
#[cfg(feature = "build")]
pub(crate) mod members;
mod mode;
mod mv;
mod owner;
mod people;
mod record;
mod rm;
mod session;
#[cfg(feature = "shell")]
pub(crate) mod shell;
mod stat;
pub(crate) mod stop;
#[cfg(feature = "build")]
mod tar;
pub(crate) mod text;
mod through;
mod tree;
mod trim;
mod units;
mod xattr;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use finefs::MasterKey;
use finefs_image::Images;

use crate::CliResult;
pub(crate) use session::Context;
#[cfg(feature = "build")]
pub(crate) use tar::with_dash;

#[derive(Subcommand)]
pub(crate) enum ImageCommand {
    Ls(ls::Ls),
    Tree(tree::Tree),
    Stat(stat::Stat),
    Cat(cat::Cat),
    Find(Box<find::Find>),
    Du(du::Du),
    Df(df::Df),
    Getfattr(xattr::Getfattr),
    Lsattr(flags::Lsattr),
    Diff(diff::Diff),
    #[cfg(feature = "build")]
    Tar(tar::Tar),
    Cp(Box<cp::Cp>),
    Mv(mv::Mv),
    Rm(rm::Rm),
    Mkdir(make::Mkdir),
    Rmdir(rm::Rmdir),
    Ln(ln::Ln),
    Touch(make::Touch),
    Truncate(make::Truncate),
    Chmod(chmod::Chmod),
    Chown(owner::Chown),
    Chgrp(owner::Chgrp),
    Setfattr(xattr::Setfattr),
    Chattr(flags::Chattr),
    Trim(trim::Trim),
    Defrag(defrag::Defrag),
}

/// Options of all of them.
#[derive(Args)]
pub(crate) struct Where {
    /// Where in the images the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", value_parser = crate::size::bytes)]
    offset: Option<u64>,
    /// A key of encrypted files, in binary; may be given several times
    #[arg(long = "key", value_name = "FILE", value_parser = crate::keys::parser())]
    keys: Vec<MasterKey>,
    #[command(flatten)]
    journals: crate::journals::Journals,
    /// Wait so long for an image that others use
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        hide_default_value = true
    )]
    wait: u32,
}

impl Where {
    /// The images that a command opens.
    fn images(&self) -> Images {
        crate::keys::tell_of(&self.keys);
        Images::new(self.offset)
            .with_keys(self.keys.clone())
            .with_journals(self.journals.paths.clone())
            .with_wait(Duration::from_secs(self.wait.into()))
    }
}

impl ImageCommand {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        match self {
            ImageCommand::Ls(command) => command.run(context),
            ImageCommand::Tree(command) => command.run(context),
            ImageCommand::Stat(command) => command.run(context),
            ImageCommand::Cat(command) => command.run(context),
            ImageCommand::Find(command) => command.run(context),
            ImageCommand::Du(command) => command.run(context),
            ImageCommand::Df(command) => command.run(context),
            ImageCommand::Getfattr(command) => command.run(context),
            ImageCommand::Lsattr(command) => command.run(context),
            ImageCommand::Diff(command) => command.run(context),
            #[cfg(feature = "build")]
            ImageCommand::Tar(command) => command.run(context),
            ImageCommand::Cp(command) => command.run(context),
            ImageCommand::Mv(command) => command.run(context),
            ImageCommand::Rm(command) => command.run(context),
            ImageCommand::Mkdir(command) => command.run(context),
            ImageCommand::Rmdir(command) => command.run(context),
            ImageCommand::Ln(command) => command.run(context),
            ImageCommand::Touch(command) => command.run(context),
            ImageCommand::Truncate(command) => command.run(context),
            ImageCommand::Chmod(command) => command.run(context),
            ImageCommand::Chown(command) => command.run(context),
            ImageCommand::Chgrp(command) => command.run(context),
            ImageCommand::Setfattr(command) => command.run(context),
            ImageCommand::Chattr(command) => command.run(context),
            ImageCommand::Trim(command) => command.run(context),
            ImageCommand::Defrag(command) => command.run(context),
        }
    }
}
