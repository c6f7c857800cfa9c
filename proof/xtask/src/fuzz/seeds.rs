//! The small images that the fuzzer changes, made once and kept: those of ext by e2fsprogs.
//!
//! They have a bit of everything: directories with an index, files mapped by trees and by pointer
//! blocks, attributes in inodes and in blocks, links, inline data, an orphan; those called `log`
//! hold transactions, with revocations and an escaped block, that are not replayed yet.

use super::reiserfs_seeds;
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run;
use finefs_harness::tools;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const BLOCK: usize = 1024;

struct Kind {
    name: &'static str,
    size: &'static str,
    mke2fs: &'static [&'static str],
    /// How debugfs opens the journal; none where it stays empty.
    log: Option<&'static str>,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "ext2",
        size: "1M",
        mke2fs: &["-t", "ext2"],
        log: None,
    },
    Kind {
        name: "ext4-plain",
        size: "1M",
        mke2fs: &[
            "-t",
            "ext4",
            "-O",
            "^metadata_csum,^has_journal,inline_data,ea_inode",
        ],
        log: None,
    },
    Kind {
        name: "ext4",
        size: "1M",
        mke2fs: &["-t", "ext4", "-O", "^has_journal,ea_inode"],
        log: None,
    },
    Kind {
        name: "ext4-upstream",
        size: "3M",
        mke2fs: &[
            "-t",
            "ext4",
            "-J",
            "size=1",
            "-O",
            "metadata_csum_seed,orphan_file",
        ],
        log: None,
    },
    Kind {
        name: "ext3-log",
        size: "3M",
        mke2fs: &["-t", "ext3", "-J", "size=1"],
        log: Some("jo"),
    },
    Kind {
        name: "ext4-log",
        size: "3M",
        mke2fs: &["-t", "ext4", "-J", "size=1", "-O", "^64bit"],
        log: Some("jo -c -v 3"),
    },
    Kind {
        name: "ext4-log-64bit",
        size: "3M",
        mke2fs: &["-t", "ext4", "-J", "size=1", "-O", "64bit"],
        log: Some("jo -c -v 2"),
    },
];

/// Makes all seeds in `into`.
pub fn make(into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    for kind in KINDS {
        let scratch = tempfile::tempdir()?;
        let image = kind.make(scratch.path()).context(kind.name)?;
        keep(&image, &into.join(format!("{}.img.gz", kind.name)))?;
    }
    let scratch = Scratch::new_in(&std::env::temp_dir())?;
    for (name, file) in reiserfs_seeds::make(&scratch).context("reiserfs")? {
        keep(&file, &into.join(format!("{name}.img.gz")))?;
    }
    Ok(())
}

fn keep(image: &Path, packed_as: &Path) -> Result<()> {
    let bytes = fs::read(image)?;
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&bytes)?;
    let packed = packer.finish()?;
    let name = packed_as.display();
    println!("{name}: {} bytes, packed {}", bytes.len(), packed.len());
    fs::write(packed_as, packed)?;
    Ok(())
}

impl Kind {
    fn make(&self, scratch: &Path) -> Result<PathBuf> {
        let image = scratch.join("image");
        let tree = scratch.join("tree");
        plant(&tree)?;
        // The same bytes each time, as far as the same version of mke2fs makes them.
        let fixed = [
            "-q",
            "-F",
            "-b",
            "1024",
            "-N",
            "128",
            "-U",
            "66696e65-6673-4666-8675-7a7a00000001",
            "-E",
            "hash_seed=66696e65-6673-4666-8675-7a7a00000002,lazy_itable_init=0",
        ];
        let mut command = run::cmd(tools::program("mke2fs"), fixed);
        command
            .args(self.mke2fs)
            .arg("-d")
            .arg(&tree)
            .arg(&image)
            .arg(self.size);
        run::ok(command.env("E2FSPROGS_FAKE_TIME", "1700000000"))?;
        let value = scratch.join("value");
        fs::write(&value, vec![b'v'; 400])?;
        let value = value.display();
        debugfs(
            &image,
            &format!("ea_set -f {value} /d/tree user.block\nea_set /d/sub user.small x\n"),
        )?;
        // An index over the directory.
        let check = run::cmd(tools::program("e2fsck"), ["-fyD"])
            .arg(&image)
            .output()?;
        ensure!(
            check.status.code().is_some_and(|code| code <= 1),
            "e2fsck: {check:?}"
        );
        if let Some(open) = self.log {
            log(scratch, &image, open)?;
        }
        Ok(image)
    }
}

