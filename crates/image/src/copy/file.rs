//! Copying what is no directory.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use finefs::FileKind;
use rustix::io::Errno;

use super::target::{Target, temporary};
use super::{Context, Existing, Links, Makes, Options, data};
use crate::attributes::{Attributes, Change, Lacking, Xattr};
use crate::error::{Error, Result};
use crate::tree::{Follow, SinkDir, SinkFile, SourceDir, SourceFile};

/// Bytes that are moved at a time.
const CHUNK: usize = 1 << 20;

/// A file to copy.
pub(super) struct Work<'a> {
    pub source: Arc<dyn SourceDir>,
    pub name: OsString,
    pub follow: Follow,
    pub attributes: Attributes,
    pub target: Arc<Target<'a>>,
    pub to: OsString,
    /// What is there already.
    pub existing: Option<Attributes>,
}

impl Work<'_> {
    /// True if the copy is there.
    pub fn run(self, context: &Context<'_>, buffer: &mut Vec<u8>) -> bool {
        if context.progress.is_stopped() {
            return false;
        }
        let copied = self.copy(context, buffer);
        let is_there = copied.is_ok();
        match copied {
            Ok(lacking) => {
                context.progress.note(lacking);
                self.count(context);
                let sink = &*self.target.dir;
                context
                    .observer
                    .copied(&|| self.source.named(&self.name), &|| sink.named(&self.to));
            }
            // Who asked for it knows.
            Err(_) if context.progress.stop.load(Ordering::Relaxed) => {}
            Err(error) => self.fail(context, error),
        }
        is_there
    }

    fn count(&self, context: &Context<'_>) {
        let progress = context.progress;
        progress.files.fetch_add(1, Ordering::Relaxed);
    }

    fn fail(&self, context: &Context<'_>, error: Error) {
        let is_node = !matches!(
            self.attributes.kind,
            FileKind::Regular | FileKind::Symlink | FileKind::Directory
        );
        if is_node && (error.is(Errno::PERM) || error.is(Errno::NOTSUP)) {
            context
                .progress
                .nodes_lacking
                .fetch_add(1, Ordering::Relaxed);
            return;
        }
        context.fail(&error);
    }

    fn copy(&self, context: &Context<'_>, buffer: &mut Vec<u8>) -> Result<Lacking> {
        if self.attributes.kind == FileKind::Regular
            && let Some(mut file) = special(
                &*self.target.dir,
                &self.to,
                self.existing.as_ref(),
                context.options,
            )?
        {
            self.write_to(&mut *file, context, buffer)?;
            return Ok(Lacking::default());
        }
        let change = self.change(context)?;
        let sink = &*self.target.dir;
        if self.target.fresh.is_some() {
            let made = self.make(sink, &self.to, &change, context, buffer);
            if made.is_err() && !context.progress.is_stopped() {
                let _ = sink.remove_all(&self.to);
            }
            return made;
        }
        if sink.is_append_only()? {
            return match self.is_overwritten() {
                true => self.overwrite(sink, &change, context, buffer),
                false => self.make(sink, &self.to, &change, context, buffer),
            };
        }
        let beside = temporary(sink, &self.to)?;
        let made = self.make(sink, &beside, &change, context, buffer);
        let named = made.and_then(|lacking| sink.rename(&beside, &self.to).map(|()| lacking));
        if named.is_err() {
            let _ = sink.remove_all(&beside);
        }
        named.map_err(|error| renamed(error, &sink.shown(&beside), sink.shown(&self.to)))
    }

    /// True for a regular file that takes the place of one.
    fn is_overwritten(&self) -> bool {
        let is_regular = |found: &Attributes| found.kind == FileKind::Regular;
        is_regular(&self.attributes) && self.existing.as_ref().is_some_and(is_regular)
    }

    /// Gives a file that is there, and cannot be replaced, the data and attributes of the source.
    fn overwrite(
        &self,
        sink: &dyn SinkDir,
        change: &Change,
        context: &Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<Lacking> {
        let source = self.source.open_file(&self.name, self.follow)?;
        let file = sink.overwrite(&self.to)?;
        data::copy(&*source, &*file, self.attributes.size, context, buffer)?;
        note_seal(&*source, context);
        file.apply(change)
    }

    /// Writes the data to what is no regular file, and keeps what that is.
    fn write_to(
        &self,
        to: &mut dyn Write,
        context: &Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let source = self.source.open_file(&self.name, self.follow)?;
        buffer.resize(buffer.len().max(CHUNK), 0);
        let mut at = 0;
        loop {
            if context.progress.stop.load(Ordering::Relaxed) {
                return Err(Error::new("", "interrupted"));
            }
            let count = source.read_at(&mut buffer[..CHUNK], at)?;
            if count == 0 {
                return Ok(());
            }
            at += count as u64;
            let shown = || self.target.dir.shown(&self.to);
            let written = to.write_all(&buffer[..count]);
            written.map_err(|error| Error::host(shown(), error))?;
            let bytes = &context.progress.bytes;
            bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// What the copy gets: the source's attributes as far as they are kept, else those of the file
    /// that it replaces, else new ones.
    fn change(&self, context: &Context<'_>) -> Result<Change> {
        let sink = &*self.target.dir;
        let source = &self.attributes;
        let xattrs = || self.source.xattrs(&self.name, self.follow);
        let mut change = change_of(source, context, xattrs)?;
        let is_replaced = |existing: &&Attributes| {
            existing.kind == FileKind::Regular && !context.options.removes_existing
        };
        if let Some(existing) = self.existing.as_ref().filter(is_replaced) {
            if !context.options.preserve.mode {
                change.permissions = Some(existing.permissions);
            }
            if !context.options.preserve.ownership {
                change.owner = Some((existing.uid, existing.gid));
            }
            if !context.options.preserve.xattrs && !context.options.preserve.mode {
                change.xattrs = xattrs_left(sink, &self.to)?;
            }
        }
        Ok(change)
    }

    /// A directory that was there may give its files ACLs; the source's count if they are kept.
    fn remove_acls(&self, sink: &dyn SinkDir, to: &OsStr, context: &Context<'_>) -> Result<()> {
        match self.target.fresh.is_none() && context.options.preserve.mode {
            true => sink.remove_acls(to),
            false => Ok(()),
        }
    }

    fn make(
        &self,
        sink: &dyn SinkDir,
        to: &OsStr,
        change: &Change,
        context: &Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<Lacking> {
        match self.attributes.kind {
            FileKind::Regular => {
                let source = self.source.open_file(&self.name, self.follow)?;
                let file = sink.create(to)?;
                self.remove_acls(sink, to, context)?;
                data::copy(&*source, &*file, self.attributes.size, context, buffer)?;
                note_seal(&*source, context);
                file.apply(change)
            }
            FileKind::Symlink => {
                sink.symlink(to, &self.source.read_link(&self.name)?)?;
                sink.apply(to, change)
            }
            kind => {
                sink.make_node(to, kind, self.attributes.rdev)?;
                self.remove_acls(sink, to, context)?;
                sink.apply(to, change)
            }
        }
    }
}

/// Who keeps all attributes may miss a seal that a copy does not have.
fn note_seal(source: &dyn SourceFile, context: &Context<'_>) {
    if context.options.preserve.xattrs && source.is_sealed() {
        let lost = &context.progress.seals_lost;
        lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is there, open, where it is to be written and not replaced.
fn special(
    sink: &dyn SinkDir,
    to: &OsStr,
    existing: Option<&Attributes>,
    options: &Options,
) -> Result<Option<Box<dyn Write>>> {
    let is_special = existing.is_some_and(|found| {
        !matches!(
            found.kind,
            FileKind::Regular | FileKind::Directory | FileKind::Symlink
        )
    });
    match is_special && options.writes_special {
        true => sink.open_special(to),
        false => Ok(None),
    }
}

/// What a copy of a file gets of its attributes.
pub(super) fn change_of(
    source: &Attributes,
    context: &Context<'_>,
    xattrs: impl FnOnce() -> Result<Vec<Xattr>>,
) -> Result<Change> {
    let preserve = context.options.preserve;
    let permissions = match preserve.mode {
        true => source.permissions,
        false if context.options.has_new_modes => {
            let mode = if source.is_directory() { 0o777 } else { 0o666 };
            mode & !context.options.umask
        }
        false => source.permissions & 0o777 & !context.options.umask,
    };
    let is_acl = |xattr: &Xattr| xattr.0.as_encoded_bytes().starts_with(b"system.posix_acl_");
    let xattrs = match (preserve.xattrs, preserve.mode) {
        (true, _) => xattrs()?,
        (false, true) => xattrs()?.into_iter().filter(is_acl).collect(),
        (false, false) => Vec::new(),
    };
    Ok(Change {
        owner: preserve.ownership.then_some((source.uid, source.gid)),
        permissions: Some(permissions),
        times: preserve
            .timestamps
            .then_some((source.accessed, source.modified)),
        xattrs: xattrs
            .into_iter()
            .filter(|xattr| may_be_kept(&xattr.0))
            .collect(),
    })
}

/// Attributes that belong to a file wherever it is, not to a file system that shows them.
pub(crate) fn may_be_kept(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let prefixes: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// The blocks that a file's data takes, in bytes.
pub(super) fn block_bytes(attributes: &Attributes, block_bytes: u64) -> u64 {
    let data = match attributes.kind {
        FileKind::Regular => attributes.size.min(attributes.sectors.saturating_mul(512)),
        FileKind::Directory => 1,
        _ => 0,
    };
    data.div_ceil(block_bytes).saturating_mul(block_bytes)
}

/// Which links of a place are followed.
pub(super) fn follow(links: Links, is_named: bool) -> Follow {
    match (links, is_named) {
        (Links::Followed, _) | (Links::FollowedIfNamed, true) => Follow::Yes,
        _ => Follow::No,
    }
}

/// Copies a stream to its end; nothing is seen of it before.
pub fn from_stream(
    stream: &mut dyn Read,
    shown: &str,
    sink: &dyn SinkDir,
    to: &OsStr,
    options: &Options,
) -> Result<()> {
    let existing = sink.find(to)?;
    if existing.as_ref().is_some_and(Attributes::is_directory) {
        return Err(Error::new(sink.shown(to), "is a directory"));
    }
    if existing.is_some() && options.existing == Existing::Kept {
        return Ok(());
    }
    if options.makes != Makes::Copies {
        return Err(Error::new(shown, "is a stream, which no link can lead to"));
    }
    if let Some(mut file) = special(sink, to, existing.as_ref(), options)? {
        return pump(stream, shown, &mut |data, _| {
            let written = file.write_all(data);
            written.map_err(|error| Error::host(sink.shown(to), error))
        });
    }
    let is_kept =
        |found: &&Attributes| found.kind == FileKind::Regular && !options.removes_existing;
    let change = match existing.as_ref().filter(is_kept) {
        Some(found) => Change {
            owner: Some((found.uid, found.gid)),
            permissions: Some(found.permissions),
            xattrs: xattrs_left(sink, to)?,
            times: None,
        },
        None => Change {
            permissions: Some(0o666 & !options.umask),
            ..Change::default()
        },
    };
    let mut fill = |file: Box<dyn SinkFile>| {
        pump(stream, shown, &mut |data, at| file.write_at(data, at))?;
        file.apply(&change)
    };
    if sink.is_append_only()? {
        return match existing.is_some() {
            true => fill(sink.overwrite(to)?).map(drop),
            false => fill(sink.create(to)?).map(drop),
        };
    }
    let beside = temporary(sink, to)?;
    let mut take = || {
        fill(sink.create(&beside)?)?;
        sink.rename(&beside, to)
    };
    let taken = take();
    if taken.is_err() {
        let _ = sink.remove_all(&beside);
    }
    taken.map_err(|error| renamed(error, &sink.shown(&beside), sink.shown(to)))
}

/// The attributes that a file keeps when its data are replaced: all but its capabilities, as where
/// a kernel writes them.
fn xattrs_left(sink: &dyn SinkDir, to: &OsStr) -> Result<Vec<Xattr>> {
    let mut xattrs = sink.xattrs_of(to)?;
    xattrs.retain(|(name, _)| name != "security.capability");
    Ok(xattrs)
}

/// Reads a stream to its end, and tells each piece with where it was.
fn pump(
    stream: &mut dyn Read,
    shown: &str,
    put: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let count = match stream.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            count => count.map_err(|error| Error::host(shown, error))?,
        };
        if count == 0 {
            return Ok(());
        }
        put(&buffer[..count], at)?;
        at += count as u64;
    }
}

/// Messages name the place that was asked for, not the one beside it.
fn renamed(error: Error, beside: &str, place: String) -> Error {
    match error.place() == beside {
        true => error.with_place(place),
        false => error,
    }
}
