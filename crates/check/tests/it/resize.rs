//! Resizes beside resize2fs: the same numbers and features, nothing for e2fsck to find, the same
//! contents; taken back by undo, and after an interruption at any write.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::support::{self, judge, run};
use finefs_block::{Access, BlockDevice, FileDevice, MemoryDevice};
use finefs_check::Options;
use finefs_check::repair::{ChangedSince, undo};
use finefs_check::resize::{Resized, Slack, Target, UndoFile, minimum, resize};
use finefs_nbd::{NbdDevice, NbdUri};
use finefs_sim::nbd::{NbdServer, Setup};
use finefs_sim::{Fault, FaultDevice, FaultOn, LoopDevice};

/// Name, size, mke2fs's options.
type Kind = (&'static str, &'static str, &'static str);

/// Many groups, few inodes in each: what is in the upper half must move, and get new numbers.
const KINDS: &[Kind] = &[
    ("ext2", "24M", "-t ext2 -b 1024 -g 1024 -N 1536"),
    (
        "ext2-every",
        "24M",
        "-t ext2 -b 1024 -g 2048 -O ^sparse_super,^resize_inode",
    ),
    ("ext3", "40M", "-t ext3 -b 1024 -g 2048 -N 1280"),
    ("ext4", "40M", "-t ext4 -b 1024 -g 2048 -N 1280"),
    ("ext4-4k", "400M", "-t ext4 -N 1024"),
    ("ext4-64k", "256M", "-t ext4 -b 65536 -g 256 -N 4096"),
    (
        "ext4-32bit",
        "40M",
        "-t ext4 -b 1024 -g 2048 -N 1280 -O ^64bit",
    ),
    (
        "ext4-uninit",
        "40M",
        "-t ext4 -b 1024 -g 2048 -N 1280 -O ^metadata_csum,uninit_bg",
    ),
    (
        "ext4-noflex",
        "40M",
        "-t ext4 -b 1024 -g 2048 -N 1280 -O ^flex_bg",
    ),
    (
        "ext4-metabg",
        "40M",
        "-t ext4 -b 1024 -g 1024 -N 1280 -O meta_bg,^resize_inode",
    ),
    (
        "ext4-noreserve",
        "40M",
        "-t ext4 -b 1024 -g 1024 -N 1280 -O ^resize_inode",
    ),
    (
        "ext4-noreserve-noflex",
        "40M",
        "-t ext4 -b 1024 -g 1024 -N 1280 -O ^resize_inode,^flex_bg",
    ),
    (
        "ext4-two",
        "40M",
        "-t ext4 -b 1024 -g 2048 -N 1280 -O sparse_super2",
    ),
    (
        "ext4-inline",
        "40M",
        "-t ext4 -b 1024 -g 2048 -N 1280 -O inline_data",
    ),
    (
        "ext4-clusters",
        "64M",
        "-t ext4 -b 1024 -O bigalloc -C 4096 -g 2048 -N 1280",
    ),
    (
        "ext4-clusters-noreserve",
        "64M",
        "-t ext4 -b 1024 -O bigalloc,^resize_inode -C 2048 -g 1024 -N 1280",
    ),
    (
        "ext4-clusters-noflex",
        "64M",
        "-t ext4 -b 1024 -O bigalloc,^flex_bg,quota,orphan_file -C 8192 -g 1024 -N 1280",
    ),
    (
        "ext4-clusters-64k",
        "256M",
        "-t ext4 -b 4096 -O bigalloc -C 65536 -g 256 -N 4096",
    ),
    (
        "ext4-more",
        "40M",
        "-t ext4 -b 1024 -g 2048 -N 1280 -O ea_inode,orphan_file,metadata_csum_seed,quota,project,mmp",
    ),
];

fn kinds(names: &[&str]) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(|kind| names.contains(&kind.0))
}

fn mke2fs(image: &Path, options: &str, size: &str) {
    let words = options.split(' ');
    run(Command::new("mke2fs")
        .args(["-q", "-F"])
        .args(words)
        .args([image.as_os_str(), size.as_ref()]));
}

/// Has debugfs carry out a request, which may change the image.
fn debugfs(image: &Path, request: &str) -> String {
    run(Command::new("debugfs")
        .args(["-w", "-R", request])
        .arg(image))
}

