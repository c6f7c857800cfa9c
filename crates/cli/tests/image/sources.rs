//! Images of lists of files and of squashfs images; labels of SELinux, kept whiteouts, and layers
//! that are differences.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::round_trip::{seeds, tree};
use crate::support::{Place, assert_clean, assert_same, bytes_of, is_root, snapshot};

#[test]
fn lists_say_all_that_there_is_to_know() {
    let place = Place::new();
    fs::write(place.path("data"), "from a file\n").unwrap();
    let list = "\
# as composefs-dump(5) has it
/ 4096 40750 2 1 2 0 100.5 - - -
/a\\x20dir - 40711 2 3 4 0 200.7 - - - user.key=v\\x00\\\\ trusted.odd=\\x01
/a\\x20dir/file 12 100640 2 5 6 0 300.0 data - -
/a\\x20dir/again - @100640 2 0 0 0 0.0 /a\\x20dir/file - -
/inline 3 104755 1 0 0 0 -7.1 - a\\nb -
/empty 0 100644 1 0 0 0 0.0 - - -
/link 3 120777 1 7 8 0 400.0 a\\x20dir/file - -
/null 0 20666 1 0 0 259 0.0 - - -
/disk 0 60600 1 0 0 2049 0.0 - - -
/pipe 0 10600 1 0 0 0 0.0 - - -
/socket 0 140600 1 0 0 0 0.0 - - -
";
    fs::write(place.path("list"), list).unwrap();
    place.ok(&["build", "-q", "image", "list:list"]);
    assert_clean(&place.path("image"));
    let stat = |path: &str| place.ok(&["stat", "-c", "%F %a %u:%g %h %s %Y %t,%T", path]);
    for (path, wanted) in [
        ("image:/", "directory 750 1:2 4 4096 100 0,0\n"),
        ("image:/a dir", "directory 711 3:4 2 4096 200 0,0\n"),
        ("image:/a dir/again", "regular file 640 5:6 2 12 300 0,0\n"),
        ("image:/inline", "regular file 4755 0:0 1 3 -7 0,0\n"),
        ("image:/empty", "regular empty file 644 0:0 1 0 0 0,0\n"),
        ("image:/link", "symbolic link 777 7:8 1 10 400 0,0\n"),
        ("image:/null", "character special file 666 0:0 1 0 0 1,3\n"),
        ("image:/disk", "block special file 600 0:0 1 0 0 8,1\n"),
        ("image:/pipe", "fifo 600 0:0 1 0 0 0,0\n"),
        ("image:/socket", "socket 600 0:0 1 0 0 0,0\n"),
    ] {
        assert_eq!(stat(path), wanted, "{path}");
    }
    assert_eq!(
        place.ok(&["cat", "image:/link", "image:/inline"]),
        "from a file\na\nb"
    );
    let key = place.ok(&["getfattr", "-e", "hex", "-n", "user.key", "image:/a dir"]);
    assert!(key.contains("user.key=0x76005c"), "{key}");
    for (line, part) in [
        (
            "/x 1 100644 1 0 0 0 0.0 - ab -",
            "list: line 1: its size is 1",
        ),
        ("/x 1 100644 1 0 0 0 0.0", "has 8 fields"),
        ("x 0 100644 1 0 0 0 0.0 - - -", "slash"),
        ("/x 0 100649 1 0 0 0 0.0 - - -", "its mode is '100649'"),
        ("/x 0 100644 1 4294967295 0 0 0.0 - - -", "its owner"),
        ("/x 0 644 1 0 0 0 0.0 - - -", "no kind"),
        ("/x 0 100644 1 0 0 0 now - - -", "its time is 'now'"),
        ("/x 0 @100644 1 0 0 0 0.0 /y - -", "a link to /y"),
        (
            "/x - 100644 1 0 0 0 0.0 nothing - -",
            "nothing: No such file",
        ),
        ("/x 0 100644 1 0 0 0 0.0 - - - key", "without '='"),
        (
            "/x 0 100644 1 0 0 0 0.0 - - - other.key=1",
            "cannot be kept",
        ),
        ("/x\\q 0 100644 1 0 0 0 0.0 - - -", "backslash"),
        (
            "/x - 100644 1 0 0 0 0.0 data - deadbeef",
            "list: line 1: its digest is deadbeef, and that of the data ",
        ),
        ("# nothing", "list: lists no files"),
        ("", "list: lists no files"),
    ] {
        fs::write(place.path("list"), line).unwrap();
        let said = place.fails(1, &["build", "-q", "-F", "image", "list:list"]);
        assert!(
            said.contains(part) && said.lines().count() == 1,
            "{line}: {said}"
        );
    }
    assert_eq!(
        stat("image:/empty"),
        "regular empty file 644 0:0 1 0 0 0,0\n"
    );
}

