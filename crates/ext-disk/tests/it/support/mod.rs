//! Images made by mke2fs, and the little of a file system that it takes to walk one.
#![allow(dead_code, reason = "each test file uses a part of this")]

use finefs_ext_disk::dirent::DirRules;
use finefs_ext_disk::extent::ExtentNode;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::group::{GroupChecksum, GroupDesc};
use finefs_ext_disk::inode::{Inode, InodeFlags, InodeRules};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use finefs_ext_disk::{GroupNo, Ino, LogicalBlock, PhysBlock, bitmap, indirect};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a tool that must be there; its output.
pub fn run(tool: &str, args: &[&str]) -> Output {
    let path = format!(
        "/usr/sbin:/sbin:{}",
        std::env::var("PATH").unwrap_or_default()
    );
    Command::new(tool)
        .args(args)
        .env("PATH", path)
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .output()
        .unwrap_or_else(|e| panic!("{tool} (of e2fsprogs) is needed: {e}"))
}

/// Runs a tool that must succeed with one of these exit codes; what it printed.
pub fn run_ok(tool: &str, args: &[&str], codes: &[i32]) -> String {
    let out = run(tool, args);
    let text = [out.stdout, out.stderr]
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .concat();
    let is_ok = out.status.code().is_some_and(|c| codes.contains(&c));
    assert!(is_ok, "{tool} {args:?}: {}\n{text}", out.status);
    text
}

/// An image on disk and its bytes as last read.
pub struct Image {
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    pub sb: Superblock,
    pub geo: Geometry,
    pub checksum: GroupChecksum,
    pub rules: InodeRules,
    pub dir_rules: DirRules,
}

