//! What find's expressions say about a file.

use std::ffi::{OsStr, OsString};

use finefs::FileKind;
use finefs_image::walk::{Found, letter};
use finefs_image::{Attributes, Time};

use super::printf::Format;
use super::shown;
use super::times::Which;
use crate::image::people::People;
use crate::image::session::At;
use finefs_image::pattern::matches;

/// `n`, `+n` or `-n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Number {
    Exactly(u64),
    More(u64),
    Less(u64),
}

impl Number {
    pub fn holds(self, value: i128) -> bool {
        match self {
            Number::Exactly(number) => value == i128::from(number),
            Number::More(number) => value > i128::from(number),
            Number::Less(number) => value < i128::from(number),
        }
    }
}

/// How a mode is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compared {
    Exactly,
    /// `-mode`: all of these bits.
    All,
    /// `/mode`: any of these bits.
    Any,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expression {
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    Not(Box<Expression>),
    Constant(bool),
    Name {
        pattern: Vec<u8>,
        ignores_case: bool,
    },
    Path {
        pattern: Vec<u8>,
        ignores_case: bool,
    },
    Kind(Vec<char>),
    /// In units of so many bytes, rounded up.
    Size {
        number: Number,
        unit: u64,
    },
    /// Whole units of so many seconds before `now`.
    Age {
        which: Which,
        number: Number,
        unit: i64,
        now: Time,
    },
    Newer {
        which: Which,
        than: Time,
    },
    /// Than a time of a file of an image, which is looked up before the search.
    NewerThanFile {
        which: Which,
        file: OsString,
        of: Which,
    },
    /// A link to this file, which is looked up before the search.
    Same(OsString),
    Target {
        pattern: Vec<u8>,
        ignores_case: bool,
    },
    NoUser,
    NoGroup,
    User(String),
    Group(String),
    Uid(Number),
    Gid(Number),
    Permissions {
        bits: u32,
        compared: Compared,
    },
    Links(Number),
    Inode(Number),
    Empty,
    /// Also what a symbolic link leads to.
    IsThere,
    /// The same, for what is a directory or can be run by somebody.
    Executable,
    Prune,
    Print,
    Print0,
    Printf(Format),
    Ls,
    Delete,
    Quit,
}

/// A file that is asked about, and what is to be done with it.
pub(super) struct Context<'a> {
    pub at: &'a At,
    pub found: &'a Found,
    pub people: &'a People,
    pub actions: Vec<Expression>,
    pub is_pruned: bool,
}

impl Expression {
    /// True for what makes `-print` needless.
    pub fn is_action(&self) -> bool {
        match self {
            Expression::And(one, other) | Expression::Or(one, other) => {
                one.is_action() || other.is_action()
            }
            Expression::Not(inner) => inner.is_action(),
            Expression::Print | Expression::Print0 | Expression::Printf(_) => true,
            Expression::Ls | Expression::Delete => true,
            _ => false,
        }
    }

    /// With what `look` says of the files that it names.
    pub fn resolved(
        self,
        look: &mut dyn FnMut(&OsStr) -> finefs_image::Result<Attributes>,
    ) -> finefs_image::Result<Expression> {
        Ok(match self {
            Expression::And(one, other) => Expression::And(
                Box::new(one.resolved(look)?),
                Box::new(other.resolved(look)?),
            ),
            Expression::Or(one, other) => Expression::Or(
                Box::new(one.resolved(look)?),
                Box::new(other.resolved(look)?),
            ),
            Expression::Not(inner) => Expression::Not(Box::new(inner.resolved(look)?)),
            Expression::NewerThanFile { which, file, of } => Expression::Newer {
                which,
                than: of.of(&look(&file)?),
            },
            Expression::Same(file) => Expression::Inode(Number::Exactly(look(&file)?.ino)),
            other => other,
        })
    }

    /// A user or group that the image does not have.
    pub fn stranger(&self, people: &People) -> Option<String> {
        match self {
            Expression::And(one, other) | Expression::Or(one, other) => {
                one.stranger(people).or_else(|| other.stranger(people))
            }
            Expression::Not(inner) => inner.stranger(people),
            Expression::User(name) if people.uid(name).is_none() => {
                Some(format!("the image has no user '{name}'; give a number"))
            }
            Expression::Group(name) if people.gid(name).is_none() => {
                Some(format!("the image has no group '{name}'; give a number"))
            }
            _ => None,
        }
    }

