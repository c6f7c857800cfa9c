//! The parts of a batch that threads apply side by side.
//!
//! # Invariants
//! 1. All inodes of one block of the inode table are in one piece, and so are the directories that
//!    belong to them.
//! 2. Pieces have ascending numbers, and so have the inodes of a piece.

use finefs_namespace::{DirectoryChange, Ino, InodeChange, NumberMap};

/// What a thread takes at a time, at most and at least: inodes, and names in directories.
const PIECE_ITEMS_MAX: usize = 256;
const PIECE_ITEMS_MIN: usize = 8;

/// So many times as many pieces are made as there are threads, that all end together.
const PIECES_PER_THREAD: usize = 8;

/// Inodes, and the directories among them.
#[derive(Default)]
pub(super) struct Piece<'a> {
    pub inodes: &'a [Box<InodeChange>],
    pub directories: NumberMap<Ino, DirectoryChange>,
}

/// Cuts a batch into pieces; into one for one thread. `per_block`: the inodes of a block.
pub(super) fn cut(
    inodes: &[Box<InodeChange>],
    mut directories: Vec<DirectoryChange>,
    threads: usize,
    per_block: u64,
) -> Vec<Piece<'_>> {
    if threads == 1 {
        let directories = directories.into_iter();
        return vec![Piece {
            inodes,
            directories: directories.map(|change| (change.dir, change)).collect(),
        }];
    }
    let block = |ino: Ino| ino.0.saturating_sub(1) / per_block;
    directories.sort_unstable_by_key(|change| std::cmp::Reverse(change.dir));
    let most = (inodes.len() / threads / PIECES_PER_THREAD).clamp(PIECE_ITEMS_MIN, PIECE_ITEMS_MAX);
    let mut pieces = Vec::new();
    let mut piece = Piece::default();
    let (mut first, mut items) = (0, 0);
    for (at, change) in inodes.iter().enumerate() {
        if items >= most && block(inodes[at - 1].ino) != block(change.ino) {
            let end = block(inodes[at - 1].ino);
            while let Some(directory) = directories.pop_if(|last| block(last.dir) <= end) {
                piece.directories.insert(directory.dir, directory);
            }
            piece.inodes = &inodes[first..at];
            pieces.push(std::mem::take(&mut piece));
            (first, items) = (at, 0);
        }
        items += 1;
        while let Some(directory) = directories.pop_if(|last| last.dir <= change.ino) {
            items += directory.entries.len();
            piece.directories.insert(directory.dir, directory);
        }
    }
    piece.inodes = &inodes[first..];
    let rest = directories.into_iter();
    piece
        .directories
        .extend(rest.map(|change| (change.dir, change)));
    pieces.push(piece);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_namespace::{Attributes, FileFlags, FileKind, LinkState, Times, Timestamp};

    fn change(ino: u64) -> Box<InodeChange> {
        let now = Timestamp::now();
        Box::new(InodeChange {
            ino: Ino(ino),
            is_created: false,
            link_state: LinkState::Linked,
            attributes: Attributes {
                ino: Ino(ino),
                generation: 0,
                kind: FileKind::Regular,
                permissions: 0,
                link_count: 1,
                uid: 0,
                gid: 0,
                device: 0,
                size_bytes: 0,
                sectors: 0,
                times: Times {
                    accessed: now,
                    modified: now,
                    changed: now,
                    created: now,
                },
                flags: FileFlags::empty(),
                project: 0,
                is_settled: true,
            },
            link_delta: 0,
            symlink: None,
            map: Vec::new(),
            xattrs: Vec::new(),
            inline: None,
        })
    }

    #[test]
    fn what_is_of_one_block_is_in_one_piece() {
        let inodes: Vec<_> = (1..2000).filter(|ino| ino % 3 != 0).map(change).collect();
        let directory = |ino: u64| DirectoryChange {
            dir: Ino(ino),
            parent: None,
            entries: Vec::new(),
        };
        // The last ones are beyond all inodes.
        let directories: Vec<_> = (1..2100).step_by(7).map(directory).collect();
        for threads in [1, 2, 5] {
            let pieces = cut(&inodes, directories.clone(), threads, 16);
            assert_eq!(pieces.len() > threads, threads > 1);
            let (mut all, mut dirs, mut end) = (0, 0, 0);
            for (at, piece) in pieces.iter().enumerate() {
                let block = |ino: Ino| (ino.0 - 1) / 16;
                let first = block(piece.inodes[0].ino);
                let last = block(piece.inodes[piece.inodes.len() - 1].ino);
                assert!(at == 0 || first > end, "piece {at}");
                let within = |dir: &Ino| {
                    let is_last = at + 1 == pieces.len();
                    (at == 0 || block(*dir) > end) && (is_last || block(*dir) <= last)
                };
                assert!(piece.directories.keys().all(within), "piece {at}");
                end = last;
                all += piece.inodes.len();
                dirs += piece.directories.len();
            }
            assert_eq!((all, dirs), (inodes.len(), directories.len()));
        }
    }
}