impl Image {
    /// Makes an image with mke2fs. With `files`, fills it with a tree and builds its indexes.
    pub fn make(args: &[&str], size: &str, files: usize) -> Image {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("image");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).expect("tree");
        let (image, from) = (path.to_string_lossy(), tree.to_string_lossy());
        let mut all = vec!["-q", "-F"];
        all.extend(args);
        if files > 0 {
            plant(&tree, files);
            all.extend(["-d", &from]);
        }
        all.extend([&*image, size]);
        run_ok("mke2fs", &all, &[0]);
        if files > 0 {
            // mke2fs leaves directories without index; this builds them.
            run_ok("e2fsck", &["-fyD", &image], &[0, 1]);
        }
        Image::open(dir, path)
    }

    fn open(dir: tempfile::TempDir, path: PathBuf) -> Image {
        let bytes = fs::read(&path).expect("image");
        let sb = Superblock::parse(&bytes[SUPERBLOCK_OFFSET as usize..]).expect("superblock");
        let geo = sb.validate().expect("sound superblock");
        let (checksum, rules) = (GroupChecksum::of(&sb), InodeRules::of(&sb));
        let dir_rules = DirRules::of(&sb);
        Image {
            dir,
            path,
            bytes,
            sb,
            geo,
            checksum,
            rules,
            dir_rules,
        }
    }

    /// Reads the image again, after a tool has changed it.
    pub fn reopen(self) -> Image {
        Image::open(self.dir, self.path)
    }

    /// Runs debugfs commands that may write.
    pub fn debugfs(&self, commands: &[&str]) -> String {
        let script = self.dir.path().join("script");
        fs::write(&script, commands.join("\n")).expect("script");
        let (script, image) = (script.to_string_lossy(), self.path.to_string_lossy());
        run_ok("debugfs", &["-w", "-f", &script, &image], &[0])
    }

    /// Writes the bytes back.
    pub fn save(&self) {
        fs::write(&self.path, &self.bytes).expect("write image");
    }

    /// e2fsck must find nothing to say.
    pub fn assert_clean(&self) {
        run_ok("e2fsck", &["-fn", &self.path.to_string_lossy()], &[0]);
    }

    pub fn block_size(&self) -> usize {
        self.geo.block_size as usize
    }

    pub fn block(&self, block: PhysBlock) -> &[u8] {
        let size = self.block_size();
        let at = block.0 as usize * size;
        &self.bytes[at..at + size]
    }

    pub fn block_mut(&mut self, block: PhysBlock) -> &mut [u8] {
        let size = self.block_size();
        let at = block.0 as usize * size;
        &mut self.bytes[at..at + size]
    }

    pub fn groups(&self) -> impl Iterator<Item = GroupNo> + use<> {
        (0..self.geo.groups_count).map(GroupNo)
    }

    pub fn desc(&self, group: GroupNo) -> GroupDesc<&[u8]> {
        let (index, offset) = self.geo.desc_position(group);
        let block = self.block(self.geo.desc_block(index));
        let offset = offset as usize;
        GroupDesc::new(&block[offset..offset + usize::from(self.geo.desc_size)]).expect("desc")
    }

    /// Byte offset of an inode in the image.
    pub fn inode_at(&self, ino: Ino) -> usize {
        let at = self.geo.locate_inode(ino).expect("inode number");
        let table = self.desc(at.group).inode_table().0;
        (table + u64::from(at.table_block)) as usize * self.block_size() + at.offset as usize
    }

    pub fn inode(&self, ino: Ino) -> Inode<&[u8]> {
        let at = self.inode_at(ino);
        Inode::new(&self.bytes[at..at + usize::from(self.geo.inode_size)]).expect("inode")
    }

    pub fn inode_mut(&mut self, ino: Ino) -> Inode<&mut [u8]> {
        let at = self.inode_at(ino);
        let size = usize::from(self.geo.inode_size);
        Inode::new(&mut self.bytes[at..at + size]).expect("inode")
    }

    /// All inodes in use.
    pub fn used_inodes(&self) -> Vec<Ino> {
        let mut all = Vec::new();
        for group in self.groups() {
            let map = self.block(self.desc(group).inode_bitmap());
            if self
                .desc(group)
                .flags()
                .contains(finefs_ext_disk::group::GroupFlags::INODE_UNINIT)
            {
                continue;
            }
            let end = self.geo.inodes_per_group as usize;
            let mut from = 0;
            while let Some(bit) = bitmap::find_set(map, from, end) {
                all.push(self.geo.inode_at(group, bit as u32));
                from = bit + 1;
            }
        }
        all
    }

    /// The inode that a path leads to, by a linear search of every directory.
    pub fn lookup(&self, path: &str) -> Ino {
        let parts = path.split('/').filter(|p| !p.is_empty());
        parts.fold(Ino::ROOT, |dir, name| {
            self.blocks_of(dir)
                .into_iter()
                .filter_map(|(_, at)| {
                    let rules = DirRules {
                        has_tail: false,
                        ..self.dir_rules
                    };
                    let block = finefs_ext_disk::dirent::DirBlock::new(self.block(at), rules);
                    let found = block.ok()?.find(name.as_bytes()).ok()??.ino;
                    Some(found)
                })
                .next()
                .unwrap_or_else(|| panic!("{name} of {path}"))
        })
    }

    /// The data blocks of a file, in order; holes are left out.
    pub fn blocks_of(&self, ino: Ino) -> Vec<(LogicalBlock, PhysBlock)> {
        let inode = self.inode(ino);
        let mut all = Vec::new();
        if inode.flags().contains(InodeFlags::EXTENTS) {
            self.walk_extents(inode.block_area(), &mut all);
        } else {
            let count = inode.size(&self.rules).div_ceil(self.geo.block_size.into());
            for logical in (0..count).map(LogicalBlock) {
                let path = indirect::path(self.geo.block_size, logical).expect("path");
                let steps = path.steps();
                let mut at = PhysBlock(inode.block_words()[steps[0] as usize].into());
                for step in &steps[1..] {
                    if at.0 != 0 {
                        at = indirect::pointer(self.block(at), *step);
                    }
                }
                if at.0 != 0 {
                    all.push((logical, at));
                }
            }
        }
        all
    }

    fn walk_extents(&self, bytes: &[u8], all: &mut Vec<(LogicalBlock, PhysBlock)>) {
        let node = ExtentNode::new(bytes).expect("extent node");
        for e in node.extents().filter(|e| !e.is_unwritten) {
            all.extend((0..u64::from(e.len)).map(|i| (e.logical + i, PhysBlock(e.physical.0 + i))));
        }
        for index in node.indexes() {
            self.walk_extents(self.block(index.block), all);
        }
    }
}

/// A tree with what makes metadata: a large directory, a scattered file, links, devices.
fn plant(tree: &Path, files: usize) {
    let large = tree.join("large");
    fs::create_dir(&large).expect("dir");
    for i in 0..files {
        let mut name = format!("file-{i}-{}", "x".repeat(i * 7 % 90)).into_bytes();
        if i % 3 == 0 {
            name.extend([0xc3, 0xa0 + (i % 32) as u8, 0xff]);
        }
        fs::write(large.join(std::ffi::OsStr::from_bytes(&name)), b"").expect("file");
    }
    let mut scattered = fs::File::create(tree.join("scattered")).expect("file");
    for i in 0..400u64 {
        scattered.seek(SeekFrom::Start(i * 8192)).expect("seek");
        scattered.write_all(&[i as u8; 100]).expect("write");
    }
    fs::write(tree.join("whole"), vec![0x5a; 700_000]).expect("file");
    fs::create_dir_all(tree.join("a/b/c")).expect("dirs");
    fs::hard_link(tree.join("whole"), tree.join("a/b/hard")).expect("link");
    let link = std::os::unix::fs::symlink::<String, _>;
    link("short target".into(), tree.join("short")).expect("symlink");
    link("long/".repeat(40), tree.join("long")).expect("symlink");
}
