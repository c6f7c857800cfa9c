//! A file system, from its opening to its close.

use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use finefs_block::Claim;
use finefs_namespace::{Caller, Namespace, StatFs};

use crate::caller::superuser;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::image::{Disk, Image, ImageOptions, open_image};
use crate::memory::MemoryOptions;
use crate::view::{Mounted, View};

/// An open image or memory file system, as one caller sees it. Clones are cheap and share it.
///
/// It is used as its root directory: every operation on paths is a method of [`Dir`].
///
/// ```no_run
/// use finefs::FileSystem;
///
/// let fs = FileSystem::open_image("disk.img")?;
/// fs.create_dir_all("etc/conf.d")?;
/// fs.write("etc/conf.d/motd", "hello")?;
/// fs.close()?;
/// # Ok::<(), finefs::Error>(())
/// ```
///
/// # The caller
/// Whoever opens a file system acts as its superuser: no permission is checked, what is made
/// belongs to user 0 and group 0, and the umask is 022. [`FileSystem::as_caller`] gives a view with
/// the rights of somebody else, [`crate::process_caller`] those of this process.
///
/// # The end
/// What was done is on the image after [`sync`](FileSystem::sync), after the commit that follows it
/// (5 s later, if nothing else is set), and after [`close`](FileSystem::close), which says whether
/// all of it is. When the last handle goes without that (clones, files and directories count), the
/// file system is closed too, but an error can only be logged.
///
/// # After fork(2)
/// It is its parent's: in the forked process nothing comes onto the image, syncs and
/// [`close`](FileSystem::close) fail (EIO), and handles that go there end nothing. Nothing else
/// there may use it: locks may be held by threads that only the parent has.
#[derive(Clone)]
pub struct FileSystem {
    root: Arc<Dir>,
}

impl ImageOptions {
    /// Opens the image at `path`: a file or a block device with an ext2, ext3 or ext4 file system,
    /// or with reiserfs. Nobody else may write it meanwhile, and unless it is opened read-only
    /// nobody else may use it.
    pub fn open(self, path: impl AsRef<Path>) -> Result<FileSystem> {
        Ok(FileSystem::from_image(open_image(path.as_ref(), self)?))
    }

    /// Opens one of the file systems of a disk.
    #[doc(hidden)]
    pub fn open_on(self, disk: &Disk) -> Result<FileSystem> {
        Ok(FileSystem::from_image(disk.file_system(self)?))
    }

    /// The same of a disk of which nothing else is open: closing the file system lets others have
    /// the disk, too.
    #[doc(hidden)]
    pub fn open_alone_on(self, disk: &Disk) -> Result<FileSystem> {
        let claim = disk.claim().cloned();
        let image = disk.file_system(self)?;
        Ok(FileSystem::from_image(Image { claim, ..image }))
    }
}

impl MemoryOptions {
    /// A file system of at most `size_bytes`, gone when it is closed. EINVAL for a size that holds
    /// nothing.
    pub fn open(self, size_bytes: u64) -> Result<FileSystem> {
        Ok(FileSystem::of(self.open_namespace(size_bytes)?, Vec::new()))
    }
}

impl FileSystem {
    /// Opens an image, to read and write: a file or a block device with an ext2, ext3 or ext4 file
    /// system, or with reiserfs. [`ImageOptions`] has every other way.
    pub fn open_image(path: impl AsRef<Path>) -> Result<FileSystem> {
        ImageOptions::new().open(path)
    }

    /// A file system in memory of at most `size_bytes`, gone when it is closed. EINVAL for a size
    /// that holds nothing.
    /// [`MemoryOptions`] has every other way.
    pub fn memory(size_bytes: u64) -> Result<FileSystem> {
        MemoryOptions::new().open(size_bytes)
    }

    /// A file system over a namespace, which it shuts down at its end.
    #[doc(hidden)]
    pub fn of(namespace: Arc<Namespace>, notes: Vec<String>) -> FileSystem {
        FileSystem::claimed(namespace, notes, Vec::new())
    }