/// They are those that `fsverity digest` prints.
#[test]
fn digests_of_lists_are_compared() {
    let place = Place::new();
    let empty = "3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";
    let large = "dbe1b6c44240d0b0642a25e6c1d5e399381c87474f3dcda2f3acb9495fa159d6";
    let data: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(place.path("data"), &data).unwrap();
    let path = place.path("data");
    let path = path.to_str().unwrap();
    let line =
        |payload: &str, digest: &str| format!("/x - 100644 1 0 0 0 0.0 {payload} - {digest}");
    for (payload, digest) in [("-", empty), ("data", large), (path, large)] {
        fs::write(place.path("list"), line(payload, digest)).unwrap();
        place.ok(&["build", "-q", "-F", "image", "list:list"]);
        let other = if digest == empty { large } else { empty };
        fs::write(place.path("list"), line(payload, other)).unwrap();
        let said = place.fails(1, &["build", "-q", "-F", "image", "list:list"]);
        let wanted = format!("its digest is {other}, and that of the data {digest}");
        assert!(said.contains(&wanted), "{said}");
    }
    // In the line.
    fs::write(place.path("list"), "/x 1 100644 1 0 0 0 0.0 - a bce75948b9e7510293f8f2720412af9697c1479281323f3f220623fb8e94b557").unwrap();
    place.ok(&["build", "-q", "-F", "image", "list:list"]);
}

#[test]
fn squashfs_images_are_sources() {
    if Command::new("mksquashfs").arg("-version").output().is_err() {
        eprintln!("skipped: needs mksquashfs");
        return;
    }
    let place = Place::new();
    let source = place.path("source");
    fs::create_dir_all(source.join("dir/deep")).unwrap();
    let mut large = vec![7; 700_000];
    large[200_000..500_000].fill(0);
    fs::write(source.join("large"), &large).unwrap();
    fs::write(source.join("dir/small"), "small").unwrap();
    fs::write(source.join("dir/twin"), "small").unwrap();
    fs::hard_link(source.join("dir/small"), source.join("dir/deep/link")).unwrap();
    symlink("../large", source.join("dir/to-large")).unwrap();
    let set = |path: &str, name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(source.join(path), name, value, flags).unwrap();
    };
    // Values of several files that are equal lie in one place, and all of them in several blocks.
    for number in 0..40 {
        let name = format!("dir/{number}");
        fs::write(source.join(&name), &name).unwrap();
        set(&name, "user.shared", &[5; 2500]);
        let own: Vec<u8> = (0..500).map(|at| (at * number % 251) as u8).collect();
        set(&name, "user.own", &own);
        set(&name, "user.empty", b"");
    }
    set("dir", "user.of-directory", b"value");
    set("dir/small", "user.of-both-names", b"value");
    if is_root() {
        set("dir/to-large", "trusted.of-link", b"value");
        set(
            "dir/twin",
            "security.capability",
            b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        );
        std::os::unix::fs::chown(source.join("dir/small"), Some(70_000), Some(5)).unwrap();
        let kind = rustix::fs::FileType::CharacterDevice;
        let mode = rustix::fs::Mode::RUSR;
        let number = rustix::fs::makedev(300, 70_000);
        rustix::fs::mknodat(rustix::fs::CWD, source.join("node"), kind, mode, number).unwrap();
    }
    for packer in ["gzip", "xz", "zstd", "lz4"] {
        let _ = fs::remove_file(place.path("squash"));
        let mut mksquashfs = Command::new("mksquashfs");
        mksquashfs.args(["source", "squash", "-quiet", "-no-progress"]);
        mksquashfs
            .args(["-comp", packer])
            .current_dir(place.path(""));
        let made = mksquashfs.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        place.ok(&["build", "-q", "-F", "image", "squash"]);
        assert_clean(&place.path("image"));
        // squashfs has whole seconds.
        assert_eq!(
            place.ok(&["diff", "--no-mtime", "image", "source"]),
            "",
            "{packer}"
        );
        assert_eq!(place.ok(&["stat", "-c", "%h", "image:/dir/small"]), "2\n");
        let own = ["getfattr", "--only-values", "-n", "user.of-both-names"];
        let own = place.ok(&[&own[..], &["image:/dir/deep/link"]].concat());
        assert_eq!(own, "value");
    }
    let squash = bytes_of(&place.path("squash"));
    // The tables are at the end.
    for at in (squash.len() - 6000..squash.len()).step_by(301) {
        let mut damaged = squash.clone();
        damaged[at] ^= 0x5a;
        fs::write(place.path("damaged"), damaged).unwrap();
        let built = place
            .finefs(&["build", "-q", "-F", "other", "damaged"])
            .output();
        let built = built.unwrap();
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(matches!(built.status.code(), Some(0 | 1)), "{at}: {said}");
        assert!(!said.contains("panicked"), "{at}: {said}");
    }
    fs::write(place.path("cut"), &squash[..squash.len() / 2]).unwrap();
    let said = place.fails(1, &["build", "-q", "-F", "image", "cut"]);
    assert!(
        said.starts_with("finefs: cut: is cut off: it has ") && said.lines().count() == 1,
        "{said}"
    );
    assert_clean(&place.path("image"));
}

