//! Damaged trees: mutations are errors or not, but never a panic, and they end.

use finefs_namespace::{Error, LogicalBlock};
use finefs_reiser_disk::hash::NameHash;
use finefs_reiser_disk::stat::FileKind;
use finefs_reiser_disk::{ObjectKey, key};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::model::World;
use crate::tree::edit::{Editor, Freed};

/// A tree of three levels: names, files with many blocks and with tails.
fn world() -> (World, Vec<ObjectKey>) {
    let mut world = World::new(512, NameHash::R5, true);
    let mut objects = Vec::new();
    for number in 0..120_u32 {
        let kind = match number % 10 {
            0 => FileKind::Directory,
            _ => FileKind::Regular,
        };
        let object = world.make(key::ROOT, kind);
        let name = format!("a name of some length {number}");
        world.add_name(key::ROOT, name.as_bytes(), object);
        if kind == FileKind::Regular {
            world.map(object, 0, number as usize % 40 + 1, false);
            world.put_tail(object, number as usize % 40 + 1, &[7; 77]);
        }
        objects.push(object);
    }
    assert_eq!(world.root.levels, 3);
    (world, objects)
}

/// All kinds of mutations, whatever comes of them.
fn mutate(world: &mut World, objects: &[ObjectKey], random: &mut StdRng) -> Vec<Error> {
    let mut errors = Vec::new();
    for number in 0..40_u32 {
        let object = objects[random.random_range(0..objects.len())];
        let of = world.directory(key::ROOT);
        let file = world.file(object);
        let stat = world.objects[&object].stat;
        let name = format!("a name of some length {}", random.random_range(0..130));
        let mut editor = Editor::new(&mut world.memory, world.root);
        let mut freed = Freed::new();
        let outcome = match number % 8 {
            0 => editor.add_entry(&of, name.as_bytes(), object).map(|_| ()),
            1 => editor.remove_entry(&of, name.as_bytes()).map(|_| ()),
            2 => {
                let at = LogicalBlock(random.random_range(0..60));
                let blocks = (9, 30);
                editor
                    .map(&file, at, blocks, u32::MAX, &mut freed)
                    .map(|_| ())
            }
            3 => editor.truncate(&file, 3000, 9, &mut freed).map(|_| ()),
            4 => editor.put_tail(&file, 512 * 50, &[1; 99]),
            5 => editor.remove_object(object, 9, &mut freed).map(|_| ()),
            6 => editor
                .tail(&file)
                .map(|_| ())
                .and(editor.remove_tail(&file)),
            _ => editor
                .stat(object)
                .map(|_| ())
                .and(editor.write_stat(object, &stat)),
        };
        world.root = editor.root;
        errors.extend(outcome.err());
    }
    errors
}

#[test]
fn damage_is_an_error() {
    let (world, objects) = world();
    let nodes = world.memory.used();
    let mut named = 0;
    for seed in 0..1500 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut world = world.clone();
        for _ in 0..random.random_range(1..4) {
            let block = nodes[random.random_range(0..nodes.len())];
            // More often where heads and keys are.
            let at = match random.random() {
                true => random.random_range(0..512),
                false => random.random_range(0..120),
            };
            world.memory.damage(block, at, random.random());
        }
        let errors = mutate(&mut world, &objects, &mut random);
        let names_place =
            |error: &Error| matches!(error, Error::Corrupt(what) if what.contains("block "));
        named += usize::from(errors.iter().any(names_place));
    }
    assert!(named > 300, "{named}");
}
