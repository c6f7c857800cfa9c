//! How objects come into memory: inodes, names, mappings, symbolic links and extended attributes.

use crossbeam_epoch::Guard;
use finefs_locks::RwLock;
use finefs_locks::primitive::atomic::Ordering;

use crate::base::classes;
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::PlacedName;
use crate::base::types::Ino;
use crate::data::extent_map::ExtentMap;
use crate::inode::{Body, Core, INODE_BYTES, Inode, Xattrs};
use crate::names::name_table::{Dead, HashedName, Known, NameTable};
use crate::namespace::Namespace;

impl Namespace {
    /// The inode of a number; loaded if need be.
    #[inline]
    pub(crate) fn inode<'g>(&self, ino: Ino, guard: &'g Guard) -> Result<&'g Inode> {
        match self.inodes.get(ino, guard) {
            Some(cell) if cell.is_usable() => Ok(cell),
            _ => self.inode_slowly(ino, guard),
        }
    }

    /// The cell is not there, not loaded, or gone.
    #[cold]
    fn inode_slowly<'g>(&self, ino: Ino, guard: &'g Guard) -> Result<&'g Inode> {
        loop {
            let cell = if self.store.can_reload() || ino == self.root() {
                let note_new = || self.note_memory(INODE_BYTES);
                self.inodes.get_or_insert(ino, guard, note_new)
            } else {
                self.inodes.get(ino, guard)
            }
            .ok_or(Error::Stale)?;
            cell.references.note_use();
            let mut is_fresh = false;
            let core = cell.load(&self.scheme, || {
                let image = self.note_load(self.store.load_inode(ino))?;
                is_fresh = true;
                Ok(Core::from_image(image, self.inode_config()))
            })?;
            if is_fresh {
                self.recount(core);
                if cell.is_evicted() {
                    // The cell was discounted, not loaded, when another took its place.
                    self.memory.add(INODE_BYTES);
                    self.discount(cell);
                }
            }
            if !cell.is_gone() {
                // A cell that was put where a freed inode's had been may be loaded as the next
                // inode of that number, whose own cell has taken its place before its creation
                // could be loaded.
                if (self.inodes.get(ino, guard)).is_some_and(|now| std::ptr::eq(now, cell)) {
                    return Ok(cell);
                }
                continue;
            }
            if !cell.is_evicted() {
                return Err(Error::Stale);
            }
            // The thread that evicted it takes the cell out of the table next.
            finefs_locks::primitive::thread::yield_now();
        }
    }

    /// The names of a directory; loaded if need be.
    pub(crate) fn table<'g>(&self, inode: &'g Inode) -> Result<&'g NameTable> {
        let directory = inode.directory()?;
        let mut is_fresh = false;
        let table = self.scheme.load(&directory.table, || {
            is_fresh = true;
            if let Some(error) = &inode.unreadable {
                return Err(error.as_ref().clone());
            }
            let identity = &self.geometry.identity;
            let keys = identity.keys_of(inode.ino, inode.generation);
            let fold = self.geometry.folding.map(|folding| folding.fold);
            let names_min = self.memory.part() / NameTable::BYTES_A_NAME;
            let large = self.store.open_large_directory(inode.ino, names_min);
            if let Some(parent) = self.note_load(large)? {
                directory.parent.store(parent.0, Ordering::Release);
                return Ok(NameTable::new(keys).folding(fold, false).partial());
            }
            let image = self.note_load(self.store.load_directory(inode.ino))?;
            directory.parent.store(image.parent.0, Ordering::Release);
            if let Some(damage) = image.damage {
                self.note_damage(&damage);
                inode.note_names_damage(damage);
            }
            let entries = image.entries.into_iter();
            let empty = NameTable::with_capacity(entries.len(), keys);
            let loaded = empty
                .folding(fold, inode.flags().contains(FileFlags::CASEFOLD))
                .classed(self.geometry.name_classes)
                .load(entries.map(|e| (e.name, e.ino, e.kind)));
            Ok(loaded)
        })?;
        self.recount_if(is_fresh, inode);
        Ok(table)
    }

    /// After a name was not found in a table: learns it from the store, where that may have it.
    /// True when the name is to be looked for again; when it is not, it is known not to be there,
    /// until somebody makes it.
    #[inline]
    pub(crate) fn learn(
        &self,
        dir: &Inode,
        table: &NameTable,
        name: HashedName<'_>,
        guard: &Guard,
    ) -> Result<bool> {
        match table.is_partial() {
            true => self.learn_of_store(dir, table, name, guard),
            false => Ok(false),
        }
    }

    #[cold]
    fn learn_of_store(
        &self,
        dir: &Inode,
        table: &NameTable,
        name: HashedName<'_>,
        guard: &Guard,
    ) -> Result<bool> {
        match table.known(name, guard) {
            Known::Named(_) => return Ok(true),
            Known::Absent => return Ok(false),
            Known::Unknown => {}
        }
        let find = || self.store.find_name(dir.ino, name.bytes);
        let Some(found) = self.note_load(self.scheme.device(find))? else {
            return Ok(false);
        };
        let wants_room = match table.lock(dir.ino, name, guard) {
            Ok(held) => table.learn(&held, name, found, guard),
            // It was removed, or is another kind of directory by now.
            Err(Dead) => return Ok(false),
        };
        if wants_room {
            table.grow(dir.ino, guard);
            self.recount(dir);
        }
        Ok(true)
    }

    /// Sees to it that a table which has no names is that of a directory without names.
    /// `Error::NotEmpty` where there are some.
    pub(crate) fn learn_emptiness(
        &self,
        dir: &Inode,
        table: &NameTable,
        guard: &Guard,
    ) -> Result<()> {
        let (mut place, mut names) = (Some(0), Vec::new());
        while let Some(from) = place.filter(|_| table.is_partial()) {
            names.clear();
            place = self.note_load(self.store.names_from(dir.ino, from, &mut names))?;
            let is_there = |placed: &PlacedName| {
                let name = table.hashed(&placed.entry.name);
                !matches!(table.known(name, guard), Known::Absent)
            };
            if names.iter().any(is_there) {
                return Err(Error::NotEmpty);
            }
            if place.is_none() {
                table.become_whole();
            }
        }
        Ok(())
    }

    /// Counts anew what an inode takes of which something was loaded.
    fn recount_if(&self, is_fresh: bool, core: &Core) {
        if is_fresh {
            self.recount(core);
        }
    }

    /// The mapping of a regular file; loaded if need be.
    pub(crate) fn extents<'g>(&self, inode: &'g Inode, guard: &Guard) -> Result<&'g ExtentMap> {
        let file = inode.file()?;
        let mut is_fresh = false;
        let extents = self.scheme.load(&file.contents().extents, || {
            is_fresh = true;
            if let Some(error) = &inode.unreadable {
                return Err(error.as_ref().clone());
            }
            let map = ExtentMap::new();
            if file.inline().is_some() {
                return Ok(map);
            }
            for extent in self.note_load(self.store.load_extents(inode.ino))? {
                if !map.insert(extent, guard) {
                    return Err(Error::corrupt(format_args!(
                        "inode {}: blocks beyond the largest file",
                        inode.ino
                    )));
                }
            }
            Ok(map)
        })?;
        self.recount_if(is_fresh, inode);
        Ok(extents)
    }

    /// The text of a symbolic link; loaded if need be.
    pub(crate) fn symlink_text<'g>(&self, inode: &'g Inode) -> Result<&'g [u8]> {
        let Body::Symlink(text) = &inode.body else {
            return Err(Error::Invalid);
        };
        let mut is_fresh = false;
        let text = self.scheme.load(text, || {
            is_fresh = true;
            if let Some(error) = &inode.unreadable {
                return Err(error.as_ref().clone());
            }
            let target = self.note_load(self.store.load_symlink(inode.ino));
            target.map(Vec::into_boxed_slice)
        })?;
        self.recount_if(is_fresh, inode);
        Ok(text)
    }

    /// The extended attributes; loaded if need be.
    pub(crate) fn values<'g>(&self, inode: &'g Core) -> Result<&'g RwLock<Xattrs>> {
        let mut is_fresh = false;
        let values = self.scheme.load(inode.xattrs(), || -> Result<_> {
            is_fresh = true;
            let loaded = self.note_load(self.store.load_xattrs(inode.ino))?;
            let values = loaded
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()));
            Ok(RwLock::new(&classes::XATTR, values.collect()))
        })?;
        self.recount_if(is_fresh, inode);
        Ok(values)
    }
}