    fn from_image(image: Image) -> FileSystem {
        let claims = image.claim.into_iter().chain(image.journal_claim);
        FileSystem::claimed(image.namespace, image.notes, claims.collect())
    }

    fn claimed(namespace: Arc<Namespace>, notes: Vec<String>, claims: Vec<Claim>) -> FileSystem {
        let mounted = Arc::new(Mounted {
            namespace,
            notes,
            claims,
        });
        FileSystem {
            root: Arc::new(Dir::root(View::new(mounted, superuser()))),
        }
    }

    /// The same file system with the rights of `caller`. The view is worth keeping: making one for
    /// each operation costs more than the operation.
    pub fn as_caller(&self, caller: Caller) -> FileSystem {
        let view = View::new(Arc::clone(&self.root.view().mounted), caller);
        FileSystem {
            root: Arc::new(Dir::root(view)),
        }
    }

    /// In whose name this view acts.
    pub fn caller(&self) -> &Caller {
        self.root.caller()
    }

    /// Returns when everything that was done before is on the image.
    pub fn sync(&self) -> Result<()> {
        self.namespace()
            .sync()
            .map_err(|cause| Error::new("sync", cause))
    }

    /// Lets the data of files that waits in memory go to the image, without their names and
    /// attributes: the next [`FileSystem::sync`] has less to do. For a thread beside those that
    /// make many files.
    pub fn write_back_data(&self) -> Result<()> {
        self.namespace()
            .write_back_data()
            .map_err(|cause| Error::new("write back data", cause))
    }

    /// Ends the file system: everything is written out, the image is marked clean. All handles that
    /// are still open fail from now on (EIO), and do not keep others from the image nor from the
    /// device of its journal. An error says that something is not on the image.
    pub fn close(self) -> Result<()> {
        let closed = self.namespace().shut_down();
        for claim in &self.root.view().mounted.claims {
            claim.release();
        }
        closed.map_err(|cause| Error::new("close", cause))
    }

    /// The label; empty where there is none.
    pub fn label(&self) -> OsString {
        OsString::from_vec(self.namespace().label())
    }

    /// Sets the label, durably. EINVAL for one that is too long: ext has room for 16 bytes.
    pub fn set_label(&self, label: impl AsRef<OsStr>) -> Result<()> {
        self.namespace()
            .set_label(self.caller(), label.as_ref().as_bytes())
            .map_err(|cause| Error::new("set label", cause))
    }

    /// Gives the storage below free space back, where it is free in one run of at least so many
    /// bytes (fstrim(8)); tells how many bytes it was. EOPNOTSUPP where the image lies on something
    /// that takes nothing back.
    pub fn trim(&self, run_min_bytes: u64) -> Result<u64> {
        self.namespace()
            .trim(self.caller(), 0..u64::MAX, run_min_bytes)
            .map_err(|cause| Error::new("trim", cause))
    }

    /// Space and inodes, all and free.
    pub fn statfs(&self) -> StatFs {
        self.namespace().statfs()
    }

    /// What the user should know, a line each: why it is read-only, what is damaged.
    pub fn notes(&self) -> &[String] {
        &self.root.view().mounted.notes
    }

    /// True when it refuses every change.
    pub fn is_read_only(&self) -> bool {
        self.namespace().is_read_only()
    }

    /// How often files were closed: in all, on the CPU that had opened them, and on its NUMA node.
    /// The list of open files has a part for each CPU; this says how local its use is.
    #[doc(hidden)]
    pub fn open_file_removals(&self) -> finefs_namespace::Removals {
        self.namespace().open_file_removals()
    }

    /// Number of open files and directories, of all views.
    #[doc(hidden)]
    pub fn open_file_count(&self) -> u64 {
        self.namespace().open_file_count()
    }

    /// The level below, which a front end works on that has inode numbers, as FUSE does.
    #[doc(hidden)]
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.root.view().mounted.namespace
    }
}

impl Deref for FileSystem {
    type Target = Dir;

    fn deref(&self) -> &Dir {
        &self.root
    }
}

impl std::fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSystem")
            .field("caller", self.caller())
            .field("is_read_only", &self.is_read_only())
            .finish()
    }
}
