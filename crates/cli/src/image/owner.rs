//! `finefs chown` and `finefs chgrp`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{ArgAction, Args};
use finefs::LastLink;
use finefs_image::{Attributes, Error, Result};

use super::Where;
use super::changes::{Changes, Outcome};
use super::people::People;
use super::session::{At, Context, Session};
use crate::CliResult;

/// Change owner and group of files of an image, as chown(1)
#[derive(Args)]
#[command(
    disable_help_flag = true,
    override_usage = "finefs chown [OPTIONS] OWNER IMAGE:/PATH...\n       \
                            finefs chown [OPTIONS] --reference=IMAGE:/FILE IMAGE:/PATH..."
)]
pub(crate) struct Chown {
    /// OWNER: USER, USER:GROUP, USER: (with its own group) or :GROUP; numbers, or names of the
    /// image's own /etc/passwd; then the files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    words: Vec<OsString>,
    /// Only of files that have this owner and this group, of which one may be left out
    #[arg(long, value_name = "USER:GROUP")]
    from: Option<String>,
    #[command(flatten)]
    links: OfLinks,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Change the group of files of an image, as chgrp(1)
#[derive(Args)]
#[command(
    disable_help_flag = true,
    override_usage = "finefs chgrp [OPTIONS] GROUP IMAGE:/PATH...\n       \
                            finefs chgrp [OPTIONS] --reference=IMAGE:/FILE IMAGE:/PATH..."
)]
pub(crate) struct Chgrp {
    /// GROUP: a number, or a name of the image's own /etc/group; then the files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    words: Vec<OsString>,
    #[command(flatten)]
    links: OfLinks,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// What becomes of symbolic links.
#[derive(Args)]
struct OfLinks {
    /// Of symbolic links, not of what they lead to; -R does so anyway
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// With -R: also what is in directories that operands which are links lead to
    #[arg(short = 'H', overrides_with = "keeps")]
    follows_named: bool,
    /// With -R: follow no link, as without it
    #[arg(short = 'P')]
    keeps: bool,
}

impl OfLinks {
    fn choice(&self) -> (LastLink, bool) {
        match self.no_dereference {
            true => (LastLink::Keep, self.follows_named),
            false => (LastLink::Follow, self.follows_named),
        }
    }
}

/// An owner, a group, or both.
#[derive(Clone, Copy, Default)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Chown {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs chown", &self.place);
        let words = self.changes.split(&mut session, &self.words, "an owner");
        let Some((owner, operands)) = words else {
            return session.end();
        };
        let reference = match self.changes.reference(&mut session) {
            Ok(reference) => reference,
            Err(error) => {
                session.fail(error);
                return session.end();
            }
        };
        let reference = reference.map(|found| Owner {
            uid: Some(found.uid),
            gid: Some(found.gid),
        });
        self.changes
            .apply(session, operands, self.links.choice(), &|at| {
                let people = People::of(&at.fs);
                let parse = |text| Owner::parse(text, &people).map_err(|line| at.refused(&line));
                let owner = match reference {
                    Some(owner) => owner,
                    None => parse(words_text(owner)?)?,
                };
                let from = self.from.as_deref().map(parse).transpose()?;
                let from = from.unwrap_or_default();
                Ok(Box::new(move |at, found, link| {
                    set(at, found, link, (owner, from), &people)
                }))
            })
    }
}

impl Chgrp {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs chgrp", &self.place);
        let words = self.changes.split(&mut session, &self.words, "a group");
        let Some((group, operands)) = words else {
            return session.end();
        };
        let reference = match self.changes.reference(&mut session) {
            Ok(reference) => reference.map(|found| found.gid),
            Err(error) => {
                session.fail(error);
                return session.end();
            }
        };
        self.changes
            .apply(session, operands, self.links.choice(), &|at| {
                let people = People::of(&at.fs);
                let gid = match reference {
                    Some(gid) => Some(gid),
                    None => {
                        group_of(words_text(group)?, &people).map_err(|line| at.refused(&line))?
                    }
                };
                let owner = Owner { uid: None, gid };
                Ok(Box::new(move |at, found, link| {
                    set(at, found, link, (owner, Owner::default()), &people)
                }))
            })
    }
}

fn words_text(word: &OsStr) -> Result<&str> {
    let text = word.to_str();
    text.ok_or_else(|| Error::new(word.display().to_string(), "is no name and no number"))
}

/// The number of a group; none of an empty word.
fn group_of(text: &str, people: &People) -> std::result::Result<Option<u32>, String> {
    match text {
        "" => Ok(None),
        text => people
            .gid(text)
            .map(Some)
            .ok_or_else(|| format!("the image has no group '{text}'; give a number")),
    }
}

impl Owner {
    /// What chown's first word says.
    fn parse(text: &str, people: &People) -> std::result::Result<Owner, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            // As before POSIX had the colon, where no user is called so.
            None => match text.split_once('.') {
                Some((user, group)) if people.uid(text).is_none() => (user, Some(group)),
                _ => (text, None),
            },
        };
        let uid = match user {
            "" => None,
            user => Some(
                people
                    .uid(user)
                    .ok_or_else(|| format!("the image has no user '{user}'; give a number"))?,
            ),
        };
        let gid = match group {
            Some("") if uid.is_some() => Some(people.own_group(user).ok_or_else(|| {
                format!("'{text}': no group is known of '{user}'; name it behind the colon")
            })?),
            group => group_of(group.unwrap_or_default(), people)?,
        };
        Ok(Owner { uid, gid })
    }

    /// Whether a file belongs to it, as far as it says something.
    fn has(&self, found: &Attributes) -> bool {
        self.uid.is_none_or(|uid| uid == found.uid) && self.gid.is_none_or(|gid| gid == found.gid)
    }

    /// As chown shows it.
    fn shown(&self, people: &People) -> String {
        match (self.uid, self.gid) {
            (Some(uid), Some(gid)) => format!("{}:{}", people.user(uid), people.group(gid)),
            (Some(uid), None) => people.user(uid),
            (None, Some(gid)) => people.group(gid),
            (None, None) => String::new(),
        }
    }
}

fn set(
    at: &At,
    found: &Attributes,
    link: LastLink,
    (owner, from): (Owner, Owner),
    people: &People,
) -> Result<Outcome> {
    let place = &at.address;
    let is_meant = from.has(found);
    if is_meant {
        at.told(at.fs.set_owner(at.path(), owner.uid, owner.gid, link))?;
    }
    let what = match owner {
        Owner {
            uid: None,
            gid: Some(_),
        } => "group",
        _ => "ownership",
    };
    let old = Owner {
        uid: owner.uid.map(|_| found.uid),
        gid: owner.gid.map(|_| found.gid),
    };
    let is_changed = is_meant && !owner.has(found);
    let (old, new) = (old.shown(people), owner.shown(people));
    Ok(Outcome {
        is_changed,
        line: match (is_changed, old.as_str()) {
            (true, old) => format!("changed {what} of '{place}' from {old} to {new}"),
            (false, "") => format!("{what} of '{place}' retained"),
            (false, old) => format!("{what} of '{place}' retained as {old}"),
        },
    })
}
