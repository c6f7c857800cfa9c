//! LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.

use finefs_namespace::{
    Attributes, Error, FileKind, RenameMode, SetAttributes, SetTime, Timestamp,
};

use super::arguments::{self, handle, name, place};
use super::objects::set;
use super::results::{Wcc, put_made, put_post_op, put_wcc};
use super::{Context, Failed};
use crate::changes::Before;
use crate::held::Held;
use crate::status;
use crate::xdr::{Garbage, Reader, Writer};

/// How often a name that comes and goes is looked at before a CREATE fails.
const CREATE_ATTEMPTS: u32 = 10;

pub(super) fn lookup(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, name) = place(reader)?;
    let export = context.export;
    let directory = match export.hold(handle) {
        Ok(directory) => directory,
        Err(error) => {
            out.u32(context.status(&error.into()));
            put_post_op(out, export, None);
            return Ok(());
        }
    };
    match context.find(&directory, name) {
        Ok(found) => {
            out.u32(status::OK);
            out.opaque(&export.handle(found.ino(), found.attributes.generation));
            put_post_op(out, export, Some(&found.attributes));
        }
        Err(failed) => out.u32(context.status(&failed)),
    }
    put_post_op(out, export, Some(&directory.now()));
    Ok(())
}

/// What CREATE does about a file that is there.
enum How {
    /// Takes it, and sets its size.
    Unchecked(SetAttributes),
    /// Fails.
    Guarded(SetAttributes),
    /// Takes it if an earlier call with this verifier made it.
    Exclusive(Verifier),
}

/// The verifier of an exclusive create, as it is kept with the file until the client sets its
/// attributes: in the times of access and modification, as other servers do. So it is there too
/// after the server was started again.
#[derive(Clone, Copy)]
struct Verifier {
    accessed: Timestamp,
    modified: Timestamp,
}

impl Verifier {
    fn new(bytes: [u8; 8]) -> Verifier {
        let number = u64::from_be_bytes(bytes);
        // All formats can hold seconds of 31 bits.
        let time = |seconds: u64| Timestamp::new((seconds & 0x7fff_ffff) as i64, 0);
        Verifier {
            accessed: time(number >> 32),
            modified: time(number),
        }
    }

    fn is_of(self, file: &Attributes) -> bool {
        file.kind == FileKind::Regular
            && file.size_bytes == 0
            && file.times.accessed == self.accessed
            && file.times.modified == self.modified
    }
}

/// What a name names after CREATE and its like.
struct Made<'e> {
    held: Held<'e>,
    /// Something was set on it that the change of its name does not make durable.
    is_set: bool,
}

