//! What lies on an image, in words: debugfs's place for reading. A journal that must be replayed is
//! read as replayed, and shown as it lies there; damage is told below what could be read.

use std::fmt::Write;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::replay::{self, LogContent, LogListing};
use finefs_ext_disk::dirent::DirBlock;
use finefs_ext_disk::features::Compat;
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::{GroupNo, Ino, LogicalBlock};

use crate::finding::Findings;
use crate::fs::{Fs, Opened};
use crate::pass::Runs;
use crate::walk::{self, Sink, has_blocks};

/// What is shown.
#[derive(Clone, Debug)]
pub enum What {
    /// A group's descriptor.
    Group(u32),
    /// An inode.
    Inode(File),
    /// Where the blocks of an inode lie.
    Extents(File),
    /// A block's bytes.
    Block(u64),
    /// The journal's log.
    Journal,
}

/// An inode, by its number or by a path.
#[derive(Clone, Debug)]
pub enum File {
    /// Its number.
    Number(u32),
    /// A path from the root; symbolic links are not followed.
    Path(Vec<u8>),
}

/// Shows it. `journal` is the device that the image's journal lies on, if that is another.
pub fn dump(
    device: &Arc<dyn BlockDevice>,
    journal: Option<&Arc<dyn BlockDevice>>,
    what: &What,
) -> Result<String, String> {
    let mut found = Findings::default();
    let Opened::Fs(fs) = Fs::open(device, journal, &mut found)? else {
        return Err("the superblock is damaged; run finefs check".to_owned());
    };
    // What is wrong with the rest of the image is a check's matter.
    let mut found = Findings::default();
    let mut text = match what {
        What::Group(number) => group(&fs, *number)?,
        What::Block(block) => bytes(&fs, *block)?,
        What::Journal => log(&fs, journal)?,
        What::Inode(file) => {
            let (ino, inode) = find(&fs, file)?;
            show_inode(&fs, ino, &inode)
        }
        What::Extents(file) => {
            let (ino, inode) = find(&fs, file)?;
            extents(&fs, ino, &inode, &mut found)
        }
    };
    for finding in found.list {
        let _ = writeln!(text, "{finding}");
    }
    Ok(text)
}

fn find(fs: &Fs, file: &File) -> Result<(u32, Inode<Vec<u8>>), String> {
    let load = |ino: u32| {
        let mut found = Findings::default();
        let inode = fs.inode(ino, &mut found);
        inode.ok_or_else(|| match found.list.first() {
            Some(finding) => finding.to_string(),
            None => format!("there is no inode {ino}"),
        })
    };
    let path = match file {
        File::Number(ino) => return Ok((*ino, load(*ino)?)),
        File::Path(path) => path,
    };
    let mut ino = Ino::ROOT.0;
    let mut walked = Vec::new();
    for name in path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        let inode = load(ino)?;
        ino = look_up(fs, ino, &inode, name)
            .ok_or_else(|| format!("there is no {} in /{}", shown(name), shown(&walked)))?;
        if !walked.is_empty() {
            walked.push(b'/');
        }
        walked.extend_from_slice(name);
    }
    Ok((ino, load(ino)?))
}

