//! Resizes beside resize2fs: the same numbers and features, nothing for e2fsck to find, the same
//! contents; taken back by undo, and after an interruption at any write.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use finefs_block::{Access, BlockDevice, FileDevice, MemoryDevice};
use finefs_check::Options;
use finefs_check::repair::undo;
use finefs_check::resize::{Resized, Slack, Target, UndoFile, minimum, resize};
use finefs_sim::{FaultDevice, FaultOn};
use support::{judge, run};

type Kind = (&'static str, &'static str, &'static [&'static str]);

/// Many groups, few inodes in each: what is in the upper half must move, and get new numbers.
const KINDS: &[Kind] = &[
    (
        "ext2",
        "24M",
        &["-t", "ext2", "-b", "1024", "-g", "1024", "-N", "1536"],
    ),
    (
        "ext2-every",
        "24M",
        &[
            "-t",
            "ext2",
            "-b",
            "1024",
            "-g",
            "2048",
            "-O",
            "^sparse_super,^resize_inode",
        ],
    ),
    (
        "ext3",
        "40M",
        &["-t", "ext3", "-b", "1024", "-g", "2048", "-N", "1280"],
    ),
    (
        "ext4",
        "40M",
        &["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "1280"],
    ),
    ("ext4-4k", "400M", &["-t", "ext4", "-N", "1024"]),
    (
        "ext4-32bit",
        "40M",
        &[
            "-t", "ext4", "-b", "1024", "-g", "2048", "-N", "1280", "-O", "^64bit",
        ],
    ),
    (
        "ext4-uninit",
        "40M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "2048",
            "-N",
            "1280",
            "-O",
            "^metadata_csum,uninit_bg",
        ],
    ),
    (
        "ext4-noflex",
        "40M",
        &[
            "-t", "ext4", "-b", "1024", "-g", "2048", "-N", "1280", "-O", "^flex_bg",
        ],
    ),
    (
        "ext4-metabg",
        "40M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "1024",
            "-N",
            "1280",
            "-O",
            "meta_bg,^resize_inode",
        ],
    ),
    (
        "ext4-noreserve",
        "40M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "1024",
            "-N",
            "1280",
            "-O",
            "^resize_inode",
        ],
    ),
    (
        "ext4-noreserve-noflex",
        "40M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "1024",
            "-N",
            "1280",
            "-O",
            "^resize_inode,^flex_bg",
        ],
    ),
    (
        "ext4-two",
        "40M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "2048",
            "-N",
            "1280",
            "-O",
            "sparse_super2",
        ],
    ),
    (
        "ext4-inline",
        "40M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "2048",
            "-N",
            "1280",
            "-O",
            "inline_data",
        ],
    ),
    (
        "ext4-more",
        "40M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "2048",
            "-N",
            "1280",
            "-O",
            "ea_inode,orphan_file,metadata_csum_seed,quota,project,mmp",
        ],
    ),
];

/// The files: enough that the lower groups are full before every third of them is removed.
fn files(dir: &Path) -> PathBuf {
    let tree = dir.join("files");
    if tree.exists() {
        return tree;
    }
    std::fs::create_dir_all(tree.join("many")).unwrap();
    for number in 0..400_usize {
        let name = tree.join(format!("many/a file with a longer name {number}"));
        std::fs::write(name, vec![number as u8; number % 11 * 1500]).unwrap();
    }
    for number in 0..60_usize {
        let deep = tree.join(format!("dirs/{}/{number}/below", number % 7));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), format!("{number}").repeat(30)).unwrap();
        std::os::unix::fs::symlink("x/".repeat(number * 2), deep.join("link")).unwrap_or_default();
    }
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    std::fs::write(tree.join("large"), bytes).unwrap();
    std::fs::hard_link(tree.join("large"), tree.join("dirs/3/hard")).unwrap();
    let holes = std::fs::File::create(tree.join("holes")).unwrap();
    for place in 0..40 {
        use std::os::unix::fs::FileExt;
        holes.write_at(b"data", place * 65_536 * 3).unwrap();
    }
    tree
}

