//! Repairs: after one e2fsck finds nothing, what could be reached still can, a second one finds
//! nothing to do, and undo puts every byte back.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::support::{self, KINDS, check, judge, make, run};
use finefs::{FileFlags, FileSystem};
use finefs_block::{Access, BlockDevice, FileDevice};
use finefs_check::repair::{self, ChangedSince, Outcome, repair, undo};
use finefs_check::{Finding, Options, Problem};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub fn device(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap())
}

pub fn options() -> Options {
    Options {
        jobs: 2,
        ..Options::default()
    }
}

/// Repairs an image and checks all that is promised; false where the repair was refused.
pub fn prove(image: &Path, what: &str) -> bool {
    prove_with(image, what, &options())
}

fn prove_with(image: &Path, what: &str, options: &Options) -> bool {
    let before = std::fs::read(image).unwrap();
    let file = image.with_extension("undo");
    let _ = std::fs::remove_file(&file);
    let dry = repair(&device(image), options, None).unwrap();
    assert!(
        std::fs::read(image).unwrap() == before,
        "{what}: dry, but written"
    );
    let outcome = repair(&device(image), options, Some(&file)).unwrap();
    match &outcome {
        Outcome::Refused(_) => {
            assert!(matches!(dry, Outcome::Refused(_)), "{what}");
            assert!(
                std::fs::read(image).unwrap() == before,
                "{what}: refused, but written"
            );
            assert!(!file.exists());
            return false;
        }
        Outcome::Clean(_) => {
            let judged = judge(image);
            assert!(judged.is_clean, "{what}: no repair\n{}", judged.text);
            assert!(!file.exists());
            return true;
        }
        Outcome::Done { .. } => {}
    }
    let judged = judge(image);
    assert!(judged.is_clean, "{what}: {outcome:?}\n{}", judged.text);
    let after = std::fs::read(image).unwrap();
    let again = image.with_extension("again");
    let second = repair(&device(image), options, Some(&again)).unwrap();
    assert!(matches!(second, Outcome::Clean(_)), "{what}: {second:?}");
    assert!(std::fs::read(image).unwrap() == after && !again.exists());
    undo(&file, &device(image), ChangedSince::Refused).unwrap();
    assert!(
        std::fs::read(image).unwrap() == before,
        "{what}: undo left a difference"
    );
    std::fs::write(image, after).unwrap();
    true
}

/// The tree of an image, as debugfs gives it out.
fn tree(image: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    let request = format!("rdump / {}", to.display());
    run(Command::new("debugfs").args(["-R", &request]).arg(image));
}

/// Everything of the first tree is in the second, but for what damage took its name from.
fn is_kept(first: &Path, second: &Path, but: &[&str]) {
    let output = Command::new("diff")
        .arg("-rq")
        .arg("--no-dereference")
        .args([first, second])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let lost: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with(&format!("Only in {}/lost+found", second.display())))
        .filter(|line| {
            !but.iter().any(|name| {
                [": ", "/"]
                    .iter()
                    .any(|it| line.ends_with(&format!("{it}{name}")))
            })
        })
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

/// Changes an image as debugfs is told.
pub fn damage(image: &Path, script: &str) {
    let path = image.with_extension("script");
    std::fs::write(&path, format!("{script}\n")).unwrap();
    run(Command::new("debugfs").arg("-wf").arg(&path).arg(image));
}

