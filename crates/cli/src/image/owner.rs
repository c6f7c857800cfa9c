//! `finefs chmod` and `finefs chown`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgAction, Args};
use finefs::{FileKind, LastLink, Permissions};
use finefs_image::Attributes;
use finefs_image::walk::{Step, Walk};

use super::Where;
use super::mode::Mode;
use super::people::People;
use super::session::{At, Context, Session};
use crate::CliResult;

/// Change permissions of files of an image, as chmod(1)
#[derive(Args)]
pub(crate) struct Chmod {
    /// Octal, or as u+rwx,go-w,a=rX
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: Mode,
    /// The files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Of all that is in directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    place: Where,
}

/// Change owner and group of files of an image, as chown(1)
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Chown {
    /// USER, USER:GROUP, USER: or :GROUP; numbers, or names of the image's own /etc/passwd
    #[arg(value_name = "OWNER")]
    owner: String,
    /// The files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// Of all that is in directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Of symbolic links, not of what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Chmod {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let session = Session::new(context, "finefs chmod", &self.place);
        session.edit_each(&self.operands, |session, at| {
            let set = |at: &At, attributes: &Attributes| {
                let mode = self
                    .mode
                    .of(attributes.permissions, attributes.is_directory());
                at.told(
                    at.fs
                        .set_permissions(at.path(), Permissions::from_mode(mode)),
                )
            };
            if self.recursive {
                return for_all(session, at, &|at, attributes| match attributes.kind {
                    FileKind::Symlink => Ok(()),
                    _ => set(at, attributes),
                });
            }
            let found = at.told(at.fs.metadata(at.path()))?;
            set(at, &Attributes::inside(&found, 0))
        })
    }
}

impl Chown {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let session = Session::new(context, "finefs chown", &self.place);
        session.edit_each(&self.operands, |session, at| {
            let (uid, gid) = self
                .numbers(&People::of(&at.fs))
                .map_err(|reason| at.refused(&reason))?;
            let set = |at: &At, link| at.told(at.fs.set_owner(at.path(), uid, gid, link));
            match (self.recursive, self.no_dereference) {
                (true, _) => for_all(session, at, &|at, _| set(at, LastLink::Keep)),
                (false, true) => set(at, LastLink::Keep),
                (false, false) => set(at, LastLink::Follow),
            }
        })
    }

    fn numbers(&self, people: &People) -> Result<(Option<u32>, Option<u32>), String> {
        let (user, group) = match self.owner.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (self.owner.as_str(), None),
        };
        let named = |text: &str, number: Option<u32>, what: &str| match text {
            "" => Ok(None),
            text => number
                .map(Some)
                .ok_or_else(|| format!("the image has no {what} '{text}'; give a number")),
        };
        let uid = named(user, people.uid(user), "user")?;
        let group = group.unwrap_or_default();
        Ok((uid, named(group, people.gid(group), "group")?))
    }
}

/// Does something to a file and all that is in it; errors are told, and it goes on.
fn for_all(
    session: &mut Session,
    at: &At,
    edit: &dyn Fn(&At, &Attributes) -> finefs_image::Result<()>,
) -> finefs_image::Result<()> {
    for step in Walk::new(&at.fs, &at.address) {
        let result = step.and_then(|step| match step {
            Step::Enter(found) => edit(&at.with(found.path), &found.attributes),
            Step::Leave(_) => Ok(()),
        });
        session.check(result);
    }
    Ok(())
}
