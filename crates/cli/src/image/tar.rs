//! `finefs tar`

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::{ArgAction, ArgGroup, Args};
use finefs::FileKind;
use finefs_image::archive::{self, Input, Progress, Style};
use finefs_image::build::{self, Existing, Member, Rules, Source};
use finefs_image::tree::{Follow, SourceDir};
use finefs_image::walk::letter;
use finefs_image::{Error, Operand, Packing, Time};

use super::members::Members;
use super::people::People;
use super::session::{Context, Printer, Session, print_line};
use super::text::without_controls;
use super::{Where, building, copying, date, stop, text};
use crate::progress::{self, Companion, Step};
use crate::{CliResult, Failure, output};

/// Write files of an image as a tar archive, put an archive into an image, or list one, as tar(1)
///
/// An archive has all that the image knows: owners as numbers, times with nanoseconds, hard links,
/// holes, device nodes, extended attributes and ACLs; tar --xattrs --xattrs-include='*' --acls
/// --numeric-owner restores it. Names are those in the image, without the first slash.
///
/// -x keeps the same. A file takes the place of one that is there, a directory joins it, also where
/// a symbolic link in the image leads to it. Nothing is changed unless the whole archive can be
/// read and has space.
#[derive(Args)]
#[command(group = ArgGroup::new("operation").required(true), disable_help_flag = true)]
#[command(
    override_usage = "finefs tar -c [-f ARCHIVE] [OPTIONS] IMAGE:/PATH...\n       \
                            finefs tar -x [-f ARCHIVE] [OPTIONS] [MEMBER...] IMAGE:/DIR\n       \
                            finefs tar -t [-f ARCHIVE] [-v] [MEMBER...]"
)]
pub(crate) struct Tar {
    /// Write an archive
    #[arg(short, long, group = "operation")]
    create: bool,
    /// Put an archive into a directory of an image; how it is compressed is found out
    #[arg(short = 'x', long, visible_alias = "get", group = "operation")]
    extract: bool,
    /// List an archive
    #[arg(short = 't', long, group = "operation")]
    list: bool,
    /// IMAGE:/PATH; IMAGE is all of it. With -x members of the archive may stand before it, with
    /// -t there are no others
    #[arg(value_name = "IMAGE:/PATH", required_unless_present_any = ["list", "directories",
          "files_from"])]
    operands: Vec<OsString>,
    /// The archive; - or none for standard input or output
    #[arg(short, long, value_name = "ARCHIVE")]
    file: Option<PathBuf>,
    /// Compress by gzip
    #[arg(short = 'z', long, group = "packing")]
    gzip: bool,
    /// Compress by xz
    #[arg(short = 'J', long, group = "packing")]
    xz: bool,
    /// Compress by zstd
    #[arg(long, group = "packing")]
    zstd: bool,
    /// Compress as the archive's name says
    #[arg(short, long, group = "packing", requires = "file")]
    auto_compress: bool,
    /// Compress by bzip2, which is not there: pack by --zstd, or through bzip2(1)
    #[arg(short = 'j', long, group = "packing")]
    bzip2: bool,
    /// Print names; with -t mode, owner, size and time too
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    #[command(flatten)]
    members: Members,
    /// Write what symbolic links lead to, not the links
    #[arg(short = 'h', long, requires = "create")]
    dereference: bool,
    /// Write this owner of all: a number, a name of the image, or NAME:NUMBER
    #[arg(long, value_name = "USER", requires = "create")]
    owner: Option<String>,
    /// The same of the group
    #[arg(long, value_name = "GROUP", requires = "create")]
    group: Option<String>,
    /// Write this time of all: @SECONDS, YYYY-MM-DD hh:mm:ss, or as '2 days ago'
    #[arg(long, value_name = "TIME", value_parser = date::parse, requires = "create")]
    mtime: Option<Time>,
    /// The order of names, which is theirs whatever it says
    #[arg(long, value_name = "WORD", value_parser = ["name", "none"])]
    sort: Option<String>,
    /// The archive's format, which is pax
    #[arg(long, alias = "posix", value_name = "WORD", value_parser = ["pax", "posix"])]
    format: Option<String>,
    /// Leave files that are there, and name them
    #[arg(short = 'k', long, requires = "extract")]
    keep_old_files: bool,
    /// The same without a word
    #[arg(long, requires = "extract")]
    skip_old_files: bool,
    /// As without it: links to directories are followed
    #[arg(long, requires = "extract")]
    keep_directory_symlink: bool,
    /// What is put into the image belongs to 0:0
    #[arg(long, overrides_with = "preserve", requires = "extract")]
    no_same_owner: bool,
    /// As without it: all attributes are kept, so it takes '*'
    #[arg(long, value_name = "PATTERN", value_parser = ["*", "*.*"])]
    xattrs_include: Vec<String>,
    /// As without it, and as without --numeric-owner, --xattrs, --acls and -S: everything is kept
    #[arg(short = 'p', long = "preserve-permissions", action = ArgAction::Count)]
    #[arg(aliases = ["same-permissions", "same-owner", "numeric-owner"])]
    #[arg(aliases = ["xattrs", "acls", "sparse"])]
    #[arg(short_alias = 'S')]
    preserve: u8,
    #[command(flatten)]
    place: Where,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Letters that may begin without a dash, as in `tar czf ARCHIVE IMAGE`.
