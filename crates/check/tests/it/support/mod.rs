//! Images for the tests, and what e2fsck says of them.
// Each test program uses a part of this.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use finefs_block::{Access, BlockDevice, FileDevice, MemoryDevice};
use finefs_check::{Options, Report};

/// Runs a tool, which must succeed; gives what it prints.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{error}");
    text
}

/// Kinds of file systems: name, size and mke2fs's options.
pub const KINDS: &[(&str, &str, &[&str])] = &[
    ("ext2", "8M", &["-t", "ext2"]),
    ("ext3", "12M", &["-t", "ext3", "-b", "1024"]),
    ("ext4", "16M", &["-t", "ext4"]),
    (
        "ext4-1k-orphan",
        "12M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "orphan_file,metadata_csum_seed",
        ],
    ),
    ("ext4-inline", "12M", &["-t", "ext4", "-O", "inline_data"]),
    (
        "ext4-bigalloc",
        "32M",
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    ),
    (
        "ext4-nocsum",
        "12M",
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
    ),
];

/// Makes an image of a kind, with files, directories, links, attributes and an index.
pub fn make(dir: &Path, kind: &(&str, &str, &[&str])) -> PathBuf {
    let tree = dir.join("tree");
    if !tree.exists() {
        std::fs::create_dir_all(tree.join("many")).unwrap();
        std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
        for number in 0..400 {
            let name = tree.join(format!("many/a file with a longer name {number}"));
            std::fs::write(name, vec![b'x'; number % 7 * 100]).unwrap();
        }
        std::fs::write(tree.join("large"), vec![7; 300_000]).unwrap();
        std::fs::hard_link(tree.join("large"), tree.join("a/b/link")).unwrap();
        std::os::unix::fs::symlink("large", tree.join("short")).unwrap();
        std::os::unix::fs::symlink("x/".repeat(60), tree.join("long")).unwrap();
        let holes = std::fs::File::create(tree.join("holes")).unwrap();
        for place in 0..12 {
            use std::os::unix::fs::FileExt;
            holes.write_at(b"data", place * 65_536 * 3).unwrap();
        }
    }
    let image = dir.join(format!("{}.img", kind.0));
    let _ = std::fs::remove_file(&image);
    run(Command::new("mke2fs")
        .args(["-q", "-F", "-d"])
        .arg(&tree)
        .args(kind.2)
        .arg(&image)
        .arg(kind.1));
    // Indexes the directory.
    let output = Command::new("e2fsck").args(["-fyD"]).arg(&image).output();
    assert!(output.unwrap().status.code().is_some_and(|code| code < 2));
    let script = dir.join("script");
    let long = "v".repeat(300);
    std::fs::write(
        &script,
        format!("ea_set /large user.long {long}\nea_set /holes user.short yes\nmknod pipe p\n"),
    )
    .unwrap();
    run(Command::new("debugfs")
        .arg("-w")
        .arg("-f")
        .arg(&script)
        .arg(&image));
    image
}

/// What e2fsck says of an image.
pub struct Judged {
    pub is_clean: bool,
    pub inodes: BTreeSet<u32>,
    pub text: String,
}

/// Asks e2fsck.
pub fn judge(image: &Path) -> Judged {
    let output = Command::new("e2fsck").arg("-fn").arg(image).output();
    let output = output.expect("e2fsck runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Judged {
        is_clean: output.status.code() == Some(0),
        inodes: inodes(&text),
        text,
    }
}

/// The numbers behind the word inode.
fn inodes(text: &str) -> BTreeSet<u32> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| pair[0].ends_with("inode"));
    pairs
        .filter_map(|pair| {
            let digits: String = pair[1].chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        })
        .collect()
}

/// Asks finefs.
pub fn check(image: &Path) -> Result<Report, String> {
    let device = FileDevice::open(image, Access::Inspect).map_err(|error| error.to_string())?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    finefs_check::check(
        &device,
        &Options {
            jobs: 2,
            ..Options::default()
        },
    )
}

/// The same of bytes.
pub fn check_bytes(bytes: &[u8]) -> Result<Report, String> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes));
    finefs_check::check(
        &device,
        &Options {
            jobs: 1,
            ..Options::default()
        },
    )
}

/// The inodes that a report names.
pub fn named(report: &Report) -> BTreeSet<u32> {
    let findings = report.findings.iter().filter(|finding| finding.is_error());
    findings
        .filter_map(|finding| finding.object.inode)
        .collect()
}

/// Whether long tests shall run.
pub fn is_full() -> bool {
    std::env::var_os("FINEFS_FULL").is_some()
}
