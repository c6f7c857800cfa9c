//! `finefs find`

mod expression;
mod parse;
mod printf;
mod times;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use finefs_image::walk::{Found, Step, Walk};
use finefs_image::{Access, Attributes};

use self::expression::{Context, Expression};
use self::parse::Query;
use super::people::People;
use super::record::Record;
use super::session::{self, At, Printer, Session, print_json};
use super::{Where, text};
use crate::CliResult;

/// Find files in an image, as find(1)
///
/// Tests: -name -iname -path -ipath -lname -ilname -type -size -mtime -mmin -atime -amin
/// -ctime -cmin -newer FILE -anewer -cnewer -newerXY -samefile FILE -user -group -uid -gid
/// -nouser -nogroup -perm -readable -writable -executable -links -inum -empty -true
/// -false. Actions: -print -print0 -printf -ls
/// -delete -prune -quit. Between them -a, -o, ! and parentheses; -maxdepth, -mindepth and -depth
/// stand first. FILE is IMAGE:/PATH. Before the paths may be -P, follow no symbolic link, as
/// without it, or -H, follow those that are named.
#[derive(Args)]
#[command(
    override_usage = "finefs find [--offset SIZE] [--json] [-P | -H] IMAGE:/PATH... [EXPRESSION]"
)]
pub(crate) struct Find {
    #[command(flatten)]
    place: Where,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    /// IMAGE:/PATH; IMAGE is its root; then the expression
    #[arg(
        value_name = "IMAGE:/PATH",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// What a search does with what it finds.
struct Search<'a> {
    query: &'a Query,
    is_json: bool,
    printer: Printer,
    records: Vec<Record>,
    /// After -quit.
    is_over: bool,
    /// Symbolic links that are named are looked through (-H).
    follows_named: bool,
    /// The directory of a shell, `.`, which -delete leaves there as find(1) does.
    keeps_start: bool,
}

impl Find {
    pub(crate) fn run(mut self, context: &mut session::Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs find", &self.place);
        let is_of_links = |word: &&OsString| *word == "-P" || *word == "-H";
        let count = self.words.iter().take_while(is_of_links).count();
        let of_links = self.words.drain(..count).next_back();
        let is_word = |word: &OsString| {
            let word = word.as_encoded_bytes();
            word.len() > 1 && word.starts_with(b"-") || matches!(word, b"!" | b"(" | b")")
        };
        let at = self
            .words
            .iter()
            .position(is_word)
            .unwrap_or(self.words.len());
        let mut words = self.words.split_off(at);
        // It may stand behind the operands too.
        let before = words.len();
        words.retain(|word| word != "--json");
        let mut query = match parse::parse(&words) {
            Ok(query) => query,
            Err(reason) => {
                session.fail(reason);
                return session.end();
            }
        };
        let deletes = query.deletes;
        let resolved = query.expression.resolved(&mut |file| {
            let at = match deletes {
                true => session.write(file),
                false => session.read(file),
            }?;
            let found = at.told(at.fs.symlink_metadata(at.path()))?;
            Ok(Attributes::inside(&found, 0))
        });
        let Some(expression) = session.check(resolved) else {
            return session.end();
        };
        query.expression = expression;
        let mut search = Search {
            query: &query,
            is_json: self.json || words.len() < before,
            printer: Printer::new(),
            records: Vec::new(),
            is_over: false,
            follows_named: of_links.is_some_and(|word| word == "-H"),
            keeps_start: false,
        };
        let access = match query.deletes {
            true => Access::Write,
            false => Access::Read,
        };
        for operand in &session.operands_to(access, &self.words) {
            search.keeps_start = operand == ".";
            let at = match query.deletes {
                true => session.write(operand),
                false => session.read(operand),
            };
            if let Some(at) = session.check(at) {
                search.below(&mut session, &at)?;
            }
        }
        if search.is_json {
            print_json(&search.records)?;
        }
        search.printer.flush()?;
        session.end()
    }
}

impl Search<'_> {
    fn below(&mut self, session: &mut Session, at: &At) -> CliResult<()> {
        let people = People::of(&at.fs);
        if let Some(line) = self.query.expression.stranger(&people) {
            session.fail(at.refused(&line));
            return Ok(());
        }
        let followed = at.fs.metadata(at.path()).ok();
        let followed = followed.filter(|_| self.follows_named);
        let mut start = at.address.clone();
        if followed.as_ref().is_some_and(|found| found.is_dir()) {
            start.path.push("");
        }
        let mut walk = Walk::new(&at.fs, &start);
        while let Some(step) = walk.next() {
            if self.printer.is_gone() || self.is_over {
                break;
            }
            let (mut found, is_after) = match session.check(step) {
                Some(Step::Enter(found)) => (found, false),
                Some(Step::Leave(found)) => (found, true),
                None => continue,
            };
            if let Some(metadata) = followed.as_ref().filter(|_| found.depth == 0) {
                found.path = at.path().to_owned();
                found.attributes = Attributes::inside(metadata, 0);
            }
            let is_directory = found.attributes.is_directory();
            let depth = found.depth;
            let is_turn = is_after == (self.query.is_depth_first && is_directory);
            let mut is_pruned = false;
            if is_turn && (self.query.depth_min..=self.query.depth_max).contains(&depth) {
                is_pruned = self.judge(session, at, &found, &people)?;
            }
            let is_deep = depth >= self.query.depth_max;
            if is_directory && !is_after && (is_deep || is_pruned && !self.query.is_depth_first) {
                walk.leave_out();
            }
        }
        Ok(())
    }

    /// Asks the expression about a file, and does what it says; true if its directory is to be left
    /// out.
    fn judge(
        &mut self,
        session: &mut Session,
        start: &At,
        found: &Found,
        people: &People,
    ) -> CliResult<bool> {
        let at = &start.with(found.path.clone());
        let mut context = Context {
            at,
            found,
            people,
            actions: Vec::new(),
            is_pruned: false,
        };
        self.query.expression.holds(&mut context);
        let (actions, is_pruned) = (context.actions, context.is_pruned);
        for action in actions {
            match action {
                Expression::Delete if self.keeps_start && found.depth == 0 => {}
                Expression::Delete => {
                    let done = match found.attributes.is_directory() {
                        true => at.fs.remove_dir(at.path()),
                        false => at.fs.remove_file(at.path()),
                    };
                    session.check(at.told(done));
                }
                Expression::Quit => {
                    // What is behind it has not been asked.
                    self.is_over = true;
                    break;
                }
                _ if self.is_json => self.records.push(Record::new(at, &found.attributes)),
                Expression::Printf(format) => {
                    self.printer.put(&format.print(at, start, found, people))?;
                }
                Expression::Print0 => self.printer.put(&[&shown(at), &b"\0"[..]].concat())?,
                Expression::Ls => self.printer.put_line(&line(at, found, people))?,
                _ => self.printer.put_line(&shown(at))?,
            }
        }
        Ok(is_pruned)
    }
}

/// The operand's image and the path, byte for byte.
fn shown(at: &At) -> Vec<u8> {
    at.address.to_os_string().into_encoded_bytes()
}

fn line(at: &At, found: &Found, people: &People) -> Vec<u8> {
    let attributes = &found.attributes;
    let facts = format!(
        "{:9} {:6} {} {:3} {:8} {:8} {:8} {} ",
        attributes.ino,
        attributes.sectors / 2,
        text::mode_string(attributes),
        attributes.links,
        people.user(attributes.uid),
        people.group(attributes.gid),
        attributes.size,
        text::list_time(attributes.modified, text::now()),
    );
    [facts.as_bytes(), &shown(at)].concat()
}