const LETTERS: &str = "cxtfzJavpShkj";

/// The words of a command, `tar` the one at `at`, with a dash before letters that have none, and
/// the letter that takes a value behind the others.
pub(crate) fn with_dash(mut words: Vec<OsString>, at: usize) -> Vec<OsString> {
    let is_tar = words.get(at).is_some_and(|word| word == "tar");
    let Some(letters) = words
        .get(at + 1)
        .filter(|_| is_tar)
        .and_then(|word| word.to_str())
    else {
        return words;
    };
    let has_operation = letters.matches(['c', 'x', 't']).count() == 1;
    if has_operation && letters.chars().all(|letter| LETTERS.contains(letter)) {
        let mut dashed = format!("-{}", letters.replace('f', ""));
        if letters.contains('f') {
            dashed.push('f');
        }
        words[at + 1] = dashed.into();
    }
    words
}

/// Status of a failure, as tar(1) has it.
const FAILED: u8 = 2;

impl Tar {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        self.work(context).or_else(|Failure(line)| {
            output::say(line);
            Ok(context.end_with(FAILED))
        })
    }

    fn work(mut self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs tar", &self.place);
        let file = self.file.take().filter(|file| file.as_os_str() != "-");
        let file = file.map(|file| session.host_file(&file)).transpose();
        self.file = file.map_err(Failure::new)?;
        self.members.settle(&session).map_err(Failure::new)?;
        let lacking = self
            .file
            .as_ref()
            .filter(|_| self.auto_compress && self.create);
        let lacking = lacking.and_then(|file| Packing::lacking_of_name(file.as_os_str()));
        if let Some(program) = lacking {
            session.fail_with(
                FAILED,
                format!(
                    "-a: there is no {program}; pack by --zstd, -J or -z, or through {program}(1)"
                ),
            );
            return session.end();
        }
        if self.bzip2 {
            let line = "-j: there is no bzip2; pack by --zstd, -J or -z, or through bzip2(1)";
            session.fail_with(FAILED, line);
            return session.end();
        }
        if self.create && self.operands.is_empty() && self.members.files_from.is_empty() {
            session.fail_with(
                FAILED,
                "an empty archive is not made: name files, . for all, or -T",
            );
            return session.end();
        }
        // Members come before the directory, unless that is given by -C.
        let mut directory = self.members.directory().cloned();
        if self.extract && directory.is_none() {
            directory = self.operands.pop();
        }
        let names = self.members.more_names().map_err(Failure::new)?;
        self.operands.extend(names);
        match (self.extract, self.list) {
            (true, _) => self.extract(session, directory),
            (_, true) => self.list(session),
            _ => self.create(session),
        }
    }

    fn extract(self, mut session: Session, directory: Option<OsString>) -> CliResult<ExitCode> {
        let Some(directory) = directory else {
            return Err(Failure::new("-x: name the directory, as IMAGE:/DIR"));
        };
        let source = match self.file {
            Some(file) => Source::Archive(file),
            None => Source::StandardInput,
        };
        let address = session.address(&directory).map_err(Failure::new)?;
        let mut rules = Rules {
            choice: self.members.choice(&self.operands).map_err(Failure::new)?,
            existing: match (self.keep_old_files, self.skip_old_files) {
                (true, _) => Existing::KeptAndTold,
                (_, true) => Existing::Kept,
                _ => Existing::Replaced,
            },
            ..Rules::default()
        };
        rules.choice.is_noted = self.verbose > 0;
        if self.no_same_owner {
            rules.owners.all = (0, 0).into();
        }
        let jobs = copying::jobs();
        let images = &mut session.images;
        let added = building::watched(&mut |progress| {
            let sources = std::slice::from_ref(&source);
            build::onto(images, &address, sources, &rules, jobs, progress)
        })?;
        match added {
            Ok(added) => {
                let mut printer = Printer::new();
                for member in &added.members {
                    printer.put_line(member.as_os_str().as_encoded_bytes())?;
                }
                printer.flush()?;
                building::say_left_out(&added.left_out);
                if !added.left_out.is_empty() {
                    session.fail_with_silently(FAILED);
                }
            }
            Err(error) if stop::watch_signals()?.load(Ordering::Relaxed) => {
                session.fail_with(stop::INTERRUPTED, error);
            }
            Err(error) => session.fail_with(FAILED, error),
        }
        session.end()
    }

    fn list(self, mut session: Session) -> CliResult<ExitCode> {
        let is_image = |name: &OsString| matches!(Operand::parse(name), Operand::Image(_));
        if self.members.directory().is_some() || self.operands.iter().any(is_image) {
            return Err(Failure::new(
                "-t lists an archive; finefs ls -R and find list an image",
            ));
        }
        let choice = self.members.choice(&self.operands).map_err(Failure::new)?;
        let progress = build::Progress {
            stop: stop::watch_signals()?,
            ..build::Progress::default()
        };
        let mut printer = Printer::new();
        let mut tell = |member: Member| {
            let line = match self.verbose {
                1.. => long(&member),
                0 => member.path.into_os_string().into_encoded_bytes(),
            };
            printer.put_line(&line).map_err(Error::from)
        };
        let told = build::members(self.file.as_deref(), &choice, &progress, &mut tell);
        printer.flush()?;
        match told {
            Err(error) if progress.stop.load(Ordering::Relaxed) => {
                session.fail_with(stop::INTERRUPTED, error);
            }
            Err(error) => session.fail_with(FAILED, error),
            Ok(_) => {}
        }
        session.end()
    }

    fn create(self, mut session: Session) -> CliResult<ExitCode> {
        let inputs = self.inputs(&mut session).map_err(Failure::new)?;
        if inputs.is_empty() && !self.operands.is_empty() {
            return session.end();
        }
        let printed = |name: &Path| {
            let name = name.as_os_str().as_encoded_bytes();
            // Beside the archive, where that goes to standard output.
            match self.file {
                Some(_) => drop(print_line(name)),
                None => {
                    let name = match std::io::stderr().is_terminal() {
                        true => without_controls(name),
                        false => name.to_vec(),
                    };
                    let _ = std::io::stderr().write_all(&[&name, &b"\n"[..]].concat());
                }
            }
        };
        let mut style = self.style(&mut session).map_err(Failure::new)?;
        style.tell = (self.verbose > 0).then_some(&printed);
        let progress = Arc::new(Progress {
            stop: stop::watch_signals()?,
            ..Progress::default()
        });
        let written = match &self.file {
            Some(file) => {
                let _bar = bar(&progress);
                archive::write_file(file, &inputs, &style, &progress)
            }
            None => {
                let mut output = std::io::stdout().lock();
                if output.is_terminal() {
                    let line = "an archive is not for a terminal; name a file with -f";
                    return Err(Failure::new(line));
                }
                archive::write(&mut output, "standard output", &inputs, &style, &progress)
            }
        };
        drop(inputs);
        match written {
            // What archives cannot hold does not fail tar(1) either.
            Ok(left_out) => left_out.iter().for_each(output::say),
            Err(error) if progress.stop.load(Ordering::Relaxed) => {
                session.fail_with(stop::INTERRUPTED, error);
            }
            // Its reader may go at any time, and knows that it is not whole.
            Err(error) if error.errno() == Some(libc::EPIPE) => session.fail_with_silently(FAILED),
            Err(error) => session.fail_with(FAILED, error),
        }
        session.end()
    }

    /// What goes into an archive, and the names that it gets there. What is missing in an image is
    /// told, and the rest goes in.
    fn inputs(&self, session: &mut Session) -> finefs_image::Result<Vec<Input>> {
        let base = self.members.directory();
        let base = base
            .map(|directory| session.address(directory))
            .transpose()?;
        let mut inputs = Vec::new();
        for operand in &self.operands {
            let (address, called) = match &base {
                Some(base) => {
                    let path = base.path.join(operand);
                    (base.with_path(path), PathBuf::from(operand))
                }
                None => {
                    let address = session.address(operand)?;
                    let path = address.path.clone();
                    (address, path)
                }
            };
            let path = called.components();
            let path = path.filter(|part| matches!(part, Component::Normal(_)));
            let path = path.collect();
            let input = session.images.source_of(&Operand::Image(address));
            let is_there = |(dir, name): (Arc<dyn SourceDir>, OsString)| {
                dir.attributes(&name, Follow::No).map(|_| (dir, name))
            };
            match input.and_then(is_there) {
                Ok((dir, name)) => inputs.push(Input { dir, name, path }),
                Err(error) if error.is_missing() => session.fail_with(FAILED, error),
                Err(error) => return Err(error),
            }
        }
        Ok(inputs)
    }

    /// How an archive is written.
    fn style(&self, session: &mut Session) -> finefs_image::Result<Style<'_>> {
        let packing = match &self.file {
            _ if self.gzip => Packing::Gzip,
            _ if self.xz => Packing::Xz,
            _ if self.zstd => Packing::Zstd,
            Some(file) if self.auto_compress => Packing::of_name(file.as_os_str()),
            _ => Packing::None,
        };
        let mut style = Style::of(packing);
        style.choice = self.members.choice(&[])?;
        if self.dereference {
            style.follow = Follow::Yes;
        }
        style.modified = self.mtime;
        let place = self.members.directory().or(self.operands.first());
        let people = match place {
            Some(place) if self.owner.is_some() || self.group.is_some() => {
                People::of(&session.read(place)?.fs)
            }
            _ => People::nobody(),
        };
        let number = |word: &String, of_name: Option<u32>| {
            let number = word
                .rsplit_once(':')
                .map_or(word.as_str(), |(_, number)| number);
            let number = number.trim_start_matches('+').parse().ok().or(of_name);
            number.ok_or_else(|| Error::new(word, "the image knows no such name; give a number"))
        };
        if let Some(owner) = &self.owner {
            style.owner = Some(number(owner, people.uid(owner))?);
        }
        if let Some(group) = &self.group {
            style.group = Some(number(group, people.gid(group))?);
        }
        Ok(style)
    }
}

