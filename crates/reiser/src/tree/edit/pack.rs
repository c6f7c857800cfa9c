//! How items are shared out to leaves: in order, each leaf filled up to a limit, items cut where
//! that pays. The limit is the capacity where items come in at the end, else the least one that
//! needs no more leaves, so that all get about the same.

use finefs_namespace::Result;
use finefs_reiser_disk::ItemKind;
use finefs_reiser_disk::node::ITEM_HEAD_SIZE;

use super::piece::Piece;

/// Halvings of the range in which the limit is looked for.
const HALVINGS: u32 = 5;

/// How leaves are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fill {
    /// All about the same.
    Even,
    /// Each up to its capacity, but for the last one.
    InOrder,
}

/// Where a leaf begins: an item, and a unit of it.
type Cut = (usize, usize);

/// Shares items out to at most so many leaves; `None` where they need more.
pub(super) fn pack(
    pieces: &[Piece],
    leaves: usize,
    fill: Fill,
    capacity: usize,
    block_size: usize,
) -> Result<Option<Vec<Vec<Piece>>>> {
    let Some(mut best) = cuts(pieces, leaves, capacity, capacity) else {
        return Ok(None);
    };
    if fill == Fill::Even {
        let total: usize = pieces.iter().map(Piece::space).sum();
        let (mut low, mut high) = ((total / leaves).min(capacity), capacity);
        for _ in 0..HALVINGS {
            let limit = usize::midpoint(low, high);
            match cuts(pieces, leaves, limit, capacity) {
                Some(found) => (best, high) = (found, limit),
                None => low = limit,
            }
        }
    }
    build(pieces, &best, block_size).map(Some)
}

/// Where leaves begin, but for the first one, if each is filled up to a limit; `None` where that
/// makes more leaves than there may be. A unit that is larger than the limit has a leaf to itself.
fn cuts(pieces: &[Piece], leaves: usize, limit: usize, capacity: usize) -> Option<Vec<Cut>> {
    let mut cuts = Vec::new();
    let (mut number, mut unit, mut used) = (0, 0, 0);
    while let Some(piece) = pieces.get(number) {
        let rest = ITEM_HEAD_SIZE + piece.size(unit..piece.units());
        if used + rest <= limit {
            (number, unit, used) = (number + 1, 0, used + rest);
            continue;
        }
        if used == 0 || pays(piece, rest, capacity) {
            let room = limit.saturating_sub(used + ITEM_HEAD_SIZE);
            let mut to = piece.fit(unit, room);
            if to == unit && used == 0 {
                if rest <= capacity {
                    (number, unit, used) = (number + 1, 0, rest);
                    continue;
                }
                to = piece.fit(unit, capacity - ITEM_HEAD_SIZE);
                if to == unit {
                    return None;
                }
            }
            unit = to;
        }
        cuts.push((number, unit));
        if cuts.len() == leaves {
            return None;
        }
        used = 0;
    }
    Some(cuts)
}

/// True where an item is worth its second head, and the second leaf that who reads it must search.
fn pays(piece: &Piece, size: usize, capacity: usize) -> bool {
    match piece.key.kind {
        ItemKind::Indirect => size > capacity / 16,
        ItemKind::Directory => size > capacity / 8,
        ItemKind::Direct => size > capacity / 4,
        ItemKind::StatData | ItemKind::Unknown(_) => false,
    }
}

fn build(pieces: &[Piece], cuts: &[Cut], block_size: usize) -> Result<Vec<Vec<Piece>>> {
    let mut leaves = Vec::with_capacity(cuts.len() + 1);
    let mut from = (0, 0);
    for &to in cuts.iter().chain([&(pieces.len(), 0)]) {
        let mut leaf = Vec::new();
        while from < to {
            let piece = &pieces[from.0];
            let end = if from.0 == to.0 { to.1 } else { piece.units() };
            leaf.push(piece.part(from.1..end, block_size)?);
            from = if from.0 == to.0 { to } else { (from.0 + 1, 0) };
        }
        leaves.push(leaf);
    }
    Ok(leaves)
}
