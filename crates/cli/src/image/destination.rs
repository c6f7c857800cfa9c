//! Where cp and mv put copies.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs::FileKind;
use finefs_image::address::{demands_directory, split_path, without_slashes};
use finefs_image::copy::{self, Links, Makes, Options, Task};
use finefs_image::tree::{Follow, SinkDir};
use finefs_image::{Error, Operand, Result};

use super::session::Session;

/// Where copies go: into a directory, or to a name in one.
pub(super) struct Destination {
    place: Place,
    is_directory: bool,
    /// A slash at its end lets nothing but a directory be made there.
    demands_directory: bool,
    /// The symbolic link that DEST is, which led to the place.
    link: Option<Place>,
    /// It leads to nothing.
    is_dangling: bool,
}

/// A name in a directory.
#[derive(Clone)]
struct Place {
    dir: Arc<dyn SinkDir>,
    name: OsString,
}

impl Place {
    fn shown(&self) -> String {
        self.dir.shown(&self.name)
    }
}

/// What is at the path of a destination.
struct Found {
    named: PathBuf,
    is_link: bool,
    is_directory: bool,
    /// Where the path leads, if something is there.
    leads_to: Option<PathBuf>,
}

impl Found {
    fn at(session: &mut Session, to: &Operand) -> Result<Found> {
        match to {
            Operand::Image(address) => {
                let fs = session.images.open(address, finefs_image::Access::Write)?;
                let named = &address.path;
                let own = fs.symlink_metadata(without_slashes(named));
                Ok(Found {
                    is_link: own.is_ok_and(|found| found.is_symlink()),
                    is_directory: fs.metadata(named).is_ok_and(|found| found.is_dir()),
                    leads_to: fs.canonicalize(named).ok(),
                    named: named.clone(),
                })
            }
            Operand::Host(named) => Ok(Found {
                is_link: without_slashes(named).is_symlink(),
                is_directory: named.is_dir(),
                leads_to: std::fs::canonicalize(named).ok(),
                named: named.clone(),
            }),
            Operand::Standard => Err(Error::new("-", "is no directory")),
        }
    }
}

impl Destination {
    /// What DEST means. A symbolic link that the user names is followed by what becomes a regular
    /// file, in an image within it.
    pub fn find(
        session: &mut Session,
        to: &Operand,
        may_be_directory: bool,
    ) -> Result<Destination> {
        let found = Found::at(session, to)?;
        let with = |path: &Path| match to {
            Operand::Image(address) => Operand::Image(address.with_path(path.to_owned())),
            _ => Operand::Host(path.to_owned()),
        };
        let demands_directory = demands_directory(&found.named);
        if found.is_directory && may_be_directory {
            return Ok(Destination {
                place: Place {
                    dir: session.images.sink_of(&with(&found.named))?,
                    name: OsString::from("."),
                },
                is_directory: true,
                demands_directory,
                link: None,
                is_dangling: false,
            });
        }
        let mut place_of = |path: &Path| -> Result<Place> {
            let (parent, name) = split_path(path);
            let dir = session.images.sink_of(&with(&parent))?;
            Ok(Place { dir, name })
        };
        let own = place_of(&found.named)?;
        let place = match &found.leads_to {
            Some(path) if found.is_link => place_of(path)?,
            _ => own.clone(),
        };
        let is_there =
            || Ok::<bool, Error>(place.name == "." || place.dir.find(&place.name)?.is_some());
        if demands_directory && !found.is_directory && is_there()? {
            return Err(Error::new(own.shown(), "is no directory"));
        }
        Ok(Destination {
            is_dangling: found.is_link && found.leads_to.is_none(),
            link: (found.is_link && !demands_directory).then_some(own),
            place,
            is_directory: false,
            demands_directory,
        })
    }

    /// True if copies go into a directory that is there.
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// The place for what is made of this kind of file.
    fn place_for(&self, kind: FileKind, name: &OsStr, options: &Options) -> Result<Place> {
        let is_copied = options.makes == Makes::Copies;
        if self.is_directory {
            return Ok(Place {
                dir: Arc::clone(&self.place.dir),
                name: name.to_owned(),
            });
        }
        if self.demands_directory && kind != FileKind::Directory {
            let shown = format!("{}/", self.place.shown());
            return Err(Error::host(shown, rustix::io::Errno::NOTDIR));
        }
        match &self.link {
            Some(link) if kind == FileKind::Directory => {
                let reason = "is no directory, and would be replaced by one";
                Err(Error::new(link.shown(), reason))
            }
            Some(link) if kind != FileKind::Regular || !is_copied || options.removes_existing => {
                Ok(link.clone())
            }
            Some(link) if self.is_dangling => {
                let reason = "is a symbolic link to nothing, and is not written through";
                Err(Error::new(link.shown(), reason))
            }
            _ => Ok(self.place.clone()),
        }
    }

    /// What is to be done with a source.
    pub fn task(&self, session: &mut Session, source: &Operand, options: &Options) -> Result<Task> {
        let (dir, name) = session.images.source_of(source)?;
        let follow = match options.links {
            Links::Kept => Follow::No,
            Links::FollowedIfNamed | Links::Followed => Follow::Yes,
        };
        let kind = dir.attributes(&name, follow)?.kind;
        // A slash may have led through a symbolic link, whose name the copy gets.
        let called = match source {
            Operand::Image(address) => split_path(&address.path).1,
            Operand::Host(path) => split_path(path).1,
            Operand::Standard => name.clone(),
        };
        let place = self.place_for(kind, &called, options)?;
        Ok(Task {
            to: place.name,
            source: dir,
            name,
            sink: place.dir,
        })
    }

    /// Copies standard input.
    pub fn take_input(&self, shown: &OsStr, options: &Options) -> Result<()> {
        if self.is_directory {
            return Err(Error::new(
                "-",
                "has no name; name the file that it becomes",
            ));
        }
        self.take(&mut std::io::stdin().lock(), shown, shown, options)
    }

    /// Copies what a pipe of the host or the like gives.
    pub fn take_stream(&self, source: &Operand, options: &Options) -> Result<()> {
        let Operand::Host(path) = source else {
            return Ok(());
        };
        let shown = path.as_os_str();
        let file = std::fs::File::open(path);
        let mut file = file.map_err(|error| Error::host(path.display().to_string(), error))?;
        self.take(&mut file, shown, path.file_name().unwrap_or(shown), options)
    }

    fn take(
        &self,
        stream: &mut dyn Read,
        shown: &OsStr,
        name: &OsStr,
        options: &Options,
    ) -> Result<()> {
        let place = self.place_for(FileKind::Regular, name, options)?;
        copy::from_stream(
            stream,
            &shown.display().to_string(),
            &*place.dir,
            &place.name,
            options,
        )
    }
}