#[test]
fn what_takes_a_decision_is_put_right_where_it_is_asked_for_by_name() {
    // The kinds of file systems, the problem, how it comes about, and what is lost by it.
    let cases: &[(&[&str], Problem, &str, &[&str])] = &[
        (&["ext2", "ext4"], Problem::Entry, "clri /holes", &["holes"]),
        (
            &["ext2", "ext3"],
            Problem::DuplicateName,
            "ln /holes /larg2",
            &[],
        ),
        (
            &["ext2", "ext4"],
            Problem::InodeSize,
            "sif /large size 10",
            &["large differ", "link differ"],
        ),
        (
            &["ext4", "ext4-bigalloc"],
            Problem::Extent,
            "sif /large block[0] 0",
            &["large differ", "link differ"],
        ),
        (
            &["ext2", "ext3"],
            Problem::BlockPointer,
            "sif /large block[1] 99999999",
            &["large differ", "link differ"],
        ),
        (
            &["ext2", "ext3"],
            Problem::SharedBlocks,
            "sif /large block[1] @",
            &["holes differ", "large differ", "link differ"],
        ),
        (
            &["ext4"],
            Problem::SharedBlocks,
            "sif /large block[5] @",
            &["holes differ", "large differ", "link differ"],
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (names, problem, script, but) in cases {
        for kind in KINDS.iter().filter(|kind| names.contains(&kind.0)) {
            let image = make(dir.path(), kind);
            let trees = ["first", "second"].map(|name| dir.path().join(name));
            tree(&image, &trees[0]);
            let request = ["-R", "blocks /holes"];
            let blocks = run(Command::new("debugfs").args(request).arg(&image));
            let block = blocks.split_whitespace().next().unwrap();
            damage(&image, &script.replace('@', block));
            // debugfs makes no name twice.
            let mut bytes = std::fs::read(&image).unwrap();
            for at in 0..bytes.len() - 5 {
                if bytes[at..].starts_with(b"larg2") {
                    bytes[at + 4] = b'e';
                }
            }
            std::fs::write(&image, bytes).unwrap();
            let what = format!("{}, {script}", kind.0);
            assert!(!prove(&image, &what), "{what}: was not asked for");
            let others = repair::NAMED.into_iter().filter(|it| it != problem);
            let of = |also| Options { also, ..options() };
            assert!(
                !prove_with(&image, &what, &of(others.collect())),
                "{what}: others were"
            );
            assert!(
                prove_with(&image, &what, &of(vec![*problem])),
                "{what}: refused"
            );
            tree(&image, &trees[1]);
            is_kept(&trees[0], &trees[1], but);
        }
    }
}

#[test]
fn damage_is_put_right() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("links", "sif /large links_count 9", &[]),
        ("blocks", "sif /large blocks 8", &[]),
        ("marked", "setb 3001 7", &[]),
        ("freed", "freei /holes", &[]),
        ("free count", "ssv free_inodes_count 7", &[]),
        (
            "group",
            "set_bg 0 free_blocks_count 3\nset_bg 0 checksum calc",
            &[],
        ),
        ("unlinked file", "unlink /holes", &["holes"]),
        ("unlinked directory", "unlink /a/b", &["b"]),
        (
            "several",
            "unlink /pipe\nsif /a links_count 7\nsetb 3001 3",
            &["pipe"],
        ),
        (
            "no lost+found",
            "rmdir /lost+found\nunlink /a/b\nunlink /holes",
            &["b", "holes"],
        ),
        ("lost+found itself", "unlink /lost+found", &[]),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (kind_at, kind) in KINDS.iter().enumerate() {
        let image = make(dir.path(), kind);
        let good = std::fs::read(&image).unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        tree(&image, &first);
        for (case_at, (name, script, but)) in cases.iter().enumerate() {
            // Each case on some kinds, each kind with some cases.
            if !support::is_full() && !(kind_at + case_at).is_multiple_of(3) {
                continue;
            }
            // With clusters the place is taken.
            if kind.0 == "ext4-bigalloc" && script.contains("setb") {
                continue;
            }
            std::fs::write(&image, &good).unwrap();
            damage(&image, script);
            let what = format!("{}, {name}", kind.0);
            let is_known = *name == "free count" || !judge(&image).is_clean;
            assert!(is_known, "{what}: no damage");
            assert!(prove(&image, &what), "{what}: refused");
            let is_done = image.with_extension("undo").exists();
            assert!(is_done || *name == "free count", "{what}: no repair");
            tree(&image, &second);
            is_kept(&first, &second, but);
        }
    }
}

#[test]
fn an_index_is_built_anew() {
    let dir = tempfile::tempdir().unwrap();
    let image = make(dir.path(), &("small", "12M", &["-t", "ext4", "-b", "1024"]));
    build_index_anew(dir.path(), &image, "/many");
}

/// Of names whose case counts not: so they are hashed, too.
#[test]
fn an_index_of_folded_names_is_good_and_is_built_anew() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["-t", "ext4", "-b", "1024", "-O", "casefold"];
    let image = make(dir.path(), &("folding", "12M", &options));
    let fs = FileSystem::open_image(&image).unwrap();
    fs.create_dir("folds").unwrap();
    fs.change_flags("folds", FileFlags::CASEFOLD, FileFlags::empty())
        .unwrap();
    for number in 0..400 {
        let name = format!("folds/A File With A LONGER Name {number}");
        fs.write(name, "").unwrap();
    }
    fs.close().unwrap();
    assert!(judge(&image).is_clean);
    let report = check(&image).unwrap();
    assert!(report.clean, "{report}");
    build_index_anew(dir.path(), &image, "/folds");
}