/// The kernel and unsquashfs take links as long as a path may be.
#[test]
fn long_links_of_squashfs_images_are_read() {
    if Command::new("mksquashfs").arg("-version").output().is_err() {
        eprintln!("skipped: needs mksquashfs");
        return;
    }
    let place = Place::new();
    let source = place.path("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/file"), vec![9; 300_000]).unwrap();
    for length in [255, 256, 257, 1000, 4095] {
        symlink("t".repeat(length), source.join(length.to_string())).unwrap();
    }
    // The table of inodes has several blocks, before the root and behind it.
    for number in 0..200 {
        let target = format!("{number}{}", "u".repeat(300));
        symlink(target, source.join("dir").join(number.to_string())).unwrap();
    }
    if is_root() {
        let flags = rustix::fs::XattrFlags::empty();
        let link = source.join("1000");
        rustix::fs::lsetxattr(link, "trusted.of-link", b"value", flags).unwrap();
    }
    for packer in ["gzip", "zstd"] {
        let _ = fs::remove_file(place.path("squash"));
        let mut mksquashfs = Command::new("mksquashfs");
        mksquashfs.args([
            "source",
            "squash",
            "-quiet",
            "-no-progress",
            "-comp",
            packer,
        ]);
        let made = mksquashfs.current_dir(place.path("")).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        place.ok(&["build", "-q", "-F", "image", "squash"]);
        assert_clean(&place.path("image"));
        assert_eq!(place.ok(&["diff", "--no-mtime", "image", "source"]), "");
    }
}

#[test]
fn squashfs_images_that_are_not_read_say_why() {
    let place = Place::new();
    let mut head = vec![0; 96];
    head[..4].copy_from_slice(b"hsqs");
    let refused = |bytes: &[u8], wanted: &str| {
        fs::write(place.path("squash"), bytes).unwrap();
        let said = place.fails(1, &["build", "-q", "image", "squash"]);
        assert!(
            said.starts_with(&format!("finefs: squash: {wanted}")),
            "{wanted}: {said}"
        );
        assert!(!said.trim_end().ends_with(':'), "{said}");
    };
    refused(&head[..50], "is cut off: it has 50 bytes");
    (head[28], head[30]) = (3, 1);
    refused(&head, "is squashfs 3.1; 4.0 is supported");
    (head[28], head[30]) = (4, 0);
    for (number, packing) in [(2, "lzma"), (3, "lzo"), (9, "a packing with the number 9")] {
        head[20] = number;
        refused(
            &head,
            &format!("is packed by {packing}, which is not supported; unpack it"),
        );
    }
    head[20] = 1;
    head[40] = 100;
    refused(&head, "is cut off: it has 96 of 100 bytes");
    head[40] = 96;
    refused(&head, "is damaged\n");
}

