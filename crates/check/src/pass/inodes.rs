//! Pass 1: every inode that was ever in use. Groups are shared out among threads.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use finefs_ext_disk::extent::{self, ExtentNode};
use finefs_ext_disk::features::{Compat, Incompat, RoCompat};
use finefs_ext_disk::inode::{FileKind, Inode, InodeFlags};
use finefs_ext_disk::{GroupNo, Ino, LogicalBlock, PhysBlock};

use super::Check;
use super::quota::{Held, Usage};
use super::xattrs::{self, Elsewhere};
use crate::finding::{Findings, Object, Problem};
use crate::fs::short;
use crate::tables::state;
use crate::walk::{self, Sink, Walked, has_blocks};

/// Bytes of inode tables that a thread reads at once.
const READ_BYTES: u32 = 256 << 10;
const BOOT_LOADER: u32 = 5;
/// A regular file of this size or more takes `large_file`, reserved inodes included.
const LARGE_FILE_BYTES: u64 = 1 << 31;
/// What a file of pointers can be at most is checked by its blocks; of extents, by this.
const LOGICAL_BITS: u32 = 32;

/// What a thread finds in its inodes.
#[derive(Default)]
pub(super) struct InodeScan {
    pub found: Findings,
    pub dirs: Vec<u32>,
    /// Attribute blocks, with the number of inodes that name each.
    pub blocks: HashMap<u64, (u32, u32)>,
    /// Inodes that hold values, with the number of references.
    pub values: HashMap<u32, u32>,
    /// What the list of bad blocks names.
    bad_blocks: Vec<u64>,
    usage: Usage,
    used: u32,
}

/// Runs the pass; gives the numbers of all directories, and what owners have.
pub(super) fn check(check: &Check, found: &mut Findings) -> (Vec<u32>, Usage) {
    let groups = check.fs.groups.len();
    let states = check.share(groups, InodeScan::default, |scan, group| {
        self::group(check, group as u32, scan);
    });
    let mut all = InodeScan::default();
    for scan in states {
        all.found.append(scan.found);
        all.dirs.extend(scan.dirs);
        all.bad_blocks.extend(scan.bad_blocks);
        all.used += scan.used;
        all.usage.absorb(scan.usage);
        for (block, (count, first)) in scan.blocks {
            let entry = all.blocks.entry(block).or_insert((0, first));
            entry.0 += count;
            entry.1 = entry.1.min(first);
        }
        for (ino, count) in scan.values {
            *all.values.entry(ino).or_default() += count;
        }
    }
    check.used.store(all.used, Relaxed);
    xattrs::blocks(check, &mut all);
    xattrs::values(check, &mut all);
    bad_blocks(check, &mut all);
    if check.has_large_files.load(Relaxed) {
        let (has, rev) = (
            check.fs.has_ro(RoCompat::LARGE_FILE),
            check.fs.sb.rev_level(),
        );
        if !has || rev == 0 {
            let what = "files of 2 GiB or more, without large_file";
            all.found.add(Problem::LargeFile, Object::whole(), what);
        }
    }
    found.append(all.found);
    (all.dirs, all.usage)
}

/// Claims the bad blocks, once everything else has what it names. They may lie in copies of the
/// superblock and the descriptors, which mkfs puts there all the same.
fn bad_blocks(check: &Check, all: &mut InodeScan) {
    let geo = &check.fs.geo;
    let mut blocks = std::mem::take(&mut all.bad_blocks);
    blocks.sort_unstable();
    blocks.dedup_by_key(|block| *block >> check.cluster_bits);
    for block in blocks {
        let place = geo.locate_block(PhysBlock(block));
        let is_copy = place
            .is_some_and(|(group, offset)| group.0 > 0 && offset < geo.group_base_blocks(group));
        if !is_copy && check.claim_again(block, 1) {
            let object = Object::inode(Ino::BAD_BLOCKS.0).block(block);
            let what = "a bad block that is in use";
            all.found.add(Problem::InodeField, object, what);
        }
    }
}