/// What debugfs says to a request that changes nothing. It opens the image for reading alone: for
/// writing it would wait ten seconds for other hosts where the image has mmp.
fn ask_debugfs(image: &Path, request: &str) -> String {
    run(Command::new("debugfs").args(["-R", request]).arg(image))
}

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
    mke2fs(&image, &format!("-d {} {}", tree.display(), kind.2), kind.1);
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
    Options {
        jobs: 2,
        ..Options::default()
    }
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
    ask_debugfs(image, &request);
    for name in ["/large", "/holes", "/dirs/3"] {
        let shown = ask_debugfs(image, &format!("ea_list {name}"));
        // The number of a value's inode may have changed.
        std::fs::write(to.join(name.replace('/', "_")), shown).unwrap();
        let value = to.join("value");
        ask_debugfs(
            image,
            &format!("ea_get -f {} {name} user.value", value.display()),
        );
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
    let mut resized = 0;
    for percent in percents {
        let bytes = size * percent / 100;
        let what = format!("{} to {percent} %", kind.0);
        let other = image.with_extension("other");
        sparse_copy(&image, &other);
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
        // resize2fs 1.47 leaves images with clusters that e2fsck has to repair.
        if theirs.status.success() && !kind.2.contains("bigalloc") {
            assert_eq!(numbers(&image), numbers(&other), "{what}");
            let length = |image: &Path| std::fs::metadata(image).unwrap().len();
            assert_eq!(length(&image), length(&other), "{what}");
        }
        resized += usize::from(done.is_some());
        if done.is_some() {
            take_back(&image, &first, &before, &what);
        }
        std::fs::remove_file(&other).unwrap();
    }
    assert!(resized > 0, "{}: no resize was carried out", kind.0);
    let _ = std::fs::remove_file(&image);
}

/// Undo gives the old file system again; then the new one is put back for what follows.
fn take_back(image: &Path, first: &Path, before: &str, what: &str) {
    let after = image.with_extension("after");
    sparse_copy(image, &after);
    undo(
        &image.with_extension("undo"),
        &device(image),
        ChangedSince::Refused,
    )
    .unwrap();
    assert_sound(image, first, &format!("{what}, undone"));
    assert_eq!(numbers(image), before, "{what}, undone");
    std::fs::rename(after, image).unwrap();
}

/// A copy that takes no more room than what is in the image.
fn sparse_copy(image: &Path, to: &Path) {
    run(Command::new("cp").arg("--sparse=always").args([image, to]));
}

/// All these sizes, or without `FINEFS_FULL` the sample of them.
fn prove_some(names: &[&str], all: &[u64], sample: &[u64]) {
    let dir = tempfile::tempdir().unwrap();
    for kind in kinds(names) {
        let percents = if support::is_full() { all } else { sample };
        prove(dir.path(), kind, percents);
    }
}

const SIZES: &[u64] = &[97, 32, 400, 28];
const SAMPLE: &[u64] = &[32, 400];

#[test]
fn ext2_and_ext3() {
    prove_some(&["ext2", "ext2-every", "ext3"], SIZES, SAMPLE);
}

#[test]
fn ext4_by_default() {
    prove_some(&["ext4"], SIZES, SIZES);
    prove_some(&["ext4-32bit", "ext4-uninit"], SIZES, SAMPLE);
}

#[test]
fn ext4_with_large_blocks() {
    prove_some(&["ext4-4k"], &[60, 1000, 50], &[60, 1000]);
    prove_some(&["ext4-64k"], &[50, 300], &[50, 300]);
}

#[test]
fn groups_with_their_own_metadata() {
    prove_some(&["ext4-noflex", "ext4-two", "ext4-metabg"], SIZES, SAMPLE);
}

#[test]
fn clusters_stay_whole() {
    prove_some(&["ext4-clusters", "ext4-clusters-noflex"], SIZES, SAMPLE);
    let sizes = &[55, 300, 850, 900];
    prove_some(&["ext4-clusters-noreserve"], sizes, &[300, 900]);
    prove_some(&["ext4-clusters-64k"], &[50, 300, 30], &[300, 30]);
}

#[test]
fn descriptors_push_data_aside() {
    prove_some(
        &["ext4-noreserve", "ext4-noreserve-noflex"],
        &[55, 300, 900],
        &[300, 900],
    );
}

#[test]
fn what_names_inodes_follows() {
    prove_some(&["ext4-inline"], SIZES, SAMPLE);
    // With mmp e2fsprogs waits for other hosts, each time that it opens the image for writing.
    prove_some(&["ext4-more"], SIZES, &[32]);
}

