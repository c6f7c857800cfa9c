//! How files are opened.

use finefs_namespace::{AtimeUpdate, Create, Error as Cause, LastLink, OpenAccess, OpenHow};

use crate::file::WritePosition;

/// How a file is opened, as [`std::fs::OpenOptions`] has it.
///
/// ```
/// use finefs::{FileSystem, OpenOptions};
/// use std::io::Write;
///
/// let fs = FileSystem::memory(1 << 20)?;
/// let mut log = OpenOptions::new().append(true).create(true).mode(0o640).open(&fs, "log")?;
/// writeln!(log, "started")?;
/// assert_eq!(fs.metadata("log")?.permissions().mode(), 0o640);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    reads: bool,
    writes: bool,
    appends: bool,
    truncates: bool,
    creates: bool,
    creates_new: bool,
    last_link: LastLink,
    is_directory_wanted: bool,
    notes_access: bool,
    has_flags_of_open: bool,
    pub(crate) mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

/// Functions that set a field, each with its documentation.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($kind:ty) => $field:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&mut self, value: $kind) -> &mut OpenOptions {
                self.$field = value;
                self
            }
        )*
    };
}

impl OpenOptions {
    /// Nothing is asked for yet; opening so is refused (EINVAL).
    pub fn new() -> OpenOptions {
        OpenOptions {
            reads: false,
            writes: false,
            appends: false,
            truncates: false,
            creates: false,
            creates_new: false,
            last_link: LastLink::Follow,
            is_directory_wanted: false,
            notes_access: true,
            has_flags_of_open: false,
            mode: 0o666,
        }
    }

    setters! {
        /// For reading.
        read(bool) => reads;

        /// For writing.
        write(bool) => writes;

        /// For writing at the end: each write goes to the end of the file as it is then, whole.
        append(bool) => appends;

        /// The file is emptied. Needs `write`.
        truncate(bool) => truncates;

        /// The file is made if it is not there. Needs `write` or `append`.
        create(bool) => creates;

        /// The file is made, EEXIST if the name is there. Needs `write` or `append`.
        create_new(bool) => creates_new;

        /// Permission bits of a new file, before the caller's umask. 0666 if nothing is said.
        mode(u32) => mode;

        /// What becomes of a symbolic link at the end of the path: it is followed if nothing is
        /// said, and kept it fails with ELOOP (O_NOFOLLOW).
        last_link(LastLink) => last_link;

        /// ENOTDIR for anything but a directory (O_DIRECTORY). EINVAL together with making a file.
        directory(bool) => is_directory_wanted;

        /// Whether reads are noted in the access time as the file system's policy says, as they are
        /// if nothing is said. Not to (O_NOATIME) is for the file's owner and for root, EPERM for
        /// others.
        note_access(bool) => notes_access;

        /// What the others say are flags as open(2) has them, each with a meaning of its own:
        /// `append` does not open for writing, and `truncate` and `create` go with every access. A
        /// file that is opened for reading alone is emptied if it may be written.
        #[doc(hidden)]
        flags_of_open(bool) => has_flags_of_open;
    }

    pub(crate) fn write_position(&self) -> WritePosition {
        match self.appends {
            true => WritePosition::End,
            false => WritePosition::Current,
        }
    }

    pub(crate) fn atime(&self) -> AtimeUpdate {
        match self.notes_access {
            true => AtimeUpdate::ByPolicy,
            false => AtimeUpdate::Never,
        }
    }

    /// EINVAL for what contradicts itself, by the rules of [`std::fs::OpenOptions`] or of open(2).
    pub(crate) fn how(&self) -> std::result::Result<(OpenHow, OpenAccess), Cause> {
        let is_strict = !self.has_flags_of_open;
        let access = match (self.reads, self.writes || self.appends && is_strict) {
            (true, false) => OpenAccess::Read,
            (false, true) => OpenAccess::Write,
            (true, true) => OpenAccess::ReadWrite,
            (false, false) => return Err(Cause::Invalid),
        };
        let needs_write = self.truncates || self.creates || self.creates_new;
        let lacks_write = needs_write && access == OpenAccess::Read;
        let truncates_appended = self.appends && self.truncates && !self.creates_new;
        let creates_directory = self.is_directory_wanted && (self.creates || self.creates_new);
        if is_strict && (lacks_write || truncates_appended) || creates_directory {
            return Err(Cause::Invalid);
        }
        let permissions = self.mode & 0o7777;
        let how = OpenHow {
            access: Some(access),
            is_truncated: self.truncates && !self.creates_new,
            create: match (self.creates_new, self.creates) {
                (true, _) => Create::New { permissions },
                (_, true) => Create::IfMissing { permissions },
                _ => Create::Never,
            },
            last_link: self.last_link,
            is_directory_wanted: self.is_directory_wanted,
            atime: self.atime(),
        };
        Ok((how, access))
    }
}