/// Damages the index of a directory, repairs it, and sees that all is there.
fn build_index_anew(dir: &Path, image: &Path, indexed: &str) {
    let (first, second) = (dir.join("first"), dir.join("second"));
    tree(image, &first);
    let text = run(Command::new("debugfs")
        .args(["-R", &format!("bmap {indexed} 0")])
        .arg(image));
    let root: u64 = text.trim().parse().unwrap();
    let file = std::fs::File::options().write(true).open(image).unwrap();
    // The second entry's hash.
    file.write_at(&[0xfe; 4], root * 1024 + 0x28).unwrap();
    assert!(!judge(image).is_clean);
    assert!(prove(image, "index"), "refused");
    tree(image, &second);
    is_kept(&first, &second, &[]);
    let shown = run(Command::new("debugfs")
        .args(["-R", &format!("htree {indexed}")])
        .arg(image));
    assert!(shown.contains("Number of entries (count)"), "{shown}");
}

#[test]
fn random_damage_is_put_right_or_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let rounds = if support::is_full() { 3000 } else { 60 };
    let seed = std::env::var("FINEFS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    let mut repaired = 0;
    for kind in [&KINDS[0], &KINDS[2], &KINDS[3]] {
        let image = make(dir.path(), kind);
        let good = std::fs::read(&image).unwrap();
        let blocks = good.chunks(1024).enumerate();
        let places: Vec<usize> = blocks
            .filter(|(_, block)| block.iter().any(|byte| *byte != block[0]))
            .map(|(at, _)| at * 1024)
            .collect();
        for round in 0..rounds / 3 {
            let mut bad = good.clone();
            let at = places[random.random_range(0..places.len())] + random.random_range(0..1024);
            bad[at] ^= 1 << random.random_range(0..8);
            std::fs::write(&image, &bad).unwrap();
            let what = format!("{} round {round}, byte {at:#x}", kind.0);
            if finefs_check::check(&device(&image), &options()).is_ok() {
                repaired += u32::from(prove(&image, &what));
            }
        }
    }
    assert!(repaired > rounds / 4, "{repaired} of {rounds}");
}

/// Everything that a repair attached, by inode number.
pub fn attached(image: &Path) -> Vec<String> {
    let listed = run(Command::new("debugfs")
        .args(["-R", "ls -p /lost+found"])
        .arg(image));
    let names = listed.lines().filter_map(|line| line.split('/').nth(5));
    let mut names: Vec<String> = names
        .filter(|it| it.starts_with('#'))
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

/// As e2fsck has it: the name is taken from the file, which is among the lost then.
#[test]
fn a_file_that_is_called_lost_and_found_gives_its_name_away() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "kept").unwrap();
    for kind in [0, 2, 3, 5] {
        let script = format!(
            "rmdir /lost+found\nwrite {} lost+found\nunlink /holes\nunlink /a/b",
            text.display()
        );
        let image = make(dir.path(), &KINDS[kind]);
        damage(&image, &script);
        let what = KINDS[kind].0;
        let theirs = dir.path().join("theirs");
        std::fs::copy(&image, &theirs).unwrap();
        let fixed = Command::new("e2fsck").arg("-fy").arg(&theirs).output();
        assert_eq!(fixed.unwrap().status.code(), Some(1), "{what}");
        assert!(prove(&image, what), "{what}: refused");
        let names = attached(&image);
        assert_eq!(names.len(), 3, "{what}: {names:?}");
        assert_eq!(names, attached(&theirs), "{what}");
        let shown = |name: &String| {
            let request = format!("cat /lost+found/{name}");
            run(Command::new("debugfs").args(["-R", &request]).arg(&image))
        };
        let mut files = names.iter().filter(|name| name.len() > 1);
        assert!(files.any(|name| shown(name) == "kept"), "{what}");
    }
}