impl<'e> Context<'e> {
    /// What a name names.
    fn find(&self, directory: &Held<'_>, name: &[u8]) -> Result<Held<'e>, Failed> {
        let namespace = &self.export.namespace;
        let found = namespace.lookup(&self.caller, directory.ino(), name)?;
        Ok(Held::new(namespace, found))
    }

    /// Holds what was just made by a name, and gives it the rest of its attributes. Only root
    /// chooses owners. Where it fails, the name is removed again.
    fn dress(
        &self,
        place: (&Held<'_>, &[u8]),
        made: Attributes,
        wanted: &SetAttributes,
    ) -> Result<Made<'e>, Failed> {
        let made = Held::new(&self.export.namespace, made);
        let may_choose = self.caller.uid == 0;
        let rest = SetAttributes {
            permissions: None,
            uid: wanted.uid.filter(|_| may_choose),
            gid: wanted.gid.filter(|_| may_choose),
            ..*wanted
        };
        let is_empty = rest.uid.is_none()
            && rest.gid.is_none()
            && rest.size_bytes.is_none_or(|size| size == 0)
            && rest.accessed.is_none()
            && rest.modified.is_none();
        if !is_empty {
            // By its name others may have found it already.
            let _change = self.export.changes.begin(made.ino());
            if let Err(failed) = self.go_on(|| set(self, &made, &rest)) {
                self.unmake(place, &made);
                return Err(failed);
            }
        }
        Ok(Made {
            held: made,
            is_set: !is_empty,
        })
    }

    /// Removes what was just made, unless the name names something else by now.
    fn unmake(&self, (directory, name): (&Held<'_>, &[u8]), made: &Held<'_>) {
        let (namespace, caller) = (&self.export.namespace, &self.caller);
        let unmade = self.go_on(|| {
            let is_it = self.find(directory, name)?.ino() == made.ino();
            match made.attributes.kind {
                _ if !is_it => {}
                FileKind::Directory => namespace.remove_directory(caller, directory.ino(), name)?,
                _ => namespace.remove_file(caller, directory.ino(), name)?,
            }
            Ok(())
        });
        if let Err(failed) = unmade {
            log::debug!("nfs: what was made in part stays: {failed:?}");
        }
    }

    fn create(&self, directory: &Held<'_>, name: &[u8], how: &How) -> Result<Made<'e>, Failed> {
        let namespace = &self.export.namespace;
        let wanted = match how {
            How::Unchecked(wanted) | How::Guarded(wanted) => *wanted,
            How::Exclusive(verifier) => SetAttributes {
                permissions: Some(0),
                accessed: Some(SetTime::To(verifier.accessed)),
                modified: Some(SetTime::To(verifier.modified)),
                ..SetAttributes::default()
            },
        };
        let permissions = wanted.permissions.unwrap_or(0o600);
        for _ in 0..CREATE_ATTEMPTS {
            match namespace.create_file(&self.caller, directory.ino(), name, permissions) {
                Ok(made) => return self.dress((directory, name), made, &wanted),
                Err(Error::Exists) => {}
                Err(error) => return Err(error.into()),
            }
            let there = match self.find(directory, name) {
                Err(Failed::Error(Error::NotFound)) => continue,
                there => there?,
            };
            let is_set = match how {
                How::Unchecked(_) if there.attributes.kind == FileKind::Regular => {
                    if wanted.size_bytes.is_some() {
                        let size = SetAttributes {
                            size_bytes: wanted.size_bytes,
                            ..SetAttributes::default()
                        };
                        let _change = self.export.changes.begin(there.ino());
                        set(self, &there, &size)?;
                    }
                    wanted.size_bytes.is_some()
                }
                // The call that set it may not have been answered.
                How::Exclusive(verifier) if verifier.is_of(&there.attributes) => true,
                _ => return Err(Error::Exists.into()),
            };
            return Ok(Made {
                held: there,
                is_set,
            });
        }
        Err(Error::Exists.into())
    }

    /// Makes something in a directory and writes the result, which is the same for all kinds.
    fn make(
        &self,
        handle: &[u8],
        out: &mut Writer,
        make: impl FnOnce(&Held<'_>) -> Result<Made<'e>, Failed>,
    ) {
        let (wcc, made) = self.change_then(handle, make, |directory, made| {
            self.settle(directory.ino())?;
            // Mostly the commit that the directory was in has this as well. In the other order
            // names that others make meanwhile would have to be waited for.
            match made.is_set {
                true => self.settle(made.held.ino()),
                false => Ok(()),
            }
        });
        match made {
            Ok(made) => {
                out.u32(status::OK);
                put_made(out, self.export, &made.held.now());
            }
            Err(failed) => out.u32(self.status(&failed)),
        }
        put_wcc(out, self.export, &wcc);
    }
}

pub(super) fn create(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, name) = place(reader)?;
    let how = match reader.u32()? {
        0 => How::Unchecked(arguments::attributes(reader)?),
        1 => How::Guarded(arguments::attributes(reader)?),
        2 => How::Exclusive(Verifier::new(*reader.fixed()?)),
        _ => return Err(Garbage),
    };
    context.make(handle, out, |directory| {
        context.create(directory, name, &how)
    });
    Ok(())
}

pub(super) fn make_directory(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, name) = place(reader)?;
    let wanted = arguments::attributes(reader)?;
    let permissions = wanted.permissions.unwrap_or(0o700);
    context.make(handle, out, |directory| {
        let namespace = &context.export.namespace;
        let made = namespace.make_directory(&context.caller, directory.ino(), name, permissions)?;
        let wanted = SetAttributes {
            size_bytes: None,
            ..wanted
        };
        context.dress((directory, name), made, &wanted)
    });
    Ok(())
}

pub(super) fn make_symlink(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, name) = place(reader)?;
    // Modes and times of links are nothing that clients set.
    let wanted = arguments::attributes(reader)?;
    let target = arguments::name(reader)?;
    context.make(handle, out, |directory| {
        // A path has none, and formats differ in where a target with one ends.
        if target.contains(&0) {
            return Err(Error::Invalid.into());
        }
        let namespace = &context.export.namespace;
        let made = namespace.make_symlink(&context.caller, directory.ino(), name, target)?;
        let owner = SetAttributes {
            uid: wanted.uid,
            gid: wanted.gid,
            ..SetAttributes::default()
        };
        context.dress((directory, name), made, &owner)
    });
    Ok(())
}

pub(super) fn make_node(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, name) = place(reader)?;
    let kind = match reader.u32()? {
        3 => Some(FileKind::BlockDevice),
        4 => Some(FileKind::CharDevice),
        6 => Some(FileKind::Socket),
        7 => Some(FileKind::Fifo),
        1 | 2 | 5 => None,
        _ => return Err(Garbage),
    };
    let (mut wanted, mut device) = (SetAttributes::default(), 0);
    if let Some(kind) = kind {
        wanted = arguments::attributes(reader)?;
        if kind.is_device() {
            device = libc::makedev(reader.u32()?, reader.u32()?);
        }
    }
    wanted.size_bytes = None;
    let permissions = wanted.permissions.unwrap_or(0o600);
    context.make(handle, out, |directory| {
        let kind = kind.ok_or(Failed::Status(status::BAD_TYPE))?;
        let (namespace, caller) = (&context.export.namespace, &context.caller);
        let made = namespace.make_node(caller, directory.ino(), name, kind, permissions, device)?;
        context.dress((directory, name), made, &wanted)
    });
    Ok(())
}