#[test]
fn labels_are_those_of_file_contexts() {
    let place = Place::new();
    fs::create_dir_all(place.path("source/usr/bin")).unwrap();
    fs::write(place.path("source/usr/bin/sh"), "").unwrap();
    symlink("sh", place.path("source/usr/bin/link")).unwrap();
    fs::write(place.path("source/other"), "").unwrap();
    let contexts = "/.* any_t\n/usr(/.*)? usr_t\n/usr/bin/.* -- bin_t\n/other <<none>>\n";
    fs::write(place.path("contexts"), contexts).unwrap();
    fs::write(place.path("contexts.local"), "/into/other local_t\n").unwrap();
    place.ok(&[
        "build",
        "-q",
        "--free",
        "1m",
        "--file-contexts",
        "contexts",
        "image",
        "source",
    ]);
    assert_clean(&place.path("image"));
    let label = |path: &str| {
        let path = format!("image:{path}");
        let words = [
            "getfattr",
            "-h",
            "--only-values",
            "-n",
            "security.selinux",
            &path,
        ];
        place.finefs(&words).output().unwrap().stdout
    };
    assert_eq!(label("/usr"), b"usr_t\0");
    assert_eq!(label("/usr/bin/sh"), b"bin_t\0");
    assert_eq!(label("/usr/bin/link"), b"usr_t\0");
    assert_eq!(label("/other"), b"");
    place.ok(&["mkdir", "image:/into"]);
    let onto = [
        "build",
        "-q",
        "--onto",
        "--file-contexts",
        "contexts",
        "image:/into",
        "source",
    ];
    place.ok(&onto);
    assert_eq!(label("/into/other"), b"local_t\0");
    assert_eq!(label("/into/usr"), b"any_t\0");
    fs::write(place.path("contexts"), "/x(\tany_t\n").unwrap();
    let build = [
        "build",
        "-q",
        "-F",
        "--file-contexts",
        "contexts",
        "image",
        "source",
    ];
    let said = place.fails(1, &build);
    assert!(said.contains("contexts: line 1"), "{said}");
}

/// An archive of these files; those that end with a slash are directories.
fn archive(path: &Path, files: &[(&str, &str)]) {
    let mut builder = tar::Builder::new(fs::File::create(path).unwrap());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(if name.ends_with('/') { 0o755 } else { 0o644 });
        header.set_size(content.len() as u64);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        builder
            .append_data(&mut header, name, content.as_bytes())
            .unwrap();
    }
    builder.finish().unwrap();
}

#[test]
fn whiteouts_are_kept_as_overlayfs_has_them() {
    let place = Place::new();
    archive(
        &place.path("lower"),
        &[
            ("etc/.wh.gone", ""),
            ("etc/.wh.later/", ""),
            ("var/.wh..wh..opq", ""),
            ("var/a", "a"),
        ],
    );
    archive(
        &place.path("upper"),
        &[
            ("etc/later/", ""),
            ("etc/.wh.twice", ""),
            ("etc/twice/", ""),
            ("opt/.wh.x", ""),
        ],
    );
    let names = ["--whiteouts", "overlayfs", "image", "lower", "upper"];
    place.ok(&[&["build", "-q"], &names[..]].concat());
    assert_clean(&place.path("image"));
    let kind = |path: &str| {
        let path = format!("image:{path}");
        place.ok(&["stat", "-c", "%F %t,%T", &path])
    };
    assert_eq!(kind("/etc/gone"), "character special file 0,0\n");
    assert_eq!(kind("/opt/x"), "character special file 0,0\n");
    let opaque = |path: &str| {
        let path = format!("image:{path}");
        let words = [
            "getfattr",
            "--only-values",
            "-n",
            "trusted.overlay.opaque",
            &path,
        ];
        place.finefs(&words).output().unwrap().stdout
    };
    for path in ["/var", "/etc/later", "/etc/twice"] {
        assert_eq!(opaque(path), b"y", "{path}");
    }
    assert_eq!(opaque("/etc"), b"");
    // By default an archive's names are names.
    place.ok(&["build", "-q", "-F", "image", "lower"]);
    assert_eq!(place.ok(&["ls", "-A", "image:/var"]), ".wh..wh..opq\na\n");
}