/// Kinds whose `lost+found` has one block of 1 KiB; what its entries take of it.
const SMALL: [(&str, &str, &[&str], usize); 3] = [
    ("ext2-small", "12M", &["-t", "ext2", "-b", "1024"], 1024),
    ("ext4-small", "12M", &["-t", "ext4", "-b", "1024"], 1012),
    (
        "inline-small",
        "12M",
        &["-t", "ext4", "-b", "1024", "-I", "512", "-O", "inline_data"],
        1012,
    ),
];

/// Makes one where `lost+found` is full and 400 files and a directory are lost.
fn make_full(dir: &Path, kind: &(&str, &str, &[&str], usize)) -> PathBuf {
    let image = make(dir, &(kind.0, kind.1, kind.2));
    let mut script = "rmdir /lost+found\nmkdir /lost+found\ncd /lost+found\n".to_owned();
    // Behind '.' and '..', which take 24 bytes.
    for (number, length) in [248, 248, 248, kind.3 - 24 - 3 * 256 - 8]
        .iter()
        .enumerate()
    {
        script += &format!("mknod {number:0length$} p\n");
    }
    for number in 0..400 {
        script += &format!("unlink \"/many/a file with a longer name {number}\"\n");
    }
    damage(&image, &(script + "unlink /a/b"));
    image
}

#[test]
fn a_full_lost_and_found_becomes_larger() {
    let dir = tempfile::tempdir().unwrap();
    for kind in &SMALL {
        let image = make_full(dir.path(), kind);
        assert!(prove(&image, kind.0), "{}: refused", kind.0);
        assert_eq!(attached(&image).len(), 401, "{}", kind.0);
    }
}

#[test]
fn a_lost_and_found_with_an_index_takes_what_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let image = make(
        dir.path(),
        &("indexed", "12M", &["-t", "ext4", "-b", "1024"]),
    );
    let nodes = (0..300).map(|number| format!("mknod one-of-many-with-a-longer-name-{number} p\n"));
    damage(
        &image,
        &("cd /lost+found\n".to_owned() + &nodes.collect::<String>()),
    );
    let sorted = Command::new("e2fsck").arg("-fyD").arg(&image).output();
    assert!(sorted.unwrap().status.code().is_some_and(|code| code < 2));
    let lost = (0..300).map(|at| format!("unlink \"/many/a file with a longer name {at}\"\n"));
    damage(&image, &lost.collect::<String>());
    assert!(prove(&image, "with an index"), "refused");
    assert_eq!(attached(&image).len(), 300);
    let index = run(Command::new("debugfs")
        .args(["-R", "htree /lost+found"])
        .arg(&image));
    assert!(index.contains("Number of entries (count)"), "{index}");
}

fn free_blocks(image: &Path) -> usize {
    let shown = run(Command::new("dumpe2fs").arg("-h").arg(image));
    let line = shown.lines().find(|line| line.starts_with("Free blocks:"));
    line.unwrap()
        .split_whitespace()
        .last()
        .unwrap()
        .parse()
        .unwrap()
}

