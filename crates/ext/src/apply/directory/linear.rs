//! Plain directories.

use std::collections::HashMap;

use finefs_ext_disk::LogicalBlock;
use finefs_ext_disk::dirent::{DirBlock, EntryChange, Room};
use finefs_namespace::Result;

use super::{Directory, NameChange, Target};

impl Directory<'_, '_> {
    /// Applies changes in one pass over all blocks; then inserts the names that had no entry. Gives
    /// those back that had no room, once the directory has become an indexed one.
    pub(super) fn apply_linear(&mut self, changes: Vec<NameChange>) -> Result<Vec<NameChange>> {
        let targets = changes.iter().map(|(_, value)| {
            let target = value.map(|(ino, kind)| Target::of(ino, kind));
            target.transpose()
        });
        let targets: Vec<Option<Target>> = targets.collect::<Result<_>>()?;
        let mut pending: HashMap<&[u8], usize> = changes
            .iter()
            .enumerate()
            .map(|(i, (name, _))| (&name[..], i))
            .collect();
        let mut rooms = Vec::new();
        for logical in (0..self.blocks).map(LogicalBlock) {
            if self.physical(logical).is_none() {
                // A hole: the kernel passes over it too.
                rooms.push(Room::default());
                continue;
            }
            let (room, has_some) = self.scan(logical, &pending)?;
            rooms.push(match has_some {
                true => self.change_entries(logical, &mut pending, &targets)?,
                false => room,
            });
        }
        let mut is_pending = vec![false; changes.len()];
        pending.into_values().for_each(|at| is_pending[at] = true);
        let mut rest = Vec::new();
        for (at, change) in changes.into_iter().enumerate() {
            let Some(target) = targets[at].filter(|_| is_pending[at]) else {
                continue;
            };
            if !rest.is_empty() || !self.insert_linear(&change.0, target, &mut rooms)? {
                rest.push(change);
            }
        }
        self.close();
        Ok(rest)
    }

    /// The room in a block, and whether it has an entry that changes.
    fn scan(&self, logical: LogicalBlock, pending: &HashMap<&[u8], usize>) -> Result<(Room, bool)> {
        let bytes = self.read_leaf(logical)?;
        let damaged = |error| {
            self.inode
                .damaged(format_args!("directory block {logical}: {error}"))
        };
        let block = DirBlock::new(&bytes[..], self.format.rules).map_err(damaged)?;
        let (mut room, mut has_some) = (Room::default(), false);
        for entry in block.entries() {
            let entry = entry.map_err(damaged)?;
            room.add(&entry);
            has_some |= entry.is_used() && pending.contains_key(entry.name);
        }
        Ok((room, has_some))
    }

    /// Changes the entries of a block that change, which are no longer pending; the room in it.
    fn change_entries(
        &mut self,
        logical: LogicalBlock,
        pending: &mut HashMap<&[u8], usize>,
        targets: &[Option<Target>],
    ) -> Result<Room> {
        let mut found = Vec::new();
        let mut block = self.open(logical)?;
        let outcome = block.change_each(|entry| {
            let Some((name, at)) = pending.get_key_value(entry.name) else {
                return EntryChange::Keep;
            };
            found.push(*name);
            match targets[*at] {
                Some(target) => EntryChange::Target(target.ino, target.entry_type),
                None => EntryChange::Remove,
            }
        });
        let room = outcome.and_then(|()| block.room());
        for name in found {
            pending.remove(name);
        }
        room.map_err(|error| self.inode.damaged(error))
    }

    /// Inserts a name that is not there; false when the directory has become an indexed one
    /// instead.
    fn insert_linear(
        &mut self,
        name: &[u8],
        target: Target,
        rooms: &mut Vec<Room>,
    ) -> Result<bool> {
        let needed = self.format.rules.entry_size(name.len());
        let found = rooms.iter().position(|room| room.largest() >= needed);
        let logical = match found {
            Some(at) => LogicalBlock(at as u64),
            None if self.blocks == 1 && self.format.new_index.is_some() => {
                self.build_index()?;
                return Ok(false);
            }
            None => {
                let (logical, _) = self.append()?;
                let room = self.open_new(logical)?.room();
                rooms.push(room.map_err(|error| self.inode.damaged(error))?);
                logical
            }
        };
        let hash = match self.hasher_with_key() {
            Some(hasher) => Some(self.hash(&hasher, name)?),
            None => None,
        };
        let room = &mut rooms[logical.0 as usize];
        let inserted =
            self.open(logical)?
                .insert_in(room, (name, hash), target.ino, target.entry_type);
        inserted.map_err(|error| self.inode.damaged(error))?;
        Ok(true)
    }
}