fn group(check: &Check, number: u32, scan: &mut InodeScan) {
    let (fs, geo) = (&check.fs, &check.fs.geo);
    let group = &fs.groups[number as usize];
    let size = u32::from(geo.inode_size);
    let count = fs.inodes_scanned(group);
    let at_once = (READ_BYTES / size).max(1);
    let mut bytes = Vec::new();
    let mut index = 0;
    while index < count {
        let here = at_once.min(count - index);
        bytes.resize((here * size) as usize, 0);
        let table = group.inode_table * u64::from(geo.block_size);
        let at = table + u64::from(index) * u64::from(size);
        if let Err(error) = fs.source.read_at(at, &mut bytes) {
            let what = format_args!("reading the inode table: {error}");
            scan.found.add(Problem::Io, Object::group(number), what);
            return;
        }
        for (offset, raw) in (0..).zip(bytes.chunks_exact(size as usize)) {
            let ino = geo.inode_at(GroupNo(number), index + offset).0;
            // An inode that was never used is all zeros, which is no error of its checksum.
            let is_reserved = ino < geo.first_ino.0;
            if raw[0] == 0 && raw[1] == 0 && !is_reserved && raw.iter().all(|byte| *byte == 0) {
                continue;
            }
            if let Ok(inode) = Inode::new(raw.to_vec()) {
                One::new(check, ino, &inode, scan).check();
            }
        }
        index += here;
    }
}

/// One inode.
pub(super) struct One<'a> {
    pub check: &'a Check,
    pub ino: u32,
    pub inode: &'a Inode<Vec<u8>>,
    pub scan: &'a mut InodeScan,
}