/// An image of a kind: files, of which a third is removed, so that free space is in pieces.
fn make(dir: &Path, kind: &Kind) -> PathBuf {
    let image = dir.join(format!("{}.img", kind.0));
    let tree = files(dir);
    run(Command::new("mke2fs")
        .args(["-q", "-F", "-d"])
        .arg(&tree)
        .args(kind.2)
        .arg(&image)
        .arg(kind.1));
    let long = "v".repeat(600);
    let mut script = String::new();
    for number in (0..400).filter(|number| number % 3 != 1) {
        script += &format!("rm \"/many/a file with a longer name {number}\"\n");
    }
    script += &format!("ea_set /large user.long {long}\nea_set /holes user.short yes\n");
    if kind.0 == "ext4-more" {
        let path = dir.join("value");
        std::fs::write(&path, "w".repeat(5000)).unwrap();
        script += &format!("ea_set -f {} /dirs/3 user.value\n", path.display());
    }
    let path = dir.join("script");
    std::fs::write(&path, script).unwrap();
    run(Command::new("debugfs")
        .args(["-w", "-f"])
        .arg(&path)
        .arg(&image));
    // Indexes directories; then counts in quota files what that has changed.
    for how in ["-fyD", "-fy"] {
        let output = Command::new("e2fsck").arg(how).arg(&image).output();
        assert!(output.unwrap().status.code().is_some_and(|code| code < 2));
    }
    image
}

fn options() -> Options {
    Options { jobs: 2 }
}

fn device(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap())
}

fn undo_file(image: &Path, is_kept: bool) -> UndoFile {
    let path = image.with_extension("undo");
    let _ = std::fs::remove_file(&path);
    UndoFile { path, is_kept }
}

fn ours(image: &Path, target: Target, is_kept: bool) -> Result<Option<Resized>, String> {
    let undo = undo_file(image, is_kept);
    resize(&device(image), target, &options(), &undo, &|_| {})
}

/// What dumpe2fs says of the whole file system, as far as it must agree.
fn numbers(image: &Path) -> String {
    const FIELDS: [&str; 12] = [
        "Filesystem features:",
        "Inode count:",
        "Block count:",
        "Reserved block count:",
        "First block:",
        "Reserved GDT blocks:",
        "Blocks per group:",
        "Inodes per group:",
        "Free inodes:",
        "Journal inode:",
        "Backup block groups:",
        "First meta block group:",
    ];
    let text = run(Command::new("dumpe2fs").arg("-h").arg(image));
    let lines = text.lines();
    let lines = lines.filter(|line| FIELDS.iter().any(|field| line.starts_with(field)));
    lines.map(|line| line.to_owned() + "\n").collect()
}

/// Everything that debugfs gives out: contents, names, attributes.
fn contents(image: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    let request = format!("rdump / {}", to.display());
    run(Command::new("debugfs").args(["-R", &request]).arg(image));
    for name in ["/large", "/holes", "/dirs/3"] {
        let request = format!("ea_list {name}");
        let shown = run(Command::new("debugfs").args(["-R", &request]).arg(image));
        // The number of a value's inode may have changed.
        std::fs::write(to.join(name.replace('/', "_")), shown).unwrap();
        let request = format!("ea_get -f {} {name} user.value", to.join("value").display());
        let _ = Command::new("debugfs")
            .args(["-R", &request])
            .arg(image)
            .output();
    }
}

fn assert_same(first: &Path, second: &Path, what: &str) {
    let mut diff = Command::new("diff");
    let output = diff.arg("-r").arg("--no-dereference").args([first, second]);
    let output = output.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {text}");
}

fn assert_sound(image: &Path, first: &Path, what: &str) {
    let judged = judge(image);
    assert!(judged.is_clean, "{what}: {}", judged.text);
    let second = first.with_extension("second");
    contents(image, &second);
    assert_same(first, &second, what);
}

fn blocks_of(image: &Path) -> (u64, u64) {
    let least = minimum(&device(image), &options()).unwrap();
    (least.blocks, least.minimum_blocks)
}

/// Resizes to all these sizes, one after the other, beside resize2fs from the same image.
fn prove(dir: &Path, kind: &Kind, percents: &[u64]) {
    let image = make(dir, kind);
    let first = dir.join(format!("{}.first", kind.0));
    contents(&image, &first);
    let size = std::fs::metadata(&image).unwrap().len();
    for percent in percents {
        let bytes = size * percent / 100;
        let what = format!("{} to {percent} %", kind.0);
        let other = image.with_extension("other");
        std::fs::copy(&image, &other).unwrap();
        let kib = format!("{}K", bytes >> 10);
        let theirs = Command::new("resize2fs")
            .arg("-f")
            .arg(&other)
            .arg(kib)
            .output();
        let theirs = theirs.unwrap();
        let before = numbers(&image);
        let outcome = ours(&image, Target::Bytes(bytes), true);
        let done = match outcome {
            Ok(done) => done,
            Err(reason) => {
                assert!(!theirs.status.success(), "{what}: {reason}");
                assert_eq!(numbers(&image), before, "{what}");
                continue;
            }
        };
        assert_sound(&image, &first, &what);
        if theirs.status.success() {
            assert_eq!(numbers(&image), numbers(&other), "{what}");
            let length = |image: &Path| std::fs::metadata(image).unwrap().len();
            assert_eq!(length(&image), length(&other), "{what}");
        }
        if done.is_some() {
            take_back(&image, &first, &before, &what);
        }
        std::fs::remove_file(&other).unwrap();
    }
    let _ = std::fs::remove_file(&image);
}