/// A line as `tar --numeric-owner -tv` has it.
fn long(member: &Member) -> Vec<u8> {
    let letter = match (member.kind, &member.target) {
        (Some(kind), _) => letter(kind),
        (None, Some(_)) => 'h',
        (None, None) => '?',
    };
    let owner = format!("{}/{}", member.uid, member.gid);
    let size = match member.kind {
        Some(FileKind::CharDevice | FileKind::BlockDevice) => {
            let (major, minor) = (
                rustix::fs::major(member.rdev),
                rustix::fs::minor(member.rdev),
            );
            format!("{major},{minor}")
        }
        _ => member.size.to_string(),
    };
    let mode = text::mode_text(letter, member.permissions);
    let time = text::minute(member.modified);
    // As wide as tar's own, which widens as it goes.
    let width = 18usize.saturating_sub(owner.len());
    let mut line = format!("{mode} {owner} {size:>width$} {time} ").into_bytes();
    line.extend(member.path.as_os_str().as_encoded_bytes());
    if let Some(target) = &member.target {
        let arrow = match member.kind {
            Some(_) => &b" -> "[..],
            None => b" link to ",
        };
        line.extend(arrow);
        line.extend(target.as_os_str().as_encoded_bytes());
    }
    line
}

/// Shows how far it is.
fn bar(progress: &Arc<Progress>) -> Option<Companion> {
    let progress = Arc::clone(progress);
    progress::bar(move || Step {
        message: format!("{} files", progress.files.load(Ordering::Relaxed)),
        bytes: progress.bytes.load(Ordering::Relaxed),
        bytes_all: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_need_no_dash() {
        let dashed = |line: &str, at: usize| {
            let words = with_dash(line.split(' ').map(OsString::from).collect(), at);
            words.join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(dashed("finefs tar cfz a b", 1), "finefs tar -czf a b");
        assert_eq!(dashed("tar tv", 0), "tar -tv");
        for other in ["tar -cf a b", "tar cat", "tar vf", "tar", "ls cf"] {
            assert_eq!(dashed(other, 0), other);
        }
    }
}
