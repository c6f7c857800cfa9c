//! `finefs chmod`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use finefs::{FileKind, LastLink, Permissions};
use finefs_image::Attributes;

use super::changes::{Changes, Outcome};
use super::mode::Mode;
use super::session::{At, Context, Session};
use super::{Where, text};
use crate::CliResult;

/// Change permissions of files of an image, as chmod(1)
#[derive(Args)]
#[command(override_usage = "finefs chmod [OPTIONS] MODE IMAGE:/PATH...\n       \
                            finefs chmod [OPTIONS] --reference=IMAGE:/FILE IMAGE:/PATH...")]
pub(crate) struct Chmod {
    /// Octal, or as u+rwx,go-w,a=rX
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    first: OsString,
    /// The files
    #[arg(value_name = "IMAGE:/PATH")]
    rest: Vec<OsString>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: Where,
}

impl Chmod {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs chmod", &self.place);
        let words = [std::slice::from_ref(&self.first), &self.rest[..]].concat();
        let words = self.changes.split(&mut session, &words, "a mode");
        let Some((mode, operands)) = words else {
            return session.end();
        };
        let mode = match self.mode(&mut session, mode) {
            Ok(mode) => mode,
            Err(line) => {
                session.fail(line);
                return session.end();
            }
        };
        self.changes
            .apply(session, operands, (LastLink::Follow, true), &|_| {
                Ok(Box::new(|at, found, _link| set(at, found, &mode)))
            })
    }

    fn mode(&self, session: &mut Session, text: &OsStr) -> Result<Mode, String> {
        let reference = self.changes.reference(session);
        match reference.map_err(|error| error.to_string())? {
            Some(found) => Ok(Mode::number(found.permissions)),
            None => text.to_string_lossy().parse(),
        }
    }
}

fn set(at: &At, found: &Attributes, mode: &Mode) -> finefs_image::Result<Outcome> {
    let place = &at.address;
    if found.kind == FileKind::Symlink {
        return Ok(Outcome {
            is_changed: false,
            line: format!("neither symbolic link '{place}' nor referent has been changed"),
        });
    }
    let new = mode.of(found.permissions, found.is_directory());
    let permissions = Permissions::from_mode(new);
    at.told(at.fs.set_permissions(at.path(), permissions))?;
    let shown = |mode: u32| format!("{mode:04o} ({})", &text::mode_text('-', mode)[1..]);
    let is_changed = new != found.permissions;
    Ok(Outcome {
        is_changed,
        line: match is_changed {
            true => format!(
                "mode of '{place}' changed from {} to {}",
                shown(found.permissions),
                shown(new)
            ),
            false => format!("mode of '{place}' retained as {}", shown(new)),
        },
    })
}
