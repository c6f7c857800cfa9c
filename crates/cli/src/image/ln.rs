//! `finefs ln`

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use finefs::FileSystem;
use finefs_image::address::split_path;
use finefs_image::{Address, Operand};

use super::Where;
use super::make::{place_for, tell};
use super::session::{At, Context, Session};
use crate::CliResult;
use crate::output::ask;

/// Make links in an image, as ln(1)
#[derive(Args)]
#[command(
    override_usage = "finefs ln [OPTIONS] IMAGE:/FILE... IMAGE:/LINK\n       \
                            finefs ln -s [OPTIONS] TARGET... IMAGE:/LINK\n       \
                            finefs ln [OPTIONS] -t IMAGE:/DIR IMAGE:/FILE..."
)]
pub(crate) struct Ln {
    /// What is linked to, and the link or the directory for it
    #[arg(value_name = "FILE", required = true)]
    operands: Vec<OsString>,
    /// Symbolic links, whose targets are any text
    #[arg(short, long)]
    symbolic: bool,
    /// With -s, where the targets are from the link's directory on; they are IMAGE:/FILE or /FILE
    #[arg(short, long, requires = "symbolic")]
    relative: bool,
    /// Replace what is there
    #[arg(short, long, overrides_with = "interactive")]
    force: bool,
    /// Ask before what is there is replaced
    #[arg(short, long, overrides_with = "force")]
    interactive: bool,
    /// Hard links to what symbolic links lead to
    #[arg(short = 'L', long, overrides_with = "physical")]
    logical: bool,
    /// Hard links to symbolic links themselves, as without it
    #[arg(short = 'P', long)]
    physical: bool,
    /// The directory to make links in
    #[arg(short, long, value_name = "DIR")]
    target_directory: Option<OsString>,
    /// The last operand is the link, not a directory for it
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// The same if it is a symbolic link to a directory
    #[arg(short, long)]
    no_dereference: bool,
    /// Say what is made
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    place: Where,
}

impl Ln {
    pub(crate) fn run(mut self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs ln", &self.place);
        let mut targets = std::mem::take(&mut self.operands);
        let has_directory = self.target_directory.is_some();
        let last = match self.target_directory.take() {
            Some(directory) => directory,
            None if targets.len() < 2 => {
                session.fail("give what is linked to, and the link");
                return session.end();
            }
            None => targets.pop().expect("there are two"),
        };
        let last = session.write(&last);
        let Some(last) = session.check(last) else {
            return session.end();
        };
        let found = last.fs.symlink_metadata(last.path());
        let is_kept_link = self.no_dereference && found.is_ok_and(|found| found.is_symlink());
        let may_be_directory = !self.no_target_directory && !is_kept_link;
        let found = last.fs.metadata(last.path());
        let is_directory = may_be_directory && found.is_ok_and(|found| found.is_dir());
        if (targets.len() > 1 || has_directory) && !is_directory {
            session.fail(last.refused("is no directory"));
            return session.end();
        }
        for target in &targets {
            let done = self.link(&session, target, &last, may_be_directory);
            session.check(done);
        }
        session.end()
    }

    fn link(
        &self,
        session: &Session<'_>,
        target: &OsStr,
        last: &At,
        may_be_directory: bool,
    ) -> finefs_image::Result<()> {
        let original = match (self.symbolic, self.relative) {
            (true, false) => Path::new(target).to_owned(),
            (true, true) => self.absolute(session, target, last)?,
            (false, _) => self.original(session, target, last)?,
        };
        let name = original.file_name().unwrap_or(OsStr::new(".")).to_owned();
        let link = place_for(last, &name, may_be_directory);
        let original = match self.relative {
            true => relative(&link, &original),
            false => original,
        };
        let found = link.fs.symlink_metadata(link.path());
        if (self.force || self.interactive) && found.is_ok_and(|found| !found.is_dir()) {
            let is_same = self.is_same_file(&original, &link);
            if is_same && is_same_name(&link, &original) {
                return Err(link.refused("is the same file"));
            }
            if is_same {
                return self.say_made(&link, &original);
            }
            if self.interactive && !ask(&format!("replace '{}'?", link.address)) {
                return Ok(());
            }
            link.told(link.fs.remove_file(link.path()))?;
        }
        link.told(match self.symbolic {
            true => link.fs.symlink(&original, link.path()),
            false => link.fs.hard_link(&original, link.path()),
        })?;
        self.say_made(&link, &original)
    }

