//! Images that are built of directories and archives hold what those hold, and are the same bytes
//! each time; what cannot be built leaves everything as it was.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tar::{EntryType, Header};

use crate::round_trip::{seeds, tree};
use crate::support::{
    KernelMount, Place, assert_clean, assert_same, bytes_of, debugfs, is_root, snapshot,
};

/// An archive of a directory with all that tar can keep.
fn archive(place: &Place, directory: &str, name: &str) -> PathBuf {
    let path = place.path(name);
    let mut tar = Command::new("tar");
    tar.args([
        "--format=posix",
        "--acls",
        "--xattrs",
        "--xattrs-include=*",
        "-S",
    ]);
    tar.args(["--numeric-owner", "-cf"]).arg(&path);
    let made = tar
        .arg("-C")
        .arg(place.path(directory))
        .arg(".")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    path
}

/// Name, kind, and what it links to.
pub type Odd<'a> = (&'a str, EntryType, &'a str);

/// An archive of entries that no archiver makes.
pub fn odd_archive(path: &Path, entries: &[Odd<'_>]) {
    let mut builder = tar::Builder::new(File::create(path).unwrap());
    for (name, kind, link) in entries {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        let data: &[u8] = match kind {
            EntryType::Regular => b"odd",
            _ => b"",
        };
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.finish().unwrap();
}

#[test]
fn images_hold_what_directories_and_archives_hold() {
    for seed in 0..seeds() {
        let place = Place::new();
        tree(&place.path("source"), seed);
        archive(&place, "source", "tar");
        let kind = ["ext4", "ext3", "ext2"][seed as usize % 3];
        let before = snapshot(&place.path("source"));
        for source in ["source", "tar"] {
            place.ok(&[
                "build", "-q", "-F", "-t", kind, "-I", "256", "image", source,
            ]);
            assert_clean(&place.path("image"));
            if is_root() {
                let mount = KernelMount::new(&place, &place.path("image"), "ro");
                assert_same(&before, &snapshot(&mount.dir));
            }
        }
        for packer in ["gzip", "zstd", "xz"] {
            let packed = Command::new(packer)
                .arg("-c")
                .arg(place.path("tar"))
                .output()
                .unwrap();
            assert!(packed.status.success(), "{packer}");
            fs::write(place.path("packed"), packed.stdout).unwrap();
            place.ok(&["build", "-q", "-t", kind, "-I", "256", packer, "packed"]);
            assert!(
                bytes_of(&place.path(packer)) == bytes_of(&place.path("image")),
                "{packer}"
            );
        }
    }
}

#[test]
fn all_ways_to_store_holes_in_archives_are_read() {
    let place = Place::new();
    fs::create_dir(place.path("source")).unwrap();
    let file = File::create(place.path("source/holes")).unwrap();
    for piece in 0..200_u64 {
        let data = vec![b'd'; 4096];
        std::os::unix::fs::FileExt::write_all_at(&file, &data, piece * 20_480).unwrap();
    }
    file.set_len(5_000_000).unwrap();
    for format in [
        &["--format=gnu"][..],
        &["--sparse-version=0.0"],
        &["--sparse-version=0.1"],
        &["--sparse-version=1.0"],
    ] {
        let mut tar = Command::new("tar");
        tar.arg("-S").args(format).arg("-cf").arg(place.path("tar"));
        let made = tar
            .arg("-C")
            .arg(place.path("source"))
            .arg(".")
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        place.ok(&["build", "-q", "-F", "image", "tar"]);
        place.ok(&["cp", "image:/holes", "out"]);
        assert!(
            bytes_of(&place.path("out")) == bytes_of(&place.path("source/holes")),
            "{format:?}"
        );
        let blocks = place.ok(&["stat", "-c", "%b", "image:/holes"]);
        let sectors: u64 = blocks.trim().parse().unwrap();
        assert!(sectors <= 200 * 8 + 16, "{format:?}: {sectors}");
    }
}

#[test]
fn the_same_files_make_the_same_bytes() {
    let place = Place::new();
    let source = place.path("source");
    tree(&source, 42);
    for number in 0..3000 {
        fs::write(
            source.join(format!("one-of-many-{number}")),
            format!("{number}"),
        )
        .unwrap();
    }
    place.ok(&["build", "-q", "first", "source"]);
    let copied = Command::new("cp")
        .arg("-a")
        .arg(&source)
        .arg(place.path("copy"))
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?}");
    for (jobs, zone, mask) in [
        ("1", "UTC", 0),
        ("2", "Asia/Tokyo", 0o77),
        ("5", "UTC", 0o22),
    ] {
        let mut command = Command::new("sh");
        let script =
            format!("umask {mask:o}; exec \"$FINEFS\" build -q -F --jobs {jobs} again copy/");
        command.arg("-c").arg(script).current_dir(place.path(""));
        command
            .env("FINEFS", env!("CARGO_BIN_EXE_finefs"))
            .env("TZ", zone);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(
            bytes_of(&place.path("first")) == bytes_of(&place.path("again")),
            "{jobs} jobs"
        );
    }
    // Others are told apart.
    fs::write(source.join("one-of-many-0"), "changed").unwrap();
    place.ok(&["build", "-q", "other", "source"]);
    let uuid = |image| {
        debugfs(&place.path(image), "stats")
            .lines()
            .find(|line| line.contains("UUID"))
            .map(str::to_owned)
    };
    assert_ne!(uuid("first"), uuid("other"));
}

#[test]
fn later_sources_are_laid_over_earlier_ones() {
    let place = Place::new();
    for dir in ["base/usr/lib", "base/old", "more/lib/sub", "more/old"] {
        fs::create_dir_all(place.path(dir)).unwrap();
    }
    symlink("usr/lib", place.path("base/lib")).unwrap();
    for (file, text) in [
        ("base/usr/lib/a", "a"),
        ("base/usr/lib/b", "b"),
        ("more/lib/b", "new"),
        ("base/old/x", "x"),
    ] {
        fs::write(place.path(file), text).unwrap();
    }
    fs::hard_link(place.path("base/usr/lib/b"), place.path("base/usr/lib/c")).unwrap();
    odd_archive(
        &place.path("tar"),
        &[
            ("lib/from-tar", EntryType::Regular, ""),
            ("lib/link", EntryType::Link, "lib/a"),
            ("old/x", EntryType::Symlink, "elsewhere"),
        ],
    );
    place.ok(&["build", "-q", "image", "base", "more", "tar"]);
    assert_clean(&place.path("image"));
    let cat = |file: &str| place.ok(&["cat", &format!("image:{file}")]);
    assert_eq!(cat("/usr/lib/b"), "new");
    assert_eq!(cat("/usr/lib/c"), "b");
    assert_eq!(cat("/usr/lib/from-tar"), "odd");
    assert_eq!(cat("/usr/lib/link"), "a");
    assert_eq!(
        place.ok(&["ls", "image:/usr/lib"]),
        "a\nb\nc\nfrom-tar\nlink\nsub\n"
    );
    assert_eq!(
        place.ok(&["stat", "-c", "%F %h", "image:/old/x"]),
        "symbolic link 1\n"
    );
    assert_eq!(place.ok(&["stat", "-c", "%h", "image:/usr/lib/a"]), "2\n");
}

#[test]
fn owners_and_times_are_those_that_are_asked_for() {
    let place = Place::new();
    fs::create_dir(place.path("source")).unwrap();
    let file = File::create(place.path("source/file")).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 5);
    file.set_modified(time).unwrap();
    let owner = fs::metadata(place.path("source")).unwrap().uid();
    let stat = |path: &str| place.ok(&["stat", "-c", "%u:%g %Y", &format!("image:{path}")]);
    let build = |more: &[&str]| {
        let mut words = vec!["build", "-q", "-F", "image", "source"];
        words.extend(more);
        place.ok(&words);
    };
    build(&["--owner", "7:8", "--root-owner", "9:10"]);
    assert_eq!(stat("/file"), "7:8 1500000000\n");
    assert!(stat("/").starts_with("9:10 "));
    build(&["-E", "root_owner=11:12"]);
    assert!(stat("/").starts_with("11:12 "));
    build(&["--map-users", &format!("{owner}:100000:5")]);
    assert!(stat("/file").starts_with("100000:"));
    let mut command = place.finefs(&["build", "-q", "-F", "image", "source"]);
    assert!(
        command
            .env("SOURCE_DATE_EPOCH", "1000000000")
            .status()
            .unwrap()
            .success()
    );
    assert!(stat("/file").ends_with(" 1000000000\n"));
    let all = debugfs(&place.path("image"), "stat /file");
    for field in ["ctime", "atime", "mtime", "crtime"] {
        let is_it = |line: &str| {
            line.trim_start().starts_with(field) && line.contains("0x3b9aca00:00000000")
        };
        assert!(all.lines().any(is_it), "{field}: {all}");
    }
}

