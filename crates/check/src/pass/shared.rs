//! Pass 1b: who owns blocks that were claimed more than once. All maps are walked again, each block
//! claimed in a table of its own: what is there already is shared.

use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::{Ino, LogicalBlock, PhysBlock};

use super::Check;
use crate::finding::{Findings, Object, Problem};
use crate::tables::Claims;
use crate::walk::{self, Sink, has_blocks};

struct Again<'a> {
    check: &'a Check,
    once: &'a Claims,
    twice: &'a Claims,
    last_cluster: Option<u64>,
}

impl Again<'_> {
    fn claim(&mut self, block: u64, length: u64) {
        let bits = self.check.cluster_bits;
        for cluster in block >> bits..=(block + length - 1) >> bits {
            if self.last_cluster == Some(cluster) && bits > 0 {
                continue;
            }
            self.last_cluster = Some(cluster);
            if self.once.claim(cluster, 1) > 0 {
                self.twice.claim(cluster, 1);
            }
        }
    }
}

impl Sink for Again<'_> {
    fn data(&mut self, _: LogicalBlock, physical: u64, length: u64) {
        self.claim(physical, length);
    }
    fn node(&mut self, block: u64) -> bool {
        self.claim(block, 1);
        true
    }
}

/// Looks whether a map has shared blocks.
struct Look<'a> {
    bits: u32,
    twice: &'a Claims,
    first: Option<u64>,
    count: u64,
}

impl Look<'_> {
    fn look(&mut self, block: u64, length: u64) {
        for block in block..block + length {
            if self.twice.is_claimed(block >> self.bits) {
                self.first.get_or_insert(block);
                self.count += 1;
            }
        }
    }
}

impl Sink for Look<'_> {
    fn data(&mut self, _: LogicalBlock, physical: u64, length: u64) {
        self.look(physical, length);
    }
    fn node(&mut self, block: u64) -> bool {
        self.look(block, 1);
        true
    }
}

/// Names all owners of shared blocks.
pub(super) fn check(check: &Check, found: &mut Findings) {
    let clusters = (check.fs.geo.blocks_count >> check.cluster_bits) + 1;
    let (Ok(once), Ok(twice)) = (Claims::new(clusters), Claims::new(clusters)) else {
        let what = "blocks are claimed twice; there is no memory to say by whom";
        return found.add(Problem::SharedBlocks, Object::whole(), what);
    };
    metadata(check, &once);
    let inodes = check.fs.geo.inodes_count as usize;
    let mut attributes: Vec<(u64, u32)> = Vec::new();
    check.share(
        inodes,
        || (),
        |(), index| {
            with_map(check, index as u32 + 1, |ino, inode| {
                let mut again = Again {
                    check,
                    once: &once,
                    twice: &twice,
                    last_cluster: None,
                };
                let mut told = Findings::default();
                walk::walk(&check.fs, ino, inode, &mut again, &mut told);
            });
        },
    );
    for ino in 1..=check.fs.geo.inodes_count {
        if let Some(block) = attribute_block(check, ino) {
            attributes.push((block, ino));
        }
    }
    attributes.sort_unstable();
    attributes.dedup_by_key(|(block, _)| *block);
    for (block, ino) in attributes {
        if once.claim(block >> check.cluster_bits, 1) > 0 {
            twice.claim(block >> check.cluster_bits, 1);
            let what = "its attribute block is also something else";
            found.add(Problem::SharedBlocks, Object::inode(ino).block(block), what);
        }
    }
    let states = check.share(inodes, Findings::default, |found, index| {
        with_map(check, index as u32 + 1, |ino, inode| {
            let mut look = Look {
                bits: check.cluster_bits,
                twice: &twice,
                first: None,
                count: 0,
            };
            let mut told = Findings::default();
            walk::walk(&check.fs, ino, inode, &mut look, &mut told);
            if let Some(first) = look.first {
                let what = match look.count {
                    1 => "a block of it is also something else".to_owned(),
                    count => format!("{count} blocks of it are also something else"),
                };
                let object = Object::inode(ino).block(first);
                found.add_with(Problem::SharedBlocks, object, what, look.count);
            }
        });
    });
    for state in states {
        found.append(state);
    }
}

fn metadata(check: &Check, once: &Claims) {
    let geo = &check.fs.geo;
    let bits = check.cluster_bits;
    let claim = |block: u64, length: u64| {
        if block != 0 && length > 0 {
            let first = block >> bits;
            once.claim(first, ((block + length - 1) >> bits) - first + 1);
        }
    };
    for (number, group) in (0..).map(finefs_ext_disk::GroupNo).zip(&check.fs.groups) {
        let base = geo.group_base_blocks(number).min(geo.group_blocks(number));
        let first = geo.group_first_block(number).0;
        // Block 0 is no place that `claim` takes.
        once.claim(first >> bits, u64::from(base.div_ceil(geo.cluster_ratio)));
        claim(group.inode_table, u64::from(geo.inode_table_blocks));
        claim(group.block_bitmap, 1);
        claim(group.inode_bitmap, 1);
    }
    claim(geo.super_block().0, 1);
    if let Some(block) = double_of_resize(check) {
        claim(block, 1);
    }
    let mmp = check.fs.sb.mmp_block();
    if check.fs.needs(Incompat::MMP) && geo.contains_block(PhysBlock(mmp)) {
        claim(mmp, 1);
    }
}

/// The one block of the resize inode that is not among the descriptors.
fn double_of_resize(check: &Check) -> Option<u64> {
    const DOUBLE: usize = 13;
    if !check.fs.has(Compat::RESIZE_INODE) {
        return None;
    }
    let inode = check.fs.inode(Ino::RESIZE.0, &mut Findings::default())?;
    let block = u64::from(inode.block_words()[DOUBLE]);
    (block != 0 && check.fs.geo.contains_block(PhysBlock(block))).then_some(block)
}

fn with_map(
    check: &Check,
    ino: u32,
    each: impl FnOnce(u32, &finefs_ext_disk::inode::Inode<Vec<u8>>),
) {
    const RESIZE: u32 = finefs_ext_disk::Ino::RESIZE.0;
    if !check.is_used(ino) || ino == RESIZE {
        return;
    }
    if let Some(inode) = check.fs.inode(ino, &mut Findings::default())
        && has_blocks(&check.fs, &inode)
    {
        each(ino, &inode);
    }
}

fn attribute_block(check: &Check, ino: u32) -> Option<u64> {
    if !check.is_used(ino) {
        return None;
    }
    let inode = check.fs.inode(ino, &mut Findings::default())?;
    let block = inode.file_acl(&check.fs.rules);
    (block.0 != 0 && check.fs.geo.contains_block(block)).then_some(block.0)
}
