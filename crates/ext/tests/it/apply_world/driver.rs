//! Random operations.

use finefs_namespace::{Error, ExtentState, FileKind, Ino, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::World;

/// Random operations on a world.
pub struct Driver {
    pub world: World,
    random: StdRng,
    made: u32,
    /// A directory that is left alone, with all in it.
    outside: Option<Ino>,
}

impl Driver {
    pub fn new(world: World, seed: u64) -> Driver {
        Driver {
            world,
            random: StdRng::seed_from_u64(seed),
            made: 0,
            outside: None,
        }
    }

    fn directories(&self) -> Vec<Ino> {
        let is_directory = |ino: &Ino| {
            let node = &self.world.nodes[ino];
            let is_directory = node.attributes.kind == FileKind::Directory;
            is_directory && !node.is_open && self.outside != Some(*ino)
        };
        self.world
            .nodes
            .keys()
            .copied()
            .filter(is_directory)
            .collect()
    }

    fn pick_directory(&mut self) -> Ino {
        let all = self.directories();
        all[self.random.random_range(0..all.len())]
    }

    /// Some entry that is not lost+found.
    fn pick_entry(&mut self) -> Option<(Ino, Vec<u8>, Ino, FileKind)> {
        for _ in 0..20 {
            let dir = self.pick_directory();
            let entries = &self.world.nodes[&dir].entries;
            if entries.is_empty() {
                continue;
            }
            let at = self.random.random_range(0..entries.len());
            let (name, (ino, kind)) = entries.iter().nth(at).unwrap();
            if name != b"lost+found" && self.outside != Some(*ino) {
                return Some((dir, name.clone(), *ino, *kind));
            }
        }
        None
    }

    fn pick_file(&mut self) -> Option<Ino> {
        for _ in 0..20 {
            match self.pick_entry() {
                Some((_, _, ino, FileKind::Regular)) => return Some(ino),
                _ => continue,
            }
        }
        None
    }

    fn name(&mut self) -> Vec<u8> {
        self.made += 1;
        let length = match self.random.random_range(0..10) {
            0 => self.random.random_range(1..=255),
            _ => self.random.random_range(1..30),
        };
        let mut name = format!("{:x}-", self.made).into_bytes();
        while name.len() < length {
            // All bytes but NUL and slash, to meet signed and unsigned hashes.
            let byte = self.random.random_range(1..=255u8);
            name.push(if byte == b'/' { b'_' } else { byte });
        }
        name
    }

    /// Does one thing anywhere but in a directory.
    pub fn step_outside(&mut self, directory: Ino) -> Result<(), Error> {
        self.outside = Some(directory);
        self.step()
    }

    /// Does one thing.
    pub fn step(&mut self) -> Result<(), Error> {
        let world = &mut self.world;
        match self.random.random_range(0..100) {
            0..25 => {
                let (dir, name) = (self.pick_directory(), self.name());
                self.world.create(dir, &name, FileKind::Regular, None)?;
            }
            25..30 => {
                let (dir, name) = (self.pick_directory(), self.name());
                self.world.create(dir, &name, FileKind::Directory, None)?;
            }
            30..34 => {
                let (dir, name) = (self.pick_directory(), self.name());
                let longest = self.world.store.geometry().symlink_max as usize;
                let length = self.random.random_range(1..=200.min(longest));
                let target = vec![b'a' + (length % 26) as u8; length];
                self.world
                    .create(dir, &name, FileKind::Symlink, Some(&target))?;
            }
            34..37 => {
                let (dir, name) = (self.pick_directory(), self.name());
                let kinds = [
                    FileKind::Fifo,
                    FileKind::Socket,
                    FileKind::BlockDevice,
                    FileKind::CharDevice,
                ];
                let kind = kinds[self.random.random_range(0..kinds.len())];
                self.world.create(dir, &name, kind, None)?;
            }
            37..40 => {
                if let Some(ino) = self.pick_file() {
                    let (dir, name) = (self.pick_directory(), self.name());
                    self.world.link(ino, dir, &name)?;
                }
            }
            40..58 => {
                if let Some((dir, name, ino, kind)) = self.pick_entry() {
                    let is_full = !self.world.nodes[&ino].entries.is_empty();
                    if kind != FileKind::Directory || !is_full {
                        let is_open = self.random.random_range(0..6) == 0;
                        self.world.unlink(dir, &name, is_open);
                    }
                }
            }
            58..64 => self.rename()?,
            64..80 => {
                if let Some(ino) = self.pick_file() {
                    let logical = self.random.random_range(0..400) * self.random.random_range(0..3);
                    let length = self.random.random_range(1..40);
                    let has_unwritten = self.world.store.geometry().has_unwritten;
                    let state = if has_unwritten && self.random.random() {
                        ExtentState::Unwritten
                    } else {
                        ExtentState::Written
                    };
                    self.world.fill(ino, logical, length, state)?;
                }
            }
            80..84 => {
                if let Some(ino) = self.pick_file()
                    && self.world.store.geometry().has_unwritten
                {
                    let logical = self.random.random_range(0..500);
                    let length = self.random.random_range(1..30);
                    // Only what is mapped is ever converted.
                    let node = &self.world.nodes[&ino];
                    let is_mapped =
                        (logical..logical + length).all(|at| node.map.contains_key(&at));
                    if is_mapped {
                        self.world.convert(ino, logical, length)?;
                    }
                }
            }
            84..90 => {
                if let Some(ino) = self.pick_file() {
                    let logical = self.random.random_range(0..500);
                    let length = self.random.random_range(1..60);
                    self.world.unmap(ino, logical, length)?;
                }
            }
            90..92 => {
                if let Some(ino) = self.pick_file() {
                    let blocks = self.random.random_range(0..300);
                    self.world.truncate(ino, blocks)?;
                }
            }
            92..96 => {
                if let Some((_, _, ino, kind)) = self.pick_entry()
                    && kind != FileKind::Symlink
                {
                    let which = self.random.random_range(0..6);
                    let name = format!("user.name{which}{}", "x".repeat(which * 5));
                    let large = self.world.has_value_inodes;
                    let longest = if large && which > 3 { 20_000 } else { 300 };
                    let value = vec![which as u8; self.random.random_range(0..longest)];
                    let value = (self.random.random_range(0..4) > 0).then_some(&value[..]);
                    match self.world.set_xattr(ino, name.as_bytes(), value) {
                        Err(Error::NoSpace) => {}
                        outcome => outcome?,
                    }
                }
            }
            96..98 => {
                if let Some((_, _, ino, _)) = self.pick_entry() {
                    let permissions = self.random.random();
                    self.world.chmod(ino, permissions);
                }
            }
            _ => {
                let open = world
                    .nodes
                    .iter()
                    .find(|(_, node)| node.is_open)
                    .map(|(ino, _)| *ino);
                if let Some(ino) = open {
                    world.close_orphan(ino);
                }
            }
        }
        Ok(())
    }

    fn rename(&mut self) -> Result<(), Error> {
        let Some((dir, name, ino, kind)) = self.pick_entry() else {
            return Ok(());
        };
        let to = self.pick_directory();
        // Not into itself.
        let mut above = to;
        while above != self.world.root {
            if above == ino {
                return Ok(());
            }
            above = self.world.nodes[&above].parent;
        }
        let mut new = self.name();
        if kind != FileKind::Directory && self.random.random() {
            // Over another file.
            let other = self.world.nodes[&to]
                .entries
                .iter()
                .find(|(_, (other, kind))| *other != ino && *kind != FileKind::Directory);
            if let Some((other, _)) = other {
                new = other.clone();
            }
        }
        self.world.rename((dir, &name), (to, &new))
    }
}