#[test]
fn the_minimum_is_small() {
    let dir = tempfile::tempdir().unwrap();
    for kind in kinds(&["ext2", "ext4", "ext4-noflex", "ext4-clusters"]) {
        let image = make(dir.path(), kind);
        let first = dir.path().join("first");
        contents(&image, &first);
        let text = run(Command::new("resize2fs").arg("-P").arg(&image));
        let theirs: u64 = text.split_whitespace().last().unwrap().parse().unwrap();
        let (blocks, least) = blocks_of(&image);
        // Of clusters resize2fs knows nothing.
        let is_least = least <= theirs || kind.0 == "ext4-clusters";
        assert!(is_least, "{}: {least}, resize2fs: {theirs}", kind.0);
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

/// Where an image lies that is resized while its device fails.
#[derive(Clone, Copy)]
enum Place<'p> {
    /// Where a device of a given length is in memory.
    Memory,
    /// In a file, which becomes longer, or on a block device.
    Path(&'p Path),
    /// On an NBD server whose device fails.
    Export,
}

impl Place<'_> {
    /// A device with these bytes, and room for so many where it cannot become longer.
    fn filled(self, bytes: &[u8], room: u64) -> Arc<dyn BlockDevice> {
        match self {
            Place::Path(path) => {
                let device = device(path);
                let _ = device.set_len_bytes(bytes.len() as u64);
                device.write_at(0, bytes).unwrap();
                device
            }
            Place::Memory | Place::Export => {
                let mut bytes = bytes.to_vec();
                bytes.resize(room.max(bytes.len() as u64) as usize, 0);
                Arc::new(MemoryDevice::from_bytes(&bytes))
            }
        }
    }

    /// The device as it is used, and what serves it.
    fn reached(self, device: Arc<dyn BlockDevice>) -> (Option<NbdServer>, Arc<dyn BlockDevice>) {
        let Place::Export = self else {
            return (None, device);
        };
        let server = NbdServer::start(device, Setup::default()).unwrap();
        let uri = NbdUri::parse(&server.url(20)).unwrap();
        let client = NbdDevice::open(&uri, false).unwrap();
        (Some(server), Arc::new(client))
    }
}

fn whole(device: &Arc<dyn BlockDevice>) -> Vec<u8> {
    let mut bytes = vec![0; device.len_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// The bytes of an image that are in use. A resize may write to the others at any time.
fn used(image: &Path) -> Vec<Range<usize>> {
    let text = run(Command::new("dumpe2fs").arg(image));
    let number = |name: &str| -> usize {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse().unwrap()
    };
    let block_bytes = number("Block size:");
    let mut used = Vec::new();
    let mut at = 0;
    let lines = text.lines();
    let free = lines.filter_map(|line| line.strip_prefix("  Free blocks: "));
    for run in free
        .flat_map(|line| line.split(", "))
        .filter(|run| !run.is_empty())
    {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        used.push(at..first.parse::<usize>().unwrap() * block_bytes);
        at = (last.parse::<usize>().unwrap() + 1) * block_bytes;
    }
    used.push(at..number("Block count:") * block_bytes);
    used
}

/// A resize to a percentage of the size, in some place, whose writes fail from one on.
struct Interrupted<'i> {
    image: &'i Path,
    before: Vec<u8>,
    wanted: u64,
    place: Place<'i>,
}

impl<'i> Interrupted<'i> {
    fn new(image: &'i Path, percent: u64, place: Place<'i>) -> Interrupted<'i> {
        let before = std::fs::read(image).unwrap();
        let wanted = before.len() as u64 * percent / 100;
        Interrupted {
            image,
            before,
            wanted,
            place,
        }
    }

    /// Says whether it was done, and how many writes there were; gives what is there after it was
    /// taken back, if it was not done.
    fn attempt(&self, first: u64, fault: Fault) -> (Result<(), String>, u64, Vec<u8>) {
        let inner = self.place.filled(&self.before, self.wanted);
        let failing = FaultDevice::new(Arc::clone(&inner), FaultOn::Write, first, u64::MAX);
        let failing = Arc::new(failing.failing(fault));
        let file = undo_file(self.image, false);
        let outcome = {
            let (_server, device) = self.place.reached(Arc::clone(&failing) as _);
            let target = Target::Bytes(self.wanted);
            resize(&device, target, &options(), &file, &|_| {}).map(drop)
        };
        if outcome.is_err() && file.path.exists() {
            let (_server, device) = self.place.reached(Arc::clone(&inner));
            // Half of it is written: this is the way out, and the only one.
            let target = Target::Bytes(self.wanted);
            let reason = resize(&device, target, &options(), &file, &|_| {}).unwrap_err();
            assert!(reason.contains("finefs undo"), "{reason}");
            undo(&file.path, &device, ChangedSince::Refused).unwrap();
        }
        (outcome, failing.seen(), whole(&inner))
    }

    /// Interrupted at about so many writes, at least at the last ones, and then not.
    fn prove(&self, count: u64, first: &Path) {
        let what = self.image.display();
        let (outcome, writes, after) = self.attempt(u64::MAX, Fault::Error);
        assert!(outcome.is_ok() && writes > 5, "{what}: {outcome:?}");
        let used = used(self.image);
        let is_tried = |at: &u64| {
            support::is_full() || at.is_multiple_of(writes / count + 1) || at + 2 >= writes
        };
        for at in (0..writes).filter(is_tried) {
            let fault = match at.is_multiple_of(2) {
                true => Fault::Error,
                false => Fault::Short,
            };
            let (outcome, _, bytes) = self.attempt(at, fault);
            assert!(outcome.is_err(), "{what} at write {at}");
            for range in &used {
                let is_same = bytes[range.clone()] == self.before[range.clone()];
                assert!(is_same, "{what} at write {at}: {range:?}");
            }
            let is_file = matches!(self.place, Place::Path(path) if path.is_file());
            assert!(!is_file || bytes.len() == self.before.len());
        }
        std::fs::write(self.image, after).unwrap();
        assert_sound(self.image, first, &format!("{what}, resized"));
        std::fs::write(self.image, &self.before).unwrap();
    }
}

/// At every write: every byte comes back that was in use.
#[test]
fn an_interruption_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let small = ("small", "4M", "-t ext4 -b 1024 -g 512 -N 128");
    let image = dir.path().join("small");
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    for number in 0..60_usize {
        std::fs::write(
            tree.join(format!("dir/{number}")),
            vec![number as u8; 15_000],
        )
        .unwrap();
    }
    mke2fs(
        &image,
        &format!("-d {} {}", tree.display(), small.2),
        small.1,
    );
    for number in (0..60).filter(|number| number % 3 != 1) {
        debugfs(&image, &format!("rm /dir/{number}"));
    }
    let first = dir.path().join("first");
    contents(&image, &first);
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for percent in [56, 300] {
        Interrupted::new(&image, percent, Place::Memory).prove(u64::MAX, &first);
        Interrupted::new(&image, percent, Place::Path(&file)).prove(20, &first);
    }
}

