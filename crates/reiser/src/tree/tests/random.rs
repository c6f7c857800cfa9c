//! Random mutations, checked against the model.

use finefs_reiser_disk::ObjectKey;
use finefs_reiser_disk::hash::NameHash;
use finefs_reiser_disk::indirect::direct_max;
use finefs_reiser_disk::key;
use finefs_reiser_disk::stat::FileKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::model::{Content, World};

/// So many worlds for each form of the format; `FINEFS_SEEDS` for more.
fn seeds() -> u64 {
    let seeds = std::env::var("FINEFS_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(1)
}

struct Run {
    world: World,
    random: StdRng,
    /// In bytes.
    name_max: usize,
}

impl Run {
    fn any(&mut self, is_directory: bool) -> Option<ObjectKey> {
        let of_kind = |content: &Content| matches!(content, Content::Entries(_)) == is_directory;
        let start = ObjectKey {
            dir_id: self.random.random_range(0..40),
            object_id: self.random.random_range(0..2000),
        };
        let objects = &self.world.objects;
        let all = objects.range(start..).chain(objects.range(..start));
        let mut all = all.filter(|(_, object)| of_kind(&object.content));
        all.next().map(|(object, _)| *object)
    }

    fn name(&mut self) -> Vec<u8> {
        let length = match self.random.random_range(0..4) {
            0 => self.random.random_range(1..=self.name_max),
            _ => self.random.random_range(1..=12),
        };
        // Few letters, and zeros first, so that names share hashes.
        let zeros = self.random.random_range(0..length);
        let letters = (0..length).map(|at| match at < zeros {
            true => b'0',
            false => self.random.random_range(b'a'..b'h'),
        });
        letters.collect()
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        let length = self.random.random_range(1..=max);
        (0..length).map(|_| self.random.random()).collect()
    }

    /// One mutation of the model's, mostly a growing one or mostly not.
    fn step(&mut self, grows: bool) {
        let directory = self.any(true).expect("there is the root");
        match self.random.random_range(0..if grows { 16 } else { 24 }) {
            0..4 => {
                let kind = match self.random.random_range(0..8) {
                    0 => FileKind::Directory,
                    1 => FileKind::Symlink,
                    2 => FileKind::Fifo,
                    _ => FileKind::Regular,
                };
                let object = self.world.make(directory, kind);
                let name = self.name();
                self.world.add_name(directory, &name, object);
                if kind == FileKind::Symlink {
                    let target = self.bytes(60);
                    self.world.put_tail(object, 0, &target);
                }
            }
            4..9 => {
                let name = self.name();
                let object = self.any(false).unwrap_or(key::ROOT);
                self.world.add_name(directory, &name, object);
            }
            9..15 => self.change_file(),
            15 => {
                let object_id = self.random.random_range(0..50);
                let is_cut = self.random.random();
                self.world.toggle_link(object_id, is_cut);
            }
            16..20 => {
                let names = self.world.entries(directory).clone();
                let names: Vec<_> = names.into_keys().filter(|name| name[0] != b'.').collect();
                if !names.is_empty() {
                    let name = &names[self.random.random_range(0..names.len())];
                    self.world.remove_name(directory, name);
                }
            }
            _ => {
                let is_directory = self.random.random_range(0..9) == 0;
                if let Some(object) = self.any(is_directory)
                    && object != key::ROOT
                {
                    self.world.remove(object);
                }
            }
        }
    }

    fn change_file(&mut self) {
        let Some(object) = self.any(false) else {
            return;
        };
        let file = self.world.objects[&object].clone();
        let Content::Blocks { pointers, .. } = &file.content else {
            return;
        };
        let blocks = pointers.len();
        if file.stat.kind != FileKind::Regular {
            return self.world.write_stat(object, self.random.random());
        }
        let block_size = self.world.memory.block_size;
        match self.random.random_range(0..10) {
            0..4 => {
                let logical = match self.random.random_range(0..4) {
                    0 => self.random.random_range(0..blocks + 30),
                    _ => blocks,
                };
                let count = match self.random.random_range(0..6) {
                    0 => self.random.random_range(1..block_size),
                    _ => self.random.random_range(1..6),
                };
                self.world.map(object, logical, count, false);
            }
            4 => {
                let logical = self.random.random_range(0..blocks + 2);
                let count = self.random.random_range(1..20);
                self.world.map(object, logical, count, true);
            }
            5..7 => {
                let size = self.random.random_range(0..(blocks + 1) * block_size) as u64;
                self.world.truncate(object, size);
            }
            7..9 => {
                let block = blocks + self.random.random_range(0..2);
                let tail = self.bytes(direct_max(block_size));
                self.world.put_tail(object, block, &tail);
            }
            _ => self.world.write_stat(object, self.random.random()),
        }
    }
}

fn run(block_size: usize, hash: NameHash, is_new: bool, steps: u32, seed: u64) {
    let mut run = Run {
        world: World::new(block_size, hash, is_new),
        random: StdRng::seed_from_u64(seed),
        name_max: if block_size == 512 { 120 } else { 255 },
    };
    for step in 0..steps {
        run.step(step < steps * 2 / 3);
        // Small trees after each step, large ones now and then.
        if step < 300 || step % (steps / 20).max(1) == 0 {
            run.world.check();
        }
    }
    let checked = run.world.check();
    let part = checked.used as f64 / (checked.leaves * (block_size - 24)) as f64;
    println!(
        "{block_size}: {} levels, {} leaves, {part:.2} full",
        run.world.root.levels, checked.leaves
    );
    assert!(checked.leaves < 8 || part > 0.5, "{part}");
    remove_all(&mut run.world);
}

/// Removes all objects but the root.
fn remove_all(world: &mut World) {
    let objects: Vec<ObjectKey> = world.objects.keys().copied().collect();
    let often = (objects.len() / 20).max(20);
    for (number, object) in objects.into_iter().enumerate() {
        if object != key::ROOT {
            world.remove(object);
        }
        if number.is_multiple_of(often) {
            world.check();
        }
    }
    for (object, is_cut) in world.links.clone() {
        world.toggle_link(object, is_cut);
    }
    let names: Vec<_> = world.entries(key::ROOT).keys().cloned().collect();
    for name in names.iter().filter(|name| name[0] != b'.') {
        world.remove_name(key::ROOT, name);
    }
    world.check();
    assert_eq!((world.root.levels, world.memory.nodes()), (1, 1));
    assert!(world.data.is_empty());
}

#[test]
fn small_blocks() {
    for seed in 0..2 * seeds() {
        run(512, NameHash::Rupasov, true, 2000, seed);
        run(512, NameHash::R5, false, 2000, seed);
    }
}

#[test]
fn other_blocks() {
    for seed in 0..seeds() {
        run(1024, NameHash::Tea, true, 2500, seed);
        run(2048, NameHash::R5, false, 2500, seed);
        run(4096, NameHash::R5, true, 3000, seed);
        run(4096, NameHash::Rupasov, false, 3000, seed);
        run(8192, NameHash::R5, true, 3000, seed);
    }
}

/// Many names and objects, so that the tree has all levels that it may have.
#[test]
fn high_trees() {
    let mut world = World::new(512, NameHash::R5, true);
    let mut random = StdRng::seed_from_u64(5);
    let mut directory = key::ROOT;
    let mut number = 0_u32;
    while world.root.levels < 5 {
        number += 1;
        if number.is_multiple_of(500) {
            let new = world.make(directory, FileKind::Directory);
            world.add_name(directory, format!("d{number}").as_bytes(), new);
            directory = new;
        }
        let file = world.make(directory, FileKind::Regular);
        let length = random.random_range(8..100);
        let name = format!("{number:0length$}");
        world.add_name(directory, name.as_bytes(), file);
        world.map(file, 0, random.random_range(1..60), false);
        if number.is_multiple_of(5000) {
            println!("{number}: {} levels", world.root.levels);
            world.check();
        }
    }
    let checked = world.check();
    println!("{number} files, {} leaves", checked.leaves);
    remove_all(&mut world);
}

/// Where space ends in the middle of a mutation, the tree is as it was.
#[test]
fn no_space() {
    let mut run = Run {
        world: World::new(512, NameHash::R5, true),
        random: StdRng::seed_from_u64(9),
        name_max: 200,
    };
    let mut failures = 0;
    for number in 0..3000_u32 {
        let name = run.name();
        if run.world.entries(key::ROOT).contains_key(&name) {
            continue;
        }
        let of = run.world.directory(key::ROOT);
        for left in 0..5 {
            let mut starved = run.world.clone();
            starved.memory.left = left;
            let before = starved.memory.bytes();
            let mut editor = super::super::edit::Editor::new(&mut starved.memory, starved.root);
            match editor.add_entry(&of, &name, key::ROOT) {
                Ok(_) => break,
                Err(error) => assert_eq!(error, finefs_namespace::Error::NoSpace),
            }
            assert_eq!(editor.root, starved.root);
            let nodes = |bytes: &[Option<std::sync::Arc<[u8]>>]| {
                let nodes = (0..).zip(bytes).filter(|(_, data)| data.is_some());
                nodes
                    .map(|(number, data): (u32, _)| (number, data.clone()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(nodes(&starved.memory.bytes()), nodes(&before));
            failures += 1;
        }
        run.world.add_name(key::ROOT, &name, key::ROOT);
        if number.is_multiple_of(500) {
            run.world.check();
        }
    }
    assert!(failures > 100);
}

/// All numbers of one hash, then one more.
#[test]
fn names_of_one_hash() {
    let mut world = World::new(1024, NameHash::Rupasov, true);
    // The hash is that of the decimal number of which these are the digits.
    let mut names: Vec<Vec<u8>> = vec![Vec::new()];
    for place in (0..4).rev() {
        let longer = |name: Vec<u8>| (b'0'..b'~').map(move |digit| [&name[..], &[digit]].concat());
        let number = |name: &[u8]| {
            let digits = name.iter().map(|digit| i32::from(digit - b'0'));
            digits.fold(0, |number, digit| 10 * number + digit) * 10_i32.pow(place)
        };
        // What the places that are left can add.
        let rest = 77 * (10_i32.pow(place) - 1) / 9;
        let is_near = |name: &Vec<u8>| (40_000 - rest..=40_000).contains(&number(name));
        names = names.into_iter().flat_map(longer).filter(is_near).collect();
    }
    assert!(names.len() > 128);
    for name in &names[..128] {
        world.add_name(key::ROOT, name, key::ROOT);
    }
    world.check();
    let of = world.directory(key::ROOT);
    let mut editor = super::super::edit::Editor::new(&mut world.memory, world.root);
    let refused = editor.add_entry(&of, &names[128], key::ROOT);
    assert_eq!(refused, Err(finefs_namespace::Error::Busy));
    world.remove_name(key::ROOT, &names[77]);
    world.add_name(key::ROOT, &names[128], key::ROOT);
    for name in names[..128].iter().chain([&names[128]]) {
        if name != &names[77] {
            world.remove_name(key::ROOT, name);
        }
    }
    world.check();
}

/// What fills a tail up is zeros, also where the tail was longer.
#[test]
fn cut_tails_are_filled_up_with_zeros() {
    let mut world = World::new(512, NameHash::R5, true);
    let file = world.make(key::ROOT, FileKind::Regular);
    world.put_tail(file, 0, &[7; 24]);
    for size in [23, 17, 16, 9, 1, 0] {
        world.truncate(file, size);
        world.check();
    }
}

/// Files that are made one after the other fill their leaves.
#[test]
fn what_comes_in_order_fills_leaves() {
    let mut world = World::new(4096, NameHash::R5, true);
    for _ in 0..3000 {
        let file = world.make(key::ROOT, FileKind::Regular);
        world.map(file, 0, 1, false);
    }
    let checked = world.check();
    let part = checked.used as f64 / (checked.leaves * (4096 - 24)) as f64;
    assert!(part > 0.9, "{part}");
    let mut world = World::new(4096, NameHash::R5, true);
    for number in 0..3000_u32 {
        world.add_name(
            key::ROOT,
            format!("file number {number}").as_bytes(),
            key::ROOT,
        );
    }
    let checked = world.check();
    let part = checked.used as f64 / (checked.leaves * (4096 - 24)) as f64;
    assert!(part > 0.65, "{part}");
}
