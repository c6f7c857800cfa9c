//! `finefs mkfs`, by its own name and by mke2fs's: the same bytes as mke2fs makes, messages, exit
//! codes and JSON. All switches, large images and the kernel: `cargo run -p xtask -- prove mkfs`.

use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const UUID: &str = "11111111-2222-4333-8444-555555555555";

struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = TempDir::new().unwrap();
        for name in ["mke2fs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4"] {
            symlink(env!("CARGO_BIN_EXE_finefs"), dir.path().join(name)).unwrap();
        }
        Bench { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a program with the words, and the image at the end.
    fn run(&self, program: &Path, words: &str, image: &Path) -> Output {
        Command::new(program)
            .args(words.split_whitespace())
            .arg(image)
            .env("E2FSPROGS_FAKE_TIME", "1700000000")
            .env_remove("SOURCE_DATE_EPOCH")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn finefs(&self, words: &str, image: &Path) -> Output {
        self.run(Path::new(env!("CARGO_BIN_EXE_finefs")), words, image)
    }

    fn empty(&self, name: &str, kib: u64) -> PathBuf {
        let path = self.path(name);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(kib << 10).unwrap();
        path
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The image without what mke2fs makes anew each time: its count of writes, and with it the
/// superblock's checksum, in each copy.
fn comparable(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    for unit in bytes.chunks_mut(1024) {
        if unit.len() == 1024 && unit[0x38..0x3a] == [0x53, 0xef] {
            unit[0x178..0x180].fill(0);
            unit[0x3fc..].fill(0);
        }
    }
    bytes
}

fn check(image: &Path) {
    let output = Command::new("e2fsck").arg("-fn").arg(image).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
}

#[test]
fn the_same_bytes_as_mke2fs() {
    let bench = Bench::new();
    let lines = [
        // Features are named, since mke2fs.conf may say anything.
        (
            "mkfs.ext4",
            "-O orphan_file,metadata_csum_seed,metadata_csum,64bit",
            20_000,
        ),
        (
            "mkfs.ext4",
            "-O ^metadata_csum_seed,^orphan_file,^flex_bg",
            20_000,
        ),
        (
            "mkfs.ext4",
            "-O ^metadata_csum_seed,^orphan_file,^has_journal -b 4096",
            9_000,
        ),
        ("mkfs.ext3", "-N 400 -I 128 -L label", 12_000),
        ("mkfs.ext2", "-g 1024 -m 1", 5_000),
        ("mke2fs", "-j -b 2048", 30_000),
    ];
    for (program, words, kib) in lines {
        let words = format!("-q -F -U {UUID} -E hash_seed={UUID} {words}");
        let ours = bench.empty("ours", kib);
        let theirs = bench.empty("theirs", kib);
        let made = bench.run(&bench.path(program), &words, &ours);
        assert!(made.status.success(), "{words}: {}", text(&made.stderr));
        assert!(made.stdout.is_empty(), "{}", text(&made.stdout));
        let made = bench.run(Path::new(program), &words, &theirs);
        assert!(made.status.success(), "{words}: {}", text(&made.stderr));
        check(&ours);
        assert!(
            comparable(&ours) == comparable(&theirs),
            "{program} {words}"
        );
    }
}

/// Makes an image by both; they must be the same, and e2fsck finds nothing. Gives ours.
fn both(bench: &Bench, program: &str, words: &str, extended: &str, kib: u64) -> PathBuf {
    let words = format!("-q -F -U {UUID} -E hash_seed={UUID},{extended} {words}");
    let ours = bench.empty("ours", kib);
    let theirs = bench.empty("theirs", kib);
    for (program, image) in [(&bench.path(program), &ours), (&program.into(), &theirs)] {
        let made = bench.run(program, &words, image);
        assert!(made.status.success(), "{words}: {}", text(&made.stderr));
    }
    check(&ours);
    assert!(
        comparable(&ours) == comparable(&theirs),
        "{program} {words}"
    );
    ours
}

/// Quota files with what root directory and lost+found have, wherever mke2fs puts their blocks.
#[test]
fn quotas_are_those_of_mke2fs() {
    let bench = Bench::new();
    let plain = "^metadata_csum_seed,^orphan_file";
    for (program, words, extended, kib) in [
        (
            "mkfs.ext4",
            format!("-O quota,{plain}"),
            "nodiscard",
            20_000,
        ),
        (
            "mkfs.ext4",
            format!("-O quota,project,{plain} -b 4096"),
            "nodiscard",
            40_000,
        ),
        (
            "mkfs.ext4",
            format!("-O quota,{plain}"),
            "quotatype=usr:prjquota",
            20_000,
        ),
        (
            "mkfs.ext4",
            format!("-O quota,{plain}"),
            "root_owner=1000:70000",
            20_000,
        ),
        (
            "mkfs.ext4",
            format!("-O quota,bigalloc,{plain} -b 4096"),
            "quotatype=grp",
            60_000,
        ),
        (
            "mkfs.ext4",
            "-O quota,project,orphan_file,metadata_csum_seed -b 2048".to_owned(),
            "nodiscard",
            60_000,
        ),
        (
            "mkfs.ext3",
            "-O quota -b 1024".to_owned(),
            "nodiscard",
            12_000,
        ),
        (
            "mkfs.ext2",
            "-O quota -b 4096".to_owned(),
            "root_owner=5:0",
            12_000,
        ),
    ] {
        let image = both(&bench, program, &words, extended, kib);
        let shown = Command::new("dumpe2fs")
            .arg("-h")
            .arg(&image)
            .output()
            .unwrap();
        assert!(text(&shown.stdout).contains("quota inode:"), "{words}");
    }
    let refused = bench.finefs("mkfs --size 8m -O project -I 128", &bench.path("none"));
    assert!(
        text(&refused.stderr).contains("take -I 256"),
        "{}",
        text(&refused.stderr)
    );
}

/// What was built or copied into such an image is counted.
#[test]
fn an_image_with_quotas_is_filled() {
    let bench = Bench::new();
    let files = bench.path("files");
    std::fs::create_dir_all(files.join("dir/sub")).unwrap();
    for number in 0..40 {
        std::fs::write(files.join(format!("dir/{number}")), vec![1; number * 700]).unwrap();
    }
    let image = bench.path("image");
    let words = format!("build -O quota,project --free 8m {}", image.display());
    let made = bench.finefs(&words, &files);
    assert!(made.status.success(), "{}", text(&made.stderr));
    check(&image);
    let filled = bench.path("filled");
    let words = format!("mkfs --size 20m -O quota -q -d {}", files.display());
    let made = bench.finefs(&words, &filled);
    assert!(made.status.success(), "{}", text(&made.stderr));
    check(&filled);
}

#[test]
fn bad_blocks_are_left_out_as_mke2fs_leaves_them() {
    let bench = Bench::new();
    let list = bench.path("list");
    let features = "-O ^metadata_csum_seed,^orphan_file";
    let lines: String = (9000..9300).map(|block| format!("{block}\n")).collect();
    for (program, blocks, words) in [
        ("mkfs.ext4", "5000\n5001\n9000\n", features),
        ("mkfs.ext4", &lines, features),
        ("mkfs.ext4", "300\n280\n2330\n99999999\n", features),
        (
            "mkfs.ext4",
            "70\n3000\n",
            "-b 4096 -O ^metadata_csum_seed,^orphan_file,^flex_bg",
        ),
        ("mkfs.ext2", "9000\n", "-b 1024"),
    ] {
        std::fs::write(&list, blocks).unwrap();
        let words = format!("{words} -l {}", list.display());
        let image = both(&bench, program, &words, "nodiscard", 30_000);
        let shown = Command::new("dumpe2fs")
            .arg("-b")
            .arg(&image)
            .output()
            .unwrap();
        let mut bad: Vec<&str> = blocks.lines().filter(|line| line.len() < 8).collect();
        let checked = bench.finefs("check", &image);
        assert!(checked.status.success(), "{}", text(&checked.stdout));
        bad.sort_by_key(|block| block.parse::<u64>().unwrap());
        assert_eq!(text(&shown.stdout).lines().collect::<Vec<_>>(), bad);
    }
    for (blocks, status, part) in [
        ("3\n", 1, "-l=3: lies where"),
        ("x\n900 1\n", 0, "line 1: no number"),
    ] {
        std::fs::write(&list, blocks).unwrap();
        let words = format!("mkfs --size 8m -q -l {}", list.display());
        let told = bench.finefs(&words, &bench.path("none"));
        assert_eq!(told.status.code(), Some(status));
        let told = text(&told.stderr);
        assert!(told.contains(part), "{told}");
    }
    // All of a file can be read.
    let image = bench.empty("read", 8 << 10);
    let made = bench.finefs("mkfs -q -c", &image);
    assert!(
        made.status.success() && made.stderr.is_empty(),
        "{}",
        text(&made.stderr)
    );
    check(&image);
}

#[test]
fn patterns_are_written_to_all_of_it_first() {
    let bench = Bench::new();
    let features = "-cc -O ^metadata_csum_seed,^orphan_file";
    both(&bench, "mkfs.ext4", features, "nodiscard", 8 << 10);
    both(&bench, "mkfs.ext2", "-cc -b 4096", "nodiscard", 8 << 10);
    // Nothing of what was there is left.
    let image = bench.path("noise");
    std::fs::write(&image, vec![7; 8 << 20]).unwrap();
    let made = bench.finefs("mkfs -q -cc -E nodiscard", &image);
    let said = text(&made.stderr);
    assert!(made.status.success() && said.is_empty(), "{said}");
    let now = std::fs::read(&image).unwrap();
    assert!(!now.windows(64).any(|part| part == [7; 64]));
    check(&image);
}

/// Bytes that are nowhere zero for long, and different everywhere.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let bytes = (0..length).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    });
    bytes.collect()
}

#[test]
fn what_was_overwritten_is_put_back() {
    let bench = Bench::new();
    let (image, undo) = (bench.path("image"), bench.path("undo"));
    for (words, length) in [
        ("-t ext4", 16 << 20),
        ("-t ext4 -E lazy_itable_init=0", 20 << 20),
        ("-t ext2 -b 1024", (8 << 20) + 1000),
        ("-t ext3 -b 4096 --size 12m", 16 << 20),
        ("-t ext4 --offset 4m --size 8m", 16 << 20),
        ("-t ext4 -E offset=1536 --size 8m", 16 << 20),
    ] {
        let old = noise(length);
        for by_e2undo in [true, false] {
            std::fs::write(&image, &old).unwrap();
            let made = bench.finefs(&format!("mkfs {words} -z {}", undo.display()), &image);
            assert!(made.status.success(), "{words}: {}", text(&made.stderr));
            assert!(text(&made.stdout).contains("takes it back"));
            assert!(std::fs::read(&image).unwrap() != old);
            let undone = match by_e2undo {
                true => bench.run(Path::new("e2undo"), undo.to_str().unwrap(), &image),
                false => bench.finefs(&format!("undo {}", undo.display()), &image),
            };
            assert!(undone.status.success(), "{words}: {}", text(&undone.stderr));
            assert!(std::fs::read(&image).unwrap() == old, "{words} {by_e2undo}");
            // It is of what was made, not of what is there now.
            let again = bench.finefs(&format!("undo {}", undo.display()), &image);
            assert!(text(&again.stderr).contains("superblocks differ"));
            std::fs::remove_file(&undo).unwrap();
        }
    }
}

#[test]
fn undo_files_of_mke2fs_are_put_back_and_damaged_ones_are_not() {
    let bench = Bench::new();
    let (image, undo) = (bench.path("image"), bench.path("undo"));
    let old = noise(8 << 20);
    std::fs::write(&image, &old).unwrap();
    let words = format!("-q -F -z {}", undo.display());
    let made = bench.run(Path::new("/usr/sbin/mke2fs"), &words, &image);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let new = std::fs::read(&image).unwrap();
    let kept = std::fs::read(&undo).unwrap();
    for cut in [100, 40_000, kept.len() / 2] {
        std::fs::write(&undo, &kept[..cut]).unwrap();
        let refused = bench.finefs(&format!("undo {}", undo.display()), &image);
        assert!(text(&refused.stderr).contains("no whole undo file"));
        assert!(std::fs::read(&image).unwrap() == new);
    }
    std::fs::write(&undo, &kept).unwrap();
    let undone = bench.finefs(&format!("undo {}", undo.display()), &image);
    assert!(undone.status.success(), "{}", text(&undone.stderr));
    assert!(std::fs::read(&image).unwrap() == old);
}

#[test]
fn an_undo_file_that_cannot_be_made_is_told_before_anything_is_written() {
    let bench = Bench::new();
    let (image, there) = (bench.path("image"), bench.path("there"));
    let old = noise(8 << 20);
    std::fs::write(&image, &old).unwrap();
    std::fs::write(&there, "mine").unwrap();
    let none = bench.path("none");
    for (words, part) in [
        (format!("-z {}", there.display()), "is there already"),
        ("-z /no/such/directory/undo".to_owned(), "No such file"),
        (format!("-cc -z {}", none.display()), "-cc writes all of it"),
        (
            format!("-O journal_dev -z {}", none.display()),
            "a journal is made",
        ),
        (
            format!("-F -d /etc/fstab -z {}", none.display()),
            "that is filled",
        ),
    ] {
        let refused = bench.finefs(&format!("mkfs {words}"), &image);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{words}");
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
        assert!(std::fs::read(&image).unwrap() == old, "{words}");
    }
    assert!(!none.exists());
    assert_eq!(std::fs::read(&there).unwrap(), b"mine");
    // Nor is there a new file.
    let new = bench.path("new");
    bench.finefs("mkfs --size 8m -z /no/such/directory/undo", &new);
    assert!(!new.exists());
}

#[test]
fn what_was_made_is_told() {
    let bench = Bench::new();
    let image = bench.path("image");
    let made = bench.finefs("mkfs --size 8m --seed a --json", &image);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let json: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(json["blocks"], 8192);
    assert_eq!(json["fs_type"], "ext4");
    assert_eq!(json["size_bytes"], 8 << 20);
    assert_eq!(json["image"], image.to_str().unwrap());
    check(&image);
    let again = bench.path("again");
    bench.finefs("mkfs --size 8m --seed a -q", &again);
    assert!(std::fs::read(&image).unwrap() == std::fs::read(&again).unwrap());

    let said = bench.finefs("mkfs -n -t ext2 --size 100m", &bench.path("none"));
    let said = text(&said.stdout);
    assert!(said.contains("102400 1k blocks"), "{said}");
    assert!(said.contains("8193, 24577"), "{said}");
    assert!(!bench.path("none").exists());
    let upstream = bench.finefs(
        "mkfs --defaults upstream --size 8m --json",
        &bench.path("up"),
    );
    assert!(text(&upstream.stdout).contains("orphan_file"));
}

#[test]
fn mistakes_are_told_in_one_line() {
    let bench = Bench::new();
    let image = bench.path("image");
    for (words, part) in [
        ("mkfs", "--size"),
        ("mkfs --size 10k", "too few"),
        ("mkfs --size 8m -C 16384", "bigalloc"),
        ("mkfs --size 8m -O nonsense", "nonsense"),
        ("mkfs --size 8m -E nonsense=1", "stripe_width"),
        ("mkfs --size 8m -b 3000", "-b=3000"),
        ("mkfs --size 8m -t ext5", "ext4"),
        (
            "mkfs --size 8m -d no-such-source",
            "no-such-source: No such file",
        ),
        (
            "mkfs --size 8m -J device=no-such-journal",
            "no-such-journal: ",
        ),
        ("mkfs --size 8m -L a-label-that-is-too-long", "16"),
        ("mkfs --size 8m -E mmp_update_interval=301", "300 seconds"),
        ("mkfs --size 8m -E root_perms=8", "octal"),
        ("mkfs --size 8m -E resize=8m", "-E resize=8192: give more"),
        ("mkfs --size 8m -b 1024 -E resize=0", "give more"),
        ("mkfs --size 8m -O inline_data -I 128", "inline_data"),
        ("mkfs --size 8m -r 0 -O filetype", "revision 0"),
        ("mkfs --size 8m -t ext2 -r 0 -j", "revision 0"),
        ("mkfs --size 8m -r 0 -I 256", "-I=256"),
        ("mkfs --size 64m -O bigalloc -C 536870912", "2^32 blocks"),
        ("mkfs --size 8m -E desc_size=128", "only 64"),
        (
            "mkfs --size 8m -E encoding_flags=strict",
            "-E encoding=utf8",
        ),
        ("mkfs --size 8m -t ext2 -t ext4", "only once"),
        ("mkfs --size 8388608t", "than a file can have"),
    ] {
        let output = bench.finefs(words, &image);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}: {line}");
        assert!(
            line.starts_with("finefs: ") && line.contains(part),
            "{words}: {line}"
        );
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(!image.exists());
    }
    // A usage error: clap's status for finefs, mke2fs's by its name.
    assert_eq!(
        bench.finefs("mkfs --nonsense", &image).status.code(),
        Some(2)
    );
    let mke2fs = bench.path("mke2fs");
    for (words, part) in [
        ("-Q", "Usage: mke2fs "),
        ("-q", "mke2fs: The file "),
        ("-q -b 2048 -i 4x", "invalid value '4x'"),
    ] {
        let said = bench.run(&mke2fs, words, &image);
        assert_eq!(said.status.code(), Some(1));
        let said = text(&said.stderr);
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_file_system_is_not_lost_by_mistake() {
    let bench = Bench::new();
    let image = bench.path("image");
    assert!(
        bench
            .finefs("mkfs --size 4m -q -L one", &image)
            .status
            .success()
    );
    let refused = bench.finefs("mkfs -q", &image);
    assert!(text(&refused.stderr).contains("labelled 'one'"));
    assert!(bench.finefs("mkfs -q -F", &image).status.success());
    // As mke2fs does where there is no terminal.
    let made = bench.run(&bench.path("mkfs.ext4"), "-q", &image);
    assert!(made.status.success(), "{}", text(&made.stderr));
    check(&image);
    // Nor is something else.
    let other = bench.empty("other", 4096);
    let put = |at: u64, bytes: &[u8]| {
        let file = std::fs::File::options().write(true).open(&other);
        file.unwrap().write_all_at(bytes, at).unwrap();
    };
    let partition = [0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0];
    let table = [&partition[..], &[0; 48], &[0x55, 0xAA]].concat();
    for (at, bytes, what) in [
        (0, &b"XFSB"[..], "an XFS file system"),
        (4086, b"SWAPSPACE2", "swap space"),
        (446, &table, "a partition table"),
    ] {
        put(at, bytes);
        let refused = bench.finefs("mkfs -q", &other);
        assert_eq!(refused.status.code(), Some(1), "{what}");
        assert!(text(&refused.stderr).contains(what), "{what}");
        put(at, &vec![0; bytes.len()]);
    }
    assert!(bench.finefs("mkfs -q", &other).status.success());
}

#[test]
fn words_of_mke2fs_do_what_they_do_there() {
    let bench = Bench::new();
    let features = "-O ^metadata_csum_seed,^orphan_file";
    for (words, extended) in [
        ("-b 1024", "resize=1g"),
        ("-q", "resize=20000"),
        ("-O -resize_inode", "desc_size=64,resize=1g"),
        ("-O ^large_file -b 4096", "stride=4"),
        ("-L a -L b -b 4096 -b 1024 -m 3 -m 1 -q -i 4k", "stride=4"),
        ("-e panic -e continue -N 99 -N 200 -G 4 -G 8", "stride=4"),
        ("", "encoding=utf8,encoding_flags=strict"),
        ("-L a-label-that-is-too-long", "stride=1"),
    ] {
        let words = format!("{features} {words}");
        both(&bench, "mkfs.ext4", &words, extended, 16 << 10);
    }
    // Only the last list counts; the other is a word of its own, in which blanks divide names.
    let image = bench.empty("blanks", 8 << 10);
    let mut mke2fs = Command::new(bench.path("mke2fs"));
    let lists = [
        "-O",
        "extent has_journal",
        "-O",
        "",
        "-E",
        "stride=x",
        "-R",
        "stride=4",
    ];
    let made = mke2fs.args(lists).arg(&image).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let shown = bench.finefs("info", &image);
    assert!(
        text(&shown.stdout).contains("extent"),
        "{}",
        text(&shown.stdout)
    );
    check(&image);
    // A directory makes the size, too.
    std::fs::create_dir(bench.path("tree")).unwrap();
    std::fs::write(bench.path("tree/file"), "text").unwrap();
    let words = format!("-q -d {}", bench.path("tree").display());
    let image = bench.path("new");
    let made = bench.run(&bench.path("mke2fs"), &words, &image);
    assert!(made.status.success(), "{}", text(&made.stderr));
    check(&image);
}

#[test]
fn sizes_are_read_as_mke2fs_reads_them() {
    let bench = Bench::new();
    for (name, words, size, bytes) in [
        ("a", "-q", "3000", 3_072_000),
        ("d", "-q", "0xbb8", 3_072_000),
        ("b", "-q -b 4096", "1000", 4_096_000),
        ("c", "-q", "5M", 5 << 20),
    ] {
        let output = Command::new(bench.path("mkfs.ext4"))
            .args(words.split(' '))
            .args([bench.path(name).to_str().unwrap(), size])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(std::fs::metadata(bench.path(name)).unwrap().len(), bytes);
        check(&bench.path(name));
    }
}

/// Scripts ask for it to see whether there is one.
#[test]
fn mke2fs_tells_its_version() {
    let bench = Bench::new();
    let told = Command::new(bench.path("mke2fs"))
        .arg("-V")
        .output()
        .unwrap();
    assert!(told.status.success());
    assert!(
        text(&told.stderr).starts_with("mke2fs of finefs "),
        "{told:?}"
    );
}

/// A journal on its own, and a file system that has it, as e2fsck sees them.
#[test]
fn a_journal_that_lies_elsewhere() {
    let bench = Bench::new();
    let (journal, image) = (bench.path("journal"), bench.path("image"));
    let made = bench.finefs("mkfs -q --size 8m -O journal_dev", &journal);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let words = format!("mkfs -q --size 32m -J device={}", journal.display());
    let made = bench.finefs(&words, &image);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let found = Command::new("e2fsck")
        .args(["-fn", "-j"])
        .args([&journal, &image])
        .output()
        .unwrap();
    assert!(found.status.success(), "{}", text(&found.stdout));
    let refused = bench.finefs(&words, &bench.path("other"));
    assert!(text(&refused.stderr).contains("is the journal of a file system"));
}

/// Journals alone, as large, with blocks as large and with the features that mke2fs gives them.
#[test]
fn a_journal_is_that_of_mke2fs() {
    let bench = Bench::new();
    for (program, words, kib) in [
        ("mkfs.ext4", "-O journal_dev", 64 << 10),
        (
            "mkfs.ext4",
            "-O journal_dev,^metadata_csum -L name",
            8 << 10,
        ),
        ("mkfs.ext4", "-O journal_dev -b 2048", 8 << 10),
        ("mkfs.ext4", "-O journal_dev", 512 << 10),
        ("mke2fs", "-O journal_dev -I 128", 8 << 10),
    ] {
        let (ours, theirs) = (bench.empty("ours", kib), bench.empty("theirs", kib));
        let words = format!("-q -F -U {UUID} -E hash_seed={UUID} {words}");
        for (program, image) in [(bench.path(program), &ours), (program.into(), &theirs)] {
            let made = bench.run(&program, &words, image);
            assert!(made.status.success(), "{words}: {}", text(&made.stderr));
        }
        assert!(comparable(&ours) == comparable(&theirs), "{words}");
    }
}

/// What no file can be is refused at once, and a long plan ends at a signal.
#[test]
fn a_size_that_cannot_be_is_not_planned() {
    let bench = Bench::new();
    let image = bench.path("image");
    let largest = std::fs::File::create(bench.path("probe")).unwrap();
    if largest.set_len(20_000 << 40).is_err() {
        let used = bench.empty("used", 1024);
        for (words, image) in [
            ("mkfs --size 20000t", &image),
            ("mkfs --size 20000t -n", &image),
            ("mkfs --size 20000t", &used),
        ] {
            let refused = bench.finefs(words, image);
            assert_eq!(refused.status.code(), Some(1), "{words}");
            let said = text(&refused.stderr);
            assert!(said.contains("cannot be made that large"), "{said}");
        }
        assert!(!image.exists());
        assert_eq!(std::fs::metadata(&used).unwrap().len(), 1 << 20);
    }
}

/// Makes a file system that is looked through for bad blocks first, which takes long, and sends a
/// signal when the image is open.
fn interrupted(bench: &Bench, image: &Path, signal: Signal) -> Output {
    let mut mkfs = Command::new(env!("CARGO_BIN_EXE_finefs"));
    mkfs.args(["mkfs", "-q", "-c", "--size", "256g"]).arg(image);
    mkfs.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = mkfs.current_dir(bench.dir.path()).spawn().unwrap();
    let open = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let is_it = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| std::fs::read_link(entry.path()).is_ok_and(|it| it == image))
    };
    while !std::fs::read_dir(&open).is_ok_and(|mut all| all.any(is_it)) {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn an_interrupted_mkfs_leaves_no_new_file() {
    let bench = Bench::new();
    let image = bench.path("image");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let ended = interrupted(&bench, &image, signal);
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{said}");
        let wanted = format!(
            "finefs: {}: interrupted; nothing was made\n",
            image.display()
        );
        assert_eq!(said, wanted);
        assert_eq!(std::fs::read_dir(bench.dir.path()).unwrap().count(), 4);
    }
    // What was there before stays, and a signal ends at once.
    std::fs::write(&image, "mine").unwrap();
    let ended = interrupted(&bench, &image, Signal::TERM);
    assert_eq!(ended.status.signal(), Some(15), "{ended:?}");
    let mut start = [0; 4];
    let file = std::fs::File::open(&image).unwrap();
    file.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(&start, b"mine");
}