    fn say_made(&self, link: &At, original: &Path) -> finefs_image::Result<()> {
        let arrow = if self.symbolic { "->" } else { "=>" };
        match self.verbose {
            true => tell(
                link,
                &format!("'{}' {arrow} '{}'", link.address, original.display()),
            ),
            false => Ok(()),
        }
    }

    /// What a hard link leads to: a file of the same image.
    fn original(
        &self,
        session: &Session<'_>,
        target: &OsStr,
        last: &At,
    ) -> finefs_image::Result<PathBuf> {
        match session.operand(target) {
            Operand::Image(Address { image, path }) if image == last.address.image => {
                match self.logical {
                    true => last.with(&path).told(last.fs.canonicalize(&path)),
                    false => Ok(path),
                }
            }
            Operand::Image(address) => Err(last
                .with(address.path)
                .refused("is in another image; a hard link leads to a file of its own")),
            _ => Err(finefs_image::Error::new(
                target.display().to_string(),
                "names no file in an image; write IMAGE:/PATH, or -s for a symbolic link",
            )),
        }
    }

    /// What a relative link leads to, as a path of the image.
    fn absolute(
        &self,
        session: &Session<'_>,
        target: &OsStr,
        last: &At,
    ) -> finefs_image::Result<PathBuf> {
        match session.operand(target) {
            Operand::Image(Address { image, path }) if image == last.address.image => Ok(path),
            Operand::Host(path) if path.is_absolute() => Ok(path),
            _ => Err(finefs_image::Error::new(
                target.display().to_string(),
                "is no path of the image; with -r write IMAGE:/PATH or /PATH",
            )),
        }
    }

    /// Whether the link is there already, as a hard link to the file.
    fn is_same_file(&self, original: &Path, link: &At) -> bool {
        let ino = |path: &Path| link.fs.symlink_metadata(path).map(|found| found.ino()).ok();
        !self.symbolic && ino(original).is_some_and(|own| Some(own) == ino(link.path()))
    }
}

/// Whether two paths are one name in one directory: to replace it would lose the file.
fn is_same_name(link: &At, original: &Path) -> bool {
    let place = |path: &Path| {
        let (parent, name) = split_path(path);
        link.fs
            .canonicalize(parent)
            .ok()
            .map(|parent| (parent, name))
    };
    place(link.path()) == place(original)
}

/// The way from a link's directory to a path of its image. Symbolic links are looked through as far
/// as the path is there.
fn relative(link: &At, original: &Path) -> PathBuf {
    let above = link.path().parent().unwrap_or(Path::new("/"));
    let (from, to) = (resolved(&link.fs, above), resolved(&link.fs, original));
    let common = from
        .components()
        .zip(to.components())
        .take_while(|(one, other)| one == other)
        .count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    let way: PathBuf = up.chain(to.components().skip(common)).collect();
    match way.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => way,
    }
}

/// A path without symbolic links and `..`, as far as it is there; the rest by its words.
fn resolved(fs: &FileSystem, path: &Path) -> PathBuf {
    for above in path.ancestors() {
        let Ok(mut found) = fs.canonicalize(above) else {
            continue;
        };
        let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
        for part in rest.components() {
            match part {
                Component::ParentDir => drop(found.pop()),
                Component::Normal(name) => found.push(name),
                _ => {}
            }
        }
        return found;
    }
    path.to_owned()
}