#[test]
fn what_does_not_fit_says_by_how_much() {
    let place = Place::new();
    fs::create_dir(place.path("source")).unwrap();
    for number in 0..20 {
        fs::write(
            place.path("source").join(format!("{number}")),
            vec![1; 1 << 20],
        )
        .unwrap();
    }
    fs::write(place.path("image"), "old").unwrap();
    let said = place.fails(
        1,
        &["build", "-q", "-F", "--size", "16m", "image", "source"],
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let size = said
        .split("--size ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .unwrap();
    assert_eq!(fs::read(place.path("image")).unwrap(), b"old");
    place.ok(&["build", "-q", "-F", "--size", size, "image", "source"]);
    assert_clean(&place.path("image"));
    // What is computed has little to spare, and as much as is asked for.
    for (free, least, most) in [
        ("0", 0, 3 << 20),
        ("50m", 50 << 20, 54 << 20),
        ("100%", 20 << 20, 24 << 20),
    ] {
        let json = place.ok(&["build", "-F", "--json", "--free", free, "image", "source"]);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let left = value["free_blocks"].as_u64().unwrap() * value["block_size"].as_u64().unwrap();
        assert!((least..most).contains(&left), "{free}: {left}");
        assert_eq!(value["data_bytes"], 20 << 20);
        assert_clean(&place.path("image"));
    }
    let said = place.fails(1, &["build", "-q", "-F", "-N", "16", "image", "source"]);
    assert!(said.contains("inodes are needed"), "{said}");
    let names = fs::read_dir(place.path("")).unwrap().count();
    assert_eq!(names, 2, "something was left");
}

/// Files fill the computed size, whatever they are.
#[test]
fn computed_sizes_are_large_enough() {
    let place = Place::new();
    let shapes: [(&str, u64, usize); 4] = [
        ("few", 1, 1),
        ("small", 4000, 1),
        ("names", 6000, 0),
        ("large", 3, 30 << 20),
    ];
    for (shape, count, length) in shapes {
        let source = place.path(shape);
        fs::create_dir(&source).unwrap();
        for number in 0..count {
            let name = match shape {
                "names" => format!("{number:0>200}"),
                _ => format!("{number}"),
            };
            fs::write(source.join(name), vec![7; length]).unwrap();
        }
        for words in [
            &["-t", "ext4"][..],
            &["-t", "ext2"],
            &["-t", "ext3", "-b", "1024"],
            &["-b", "2048", "-I", "128"],
            &["-O", "bigalloc"],
            &["-O", "bigalloc", "-C", "262144"],
            &["-b", "65536"],
            &["-m", "40"],
        ] {
            let mut all = vec!["build", "-q", "-F", "image", shape];
            all.extend(words);
            place.ok(&all);
            assert_clean(&place.path("image"));
        }
    }
}

#[test]
fn odd_archives_stay_inside_or_are_refused() {
    let place = Place::new();
    fs::write(place.path("outside"), "as it was").unwrap();
    odd_archive(
        &place.path("tar"),
        &[
            ("../outside", EntryType::Regular, ""),
            ("/abs/../absolute", EntryType::Regular, ""),
            ("up", EntryType::Symlink, "../.."),
            ("up/through", EntryType::Regular, ""),
        ],
    );
    place.ok(&["build", "-q", "image", "tar"]);
    assert_eq!(fs::read(place.path("outside")).unwrap(), b"as it was");
    assert_clean(&place.path("image"));
    odd_archive(
        &place.path("dots"),
        &[
            ("d/e/..", EntryType::Directory, ""),
            ("d/socket", EntryType::new(b'Q'), ""),
        ],
    );
    // What is no file is said, and the status is that of a failure.
    for words in [
        &["build", "-q", "dots-image", "dots"][..],
        &[
            "mkfs",
            "-q",
            "--size",
            "8m",
            "-d",
            "dots",
            "dots-image-of-mkfs",
        ],
    ] {
        let said = place.fails(1, words);
        assert!(said.contains("d/socket: entries of type 'Q'"), "{said}");
    }
    assert_eq!(
        place.ok(&["stat", "-c", "%a", "dots-image:/d"]),
        "644\n",
        "d/e/.. is d"
    );
    for file in ["outside", "absolute", "through"] {
        assert_eq!(place.ok(&["cat", &format!("image:/{file}")]), "odd");
    }
    let before = bytes_of(&place.path("image"));
    let long = "n".repeat(99);
    let refused: &[(&[Odd<'_>], &str)] = &[
        (&[("x", EntryType::Link, "missing")], "x: a link to missing"),
        (
            &[
                ("d/f", EntryType::Regular, ""),
                ("d", EntryType::Regular, ""),
            ],
            "d: would replace a directory",
        ),
        (
            &[
                ("turn", EntryType::Symlink, "turn"),
                ("turn/f", EntryType::Regular, ""),
            ],
            "turn/f: too many symbolic links",
        ),
        (
            &[
                ("f", EntryType::Regular, ""),
                ("f/g", EntryType::Regular, ""),
            ],
            "f/g: leads through a file",
        ),
        (
            &[(&long, EntryType::Symlink, "")],
            "a symbolic link to nothing",
        ),
        (
            &[("d", EntryType::Directory, ""), ("l", EntryType::Link, "d")],
            "a hard link to a directory",
        ),
    ];
    for (entries, part) in refused {
        odd_archive(&place.path("bad"), entries);
        refuse(&place, part, &before);
    }
    let tar = bytes_of(&place.path("tar"));
    for (bytes, part) in [
        (&b"no archive at all"[..], "is no tar archive"),
        (&tar[..tar.len() - 2 * 512 - 600], "damaged behind entry"),
        (&[7; 4096][..], "is no tar archive"),
        // Fields that are no numbers, with lines in them.
        (&b"\n\x1b\xf0"[..].repeat(1400), "is no tar archive"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\x03cut", "cannot be unpacked"),
        (b"\x28\xb5\x2f\xfd\xff\xff\xff", "cannot be unpacked"),
        (b"\xfd7zXZ\0\0\x04cut", "cannot be unpacked"),
    ] {
        fs::write(place.path("bad"), bytes).unwrap();
        refuse(&place, part, &before);
    }
    let said = place.fails(1, &["build", "-q", "-F", "image", "nothing"]);
    assert!(said.contains("nothing: No such file"), "{said}");
}

/// An archive of one empty file `f` with these extended attributes.
fn archive_with_xattrs(path: &Path, xattrs: &[(&str, usize)]) {
    let mut builder = tar::Builder::new(File::create(path).unwrap());
    let records: Vec<(String, Vec<u8>)> = xattrs
        .iter()
        .map(|(name, bytes)| (format!("SCHILY.xattr.{name}"), vec![b'v'; *bytes]))
        .collect();
    let records = records
        .iter()
        .map(|(key, value)| (key.as_str(), &value[..]));
    builder.append_pax_extensions(records).unwrap();
    let mut header = Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(0);
    builder.append_data(&mut header, "f", &b""[..]).unwrap();
    builder.finish().unwrap();
}

/// Also where the size is computed: no size makes room for them.
#[test]
fn attributes_without_room_are_left_out_with_a_line() {
    let place = Place::new();
    let lines = |said: &str| said.lines().map(str::to_owned).collect::<Vec<_>>();
    archive_with_xattrs(&place.path("sum"), &[("user.a", 3000), ("user.b", 3001)]);
    let said = place.fails(1, &["build", "-q", "image", "sum"]);
    let wanted = "finefs: left out: /f: attribute user.b of 3001 bytes, \
                  more than a block of the image holds beside the others";
    assert_eq!(lines(&said), [wanted]);
    assert_clean(&place.path("image"));
    let kept = place.ok(&["getfattr", "--only-values", "-n", "user.a", "image:/f"]);
    assert_eq!(kept.trim_end().len(), 3000);
    // The same into an image that is there.
    place.image_with("there", 16, &["-t", "ext4", "-b", "4096"]);
    let said = place.fails(2, &["tar", "-xf", "sum", "there"]);
    assert!(said.contains("user.b of 3001 bytes"), "{said}");
    place.ok(&["getfattr", "-n", "user.a", "there:/f"]);
    assert_clean(&place.path("there"));
    // Values may have inodes of their own.
    archive_with_xattrs(&place.path("long"), &[("user.a", 40_000), ("user.b", 3001)]);
    place.ok(&["build", "-q", "-O", "ea_inode", "ea", "long"]);
    place.ok(&["getfattr", "-n", "user.a", "ea:/f"]);
    place.ok(&["getfattr", "-n", "user.b", "ea:/f"]);
    assert_clean(&place.path("ea"));
    archive_with_xattrs(&place.path("longer"), &[("user.a", 65_537)]);
    let said = place.fails(1, &["build", "-q", "-F", "-O", "ea_inode", "ea", "longer"]);
    assert!(said.contains("user.a of 65537 bytes"), "{said}");
    // Those of other systems.
    archive_with_xattrs(&place.path("other"), &[("com.apple.x", 3), ("user.a", 3)]);
    let said = place.fails(1, &["build", "-q", "-F", "image", "other"]);
    let wanted = "finefs: left out: other: f: attribute com.apple.x: of no kind of Linux's";
    assert_eq!(lines(&said), [wanted]);
    place.ok(&["getfattr", "-n", "user.a", "image:/f"]);
    // What Linux refuses.
    let wrong = [("user.", 3), ("system.posix_acl_access", 2), ("user.a", 3)];
    archive_with_xattrs(&place.path("wrong"), &wrong);
    let said = place.fails(1, &["build", "-q", "-F", "image", "wrong"]);
    let wanted = [
        "finefs: left out: /f: attribute system.posix_acl_access: is no ACL",
        "finefs: left out: /f: attribute user.: has no name behind its first part",
    ];
    assert_eq!(lines(&said), wanted);
    place.ok(&["getfattr", "-n", "user.a", "image:/f"]);
}

#[test]
fn numbers_and_links_that_an_image_cannot_hold_change_nothing() {
    let place = Place::new();
    place.image_with("image", 16, &["-t", "ext4", "-b", "1024"]);
    let before = bytes_of(&place.path("image"));
    let archive = |kind, change: &dyn Fn(&mut Header)| {
        let mut builder = tar::Builder::new(File::create(place.path("bad")).unwrap());
        for name in ["aaa", "bad"] {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(0);
            if name == "bad" {
                header.set_entry_type(kind);
                change(&mut header);
            }
            builder.append_data(&mut header, name, &b""[..]).unwrap();
        }
        builder.finish().unwrap();
    };
    let refused = |part: &str| {
        for words in [
            &["build", "-q", "-b", "1024", "new", "bad"][..],
            &["tar", "-xf", "bad", "image"],
        ] {
            let status = if words[0] == "tar" { 2 } else { 1 };
            let said = place.fails(status, words);
            assert!(said.contains(part) && said.lines().count() == 1, "{said}");
        }
        assert!(!place.path("new").exists());
        assert!(bytes_of(&place.path("image")) == before, "{part}");
    };
    for (major, minor) in [(5000, 0), (1, 1 << 20)] {
        archive(EntryType::Char, &|header| {
            header.set_device_major(major).unwrap();
            header.set_device_minor(minor).unwrap();
        });
        refused(&format!(
            "bad: a device {major}:{minor}; 4095:1048575 are the largest"
        ));
    }
    // 2^80 bytes.
    archive(EntryType::Regular, &|header| {
        header.as_old_mut().size = [0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    });
    refused("behind entry 1: a size that no file has");
    for kind in [EntryType::XHeader, EntryType::GNULongName] {
        archive(kind, &|header| header.set_size(3 << 30));
        refused("an extended header of 3221225472 bytes");
    }
    let mut builder = tar::Builder::new(File::create(place.path("bad")).unwrap());
    for name in ["aaa", "bad"] {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        let target = "t".repeat(if name == "bad" { 1024 } else { 1023 });
        builder.append_link(&mut header, name, target).unwrap();
    }
    builder.finish().unwrap();
    refused("/bad: a symbolic link of 1024 bytes; the image holds 1023");
}

fn refuse(place: &Place, part: &str, before: &[u8]) {
    let said = place.fails(1, &["build", "-q", "-F", "image", "bad"]);
    assert!(
        said.contains(part) && said.lines().count() == 1,
        "{part}: {said}"
    );
    assert!(bytes_of(&place.path("image")) == before, "{part}");
    let is_left = |name: &str| name.starts_with(".image");
    let names = fs::read_dir(place.path("")).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!names.any(|name| is_left(&name)), "{part}");
}

#[test]
fn what_is_there_is_replaced_only_by_force_and_keeps_its_permissions() {
    let place = Place::new();
    fs::create_dir(place.path("source")).unwrap();
    place.ok(&["build", "-q", "image", "source"]);
    place.ok(&["build", "-q", &"n".repeat(255), "source"]);
    let said = place.fails(1, &["build", "-q", "image", "source"]);
    assert!(said.contains("--force"), "{said}");
    fs::set_permissions(place.path("image"), PermissionsExt::from_mode(0o640)).unwrap();
    place.ok(&["build", "-q", "--force", "image", "source"]);
    assert_eq!(
        fs::metadata(place.path("image")).unwrap().mode() & 0o777,
        0o640
    );
    let said = place.fails(1, &["build", "-q", "--force", "source", "source"]);
    assert!(said.contains("no regular file"), "{said}");
    // What is in use stays: its users would go on in a file without a name.
    let user = finefs::FileSystem::open_image(place.path("image")).unwrap();
    for command in [
        &["build", "-q", "--force", "image", "source"][..],
        &["convert", "-q", "--force", "-O", "raw", "other", "image"],
    ] {
        fs::copy(place.path("image"), place.path("other")).unwrap();
        let said = place.fails(1, command);
        assert!(said.contains("image: already in use"), "{said}");
    }
    user.create("precious").unwrap();
    user.close().unwrap();
    assert!(place.ok(&["ls", "image:/"]).contains("precious"));
    // A link leads to what is replaced, and stays one.
    std::os::unix::fs::symlink("image", place.path("link")).unwrap();
    fs::write(place.path("image"), "old").unwrap();
    place.ok(&["build", "-q", "-F", "link", "source"]);
    assert!(place.path("link").is_symlink());
    assert_clean(&place.path("image"));
    std::os::unix::fs::symlink("nothing", place.path("dangling")).unwrap();
    let said = place.fails(2, &["tar", "-cf", "dangling", "image"]);
    assert!(said.contains("dangling: No such file"), "{said}");
    assert!(place.path("dangling").is_symlink());
}

/// Nothing writes to it, so that its open alone could wait forever.
#[test]
fn a_pipe_that_nobody_writes_to_can_be_given_up() {
    let place = Place::new();
    let pipe = place.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    for source in ["pipe", "list:pipe"] {
        let mut child = place
            .finefs(&["build", "-q", "image", source])
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let status = format!("/proc/{}/status", child.id());
        let catches_interrupts = || {
            let text = fs::read_to_string(&status).unwrap();
            let mask = text.split("SigCgt:").nth(1).unwrap();
            let mask = mask.split_whitespace().next().unwrap();
            u64::from_str_radix(mask, 16).unwrap() & 1 << (libc::SIGINT - 1) != 0
        };
        while !catches_interrupts() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // One is enough.
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{source}");
        assert!(!place.path("image").exists());
    }
    let line = "/f 0 100644 1 0 0 0 0.0 - - -\n";
    let writer = std::thread::spawn(move || fs::write(pipe, line).unwrap());
    place.ok(&["build", "-q", "image", "list:pipe"]);
    writer.join().unwrap();
    assert_eq!(place.ok(&["ls", "image:/f"]), "image:/f\n");
}

/// The same bytes as in a file, and nothing beside them.
#[test]
fn images_go_to_standard_output() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/file"), "content").unwrap();
    place.ok(&["build", "-q", "image", "tree"]);
    fs::create_dir(place.path("large")).unwrap();
    fs::write(place.path("large/file"), vec![1; 4 << 20]).unwrap();
    let temporary = place.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let streamed = |words: &[&str]| {
        let mut command = place.finefs(words);
        let output = command.env("TMPDIR", &temporary).output().unwrap();
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        assert!(!place.path("-").exists());
        output
    };
    let output = streamed(&["build", "-q", "-", "tree"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == bytes_of(&place.path("image")));
    assert!(output.stderr.is_empty(), "{output:?}");
    for (words, part) in [
        (
            &["build", "-", "nothing"][..],
            "finefs: nothing: No such file",
        ),
        (
            &["build", "--json", "-", "tree"],
            "--json: standard output has the image",
        ),
        (
            &["build", "--size", "2m", "-", "large"],
            "finefs: standard output: the files do not fit",
        ),
    ] {
        let output = streamed(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(
            output.stdout.is_empty() && said.contains(part),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn an_interrupted_build_leaves_nothing() {
    let place = Place::new();
    fs::create_dir(place.path("source")).unwrap();
    for number in 0..400 {
        let mut file = File::create(place.path("source").join(format!("{number}"))).unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
    }
    let mut child = place
        .finefs(&["build", "-q", "image", "source"])
        .spawn()
        .unwrap();
    let beside = place.path(&format!(".image.finefs-{}", child.id()));
    while !beside.exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_child(&child);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let status = child.wait().unwrap();
    assert!(!beside.exists());
    // It may have been done already.
    assert_eq!(status.success(), place.path("image").exists());
    assert!(status.success() || status.code() == Some(130), "{status}");
}

#[test]
fn mke2fs_d_fills_images() {
    let place = Place::new();
    tree(&place.path("source"), 3);
    archive(&place, "source", "tar");
    let link = place.path("mkfs.ext4");
    symlink(env!("CARGO_BIN_EXE_finefs"), &link).unwrap();
    for source in ["source", "tar"] {
        let image = place.path(&format!("image-of-{source}"));
        File::create(&image).unwrap().set_len(300 << 20).unwrap();
        let mut mkfs = Command::new(&link);
        mkfs.args(["-q", "-b", "4096", "-L", "label", "-d"])
            .arg(place.path(source));
        let output = mkfs.arg(&image).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_clean(&image);
        assert_eq!(fs::metadata(&image).unwrap().len(), 300 << 20);
        if is_root() {
            let mount = KernelMount::new(&place, &image, "ro");
            assert_same(&snapshot(&place.path("source")), &snapshot(&mount.dir));
        }
    }
    let said = place.fails(1, &["mkfs", "-q", "--size", "1m", "-d", "source", "small"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!place.path("small").exists());
}
