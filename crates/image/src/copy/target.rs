//! Directories that are being filled.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;

use super::Context;
use crate::attributes::Change;
use crate::error::{Error, Result};
use crate::tree::SinkDir;

/// A directory that is being filled. When the last reference goes it gets its attributes, and, if
/// it was made beside its place, its name.
pub(super) struct Target<'a> {
    pub dir: Arc<dyn SinkDir>,
    /// What to set in the end; `None` leaves it as it is.
    pub change: Option<Change>,
    /// Where it was made beside its place.
    pub fresh: Option<Arc<Fresh>>,
    /// True for the directory that [`Fresh`] names, false for those in it.
    pub is_top: bool,
    /// Directories that are made in it get the set-group-id bit, as it has it.
    pub is_set_group: bool,
    /// Keeps the directory above until this one is whole.
    pub parent: Option<Arc<Target<'a>>>,
    pub context: Context<'a>,
}

/// A tree that has a name of its own until it is whole.
pub(super) struct Fresh {
    pub parent: Arc<dyn SinkDir>,
    pub temporary: OsString,
    pub name: OsString,
    pub is_renamed: AtomicBool,
}

impl Fresh {
    /// Where a path in the tree lies now.
    pub fn now(&self, path: &Path) -> PathBuf {
        let temporary = self.parent.path_of(&self.temporary);
        match path.strip_prefix(temporary) {
            Ok(rest) if self.is_renamed.load(Ordering::Acquire) => {
                self.parent.path_of(&self.name).join(rest)
            }
            _ => path.to_owned(),
        }
    }

    fn finish(&self, is_whole: bool) -> Result<()> {
        if !is_whole {
            return self.parent.remove_all(&self.temporary);
        }
        self.parent.rename(&self.temporary, &self.name)?;
        self.is_renamed.store(true, Ordering::Release);
        Ok(())
    }
}

impl Target<'_> {
    fn finish(&mut self) {
        let is_whole = !self.context.progress.is_stopped();
        if let Some(change) = self.change.take().filter(|_| is_whole) {
            match self.dir.apply(OsStr::new("."), &change) {
                Ok(lacking) => self.context.progress.note(lacking),
                Err(error) => self.context.fail(&error),
            }
        }
        if std::mem::take(&mut self.is_top)
            && let Some(fresh) = &self.fresh
            && let Err(error) = fresh.finish(is_whole)
        {
            self.context.fail(&error);
        }
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        self.finish();
        // Not one within the other: a tree may be deeper than the stack.
        let mut above = self.parent.take();
        while let Some(mut target) = above.and_then(Arc::into_inner) {
            target.finish();
            above = target.parent.take();
        }
    }
}

/// A name beside `name` that nothing has, for what is not whole yet. An append-only directory has
/// none, since it would stay there.
pub(crate) fn temporary(dir: &dyn SinkDir, name: &OsStr) -> Result<OsString> {
    if dir.is_append_only()? {
        return Err(Error::host(dir.shown(name), Errno::PERM));
    }
    loop {
        let candidate = temporary_name(name);
        if dir.find(&candidate)?.is_none() {
            return Ok(candidate);
        }
    }
}

/// Another name each time, which tells people what `name` it is for and which process makes it.
pub(crate) fn temporary_name(name: &OsStr) -> OsString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Long names are cut, between bytes.
    let stem = name.as_encoded_bytes();
    let stem = String::from_utf8_lossy(&stem[..stem.len().min(160)]).into_owned();
    format!(".{stem}.finefs-{}-{number}", std::process::id()).into()
}