/// Undo gives the old file system again; then the new one is put back for what follows.
fn take_back(image: &Path, first: &Path, before: &str, what: &str) {
    let after = std::fs::read(image).unwrap();
    undo(&image.with_extension("undo"), &device(image)).unwrap();
    assert_sound(image, first, &format!("{what}, undone"));
    assert_eq!(numbers(image), before, "{what}, undone");
    std::fs::write(image, after).unwrap();
}

fn prove_some(names: &[&str], percents: &[u64]) {
    let dir = tempfile::tempdir().unwrap();
    for kind in KINDS.iter().filter(|kind| names.contains(&kind.0)) {
        prove(dir.path(), kind, percents);
    }
}

const SIZES: &[u64] = &[97, 32, 400, 28];

#[test]
fn ext2_and_ext3() {
    prove_some(&["ext2", "ext2-every", "ext3"], SIZES);
}

#[test]
fn ext4_by_default() {
    prove_some(&["ext4", "ext4-32bit", "ext4-uninit"], SIZES);
}

#[test]
fn ext4_with_blocks_of_4_kib() {
    prove_some(&["ext4-4k"], &[60, 1000, 50]);
}

#[test]
fn groups_with_their_own_metadata() {
    prove_some(&["ext4-noflex", "ext4-two", "ext4-metabg"], SIZES);
}

#[test]
fn descriptors_push_data_aside() {
    prove_some(
        &["ext4-noreserve", "ext4-noreserve-noflex"],
        &[55, 300, 900],
    );
}

#[test]
fn what_names_inodes_follows() {
    prove_some(&["ext4-inline"], SIZES);
    // With mmp e2fsprogs waits for other hosts, each time that it opens the image.
    let is_full = std::env::var_os("FINEFS_FULL").is_some();
    prove_some(&["ext4-more"], if is_full { SIZES } else { &[32] });
}

#[test]
fn the_minimum_is_small() {
    let dir = tempfile::tempdir().unwrap();
    for kind in KINDS
        .iter()
        .filter(|kind| ["ext2", "ext4", "ext4-noflex"].contains(&kind.0))
    {
        let image = make(dir.path(), kind);
        let first = dir.path().join("first");
        contents(&image, &first);
        let text = run(Command::new("resize2fs").arg("-P").arg(&image));
        let theirs: u64 = text.split_whitespace().last().unwrap().parse().unwrap();
        let (blocks, least) = blocks_of(&image);
        assert!(least <= theirs, "{}: {least}, resize2fs: {theirs}", kind.0);
        assert!(least < blocks);
        // Less is refused, and nothing is changed.
        let before = std::fs::read(&image).unwrap();
        let reason = ours(&image, Target::Bytes((least - 300) * 1024), false).unwrap_err();
        assert!(reason.contains("too few"), "{reason}");
        assert!(std::fs::read(&image).unwrap() == before);
        let slack = Target::Minimum(Slack::Bytes(1 << 20));
        let done = ours(&image, slack, false).unwrap().unwrap();
        assert!(
            done.blocks <= least + 1024 && done.blocks > least,
            "{done:?}"
        );
        assert_sound(&image, &first, kind.0);
        let done = ours(&image, Target::Minimum(Slack::Percent(0)), false).unwrap();
        assert!(done.is_none_or(|done| done.blocks <= least), "{least}");
        assert_sound(&image, &first, kind.0);
        assert!(!image.with_extension("undo").exists());
        // And large again.
        let done = ours(&image, Target::Bytes(blocks * 1024), false)
            .unwrap()
            .unwrap();
        assert!(done.blocks + 2048 > blocks);
        assert_sound(&image, &first, kind.0);
    }
}