    pub fn holds(&self, context: &mut Context<'_>) -> bool {
        let attributes = &context.found.attributes;
        match self {
            Expression::And(one, other) => one.holds(context) && other.holds(context),
            Expression::Or(one, other) => one.holds(context) || other.holds(context),
            Expression::Not(inner) => !inner.holds(context),
            Expression::Constant(value) => *value,
            Expression::Name {
                pattern,
                ignores_case,
            } => is_called(context, pattern, *ignores_case),
            Expression::Path {
                pattern,
                ignores_case,
            } => is_at(context, pattern, *ignores_case),
            Expression::Target {
                pattern,
                ignores_case,
            } => leads_to(context.at, pattern, *ignores_case),
            Expression::NoUser => !context.people.knows_uid(attributes.uid),
            Expression::NoGroup => !context.people.knows_gid(attributes.gid),
            Expression::Kind(letters) => {
                let own = match letter(attributes.kind) {
                    '-' => 'f',
                    letter => letter,
                };
                letters.contains(&own)
            }
            Expression::Size { number, unit } => {
                number.holds(i128::from(attributes.size.div_ceil(*unit)))
            }
            Expression::Age {
                which,
                number,
                unit,
                now,
            } => {
                let age = now.seconds - which.of(attributes).seconds;
                number.holds(i128::from(age.div_euclid(*unit)))
            }
            Expression::Newer { which, than } => which.of(attributes) > *than,
            Expression::User(name) => context.people.uid(name) == Some(attributes.uid),
            Expression::Group(name) => context.people.gid(name) == Some(attributes.gid),
            Expression::Uid(number) => number.holds(i128::from(attributes.uid)),
            Expression::Gid(number) => number.holds(i128::from(attributes.gid)),
            Expression::Permissions { bits, compared } => match compared {
                Compared::Exactly => attributes.permissions == *bits,
                Compared::All => attributes.permissions & bits == *bits,
                Compared::Any => *bits == 0 || attributes.permissions & bits != 0,
            },
            Expression::Links(number) => number.holds(i128::from(attributes.links)),
            Expression::Inode(number) => number.holds(i128::from(attributes.ino)),
            Expression::Empty => is_empty(context),
            Expression::IsThere => context.at.fs.metadata(context.at.path()).is_ok(),
            Expression::Executable => {
                let found = context.at.fs.metadata(context.at.path());
                found.is_ok_and(|it| it.is_dir() || it.permissions().mode() & 0o111 != 0)
            }
            Expression::Prune => {
                context.is_pruned = true;
                true
            }
            action => {
                context.actions.push(action.clone());
                true
            }
        }
    }
}

fn is_called(context: &Context<'_>, pattern: &[u8], ignores_case: bool) -> bool {
    let name = context.found.path.file_name().unwrap_or(OsStr::new("/"));
    is_like(pattern, name.as_encoded_bytes(), ignores_case)
}

/// By the path in the image, or by that which is printed.
fn is_at(context: &Context<'_>, pattern: &[u8], ignores_case: bool) -> bool {
    let path = context.found.path.as_os_str().as_encoded_bytes();
    is_like(pattern, path, ignores_case) || is_like(pattern, &shown(context.at), ignores_case)
}

fn leads_to(at: &At, pattern: &[u8], ignores_case: bool) -> bool {
    let target = at.fs.read_link(at.path());
    target.is_ok_and(|target| is_like(pattern, target.as_os_str().as_encoded_bytes(), ignores_case))
}

fn is_like(pattern: &[u8], text: &[u8], ignores_case: bool) -> bool {
    match ignores_case {
        true => matches(&pattern.to_ascii_lowercase(), &text.to_ascii_lowercase()),
        false => matches(pattern, text),
    }
}

fn is_empty(context: &Context<'_>) -> bool {
    let attributes = &context.found.attributes;
    match attributes.kind {
        FileKind::Regular => attributes.size == 0,
        FileKind::Directory => {
            let entries = context.at.fs.read_dir(context.at.path());
            entries.is_ok_and(|mut entries| entries.next().is_none())
        }
        _ => false,
    }
}
