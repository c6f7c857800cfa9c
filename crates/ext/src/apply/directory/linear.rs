//! Plain directories.

use std::collections::HashMap;

use finefs_ext_disk::dirent::DirBlock;
use finefs_namespace::Result;

use super::{Directory, NameChange, Target};

/// What one block has to do with the changes.
struct Scan {
    /// Offsets of entries that change, with their place among the changes.
    found: Vec<(u32, usize)>,
    /// The longest entry that could be inserted.
    largest_gap: usize,
}

impl Directory<'_, '_> {
    /// Applies changes in one pass over all blocks; then inserts the names that had no entry. Gives
    /// those back that had no room, once the directory has become an indexed one.
    pub(super) fn apply_linear(&mut self, changes: Vec<NameChange>) -> Result<Vec<NameChange>> {
        let mut pending: HashMap<&[u8], usize> = changes
            .iter()
            .enumerate()
            .map(|(i, (name, _))| (&name[..], i))
            .collect();
        let mut is_done = vec![false; changes.len()];
        let mut gaps = Vec::with_capacity(self.blocks as usize);
        for logical in 0..self.blocks {
            if self.physical(logical).is_none() {
                // A hole: the kernel passes over it too.
                gaps.push(0);
                continue;
            }
            let scan = self.scan(logical, &pending)?;
            let mut gap = scan.largest_gap;
            for (offset, at) in scan.found {
                let (name, value) = &changes[at];
                pending.remove(&name[..]);
                is_done[at] = true;
                let target = value.map(|(ino, kind)| Target::of(ino, kind)).transpose()?;
                let mut block = self.open(logical)?;
                let outcome = match target {
                    Some(target) => block.set_target(offset, target.ino, target.entry_type),
                    None => block.remove(offset),
                };
                outcome.map_err(|error| self.inode.damaged(error))?;
                gap = usize::MAX;
            }
            if gap == usize::MAX {
                gap = self
                    .opened()?
                    .largest_gap()
                    .map_err(|error| self.inode.damaged(error))?;
            }
            gaps.push(gap);
        }
        drop(pending);
        let mut rest = Vec::new();
        for (change, is_done) in changes.into_iter().zip(is_done) {
            match change.1 {
                Some((ino, kind)) if !is_done => {
                    let is_in = rest.is_empty()
                        && self.insert_linear(&change.0, Target::of(ino, kind)?, &mut gaps)?;
                    if !is_in {
                        rest.push(change);
                    }
                }
                _ => {}
            }
        }
        self.close();
        Ok(rest)
    }

    fn scan(&self, logical: u32, pending: &HashMap<&[u8], usize>) -> Result<Scan> {
        let bytes = self.read_leaf(logical)?;
        let damaged = |error| {
            self.inode
                .damaged(format_args!("directory block {logical}: {error}"))
        };
        let block = DirBlock::new(&bytes[..], self.format.rules).map_err(damaged)?;
        let mut scan = Scan {
            found: Vec::new(),
            largest_gap: 0,
        };
        for entry in block.entries() {
            let entry = entry.map_err(damaged)?;
            scan.largest_gap = scan.largest_gap.max(entry.slack());
            if entry.is_used()
                && let Some(at) = pending.get(entry.name)
            {
                scan.found.push((entry.offset, *at));
            }
        }
        Ok(scan)
    }

    /// Inserts a name that is not there; false when the directory has become an indexed one
    /// instead.
    fn insert_linear(
        &mut self,
        name: &[u8],
        target: Target,
        gaps: &mut Vec<usize>,
    ) -> Result<bool> {
        let needed = self.format.rules.entry_size(name.len());
        let found = gaps.iter().position(|gap| *gap >= needed);
        let logical = match found {
            Some(at) => at as u32,
            None if self.blocks == 1 && self.format.new_index.is_some() => {
                self.build_index()?;
                return Ok(false);
            }
            None => {
                let (logical, _) = self.append()?;
                self.open_new(logical)?;
                gaps.push(0);
                logical
            }
        };
        let hash = match self.hasher_with_key() {
            Some(hasher) => Some(self.hash(&hasher, name)?),
            None => None,
        };
        let mut block = self.open(logical)?;
        let outcome = block
            .insert_hashed(name, hash, target.ino, target.entry_type)
            .and_then(|_| block.largest_gap());
        gaps[logical as usize] = outcome.map_err(|error| self.inode.damaged(error))?;
        Ok(true)
    }
}