/// Interrupted at each write: the old file system is there, or comes back by undo.
#[test]
fn an_interruption_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, percent) in [(&KINDS[3], 50_u64), (&KINDS[9], 300)] {
        let image = make(dir.path(), kind);
        let first = dir.path().join("first");
        contents(&image, &first);
        let before = numbers(&image);
        let size = std::fs::metadata(&image).unwrap().len();
        let wanted = size * percent / 100;
        let mut bytes = std::fs::read(&image).unwrap();
        bytes.resize(size.max(wanted) as usize, 0);
        let attempt = |first: u64| {
            let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
            let inner: Arc<dyn BlockDevice> = Arc::clone(&memory) as Arc<dyn BlockDevice>;
            let device = FaultDevice::new(Arc::clone(&inner), FaultOn::Write, first, u64::MAX);
            let device = Arc::new(device);
            let failing: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
            let file = undo_file(&image, false);
            let target = Target::Bytes(wanted);
            let outcome = resize(&failing, target, &options(), &file, &|_| {});
            if outcome.is_err() && file.path.exists() {
                undo(&file.path, &inner).unwrap();
            }
            (outcome.is_ok(), device.seen(), memory)
        };
        let (is_done, writes, _) = attempt(u64::MAX);
        assert!(is_done && writes > 5, "{}: {writes} writes", kind.0);
        // Some of all, and more of the last ones, when the image itself is written.
        let is_tried = |at: &u64| {
            let (some, last) = (writes / 5 + 1, at + 60 > writes);
            support::is_full() || at.is_multiple_of(some) || last && at.is_multiple_of(13)
        };
        for at in (0..writes).filter(is_tried) {
            let (is_done, _, memory) = attempt(at);
            let what = format!("{} at write {at}", kind.0);
            assert!(!is_done, "{what}");
            std::fs::write(&image, memory.to_bytes()).unwrap();
            assert_eq!(numbers(&image), before, "{what}");
            assert_sound(&image, &first, &what);
        }
    }
}

#[test]
fn what_cannot_be_resized_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = |words: &[&str]| {
        let _ = std::fs::remove_file(&image);
        run(Command::new("mke2fs")
            .args(["-q", "-F"])
            .args(words)
            .arg(&image)
            .arg("64M"));
    };
    let refused = |bytes: u64, word: &str| {
        let before = std::fs::read(&image).unwrap();
        let reason = ours(&image, Target::Bytes(bytes), false).unwrap_err();
        assert!(reason.contains(word), "{reason}");
        assert!(std::fs::read(&image).unwrap() == before, "{word}: changed");
    };
    made(&["-t", "ext4", "-O", "bigalloc"]);
    refused(128 << 20, "bigalloc");
    made(&["-t", "ext4", "-O", "stable_inodes"]);
    refused(32 << 20, "stable_inodes");
    assert!(
        ours(&image, Target::Bytes(128 << 20), false)
            .unwrap()
            .is_some()
    );
    made(&["-t", "ext4", "-O", "^64bit"]);
    refused(20 << 40, "64bit");
    made(&["-t", "ext4"]);
    run(Command::new("debugfs")
        .args(["-w", "-R", "ssv state 2"])
        .arg(&image));
    refused(128 << 20, "e2fsck -f");
    run(Command::new("debugfs")
        .args(["-w", "-R", "ssv state 0"])
        .arg(&image));
    refused(128 << 20, "unmounted");
    run(Command::new("debugfs")
        .args(["-w", "-R", "ssv state 1"])
        .arg(&image));
    run(Command::new("debugfs")
        .args(["-w", "-R", "sif /lost+found links_count 5"])
        .arg(&image));
    refused(128 << 20, "finefs repair");
    made(&["-t", "ext4"]);
    run(Command::new("debugfs")
        .args(["-w", "-R", "feature needs_recovery"])
        .arg(&image));
    refused(128 << 20, "finefs repair");
    // An undo file of something else is left alone.
    made(&["-t", "ext4"]);
    let undo = image.with_extension("undo");
    std::fs::write(&undo, "mine").unwrap();
    let file = UndoFile {
        path: undo.clone(),
        is_kept: false,
    };
    let target = Target::Bytes(128 << 20);
    let reason = resize(&device(&image), target, &options(), &file, &|_| {}).unwrap_err();
    assert!(reason.contains("is there already"), "{reason}");
    assert_eq!(std::fs::read(&undo).unwrap(), b"mine");
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 64 << 20);
}