impl<'a> One<'a> {
    fn new(
        check: &'a Check,
        ino: u32,
        inode: &'a Inode<Vec<u8>>,
        scan: &'a mut InodeScan,
    ) -> One<'a> {
        One {
            check,
            ino,
            inode,
            scan,
        }
    }

    pub fn wrong(&mut self, problem: Problem, what: impl std::fmt::Display) {
        let object = Object::inode(self.ino);
        self.scan.found.add(problem, object, what);
    }

    fn has_flag(&self, flag: InodeFlags) -> bool {
        self.inode.flags().contains(flag)
    }

    fn check(mut self) {
        let fs = &self.check.fs;
        if let Err(error) = self.inode.verify_checksum(&fs.rules, Ino(self.ino))
            && !self.inode.is_blank()
        {
            self.wrong(Problem::InodeChecksum, short(&error));
        }
        self.low_dtime();
        let is_file = self.ino >= fs.geo.first_ino.0 && !fs.is_own_file(self.ino);
        if self.inode.links_count() == 0 && is_file {
            if self.inode.dtime() == 0 && self.inode.mode() != 0 {
                self.wrong(Problem::InodeTime, "removed, but has no time of removal");
            }
            return;
        }
        self.flags();
        if self.reserved() {
            return;
        }
        if self.inode.links_count() == 0 {
            return;
        }
        if self.inode.dtime() != 0 {
            self.wrong(Problem::InodeTime, "in use, but has a time of removal");
        }
        self.put(state::USED);
        self.fields();
        let extra = self.extra_space();
        self.kind(extra);
    }

    fn put(&mut self, marks: u8) {
        self.scan.used += 1;
        let kind = (self.inode.mode() >> 12) as u8;
        let mut marks = marks;
        for (flag, mark) in [
            (InodeFlags::EA_INODE, state::EA),
            (InodeFlags::INDEX, state::INDEXED),
            (InodeFlags::ENCRYPT, state::ENCRYPTED),
        ] {
            if self.has_flag(flag) {
                marks |= mark;
            }
        }
        let links = self.inode.links_count();
        self.check.inodes.put(self.ino, marks, kind, links);
    }

    /// A time of removal that is the number of an inode is a link of the list of orphans.
    fn low_dtime(&mut self) {
        let (sb, count) = (&self.check.fs.sb, self.check.fs.geo.inodes_count);
        let is_early = |time: u64| time != 0 && time < u64::from(count);
        let times = [sb.write_time(), sb.mount_time(), sb.mkfs_time()];
        let dtime = self.inode.dtime();
        if dtime != 0 && dtime < count && !times.into_iter().any(is_early) {
            self.wrong(Problem::InodeTime, "was in the list of orphans");
        }
    }

    /// Flags that exclude each other, or ask for a feature.
    fn flags(&mut self) {
        let fs = &self.check.fs;
        let kind = self.inode.kind();
        let is_plain = self.ino >= fs.geo.first_ino.0;
        let has_inline = fs.needs(Incompat::INLINE_DATA);
        let has_extents = fs.needs(Incompat::EXTENTS);
        if self.has_flag(InodeFlags::CASEFOLD)
            && (kind != Some(FileKind::Directory) || !fs.needs(Incompat::CASEFOLD))
        {
            self.wrong(Problem::InodeField, "marked as folding case");
        }
        if self.has_flag(InodeFlags::EA_INODE) && is_plain && kind != Some(FileKind::Regular) {
            self.wrong(Problem::InodeKind, "holds an attribute, but is no file");
        }
        if self.has_flag(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS) {
            self.wrong(Problem::InlineData, "has both inline data and extents");
        } else if self.has_flag(InodeFlags::INLINE_DATA) && is_plain {
            if !has_inline {
                self.wrong(Problem::InlineData, "has inline data, without inline_data");
            } else if !xattrs::has_inline_data(self.inode) {
                self.wrong(Problem::InlineData, "inline data without its attribute");
            }
        }
        let counts = self.inode.links_count() > 0 || [1, 2, 8].contains(&self.ino);
        if self.has_flag(InodeFlags::EXTENTS) && !has_extents && counts {
            self.wrong(Problem::InodeField, "mapped by extents, without extent");
        }
        let is_mapped = matches!(kind, Some(FileKind::Regular | FileKind::Directory));
        if has_extents && !self.has_flag(InodeFlags::EXTENTS) && counts && is_mapped {
            let area = self.inode.block_area();
            let looks_so = ExtentNode::new(area)
                .is_ok_and(|node| node.max() + 2 >= extent::capacity(area.len()));
            if looks_so {
                self.wrong(Problem::InodeField, "mapped by extents, but not marked so");
            }
        }
    }

    /// Inodes with a meaning of their own; true when that was all.
    fn reserved(&mut self) -> bool {
        let fs = &self.check.fs;
        let mode = self.inode.mode();
        let is_file = self.inode.kind() == Some(FileKind::Regular);
        let quota = [3, 4].contains(&self.ino) || self.ino == fs.sb.prj_quota_inum();
        let is_orphan_file = self.ino == fs.sb.orphan_file_inum() && self.ino != 0;
        let names_quota = self.ino != 0
            && [
                fs.sb.usr_quota_inum(),
                fs.sb.grp_quota_inum(),
                fs.sb.prj_quota_inum(),
            ]
            .contains(&self.ino);
        let own = match self.ino {
            1 => {
                self.bad_blocks();
                return true;
            }
            2 => {
                if self.inode.kind() != Some(FileKind::Directory) {
                    self.wrong(Problem::Root, "the root directory is not a directory");
                }
                return false;
            }
            8 => Some(fs.sb.journal_inum() == 8),
            _ if quota || names_quota => Some(fs.has_ro(RoCompat::QUOTA) && names_quota),
            _ if is_orphan_file => Some(fs.has(Compat::ORPHAN_FILE)),
            _ => None,
        };
        match own {
            Some(true) => {
                if !is_file {
                    self.wrong(Problem::InodeKind, "must be a file, and is none");
                }
                self.put(state::USED);
                self.blocks(Elsewhere::default());
                true
            }
            Some(false) => {
                self.put(state::USED);
                let has_blocks = self.inode.block_words()[0] != 0;
                if self.inode.links_count() > 0
                    || self.inode.blocks_512(&fs.rules) != 0
                    || has_blocks
                {
                    self.wrong(Problem::InodeField, "reserved, but in use");
                }
                false
            }
            None if self.ino < fs.geo.first_ino.0 => {
                self.put(state::USED);
                let is_bad = match Ino(self.ino) {
                    Ino(BOOT_LOADER) => self.inode.kind() == Some(FileKind::Directory),
                    Ino::RESIZE => mode != 0 && !is_file,
                    _ => mode != 0,
                };
                if is_bad {
                    self.wrong(Problem::InodeKind, "reserved, but has a type");
                }
                self.blocks(Elsewhere::default());
                true
            }
            None => false,
        }
    }

    /// The list of bad blocks.
    fn bad_blocks(&mut self) {
        let fs = &self.check.fs;
        self.put(state::USED);
        let is_bad = self.inode.mode() != 0
            || self.inode.uid() != 0
            || self.inode.gid() != 0
            || self.inode.links_count() != 0
            || self.has_flag(InodeFlags::INLINE_DATA)
            || self.inode.file_acl(&fs.rules).0 != 0;
        if is_bad {
            self.wrong(
                Problem::InodeField,
                "the list of bad blocks has fields of a file",
            );
        }
        if self.inode.block_words().iter().any(|word| *word != 0) {
            let mut listed = Listed {
                check: self.check,
                blocks: &mut self.scan.bad_blocks,
            };
            let found = &mut self.scan.found;
            walk::walk(fs, self.ino, self.inode, &mut listed, found);
        }
    }

    /// Fields that must be zero without a feature.
    fn fields(&mut self) {
        let fs = &self.check.fs;
        let raw = self.inode.as_bytes();
        let high = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        let is_dir = self.inode.kind() == Some(FileKind::Directory);
        let size_high = u32::from_le_bytes([raw[0x6C], raw[0x6D], raw[0x6E], raw[0x6F]]);
        let is_linux = fs.sb.creator_os() == 0;
        let acl = self.inode.file_acl(&fs.rules);
        let (blocks_high, acl_high) = (high(0x74), high(0x76));
        let wrong = if self.inode.fragment_address() != 0 {
            "has a fragment"
        } else if is_dir && size_high != 0 && !fs.rules.has_large_dir {
            "a directory of 4 GiB, without large_dir"
        } else if is_linux && !fs.rules.has_64bit && acl_high != 0 {
            "an attribute block beyond 32 bits, without 64bit"
        } else if is_linux && !fs.rules.has_huge_file && blocks_high != 0 {
            "counts blocks in 48 bits, without huge_file"
        } else if acl.0 != 0 && (!fs.has(Compat::EXT_ATTR) || !fs.geo.contains_block(acl)) {
            "has an attribute block that cannot be"
        } else {
            return;
        };
        self.check.inodes.mark(self.ino, state::BAD);
        self.wrong(Problem::InodeField, wrong);
    }

    /// The extra fields and the attributes behind them; gives the values that lie elsewhere.
    fn extra_space(&mut self) -> Elsewhere {
        let fs = &self.check.fs;
        if fs.geo.inode_size <= 128 {
            return Elsewhere::default();
        }
        let extra = self.inode.extra_isize();
        let max = fs.geo.inode_size - 128;
        if extra != 0 && (extra < 4 || extra > max || extra & 3 != 0) {
            self.wrong(
                Problem::InodeField,
                format_args!("{extra} bytes of extra fields"),
            );
            return Elsewhere::default();
        }
        xattrs::in_inode(self)
    }

    fn kind(&mut self, extra: Elsewhere) {
        let Some(kind) = self.inode.kind() else {
            self.check.inodes.mark(self.ino, state::BAD);
            let what = format_args!("mode {:o} names no type", self.inode.mode());
            self.wrong(Problem::InodeKind, what);
            return self.blocks(extra);
        };
        match kind {
            FileKind::Directory => self.scan.dirs.push(self.ino),
            FileKind::Regular => {}
            FileKind::Symlink => {
                if !self.is_symlink() {
                    self.check.inodes.mark(self.ino, state::BAD);
                    self.wrong(Problem::Symlink, "a symbolic link whose target cannot be");
                } else if self.has_flag(InodeFlags::INLINE_DATA) {
                    return;
                }
            }
            _ => {
                let is_marked = self
                    .inode
                    .flags()
                    .intersects(InodeFlags::INDEX | InodeFlags::EXTENTS);
                let is_immutable = self
                    .inode
                    .flags()
                    .intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
                let has_words = self.inode.block_words()[4..].iter().any(|w| *w != 0);
                let raw = self.inode.as_bytes();
                let has_size = raw[4..8].iter().chain(&raw[0x6C..0x70]).any(|b| *b != 0);
                if is_marked || (is_immutable && has_words) {
                    self.check.inodes.mark(self.ino, state::BAD);
                    self.wrong(
                        Problem::InodeKind,
                        "a device, pipe or socket that cannot be",
                    );
                } else if has_size {
                    self.wrong(Problem::InodeSize, "a device, pipe or socket with a size");
                }
            }
        }
        self.blocks(extra);
    }

    fn is_symlink(&mut self) -> bool {
        let fs = &self.check.fs;
        let raw = self.inode.as_bytes();
        let size = self.inode.size(&fs.rules);
        let has_high = raw[0x6C..0x70].iter().any(|byte| *byte != 0);
        if has_high || size == 0 || self.has_flag(InodeFlags::INDEX) {
            return false;
        }
        if self.has_flag(InodeFlags::INLINE_DATA) {
            let room = xattrs::inline_size(self.inode);
            return !self.has_flag(InodeFlags::EXTENTS) && room == Some(size);
        }
        let is_encrypted = self.has_flag(InodeFlags::ENCRYPT);
        let fits = |target: &[u8]| {
            let length = match is_encrypted {
                true => usize::from(u16::from_le_bytes([target[0], target[1]])) + 2,
                false => target.iter().position(|b| *b == 0).unwrap_or(target.len()),
            };
            length < target.len() && length as u64 == size
        };
        if size < 60 {
            return !self.has_flag(InodeFlags::EXTENTS) && fits(self.inode.block_area());
        }
        let block = if self.has_flag(InodeFlags::EXTENTS) {
            let node = ExtentNode::new(self.inode.block_area()).ok();
            let node = node.filter(|node| node.is_leaf() && node.entries() == 1);
            let extent = node.and_then(|node| node.extent(0));
            extent
                .filter(|extent| extent.logical.0 == 0 && extent.len == 1)
                .map_or(0, |extent| extent.physical.0)
        } else {
            let words = self.inode.block_words();
            match words[1..].iter().any(|word| *word != 0) {
                true => 0,
                false => u64::from(words[0]),
            }
        };
        if block == 0 || !fs.geo.contains_block(finefs_ext_disk::PhysBlock(block)) {
            return false;
        }
        let mut bytes = fs.block_buffer();
        fs.read_block(block, &mut bytes, &mut self.scan.found) && fits(&bytes)
    }

    /// Blocks, size and the count of blocks; `extra` are values of attributes in other inodes.
    fn blocks(&mut self, extra: Elsewhere) {
        let fs = &self.check.fs;
        let is_file = self.inode.kind() == Some(FileKind::Regular);
        if is_file && self.inode.size(&fs.rules) >= LARGE_FILE_BYTES {
            self.check.has_large_files.store(true, Relaxed);
        }
        let Elsewhere {
            mut values,
            mut clusters,
        } = extra;
        let acl = self.inode.file_acl(&fs.rules);
        if acl.0 != 0 && fs.has(Compat::EXT_ATTR) && fs.geo.contains_block(acl) {
            let entry = self.scan.blocks.entry(acl.0).or_insert((0, self.ino));
            entry.0 += 1;
            entry.1 = entry.1.min(self.ino);
            let of_block = xattrs::of_block(self, acl.0);
            values += of_block.values;
            clusters += 1 + of_block.clusters;
        }
        let mut walked = Walked::default();
        if has_blocks(fs, self.inode) {
            let mut claims = Claiming::of(self.check);
            claims.is_resize = self.ino == Ino::RESIZE.0;
            let found = &mut self.scan.found;
            walked = walk::walk(fs, self.ino, self.inode, &mut claims, found);
            if claims.is_resize {
                claims.clusters = walked.blocks;
            }
            clusters += claims.clusters;
        }
        self.size(&walked, clusters);
        let blocks = clusters * u64::from(fs.geo.cluster_ratio);
        let bytes = blocks << fs.geo.block_bits;
        let held = Held {
            bytes,
            inodes: 1 + values,
        };
        self.scan.usage.count(fs, self.ino, self.inode, held);
        if fs.sb.creator_os() != 0 && fs.sb.creator_os() != 3 {
            return;
        }
        let counted = blocks << (fs.geo.block_bits - 9);
        let stored = self.inode.blocks_512(&fs.rules);
        if counted != stored {
            let what = format_args!("counts {stored} sectors, has {counted}");
            let object = Object::inode(self.ino);
            let found = &mut self.scan.found;
            found.add_with(Problem::InodeBlocks, object, what, counted);
        }
    }

    fn size(&mut self, walked: &Walked, clusters: u64) {
        let fs = &self.check.fs;
        let size = self.inode.size(&fs.rules);
        let block = u64::from(fs.geo.block_size);
        let is_inline = self.has_flag(InodeFlags::INLINE_DATA);
        let is_dir = self.inode.kind() == Some(FileKind::Directory);
        if is_dir && clusters == 0 && !is_inline {
            self.wrong(Problem::DirectoryBlocks, "a directory without blocks");
        }
        let is_extents = self.has_flag(InodeFlags::EXTENTS) && fs.needs(Incompat::EXTENTS);
        let wrong = if is_dir && is_inline {
            xattrs::inline_size(self.inode) != Some(size)
        } else if is_dir {
            let (blocks, end) = (size / block, walked.end);
            let spare = u64::from(fs.sb.prealloc_dir_blocks());
            !size.is_multiple_of(block) || blocks > end || end - blocks > spare
        } else {
            let last = walked.written_end.saturating_sub(1);
            let is_short =
                walked.written_end > 0 && size < last * block && !self.has_flag(InodeFlags::VERITY);
            is_short
                || match is_extents {
                    true => size > (1 << (LOGICAL_BITS + fs.geo.block_bits)) - 1,
                    false => {
                        let most = finefs_ext_disk::indirect::pointers_per_block(fs.geo.block_size);
                        let most = u64::from(most);
                        size > (12 + most + most * most + most * most * most) * block
                    }
                }
        };
        let is_link = self.inode.kind() == Some(FileKind::Symlink);
        if wrong && !is_link {
            let what = format_args!("size {size} does not fit its {} blocks", walked.end);
            let fits = match is_dir {
                true => walked.end * block,
                false => walked.written_end * block,
            };
            let found = &mut self.scan.found;
            found.add_with(Problem::InodeSize, Object::inode(self.ino), what, fits);
        }
    }
}