/// In the kinds that move most; on a server and a block device, which do not become longer.
#[test]
fn an_interruption_is_survived_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    for (name, percent, place) in [
        ("ext4", 50, Place::Export),
        ("ext4-noreserve", 300, Place::Memory),
        ("ext4-64k", 50, Place::Memory),
        ("ext4-64k", 120, Place::Export),
    ] {
        let kind = kinds(&[name]).next().unwrap();
        let image = make(dir.path(), kind);
        let first = dir.path().join("first");
        contents(&image, &first);
        Interrupted::new(&image, percent, place).prove(4, &first);
        if name == "ext4" && rustix::process::geteuid().is_root() {
            let disk = dir.path().join("disk");
            let file = std::fs::File::create(&disk).unwrap();
            file.set_len(std::fs::metadata(&image).unwrap().len() * 2)
                .unwrap();
            let device = LoopDevice::over(&disk).unwrap();
            for percent in [50, 200] {
                let place = Place::Path(device.path());
                Interrupted::new(&image, percent, place).prove(4, &first);
            }
        }
    }
}

#[test]
fn what_cannot_be_resized_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made = |options: &str| {
        let _ = std::fs::remove_file(&image);
        mke2fs(&image, options, "64M");
    };
    let refused = |bytes: u64, word: &str| {
        let before = std::fs::read(&image).unwrap();
        let reason = ours(&image, Target::Bytes(bytes), false).unwrap_err();
        assert!(reason.contains(word), "{reason}");
        assert!(std::fs::read(&image).unwrap() == before, "{word}: changed");
    };
    made("-t ext4 -O stable_inodes");
    refused(32 << 20, "stable_inodes");
    assert!(
        ours(&image, Target::Bytes(128 << 20), false)
            .unwrap()
            .is_some()
    );
    made("-t ext4 -O ^64bit");
    refused(20 << 40, "64bit");
    made("-t ext4 -b 1024");
    refused(1 << 40, "would fill more than a group");
    made("-t ext4");
    debugfs(&image, "ssv state 2");
    refused(128 << 20, "errors were noted in it; run finefs repair");
    debugfs(&image, "ssv state 0");
    refused(128 << 20, "unmounted");
    debugfs(&image, "ssv state 1");
    debugfs(&image, "sif /lost+found links_count 5");
    refused(128 << 20, "finefs repair");
    made("-t ext4");
    debugfs(&image, "feature needs_recovery");
    refused(128 << 20, "finefs repair");
    // An undo file of something else is left alone.
    made("-t ext4");
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