pub(super) fn remove(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, name) = place(reader)?;
    context.change_and_tell(handle, out, |directory| {
        let namespace = &context.export.namespace;
        Ok(namespace.remove_file(&context.caller, directory.ino(), name)?)
    });
    Ok(())
}

pub(super) fn remove_directory(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (handle, name) = place(reader)?;
    context.change_and_tell(handle, out, |directory| {
        let namespace = &context.export.namespace;
        Ok(namespace.remove_directory(&context.caller, directory.ino(), name)?)
    });
    Ok(())
}

pub(super) fn rename(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let (from, old_name) = place(reader)?;
    let (to, new_name) = place(reader)?;
    let export = context.export;
    let mut of_target = Wcc::default();
    let (of_source, result) = context.change(from, |source| {
        let target = export.hold(to)?;
        // One directory is one change.
        let other = (target.ino() != source.ino()).then(|| export.changes.begin(target.ino()));
        let before = Before::from(&target.now());
        let renamed = export.namespace.rename(
            &context.caller,
            (source.ino(), old_name),
            (target.ino(), new_name),
            RenameMode::Replace,
        );
        of_target = Wcc {
            before: other.filter(|change| change.is_alone()).map(|_| before),
            after: Some(target.now()),
        };
        Ok(renamed?)
    });
    if from == to {
        of_target = Wcc {
            before: of_source.before,
            after: of_source.after,
        };
    } else if of_target.after.is_none() {
        of_target.after = export.hold(to).ok().map(|target| target.now());
    }
    out.u32(result.map_or_else(|failed| context.status(&failed), |()| status::OK));
    put_wcc(out, export, &of_source);
    put_wcc(out, export, &of_target);
    Ok(())
}

pub(super) fn link(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    out: &mut Writer,
) -> Result<(), Garbage> {
    let file = handle(reader)?;
    let (directory, name) = (handle(reader)?, name(reader)?);
    let export = context.export;
    let mut linked = None;
    let (wcc, result) = context.change(directory, |directory| {
        let file = export.hold(file)?;
        // The namespace's errors first, then who it was.
        let made = export
            .namespace
            .make_link(&context.caller, file.ino(), directory.ino(), name)
            .map(|attributes| drop(Held::new(&export.namespace, attributes)));
        linked = Some(file.now());
        Ok(made?)
    });
    out.u32(result.map_or_else(|failed| context.status(&failed), |()| status::OK));
    put_post_op(out, export, linked.as_ref());
    put_wcc(out, export, &wcc);
    Ok(())
}

#[cfg(test)]
mod tests;
