//! The model's data, symbolic links and extended attributes.

use super::*;

impl Model {
    /// The target of a symbolic link.
    pub fn read_symlink(&self, id: Id) -> Result<Vec<u8>> {
        let node = self.get(id)?;
        if node.kind == FileKind::Symlink {
            Ok(node.data.clone())
        } else {
            Err(vec![Error::Invalid])
        }
    }

    // --- data ---

    /// Reads.
    pub fn read(&self, id: Id, offset_bytes: u64, length: usize) -> Result<Vec<u8>> {
        let data = &self.file(id)?.data;
        let from = (offset_bytes.min(data.len() as u64)) as usize;
        let to = from.saturating_add(length).min(data.len());
        Ok(data[from..to].to_vec())
    }

    fn check_end(&self, offset_bytes: u64, length_bytes: u64) -> Result<usize> {
        match offset_bytes.checked_add(length_bytes) {
            Some(end) if end <= self.limits.new_form.size_max_bytes => Ok(end as usize),
            _ => Err(vec![Error::FileTooLarge]),
        }
    }

    /// Writes.
    pub fn write(&mut self, id: Id, offset_bytes: u64, data: &[u8]) -> Result<usize> {
        self.file(id)?;
        if data.is_empty() {
            return Ok(0);
        }
        let end = self.check_end(offset_bytes, data.len() as u64)?;
        let content = &mut self.get_mut(id).data;
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset_bytes as usize..end].copy_from_slice(data);
        Ok(data.len())
    }

    /// Writes at the end; gives the offset.
    pub fn append(&mut self, id: Id, data: &[u8]) -> Result<u64> {
        let offset_bytes = self.file(id)?.data.len() as u64;
        self.check_end(offset_bytes, data.len() as u64)?;
        self.get_mut(id).data.extend_from_slice(data);
        Ok(offset_bytes)
    }

    /// fallocate(2): only what can be read counts here.
    pub fn allocate(
        &mut self,
        id: Id,
        mode: AllocateMode,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<()> {
        let mut checks = Checks::default();
        checks.refuse_if(length_bytes == 0, Error::Invalid);
        let end = offset_bytes.saturating_add(length_bytes);
        if let Err(mut errors) = self.check_end(offset_bytes, length_bytes) {
            checks.0.append(&mut errors);
        }
        match self.file(id) {
            Ok(node) => {
                let keeps_size = matches!(
                    mode,
                    AllocateMode::KeepSize | AllocateMode::ZeroRangeKeepSize
                );
                let is_beyond = end > node.data.len() as u64;
                // Without unwritten extents nothing can be allocated beyond the end.
                checks.refuse_if(
                    keeps_size && is_beyond && !self.limits.has_unwritten,
                    Error::NotSupported,
                );
            }
            Err(mut errors) => checks.0.append(&mut errors),
        }
        checks.done()?;
        let data = &mut self.get_mut(id).data;
        let grows = matches!(mode, AllocateMode::Extend | AllocateMode::ZeroRange);
        if grows && end > data.len() as u64 {
            data.resize(end as usize, 0);
        }
        if !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize) {
            let length = data.len() as u64;
            data[offset_bytes.min(length) as usize..end.min(length) as usize].fill(0);
        }
        Ok(())
    }

    // --- extended attributes ---

    fn check_xattr(caller: &Caller, node: &Node, name: &[u8], mask: u32, checks: &mut Checks) {
        let writes = mask == WRITE;
        if name.is_empty() || name.len() > 255 {
            checks.refuse_if(true, Error::Range);
        } else if name.starts_with(b"user.") {
            let holds_data = matches!(node.kind, FileKind::Regular | FileKind::Directory);
            checks.refuse_if(!holds_data && writes, Error::NotPermitted);
            checks.refuse_if(!holds_data && !writes, Error::NoAttribute);
            let is_sticky =
                node.kind == FileKind::Directory && node.permissions & libc::S_ISVTX != 0;
            checks.refuse_if(
                is_sticky && writes && !owns(caller, node),
                Error::NotPermitted,
            );
            checks.refuse_if(!may(caller, node, mask), Error::AccessDenied);
        } else if name.starts_with(b"trusted.") {
            let error = if writes {
                Error::NotPermitted
            } else {
                Error::NoAttribute
            };
            checks.refuse_if(caller.uid != 0, error);
        } else if name.starts_with(b"security.") {
            checks.refuse_if(writes && !is_privileged(caller), Error::NotPermitted);
        } else if name == acl::ACCESS || name == acl::DEFAULT {
            checks.refuse_if(node.kind == FileKind::Symlink, Error::NotSupported);
        } else {
            checks.refuse_if(true, Error::NotSupported);
        }
    }

    /// The value of an extended attribute.
    pub fn xattr(&self, caller: &Caller, id: Id, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.get(id)?;
        let mut checks = Checks::default();
        Model::check_xattr(caller, node, name, READ, &mut checks);
        let is_acl = name == acl::ACCESS || name == acl::DEFAULT;
        let has_acls = self.limits.new_form.has_xattrs;
        checks.refuse_if(is_acl && !has_acls, Error::NotSupported);
        checks.refuse_if(!node.xattrs.contains_key(name), Error::NoAttribute);
        checks.done()?;
        Ok(node.xattrs[name].clone())
    }

    /// The names of the extended attributes that the caller sees, in order.
    pub fn list_xattrs(&self, caller: &Caller, id: Id) -> Result<Vec<Vec<u8>>> {
        let names = self.get(id)?.xattrs.keys();
        Ok(names
            .filter(|name| caller.uid == 0 || !name.starts_with(b"trusted."))
            .cloned()
            .collect())
    }

    /// Sets an extended attribute, or removes it (`None`).
    pub fn set_xattr(
        &mut self,
        caller: &Caller,
        id: Id,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        if name == acl::ACCESS || name == acl::DEFAULT {
            return self.set_acl(caller, id, name, value.unwrap_or_default());
        }
        let node = self.get(id)?;
        let mut checks = Checks::default();
        Model::check_xattr(caller, node, name, WRITE, &mut checks);
        let exists = node.xattrs.contains_key(name);
        checks.refuse_if(mode == XattrMode::Create && exists, Error::Exists);
        let needs_old = mode == XattrMode::Replace || value.is_none();
        checks.refuse_if(needs_old && !exists, Error::NoAttribute);
        let is_kept = self.limits.new_form.has_xattrs;
        checks.refuse_if(value.is_some() && !is_kept, Error::NotSupported);
        let is_long = value.is_some_and(|value| value.len() > XATTR_VALUE_MAX);
        checks.refuse_if(is_long, Error::ArgumentsTooLong);
        checks.done()?;
        let xattrs = &mut self.get_mut(id).xattrs;
        match value {
            Some(value) => xattrs.insert(name.to_vec(), value.to_vec()),
            None => xattrs.remove(name),
        };
        Ok(())
    }

    /// Sets an ACL; an empty value removes it.
    fn set_acl(&mut self, caller: &Caller, id: Id, name: &[u8], value: &[u8]) -> Result<()> {
        let node = self.get(id)?;
        let mut checks = Checks::default();
        let given = Acl::from_value(value);
        checks.refuse_if(value.len() > XATTR_VALUE_MAX, Error::ArgumentsTooLong);
        let has_acls = self.limits.new_form.has_xattrs && node.kind != FileKind::Symlink;
        checks.refuse_if(!has_acls, Error::NotSupported);
        let is_directory = node.kind == FileKind::Directory;
        if name == acl::DEFAULT && !is_directory && given == Ok(None) {
            return checks.done();
        }
        checks.refuse_if(name == acl::DEFAULT && !is_directory, Error::AccessDenied);
        checks.refuse_if(!owns(caller, node), Error::NotPermitted);
        match &given {
            Ok(given) => {
                let is_valid = given.as_ref().is_none_or(Acl::is_valid);
                checks.refuse_if(!is_valid, Error::Invalid);
            }
            Err(error) => checks.refuse_if(true, error.clone()),
        }
        checks.done()?;
        let keeps_setgid = is_privileged(caller) || caller.is_in_group(node.gid);
        let node = self.get_mut(id);
        node.xattrs.remove(name);
        let Ok(Some(given)) = given else {
            return Ok(());
        };
        if name == acl::ACCESS {
            node.permissions = node.permissions & 0o7000 | given.mode();
            if !keeps_setgid {
                node.permissions &= !libc::S_ISGID;
            }
            if given.is_minimal() {
                return Ok(());
            }
        }
        node.xattrs.insert(name.to_vec(), given.value());
        Ok(())
    }
}