fn shown(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

fn look_up(fs: &Fs, ino: u32, inode: &Inode<Vec<u8>>, name: &[u8]) -> Option<u32> {
    let mut runs = Runs::default();
    let mut told = Findings::default();
    walk::walk(fs, ino, inode, &mut runs, &mut told);
    let mut block = fs.block_buffer();
    for at in runs.0.iter().flat_map(|(_, at, length)| *at..at + length) {
        if !fs.read_block(at, &mut block, &mut told) {
            continue;
        }
        let view = DirBlock::new(&block[..], fs.dir_rules).ok()?;
        let mut entries = view.entries().map_while(Result::ok);
        if let Some(entry) = entries.find(|entry| entry.is_used() && entry.name == name) {
            return Some(entry.ino.0);
        }
    }
    None
}

fn group(fs: &Fs, number: u32) -> Result<String, String> {
    let group = fs.groups.get(number as usize);
    let group = group.ok_or_else(|| format!("there are {} groups", fs.groups.len()))?;
    let first = fs.geo.group_first_block(GroupNo(number)).0;
    let last = first + u64::from(fs.geo.group_blocks(GroupNo(number))) - 1;
    let backup = match fs.geo.group_has_super(GroupNo(number)) {
        true => "yes",
        false => "no",
    };
    Ok(format!(
        "group: {number}\nblocks: {first}-{last}\nsuperblock: {backup}\nblock bitmap: {}\n\
         inode bitmap: {}\ninode table: {}-{}\nfree blocks: {}\nfree inodes: {}\n\
         directories: {}\nunused inodes: {}\nflags: {:#x}\n",
        group.block_bitmap,
        group.inode_bitmap,
        group.inode_table,
        group.inode_table + u64::from(fs.geo.inode_table_blocks) - 1,
        group.free_blocks,
        group.free_inodes,
        group.used_dirs,
        group.unused_inodes,
        group.flags.bits(),
    ))
}

fn show_inode(fs: &Fs, ino: u32, inode: &Inode<Vec<u8>>) -> String {
    let kind = inode
        .kind()
        .map_or("none".to_owned(), |kind| format!("{kind:?}"));
    let flags: Vec<String> = inode
        .flags()
        .iter_names()
        .map(|(name, _)| name.to_lowercase())
        .collect();
    let mut text = format!(
        "inode: {ino}\ntype: {}\nmode: {:04o}\nowner: {}\ngroup: {}\nlinks: {}\nsize: {}\n\
         sectors: {}\nflags: {}\ngeneration: {}\nattribute block: {}\n",
        kind.to_lowercase(),
        inode.mode() & 0o7777,
        inode.uid(),
        inode.gid(),
        inode.links_count(),
        inode.size(&fs.rules),
        inode.blocks_512(&fs.rules),
        flags.join(" "),
        inode.generation(),
        inode.file_acl(&fs.rules),
    );
    let times = [
        ("accessed", inode.atime()),
        ("changed", inode.ctime()),
        ("modified", inode.mtime()),
    ];
    for (name, time) in times {
        let _ = writeln!(text, "{name}: {}.{:09}", time.sec, time.nsec);
    }
    if let Some(time) = inode.crtime() {
        let _ = writeln!(text, "created: {}.{:09}", time.sec, time.nsec);
    }
    if inode.dtime() != 0 {
        let _ = writeln!(text, "deleted: {}", inode.dtime());
    }
    if let Some(target) = inode.fast_symlink_target(&fs.rules) {
        let _ = writeln!(text, "target: {}", shown(target));
    }
    if let Err(error) = inode.verify_checksum(&fs.rules, Ino(ino)) {
        let _ = writeln!(text, "checksum: {}", crate::fs::short(&error));
    }
    text
}

/// Writes down what a walk meets: extents as they are, blocks of a map in runs.
struct Lines {
    text: String,
    is_map: bool,
    /// The run that may go on.
    run: Option<(LogicalBlock, u64, u64)>,
}

impl Lines {
    fn end_run(&mut self) {
        if let Some((logical, physical, length)) = self.run.take() {
            let (last, end) = (logical + (length - 1), physical + length - 1);
            let _ = writeln!(self.text, "{logical}-{last}: {physical}-{end}");
        }
    }
}

impl Sink for Lines {
    fn data(&mut self, logical: LogicalBlock, physical: u64, length: u64) {
        match &mut self.run {
            Some((start, at, before))
                if self.is_map && *start + *before == logical && *at + *before == physical =>
            {
                *before += length;
            }
            _ => {
                self.end_run();
                self.run = Some((logical, physical, length));
            }
        }
    }
    fn node(&mut self, block: u64) -> bool {
        self.end_run();
        let _ = writeln!(self.text, "map: {block}");
        true
    }
}

fn extents(fs: &Fs, ino: u32, inode: &Inode<Vec<u8>>, found: &mut Findings) -> String {
    let mut lines = Lines {
        text: String::new(),
        is_map: !inode.flags().contains(InodeFlags::EXTENTS),
        run: None,
    };
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        return "in the inode\n".to_owned();
    }
    if has_blocks(fs, inode) {
        walk::walk(fs, ino, inode, &mut lines, found);
    }
    lines.end_run();
    lines.text
}