/// Applies a layer as the specification says: whiteouts first, then tar(1).
fn apply(layer: &Path, dir: &Path) {
    let listed = Command::new("tar").arg("-tf").arg(layer).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    for name in String::from_utf8(listed.stdout).unwrap().lines() {
        let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
        if let Some(taken) = last.strip_prefix(".wh.") {
            let path = dir.join(above).join(taken);
            match path.is_dir() && !path.is_symlink() {
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
    }
    let mut tar = Command::new("tar");
    tar.args([
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "--numeric-owner",
    ]);
    tar.args(["--exclude=.wh.*", "-xpf"])
        .arg(layer)
        .arg("-C")
        .arg(dir);
    let output = tar.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn layers_make_the_second_tree_of_the_first() {
    let place = Place::new();
    let dir = |name: &str| place.path(name);
    for (file, text) in [
        ("one/etc/kept", "kept"),
        ("one/etc/changed", "old"),
        ("one/etc/gone", "gone"),
        ("one/dir/a", "a"),
        ("one/dir/sub/b", "b"),
        ("one/turns/inside", "x"),
        ("one/linked", "linked"),
    ] {
        fs::create_dir_all(dir(file).parent().unwrap()).unwrap();
        fs::write(dir(file), text).unwrap();
    }
    fs::hard_link(dir("one/linked"), dir("one/etc/link")).unwrap();
    let copied = Command::new("cp")
        .arg("-a")
        .args([dir("one"), dir("two")])
        .status();
    assert!(copied.unwrap().success());
    fs::write(dir("two/etc/changed"), "new").unwrap();
    fs::remove_file(dir("two/etc/gone")).unwrap();
    fs::remove_dir_all(dir("two/dir")).unwrap();
    fs::remove_dir_all(dir("two/turns")).unwrap();
    fs::write(dir("two/turns"), "a file now").unwrap();
    fs::hard_link(dir("two/linked"), dir("two/new-link")).unwrap();
    fs::create_dir(dir("two/new")).unwrap();
    symlink("nowhere", dir("two/new/link")).unwrap();
    for name in ["one", "two"] {
        place.ok(&["build", "-q", &format!("{name}.img"), name]);
    }
    place.ok(&["diff", "--oci", "layer.tar", "one.img", "two.img"]);
    let streamed = place.ok(&["diff", "--oci", "-", "one.img", "two"]);
    assert_eq!(streamed.as_bytes(), bytes_of(&dir("layer.tar")));
    apply(&dir("layer.tar"), &dir("one"));
    assert_same(&snapshot(&dir("two")), &snapshot(&dir("one")));
    // Nothing but what differs, with the directories on the way.
    let listed = place.ok(&["tar", "-tf", "layer.tar"]);
    assert!(
        !listed.contains("kept") && listed.contains(".wh.dir\n"),
        "{listed}"
    );
    assert_eq!(listed.matches(".wh.").count(), 3, "{listed}");
    place.ok(&["diff", "--oci", "layer.tar.gz", "two.img", "two.img"]);
    assert_eq!(place.ok(&["tar", "-tf", "layer.tar.gz"]), "");
    assert!(bytes_of(&dir("layer.tar.gz")).starts_with(&[0x1f, 0x8b]));
    place.fails(2, &["diff", "--oci", "nowhere/layer", "one.img", "two.img"]);
}

/// The time of an image is that of its newest file, in seconds, and its own `lost+found` has it.
#[test]
fn what_an_image_has_of_itself_is_no_difference() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/file"), "same").unwrap();
    for image in ["one.img", "two.img"] {
        place.ok(&["build", "-q", image, "tree"]);
    }
    place.ok(&["touch", "-d", "2001-02-03 04:05:06", "two.img:/lost+found"]);
    for second in ["two.img", "tree"] {
        assert_eq!(place.ok(&["diff", "one.img", second]), "", "{second}");
        place.ok(&["diff", "--oci", "layer.tar", "one.img", second]);
        assert_eq!(place.ok(&["tar", "-tf", "layer.tar"]), "", "{second}");
    }
    place.ok(&["touch", "two.img:/lost+found/file"]);
    let said = place
        .finefs(&["diff", "--no-mtime", "one.img", "two.img"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        "+ /lost+found/file\n"
    );
}

/// Trees that have nothing in common but their top.
#[test]
fn layers_of_random_trees_are_applied() {
    if !is_root() {
        return;
    }
    for seed in 0..seeds() {
        let place = Place::new();
        tree(&place.path("one"), seed);
        tree(&place.path("two"), seed + 1);
        place.ok(&["build", "-q", "one.img", "one"]);
        place.ok(&["build", "-q", "two.img", "two"]);
        place.ok(&["diff", "--oci", "layer", "one.img", "two.img"]);
        place.ok(&["tar", "-cf", "base", "one.img"]);
        // By finefs's own reader of layers.
        crate::containers::layout_of(
            &place.path("oci"),
            &["base", "layer"].map(|name| bytes_of(&place.path(name))),
        );
        place.ok(&["build", "-q", "made", "oci:oci"]);
        assert_clean(&place.path("made"));
        assert_eq!(place.ok(&["diff", "made", "two.img"]), "");
    }
}
