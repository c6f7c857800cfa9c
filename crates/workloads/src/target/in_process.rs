//! [`InProcess`]: a file system of finefs in this process.

use super::{Entry, Errno, FileType, LockMode, OFlags, Result, Stat, Target};
use finefs::{
    Attributes, Caller, FileKind, Ino, Namespace, OpenAccess, OpenFile, RenameMode, SetAttributes,
};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A finefs file system as a [`Target`]: operations are calls in this process.
pub struct InProcess {
    space: Arc<Namespace>,
    name: String,
    caller: Caller,
}

impl InProcess {
    /// The file system `space`, called `name` in reports. Paths begin at its root.
    pub fn new(space: Arc<Namespace>, name: String) -> InProcess {
        InProcess {
            space,
            name,
            caller: Caller::root(),
        }
    }

    /// Finds `path`, and runs `work` on it while it is referred to.
    fn with<R>(&self, path: &str, work: impl FnOnce(&Attributes) -> Result<R>) -> Result<R> {
        let mut at = self.space.reference(self.space.root()).map_err(errno)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = self.space.lookup(&self.caller, at.ino, name.as_bytes());
            self.space.forget(at.ino, 1);
            at = found.map_err(errno)?;
        }
        let result = work(&at);
        self.space.forget(at.ino, 1);
        result
    }

    /// The same for the directory that `path` lies in, and its last name.
    fn with_parent<R>(
        &self,
        path: &str,
        work: impl FnOnce(Ino, &[u8]) -> finefs::Result<R>,
    ) -> Result<R> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.with(parent, |at| work(at.ino, name.as_bytes()).map_err(errno))
    }

    fn created(&self, parent: Ino, name: &[u8], flags: OFlags) -> finefs::Result<Attributes> {
        if !flags.contains(OFlags::CREATE) {
            return self.space.lookup(&self.caller, parent, name);
        }
        match self.space.create_file(&self.caller, parent, name, 0o644) {
            Err(finefs::Error::Exists) if !flags.contains(OFlags::EXCL) => {
                self.space.lookup(&self.caller, parent, name)
            }
            result => result,
        }
    }
}

impl Target for InProcess {
    type File = InProcessFile;

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<InProcessFile> {
        let access = match flags & OFlags::ACCMODE {
            OFlags::WRONLY => OpenAccess::Write,
            OFlags::RDWR => OpenAccess::ReadWrite,
            _ => OpenAccess::Read,
        };
        self.with_parent(path, |parent, name| {
            let file = self.created(parent, name, flags)?;
            let open = self.space.open(&self.caller, file.ino, access);
            self.space.forget(file.ino, 1);
            let file = InProcessFile {
                space: Arc::clone(&self.space),
                open: open?,
            };
            if flags.contains(OFlags::TRUNC) {
                file.resize(0)?;
            }
            Ok(file)
        })
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        self.with_parent(path, |parent, name| {
            let dir = self
                .space
                .make_directory(&self.caller, parent, name, 0o755)?;
            self.space.forget(dir.ino, 1);
            Ok(())
        })
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        self.with_parent(path, |parent, name| {
            self.space.remove_directory(&self.caller, parent, name)
        })
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        self.with_parent(path, |parent, name| {
            self.space.remove_file(&self.caller, parent, name)
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (to_parent, to_name) = to.rsplit_once('/').unwrap_or(("", to));
        self.with(to_parent, |to_dir| {
            self.with_parent(from, |parent, name| {
                let to = (to_dir.ino, to_name.as_bytes());
                self.space
                    .rename(&self.caller, (parent, name), to, RenameMode::Replace)
            })
        })
    }

    fn hard_link(&self, original: &str, link: &str) -> Result<()> {
        self.with(original, |file| {
            self.with_parent(link, |parent, name| {
                self.space.make_link(&self.caller, file.ino, parent, name)?;
                self.space.forget(file.ino, 1);
                Ok(())
            })
        })
    }

    fn symlink(&self, original: &str, link: &str) -> Result<()> {
        self.with_parent(link, |parent, name| {
            let made = self
                .space
                .make_symlink(&self.caller, parent, name, original.as_bytes())?;
            self.space.forget(made.ino, 1);
            Ok(())
        })
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        self.with(path, |found| Ok(convert(found)))
    }

    fn read_dir(
        &self,
        path: &str,
        mut sink: impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.with(path, |dir| {
            let mut give = |entry: finefs::DirectoryEntry<'_>| {
                matches!(entry.name, b"." | b"..")
                    || sink(Entry {
                        name: entry.name,
                        ino: entry.ino.0,
                        kind: file_type(entry.kind),
                    })
                    .is_continue()
            };
            self.space
                .read_directory(dir.ino, 0, &mut give)
                .map_err(errno)
        })
    }

    fn sync(&self) -> Result<()> {
        self.space.sync().map_err(errno)
    }
}

/// An open file of an [`InProcess`].
pub struct InProcessFile {
    space: Arc<Namespace>,
    open: OpenFile,
}

impl InProcessFile {
    fn resize(&self, size_bytes: u64) -> finefs::Result<()> {
        let change = SetAttributes {
            size_bytes: Some(size_bytes),
            ..SetAttributes::default()
        };
        self.space
            .set_attributes(&Caller::root(), self.open.ino(), &change)
            .map(drop)
    }
}

impl super::File for InProcessFile {
    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        self.space
            .read(self.open.ino(), offset_bytes, buffer)
            .map_err(errno)
    }

    fn write_at(&self, data: &[u8], offset_bytes: u64) -> Result<usize> {
        self.space
            .write(self.open.ino(), offset_bytes, data)
            .map_err(errno)
    }

    fn append(&self, data: &[u8]) -> Result<usize> {
        self.space
            .append(self.open.ino(), data)
            .map(|_| data.len())
            .map_err(errno)
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        self.resize(size_bytes).map_err(errno)
    }

    fn stat(&self) -> Result<Stat> {
        self.space
            .attributes(self.open.ino())
            .map(|found| convert(&found))
            .map_err(errno)
    }

    fn sync_all(&self) -> Result<()> {
        self.space.sync_file(self.open.ino(), false).map_err(errno)
    }

    fn sync_data(&self) -> Result<()> {
        self.space.sync_file(self.open.ino(), true).map_err(errno)
    }

    fn lock(&self, _: Range<u64>, _: LockMode, _: bool) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }

    fn unlock(&self, _: Range<u64>) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }
}

fn errno(error: finefs::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn convert(found: &Attributes) -> Stat {
    Stat {
        ino: found.ino.0,
        kind: file_type(found.kind),
        size_bytes: found.size_bytes,
        link_count: u64::from(found.link_count),
        block_bytes: 4096,
    }
}

fn file_type(kind: FileKind) -> FileType {
    FileType::from_raw_mode(kind.mode_bits())
}
