//! The information about an image agrees with what dumpe2fs prints, and gathering it writes
//! nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::image::{self, debugfs, make};
use finefs_block::{Access, FileDevice};
use finefs_ext::ImageInfo;
use finefs_namespace::Store;

fn gather(image: &Path) -> ImageInfo {
    ImageInfo::gather(Arc::new(FileDevice::open(image, Access::Inspect).unwrap())).unwrap()
}

fn dump(image: &Path) -> BTreeMap<String, String> {
    let output = Command::new("dumpe2fs")
        .arg("-h")
        .arg(image)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

#[test]
fn agrees_with_dumpe2fs() {
    for options in [
        &["-t", "ext2", "-L", "a label"][..],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4"],
        &[
            "-t",
            "ext4",
            "-O",
            "metadata_csum_seed,orphan_file",
            "-J",
            "fast_commit_size=1024",
        ],
        &["-t", "ext4", "-O", "inline_data,bigalloc,quota"],
        &["-t", "ext4", "-O", "ea_inode,quota"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "128",
            "-O",
            "^metadata_csum,uninit_bg,^64bit",
        ],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let image = make(directory.path(), "64M", options);
        let before = fs::read(&image).unwrap();
        let info = gather(&image);
        let mut dump = dump(&image);
        let mut take = |name: &str| {
            dump.remove(name)
                .unwrap_or_else(|| panic!("{options:?}: no {name} in {dump:?}"))
        };
        assert_eq!(
            info.features.join(" "),
            take("Filesystem features"),
            "{options:?}"
        );
        assert_eq!(info.uuid, take("Filesystem UUID"));
        let label = take("Filesystem volume name");
        assert_eq!(
            info.volume_name,
            if label == "<none>" { "" } else { &label }
        );
        assert_eq!(info.flags.join(" "), take("Filesystem flags"));
        assert!(info.is_clean && !info.has_errors && take("Filesystem state") == "clean");
        for (number, name) in [
            (u64::from(info.inodes), "Inode count"),
            (info.blocks, "Block count"),
            (info.blocks_reserved, "Reserved block count"),
            (info.blocks_free, "Free blocks"),
            (u64::from(info.inodes_free), "Free inodes"),
            (u64::from(info.first_block), "First block"),
            (u64::from(info.block_size_bytes.unwrap()), "Block size"),
            (u64::from(info.blocks_per_group), "Blocks per group"),
            (u64::from(info.inodes_per_group), "Inodes per group"),
            (u64::from(info.inode_size_bytes), "Inode size"),
            (u64::from(info.first_inode), "First inode"),
            (u64::from(info.mount_count), "Mount count"),
        ] {
            assert_eq!(number.to_string(), take(name), "{options:?}: {name}");
        }
        let text = info.to_string();
        assert!(
            text.contains(&info.uuid) && text.contains("Group 0:"),
            "{text}"
        );
        match &info.journal {
            Some(journal) => {
                assert_eq!(journal.blocks.to_string(), take("Total journal blocks"));
                assert_eq!(
                    journal.fast_commit_blocks.to_string(),
                    take("Fast commit length")
                );
                assert_eq!(
                    format!("{:#010x}", journal.sequence),
                    take("Journal sequence")
                );
                assert_eq!(journal.start.to_string(), take("Journal start"));
                assert!(!journal.needs_replay && journal.problem.is_none());
            }
            None => assert!(!info.features.iter().any(|feature| feature == "has_journal")),
        }
        assert_eq!(info.access, "read-write", "{options:?}");
        let free: u64 = info
            .groups
            .iter()
            .map(|group| u64::from(group.blocks_free))
            .sum();
        let ratio = info
            .cluster_size_bytes
            .map_or(1, |size| size / info.block_size_bytes.unwrap());
        assert_eq!(free * u64::from(ratio), info.blocks_free, "{options:?}");
        assert!(info.groups.iter().all(|group| group.problem.is_none()));
        assert!(fs::read(&image).unwrap() == before);
    }
}

#[test]
fn tells_what_a_journal_holds_and_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "16M", &["-t", "ext4", "-b", "1024"]);
    let data = directory.path().join("data");
    fs::write(&data, vec![1; 2048]).unwrap();
    let data = data.display();
    debugfs(
        &image,
        &format!("jo\njw -b 5000,5001 {data}\njw -b 5002 {data}\njc\n"),
    );
    let info = gather(&image);
    let journal = info.journal.as_ref().unwrap();
    assert!(journal.needs_replay && !info.is_clean);
    assert_eq!(
        (journal.transactions, journal.problem.as_deref()),
        (2, None)
    );
    assert!(info.to_string().contains("needs recovery (2 transactions)"));

    // Cut off: not mountable, but told about.
    fs::File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let info = gather(&image);
    assert_eq!(info.access, "none");
    assert!(
        info.problems.join("\n").contains("truncated"),
        "{:?}",
        info.problems
    );
    assert_eq!(info.blocks, 16384);
}

/// What it says of mounting is what a mount does.
#[test]
fn access_is_what_a_mount_would_give() {
    for (change, access, reason) in [
        ("quit", "read-write", ""),
        ("sif / mode 0100644", "none", "damaged"),
        ("sif <8> block[5] 0", "read-only", "the journal is damaged"),
        ("clri <8>", "read-only", "the journal is damaged"),
        ("set_bg 1 block_bitmap 2", "read-only", "overlap"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let options = ["-t", "ext3", "-b", "1024", "-J", "size=1"];
        let image = make(directory.path(), "16M", &options);
        debugfs(&image, &format!("{change}\n"));
        let info = gather(&image);
        let given = info.access_reason.unwrap_or_default();
        assert_eq!(info.access, access, "{change}: {given}");
        assert!(given.contains(reason), "{change}: {given}");
        let mounted = image::open(&image, false);
        let is_read_only = mounted.map(|store| store.geometry().is_read_only);
        let expected = match access {
            "none" => None,
            access => Some(access == "read-only"),
        };
        assert_eq!(is_read_only.ok(), expected, "{change}");
    }
}
