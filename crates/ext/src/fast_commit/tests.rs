//! Records that are written by hand.

use std::process::Command;

use finefs_block::MemoryDevice;
use finefs_ext_disk::Ino as DiskIno;
use finefs_ext_disk::extent::ExtentNode;
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::jbd2::fast_commit::FcTag;
use finefs_namespace::Ino;

use super::*;
use crate::load::{directory, map};

type Record = (FcTag, Vec<u8>);

/// The file system of an image without files.
fn empty() -> ExtState {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image");
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-b", "1024", "-O", "^has_journal"])
        .arg(&path)
        .arg("4M")
        .output()
        .expect("e2fsprogs is installed");
    assert!(made.status.success(), "{made:?}");
    let bytes = std::fs::read(&path).expect("it is there");
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let shadow = Arc::new(Shadow::new(device, Overlay::default(), 1024));
    mounted(shadow).expect("it can be mounted")
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A file with one link.
fn file(number: u32, generation: u32, size: u64, state: &ExtState) -> Record {
    let mut inode = Inode::blank(state.geometry.inode_size, 32);
    inode.set_mode(0o100_644);
    inode.set_links_count(1);
    inode.set_generation(generation);
    inode.set_size(&state.inode_rules, size).expect("it fits");
    inode.set_flags(InodeFlags::EXTENTS);
    ExtentNode::init(inode.block_area_mut(), 0).expect("it fits");
    let mut value = words(&[number]);
    value.extend_from_slice(inode.as_bytes());
    (FcTag::Inode, value)
}

fn range(number: u32, physical: u32, length: u16) -> Record {
    let mut value = words(&[number, 0]);
    value.extend_from_slice(&length.to_le_bytes());
    value.extend_from_slice(&[0, 0]);
    value.extend_from_slice(&words(&[physical]));
    (FcTag::AddRange, value)
}

fn name(tag: FcTag, name: &str, number: u32) -> Record {
    let mut value = words(&[DiskIno::ROOT.0, number]);
    value.extend_from_slice(name.as_bytes());
    (tag, value)
}

#[test]
fn an_inode_that_is_used_again_has_nothing_of_the_one_before() {
    let state = empty();
    let records = [
        file(12, 5, 10 << 10, &state),
        range(12, 2000, 10),
        name(FcTag::Creat, "one", 12),
        file(12, 5, 10 << 10, &state),
        name(FcTag::Unlink, "one", 12),
        file(12, 9, 1 << 10, &state),
        range(12, 2100, 1),
        name(FcTag::Creat, "other", 12),
        file(12, 9, 1 << 10, &state),
    ];
    let mut plan = Plan::new(&state);
    plan.claim(&records).expect("the blocks are free");
    for (tag, value) in &records {
        plan.take(*tag, value).expect("it can be");
    }
    plan.carry_out().expect("it can be");
    let ino = Ino(12);
    let inode = state.read_inode(ino).expect("it is there");
    let extents = map::load(&state, ino, &inode).expect("it is sound").extents;
    let places: Vec<_> = extents
        .iter()
        .map(|e| (e.logical.0, e.physical.0, e.length))
        .collect();
    assert_eq!(places, [(0, 2100, 1)]);
    let root = directory::load(&state, Ino(2)).expect("it is there");
    let names = root.entries.iter().filter(|entry| entry.ino == ino);
    let names: Vec<_> = names.map(|entry| entry.name.as_slice()).collect();
    assert_eq!(names, [b"other"]);
}