/// What keeps lost+found from becoming larger is told, and nothing is changed.
#[test]
fn without_room_for_what_is_lost_nothing_is_done() {
    let dir = tempfile::tempdir().unwrap();
    for kind in &SMALL[..2] {
        let image = make_full(dir.path(), kind);
        let fill = dir.path().join("fill");
        for number in 0.. {
            let free = free_blocks(&image);
            if free == 0 {
                break;
            }
            // Large files take blocks for their maps, too.
            let blocks = if free > 12 {
                free - free / 100 - 8
            } else {
                free
            };
            std::fs::write(&fill, vec![1; blocks.max(1) * 1024]).unwrap();
            damage(&image, &format!("write {} /fill{number}", fill.display()));
        }
        assert!(!prove(&image, kind.0), "{}", kind.0);
    }
}

/// debugfs changes inodes, and leaves the quota files as they were.
#[test]
fn quotas_are_counted_anew() {
    let dir = tempfile::tempdir().unwrap();
    for block in ["1024", "4096"] {
        let kinds = "quotatype=usrquota:grpquota:prjquota";
        let options = [
            "-t",
            "ext4",
            "-b",
            block,
            "-O",
            "quota,project,orphan_file",
            "-E",
            kinds,
        ];
        let image = make(dir.path(), &("quota", "16M", &options));
        for request in [
            "ls",
            "set_inode_field /large uid 70000",
            "set_inode_field /large gid 5",
            "set_inode_field /holes projid 9",
            "rm /short",
        ] {
            run(Command::new("debugfs")
                .args(["-w", "-R", request])
                .arg(&image));
            let judged = judge(&image);
            let report = check(&image).unwrap();
            let is_about_quota = |finding: &Finding| finding.problem == Problem::QuotaUsage;
            assert_eq!(report.clean, judged.is_clean, "{report}\n{}", judged.text);
            let errors = || report.findings.iter().filter(|finding| finding.is_error());
            assert!(errors().any(is_about_quota), "{request}: {report}");
            assert!(prove(&image, request), "{request} is put right");
        }
        // The root refers to a block behind the file's end.
        let block_bytes: u64 = block.parse().unwrap();
        let request = format!("bmap <3> {}", 1024 / block_bytes);
        let root = run(Command::new("debugfs").args(["-R", &request]).arg(&image));
        let root = root.trim().parse::<u64>().unwrap() * block_bytes + 1024 % block_bytes;
        let file = std::fs::File::options().write(true).open(&image).unwrap();
        file.write_all_at(&[255; 2], root).unwrap();
        assert!(!judge(&image).is_clean);
        let report = check(&image).unwrap();
        let problems: Vec<Problem> = report.findings.iter().map(|f| f.problem).collect();
        assert_eq!(problems, [Problem::Quota], "{report}");
        assert!(!prove(&image, "a damaged quota file"));
    }
}

/// Values of attributes that lie in inodes count for those who have the attributes.
#[test]
fn values_in_inodes_count_for_quotas() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["-t", "ext4", "-b", "1024", "-O", "quota,ea_inode"];
    let image = make(dir.path(), &("values", "16M", &options));
    let value = dir.path().join("value");
    std::fs::write(&value, [b'v'; 5000]).unwrap();
    let change = |request: &str| {
        let mut debugfs = Command::new("debugfs");
        run(debugfs.args(["-w", "-R", request]).arg(&image));
    };
    for file in ["large", "holes"] {
        change(&format!("ea_set -f {} /{file} user.far", value.display()));
    }
    let fixed = Command::new("e2fsck").arg("-fy").arg(&image).output();
    assert_eq!(fixed.unwrap().status.code(), Some(1));
    let report = check(&image).unwrap();
    assert!(report.clean, "{report}");
    change("set_inode_field /large uid 70000");
    let report = check(&image).unwrap();
    assert!(!report.clean && !judge(&image).is_clean, "{report}");
    assert!(prove(&image, "an owner of a value"));
}