fn bytes(fs: &Fs, block: u64) -> Result<String, String> {
    const LINE: usize = 16;
    let mut found = Findings::default();
    let mut bytes = fs.block_buffer();
    if block >= fs.geo.blocks_count || !fs.read_block(block, &mut bytes, &mut found) {
        return Err(format!("there are {} blocks", fs.geo.blocks_count));
    }
    let mut text = String::new();
    for (at, line) in bytes.chunks(LINE).enumerate() {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let print = |byte: &u8| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        };
        let chars: String = line.iter().map(print).collect();
        let _ = writeln!(text, "{:05x}  {}  {chars}", at * LINE, hex.join(" "));
    }
    Ok(text)
}

/// The blocks of the log; first those that a replay takes in.
fn log(fs: &Fs, external: Option<&Arc<dyn BlockDevice>>) -> Result<String, String> {
    if !fs.sb.compat().contains(Compat::HAS_JOURNAL) {
        return Err("there is no journal".to_owned());
    }
    if replay::is_external(&fs.sb) && external.is_none() {
        return Err("its journal lies on another device; give it by --journal FILE".to_owned());
    }
    let external = external.filter(|_| replay::is_external(&fs.sb));
    let log = replay::list(&fs.source.device, external, &fs.sb, &fs.geo)?;
    let superblock = &log.superblock;
    let mut text = format!(
        "{}\nblock size: {}\nblocks: {}\nfeatures: {}\nsequence: {}\nstart: {}\n",
        match external {
            Some(device) => format!("device: {}", device.describe()),
            None => format!("inode: {}", fs.sb.journal_inum()),
        },
        log.block_size,
        superblock.max_len(),
        superblock.feature_names().join(" "),
        superblock.sequence(),
        match superblock.start() {
            0 => "none, nothing is to be replayed".to_owned(),
            start => start.to_string(),
        },
    );
    list_log(&log, &mut text);
    Ok(text)
}

fn list_log(log: &LogListing, text: &mut String) {
    let is_empty = log.superblock.start() == 0;
    let mut is_live = !is_empty;
    if is_empty && !log.blocks.is_empty() {
        text.push_str("-- of transactions before:\n");
    }
    for block in &log.blocks {
        // Numbers wrap.
        if is_live && block.sequence.wrapping_sub(log.next_sequence).cast_signed() >= 0 {
            text.push_str("-- not replayed:\n");
            is_live = false;
        }
        let kind = match &block.content {
            LogContent::Descriptor(_) => "descriptor",
            LogContent::Revoke(_) => "revoke",
            LogContent::Commit(_) => "commit",
        };
        let _ = write!(
            text,
            "{}: {kind} of transaction {}",
            block.number, block.sequence
        );
        if let LogContent::Commit(time) = &block.content {
            let _ = write!(text, " at {}.{:09}", time.sec, time.nsec);
        }
        if let Some(damage) = &block.damage {
            let _ = write!(text, " ({damage})");
        }
        text.push('\n');
        match &block.content {
            LogContent::Descriptor(copies) => {
                for copy in copies {
                    let escaped = if copy.is_escaped { ", escaped" } else { "" };
                    let (number, block) = (copy.number, copy.block);
                    let _ = writeln!(text, "  {number}: block {block}{escaped}");
                }
            }
            LogContent::Revoke(blocks) => {
                for block in blocks {
                    let _ = writeln!(text, "  block {block}");
                }
            }
            LogContent::Commit(_) => {}
        }
    }
    if let Some(damage) = &log.damage {
        let _ = writeln!(text, "damage: {damage}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_map_are_told_in_runs_and_extents_as_they_are() {
        let told = |is_map| {
            let mut lines = Lines {
                text: String::new(),
                is_map,
                run: None,
            };
            for (logical, physical) in [(0, 50), (1, 51), (2, 60), (4, 62)] {
                lines.data(LogicalBlock(logical), physical, 1);
            }
            lines.node(7);
            lines.data(LogicalBlock(5), 63, 1);
            lines.end_run();
            lines.text
        };
        assert_eq!(
            told(true),
            "0-1: 50-51\n2-2: 60-60\n4-4: 62-62\nmap: 7\n5-5: 63-63\n"
        );
        assert!(told(false).starts_with("0-0: 50-50\n1-1: 51-51\n"));
    }
}