/// Keeps what the list of bad blocks names; its own blocks are claimed as those of a file.
struct Listed<'a> {
    check: &'a Check,
    blocks: &'a mut Vec<u64>,
}

impl Sink for Listed<'_> {
    fn data(&mut self, _: LogicalBlock, physical: u64, length: u64) {
        self.blocks.extend(physical..physical + length);
    }

    fn node(&mut self, block: u64) -> bool {
        self.check.claim(block, 1);
        true
    }
}

/// Claims the blocks of a file, and counts its clusters.
struct Claiming<'a> {
    check: &'a Check,
    clusters: u64,
    /// The cluster of the data that came last: what follows in it is in use by the same file.
    last: Option<u64>,
    /// A block of the map has come.
    has_node: bool,
    /// Only the first block of the map is its own.
    is_resize: bool,
}

impl<'a> Claiming<'a> {
    fn of(check: &'a Check) -> Claiming<'a> {
        Claiming {
            check,
            clusters: 0,
            last: None,
            has_node: false,
            is_resize: false,
        }
    }
}

impl Sink for Claiming<'_> {
    fn data(&mut self, _: LogicalBlock, physical: u64, length: u64) {
        if self.is_resize {
            return;
        }
        let bits = self.check.cluster_bits;
        let (mut first, last) = (physical >> bits, (physical + length - 1) >> bits);
        if self.last == Some(first) && bits > 0 {
            first += 1;
        }
        self.last = Some(last);
        if first > last {
            return;
        }
        self.clusters += last - first + 1;
        self.check.claim(first << bits, (last - first + 1) << bits);
    }

    fn node(&mut self, block: u64) -> bool {
        self.clusters += 1;
        // The indirect blocks of the resize inode are the reserved ones of the descriptor table.
        let is_first = !std::mem::replace(&mut self.has_node, true);
        if is_first || !self.is_resize {
            self.check.claim(block, 1);
        }
        true
    }
}
