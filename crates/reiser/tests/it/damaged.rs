//! Damage is an error that says where, never a panic, and never a walk without an end.

use crate::support::{Seen, mount, unpacked, walk};

/// A simple generator of numbers: what is damaged is the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

const BLOCK: usize = 1024;

/// The blocks that are nodes of a tree, by their levels and counts.
fn nodes(image: &[u8]) -> Vec<usize> {
    let looks_like_one = |block: &&[u8]| {
        let word = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        (1..4).contains(&word(0)) && (1..60).contains(&word(2)) && word(4) < 1000
    };
    let blocks = image.chunks_exact(BLOCK).enumerate().skip(666);
    blocks
        .filter(|(_, block)| looks_like_one(block))
        .map(|(number, _)| number)
        .collect()
}

/// What is damaged says so in one line.
fn check(seen: impl IntoIterator<Item = Seen>) -> usize {
    let errors = seen.into_iter().filter_map(Result::err);
    errors
        .map(|error| {
            let text = error.to_string();
            assert!(!text.contains('\n') && !text.is_empty(), "{text:?}");
        })
        .count()
}

#[test]
fn damaged_nodes() {
    let good = unpacked("clean.img.xz");
    let nodes = nodes(&good);
    assert!(nodes.len() > 50, "{}", nodes.len());
    let mut numbers = Numbers(1);
    let (mut refused, mut damaged) = (0, 0);
    let rounds = if std::env::var_os("FINEFS_FULL").is_some() {
        20_000
    } else {
        100
    };
    for _ in 0..rounds {
        let mut image = good.clone();
        for _ in 0..=numbers.below(3) {
            let node = nodes[numbers.below(nodes.len())];
            let within = match numbers.below(2) {
                0 => numbers.below(120),
                _ => numbers.below(BLOCK),
            };
            image[node * BLOCK + within] ^= 1 << numbers.below(8);
        }
        match mount(&image) {
            Ok(store) => damaged += usize::from(check(walk(&store).into_values()) > 0),
            Err(line) => {
                assert!(!line.contains('\n'), "{line:?}");
                refused += 1;
            }
        }
    }
    assert!(
        damaged > rounds / 10 && refused > 0,
        "{damaged} and {refused} of {rounds}"
    );
}

#[test]
fn damaged_superblocks_and_journals() {
    let good = unpacked("killed.img.xz");
    let mut numbers = Numbers(2);
    for round in 0..300 {
        let mut image = good.clone();
        let at = match round % 2 {
            0 => 65536 + numbers.below(204),
            _ => 67_584 + numbers.below(600 * BLOCK),
        };
        image[at] ^= 1 << numbers.below(8);
        match mount(&image) {
            Ok(store) => drop(store.notes()),
            Err(line) => assert!(!line.contains('\n'), "{line:?}"),
        }
    }
    for length in [0, 1000, 65_536, 65_700, 70_000, good.len() - BLOCK] {
        let line = mount(&good[..length]).expect_err("a part of it does not mount");
        assert!(!line.contains('\n'), "{line:?}");
    }
}

/// A child pointer that leads up again must not be followed round.
#[test]
fn trees_that_go_in_circles() {
    let good = unpacked("clean.img.xz");
    let internal = nodes(&good)
        .into_iter()
        .filter(|node| good[node * BLOCK] > 1);
    for node in internal {
        let mut image = good.clone();
        let keys = usize::from(image[node * BLOCK + 2]);
        let child = node * BLOCK + 24 + keys * 16;
        image[child..child + 4].copy_from_slice(&(node as u32).to_le_bytes());
        if let Ok(store) = mount(&image) {
            check(walk(&store).into_values());
        }
    }
}