/// The tree that the images hold.
fn plant(tree: &Path) -> Result<()> {
    fs::create_dir_all(tree.join("d/sub/e"))?;
    for number in 0..40 {
        let name = format!("d/a name that is long enough for few in one block {number:03}");
        fs::write(tree.join(name), vec![number; usize::from(number % 4) * 30])?;
    }
    std::os::unix::fs::symlink("short", tree.join("d/sub/short"))?;
    std::os::unix::fs::symlink("long/".repeat(30), tree.join("d/sub/long"))?;
    fs::hard_link(tree.join("d/sub/short"), tree.join("d/sub/other"))?;
    // Islands, so that a tree has more than one node, and pointer blocks three levels.
    let islands = fs::File::create(tree.join("d/tree"))?;
    for place in [0, 3, 5, 8, 12, 20, 40, 300, 400, 500, 70_000] {
        islands.write_all_at(&[place as u8; BLOCK], place * BLOCK as u64)?;
    }
    fs::write(tree.join("d/sub/e/data"), vec![0x5a; 9 * BLOCK])?;
    Ok(())
}

/// Puts what a change would do to the image into its journal, in several transactions.
fn log(scratch: &Path, image: &Path, open: &str) -> Result<()> {
    let after = scratch.join("after");
    fs::copy(image, &after)?;
    let data = scratch.join("data");
    let mut bytes = vec![0x33; 3 * BLOCK];
    // As if it were a block of the journal: the copy must be escaped.
    bytes[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
    fs::write(&data, bytes)?;
    let change = format!(
        "write {} new\nmkdir made\nrm /d/sub/e/data\n",
        data.display()
    );
    debugfs(&after, &change)?;
    let (old, new) = (fs::read(image)?, fs::read(&after)?);
    let changed: BTreeSet<usize> = (0..old.len() / BLOCK)
        .filter(|b| old[b * BLOCK..][..BLOCK] != new[b * BLOCK..][..BLOCK])
        .collect();
    let changed: Vec<usize> = changed.into_iter().collect();
    ensure!(changed.len() > 5, "the change must change something");
    let mut commands = format!("{open}\n");
    for (number, blocks) in changed.chunks(4).enumerate() {
        let copy = scratch.join(format!("blocks{number}"));
        let bytes: Vec<u8> = blocks
            .iter()
            .flat_map(|b| new[b * BLOCK..][..BLOCK].to_vec())
            .collect();
        fs::write(&copy, bytes)?;
        let list: Vec<String> = blocks.iter().map(usize::to_string).collect();
        // What is revoked first is written again after it.
        let revoke = if number == 0 {
            format!("jw -r {}\n", list[0])
        } else {
            String::new()
        };
        commands.push_str(&format!(
            "{revoke}jw -b {} {}\n",
            list.join(","),
            copy.display()
        ));
    }
    commands.push_str("jc\n");
    debugfs(image, &commands)
}

/// Runs debugfs's commands on an image, writing.
fn debugfs(image: &Path, commands: &str) -> Result<()> {
    let script = image.with_extension("debugfs");
    fs::write(&script, commands)?;
    let mut command = Command::new(tools::program("debugfs"));
    command.args(["-w", "-f"]).arg(&script).arg(image);
    let output = command.env("E2FSPROGS_FAKE_TIME", "1700000000").output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    // It succeeds whatever its commands do; its banner comes on stderr.
    let complaint = errors.lines().find(|line| !line.starts_with("debugfs "));
    ensure!(
        output.status.success() && complaint.is_none(),
        "{commands}: {errors}"
    );
    Ok(())
}