#[test]
fn an_undo_file_of_another_image_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let image = make(dir.path(), &KINDS[0]);
    let other = dir.path().join("other");
    std::fs::copy(&image, &other).unwrap();
    run(Command::new("tune2fs").args(["-U", "random"]).arg(&other));
    let before = std::fs::read(&other).unwrap();
    run(Command::new("debugfs")
        .args(["-w", "-R", "sif /large links_count 9"])
        .arg(&image));
    let file = dir.path().join("undo");
    let outcome = repair(&device(&image), &options(), Some(&file)).unwrap();
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    let reason = undo(&file, &device(&other), ChangedSince::Refused).unwrap_err();
    assert!(reason.contains("another file system"), "{reason}");
    assert!(std::fs::read(&other).unwrap() == before);
    undo(&file, &device(&image), ChangedSince::Refused).unwrap();
}

#[test]
fn what_was_changed_since_is_not_undone_unless_that_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let image = make(dir.path(), &KINDS[2]);
    let sif = |what: &str| {
        let request = format!("sif /large {what}");
        run(Command::new("debugfs")
            .args(["-w", "-R", &request])
            .arg(&image));
    };
    sif("links_count 9");
    let before = std::fs::read(&image).unwrap();
    let file = dir.path().join("undo");
    let outcome = repair(&device(&image), &options(), Some(&file)).unwrap();
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    sif("uid 5");
    let changed = std::fs::read(&image).unwrap();
    let reason = undo(&file, &device(&image), ChangedSince::Refused).unwrap_err();
    assert!(reason.contains("was changed since"), "{reason}");
    assert!(std::fs::read(&image).unwrap() == changed);
    let put_back = ChangedSince::PutBack { is_part: false };
    undo(&file, &device(&image), put_back).unwrap();
    assert!(std::fs::read(&image).unwrap() == before);
}

#[test]
fn a_damaged_undo_file_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let image = make(dir.path(), &KINDS[0]);
    let script = dir.path().join("damage");
    std::fs::write(&script, "sif /large links_count 9\n").unwrap();
    run(Command::new("debugfs")
        .args(["-w", "-f"])
        .arg(&script)
        .arg(&image));
    let file = dir.path().join("undo");
    let outcome = repair(&device(&image), &options(), Some(&file)).unwrap();
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    let after = std::fs::read(&image).unwrap();
    let whole = std::fs::read(&file).unwrap();
    for cut in [0, 10, 30, whole.len() - 1] {
        std::fs::write(&file, &whole[..cut]).unwrap();
        undo(&file, &device(&image), ChangedSince::Refused).unwrap_err();
    }
    let mut changed = whole.clone();
    changed[100] ^= 1;
    std::fs::write(&file, &changed).unwrap();
    undo(&file, &device(&image), ChangedSince::Refused).unwrap_err();
    assert!(std::fs::read(&image).unwrap() == after);
    // An undo file that is there is never written over.
    damage(&image, "sif /large links_count 9");
    let damaged = std::fs::read(&image).unwrap();
    repair(&device(&image), &options(), Some(&file)).unwrap_err();
    assert!(std::fs::read(&file).unwrap() == changed);
    assert!(std::fs::read(&image).unwrap() == damaged);
}

#[test]
fn large_files_get_their_feature() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let script = dir.path().join("script");
    for (words, request) in [
        // The resize inode is large.
        ("-b 4096", "feature -large_file\n"),
        (
            "-b 1024 -O ^resize_inode",
            "feature -large_file\nmkdir d\nwrite /dev/null f\nsif f size 2147483648\n",
        ),
        ("-b 1024 -r 0", "write /dev/null f\nsif f size 2147483648\n"),
    ] {
        let _ = std::fs::remove_file(&image);
        run(Command::new("mke2fs")
            .args(["-q", "-F"])
            .args(words.split(' '))
            .arg(&image)
            .arg("16M"));
        std::fs::write(&script, request).unwrap();
        run(Command::new("debugfs")
            .args(["-w", "-f"])
            .arg(&script)
            .arg(&image));
        assert!(!judge(&image).is_clean, "{words}");
        let found = check(&image).unwrap().findings.into_iter();
        let errors: Vec<_> = found
            .filter(Finding::is_error)
            .map(|it| it.problem)
            .collect();
        assert_eq!(errors, [Problem::LargeFile], "{words}");
        assert!(prove(&image, words), "{words}");
    }
}
