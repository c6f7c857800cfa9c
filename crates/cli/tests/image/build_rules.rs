//! What builds compute, leave out and refuse, beside what [`crate::build`] has.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use tar::{EntryType, Header};

use crate::containers::{layer, layout_of};
use crate::round_trip::tree;
use crate::support::{Place, assert_clean, bytes_of, debugfs, is_root, run_in};

/// A tree of one small file, in `source`.
fn small(place: &Place) {
    fs::create_dir(place.path("source")).unwrap();
    fs::write(place.path("source/file"), "content").unwrap();
}

/// libarchive writes the mode without the ACL's mask.
#[test]
fn access_acls_of_archives_decide_over_modes() {
    let place = Place::new();
    let mut builder = tar::Builder::new(File::create(place.path("tar")).unwrap());
    let acl = "user::rwx,group::r-x,other::r-x,user:joe:rwx:1234,group:g:r-x:77,mask::rwx";
    let short = "user::rw-,group::r--,other::---";
    for (name, kind, mode, acl) in [
        ("dir", EntryType::Directory, 0o1755, acl),
        ("file", EntryType::Regular, 0o4755, acl),
        ("short", EntryType::Regular, 0o755, short),
    ] {
        let record = [("SCHILY.acl.access", acl.as_bytes())];
        builder.append_pax_extensions(record).unwrap();
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(0);
        builder.append_data(&mut header, name, &b""[..]).unwrap();
    }
    builder.finish().unwrap();
    place.ok(&["build", "-q", "image", "tar"]);
    place.image("there", "ext4", 16);
    place.ok(&["build", "-q", "--onto", "there", "tar"]);
    for image in ["image", "there"] {
        assert_clean(&place.path(image));
        let stat = |name: &str| place.ok(&["stat", "-c", "%a", &format!("{image}:/{name}")]);
        assert_eq!(stat("dir"), "1775\n");
        assert_eq!(stat("file"), "4775\n");
        assert_eq!(stat("short"), "640\n");
        for name in ["dir", "file"] {
            let file = format!("{image}:/{name}");
            let words = [
                "getfattr",
                "-e",
                "hex",
                "-n",
                "system.posix_acl_access",
                &file,
            ];
            let value = place.ok(&words);
            // The mask.
            assert!(value.contains("10000700ffffffff"), "{value}");
        }
    }
}

#[test]
fn a_journal_that_is_asked_for_is_made_and_one_that_is_not_made_is_told() {
    let place = Place::new();
    small(&place);
    let has_journal = || {
        assert_clean(&place.path("image"));
        debugfs(&place.path("image"), "features").contains("has_journal")
    };
    for words in [
        &["-t", "ext3"][..],
        &["-j"],
        &["-t", "ext2", "-j", "-b", "1024"],
        &["-O", "has_journal"],
    ] {
        let build = ["build", "-F", "image", "source"];
        place.ok(&[&build[..], words].concat());
        assert!(has_journal(), "{words:?}");
        // As large as it must be.
        let length = fs::metadata(place.path("image")).unwrap().len();
        assert!(length < 10 << 20, "{words:?}: {length}");
    }
    let note = "finefs: image: too small for a journal: made without\n";
    for words in [&[][..], &["-t", "ext3", "--size", "2m"], &["--json"]] {
        let build = ["build", "-F", "image", "source"];
        let built = place
            .finefs(&[&build[..], words].concat())
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        assert_eq!(String::from_utf8_lossy(&built.stderr), note, "{words:?}");
        assert!(!has_journal(), "{words:?}");
    }
    let built = place.finefs(&["build", "-", "source"]).output().unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert_eq!(said, note.replace("image", "standard output"));
    for words in [
        &["-q"][..],
        &["-t", "ext2"],
        &["-O", "^has_journal"],
        &["-q", "-t", "ext3"],
    ] {
        place.ok(&[&["build", "-F", "image", "source"][..], words].concat());
    }
}

/// Other formats are named, and what reads them.
#[test]
fn what_is_no_tar_archive_is_told_what_it_is() {
    let place = Place::new();
    let said_of = |bytes: &[u8]| {
        fs::write(place.path("file"), bytes).unwrap();
        let said = place.fails(1, &["build", "-q", "image", "file"]);
        assert_eq!(said.lines().count(), 1, "{said}");
        let output = place.with_input(&["build", "-q", "image", "-"], bytes);
        let streamed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !place.path("image").exists());
        (said, streamed)
    };
    for (start, part) in [
        (
            &b"BZh91AY&SY"[..],
            "is packed by bzip2, which is not supported; unpack it first (bzip2",
        ),
        (b"\x04\x22\x4d\x18d@", "is packed by lz4"),
        (b"\x5d\0\0\x80\0\xff\xff", "is packed by lzma"),
        (b"LZIP\x01", "is packed by lzip"),
        (b"\x1f\x9d\x90", "is packed by compress"),
        (b"070701000", "is a cpio archive"),
        (b"\xc7\x71", "is a cpio archive"),
        (b"PK\x03\x04", "is a zip archive"),
    ] {
        for length in [100, 4000] {
            let mut bytes = start.to_vec();
            bytes.resize(length, 7);
            let (said, streamed) = said_of(&bytes);
            assert!(said.starts_with(&format!("finefs: file: {part}")), "{said}");
            assert_eq!(streamed, said.replace("file: ", "standard input: "));
        }
    }
    // The same in what is packed.
    let mut gzip = Command::new("gzip");
    let mut packed = gzip
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut packed.stdin.take().unwrap(), b"070701000").unwrap();
    let packed = packed.wait_with_output().unwrap().stdout;
    assert_eq!(said_of(&packed).0, said_of(b"070701000").0);
    let (said, streamed) = said_of(&[b'x'; 3000]);
    assert_eq!(said, "finefs: file: is no tar archive\n");
    let wanted = "finefs: standard input: is no tar archive, and nothing else is read from it\n";
    assert_eq!(streamed, wanted);
    let output = place.with_input(
        &["build", "-q", "image", "-"],
        &[&b"hsqs"[..], &[7; 3000]].concat(),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("is a squashfs image, which is read from a file only"),
        "{said}"
    );
}

#[test]
fn other_transports_and_container_images_that_are_not_named_so_are_told() {
    let place = Place::new();
    small(&place);
    for transport in ["docker-daemon", "dir", "containers-storage"] {
        let name = format!("{transport}:foo");
        let said = place.fails(1, &["build", "-q", "image", &name]);
        let reason = format!("images of the transport {transport}: are not read; skopeo copy");
        assert!(
            said.starts_with(&format!("finefs: {name}: {reason} {name} oci:DIR")),
            "{said}"
        );
    }
    for transport in ["oci:", "oci-archive:", "docker-archive:"] {
        let said = place.fails(1, &["build", "-q", "image", transport]);
        assert!(
            said.starts_with(&format!("finefs: {transport}: names nothing")),
            "{said}"
        );
    }
    // An image that is called so.
    place.ok(&["build", "-q", "dir", "source"]);
    place.ok(&["build", "-q", "image", "dir:/"]);
    layout_of(&place.path("layout"), &[layer(&[("a", "a")], "")]);
    let said = place.fails(1, &["build", "-q", "-F", "image", "oci:source"]);
    assert_eq!(
        said,
        "finefs: source: is no OCI layout: it has no index.json\n"
    );
    let tar = Command::new("tar")
        .current_dir(place.path("layout"))
        .args(["-cf", "../tar", "."])
        .status();
    assert!(tar.unwrap().success());
    for (source, name) in [("layout", "oci:layout"), ("tar", "oci-archive:tar")] {
        let built = place
            .finefs(&["build", "-t", "ext2", "-F", "image", source])
            .output()
            .unwrap();
        assert!(built.status.success());
        let said = String::from_utf8_lossy(&built.stderr);
        let note = format!("{source} goes in as files; {name} is the image in it");
        assert_eq!(said, format!("finefs: image: {note}\n"));
        place.ok(&["build", "-t", "ext2", "-F", "image", name]);
    }
}

#[test]
fn a_place_without_a_directory_is_told_before_sources_are_read() {
    let place = Place::new();
    for (image, wanted) in [
        (
            "nowhere/image",
            "finefs: nowhere: No such file or directory\n",
        ),
        ("file/image", "finefs: file: Not a directory\n"),
    ] {
        fs::write(place.path("file"), "").unwrap();
        assert_eq!(place.fails(1, &["build", "-q", image, "nothing"]), wanted);
    }
}

#[test]
fn an_image_is_no_source_of_itself() {
    let place = Place::new();
    small(&place);
    place.ok(&["build", "-q", "outside", "source"]);
    for _ in 0..2 {
        place.ok(&["build", "-q", "-F", "source/image", "source"]);
        assert!(place.ok(&["ls", "source/image:/"]) == "file\nlost+found\n");
    }
    // Others go in, and other names of it do not.
    fs::rename(place.path("outside"), place.path("source/other")).unwrap();
    fs::hard_link(place.path("source/image"), place.path("source/link")).unwrap();
    place.ok(&["build", "-q", "-F", "source/image", "source"]);
    assert_eq!(
        place.ok(&["ls", "source/image:/"]),
        "file\nlost+found\nother\n"
    );
    // And one that sources are put into.
    place.image("source/there", "ext4", 16);
    fs::remove_file(place.path("source/link")).unwrap();
    place.ok(&["build", "-q", "--onto", "source/there", "source"]);
    assert_eq!(
        place.ok(&["ls", "source/there:/"]),
        "file\nimage\nlost+found\nother\n"
    );
}

#[test]
fn owners_have_names_and_may_be_users_or_groups_alone() {
    let place = Place::new();
    small(&place);
    let found = fs::metadata(place.path("source/file")).unwrap();
    let (uid, gid) = (found.uid(), found.gid());
    for (owner, wanted) in [
        ("root:root", "0:0".to_owned()),
        ("7:root", "7:0".to_owned()),
        ("7", format!("7:{gid}")),
        (":8", format!("{uid}:8")),
    ] {
        place.ok(&["build", "-q", "-F", "--owner", owner, "image", "source"]);
        let stat = |path: &str| place.ok(&["stat", "-c", "%u:%g", path]);
        assert_eq!(stat("image:/file").trim_end(), wanted, "{owner}");
        place.ok(&[
            "build",
            "-q",
            "-F",
            "--root-owner",
            owner,
            "image",
            "source",
        ]);
        assert_eq!(stat("image:/").trim_end(), wanted, "{owner}");
        assert_eq!(
            stat("image:/file").trim_end(),
            format!("{uid}:{gid}"),
            "{owner}"
        );
    }
    let said = place.fails(2, &["build", "--owner", "no such", "image", "source"]);
    assert!(said.contains("there is no user 'no such' here"), "{said}");
    let said = place.fails(
        2,
        &["build", "--map-users", "0:4294967290:10", "image", "source"],
    );
    assert!(said.contains("leads beyond 4294967294"), "{said}");
}

/// A copy of a directory by cp(1).
fn copy(from: &Path, to: &Path, sparse: &str) {
    let mut cp = Command::new("cp");
    cp.arg("-a")
        .arg(format!("--sparse={sparse}"))
        .arg(from)
        .arg(to);
    assert!(cp.status().unwrap().success());
}

/// Which blocks of zeros are holes depends on what made the tree; the image has the same bytes.
#[test]
fn holes_of_sources_do_not_count() {
    let place = Place::new();
    tree(&place.path("source"), 7);
    // Data that begins within a chunk and a block, and is longer than a chunk.
    for (name, start) in [("late", 100_000), ("odd", 1_234_567)] {
        let file = File::create(place.path("source").join(name)).unwrap();
        file.write_all_at(&vec![3; 3 << 20], start).unwrap();
        file.write_all_at(b"end", 9 << 20).unwrap();
    }
    fs::write(place.path("source/zeros"), vec![0; 5 << 20]).unwrap();
    copy(&place.path("source"), &place.path("never"), "never");
    copy(&place.path("source"), &place.path("always"), "always");
    let mut tar = Command::new("tar");
    tar.args([
        "--format=posix",
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "-S",
    ]);
    tar.args(["--numeric-owner", "-C", "source", "-cf", "tar", "."]);
    assert!(tar.current_dir(place.path("")).status().unwrap().success());
    let numbers = |image: &str| {
        let stats = debugfs(&place.path(image), "stats");
        let wanted = |line: &&str| line.contains("UUID") || line.contains("Hash Seed");
        let lines: Vec<String> = stats.lines().filter(wanted).map(str::to_owned).collect();
        assert_eq!(lines.len(), 2, "{stats}");
        lines
    };
    for source in ["never", "always", "tar"] {
        place.ok(&["build", "-q", source.to_uppercase().as_str(), source]);
        let sized = format!("sized-{source}");
        place.ok(&["build", "-q", "--size", "256m", &sized, source]);
        assert_eq!(
            numbers(&source.to_uppercase()),
            numbers("NEVER"),
            "{source}"
        );
        assert!(
            bytes_of(&place.path(&sized)) == bytes_of(&place.path("sized-never")),
            "{source}"
        );
    }
    let length = |image: &str| fs::metadata(place.path(image)).unwrap().len();
    assert!(length("ALWAYS") < length("NEVER"));
}

/// Data between holes takes whole blocks, however large they are.
#[test]
fn computed_sizes_have_room_for_pieces_of_files() {
    let place = Place::new();
    fs::create_dir(place.path("source")).unwrap();
    let file = File::create(place.path("source/holes")).unwrap();
    for number in 0..200 {
        file.write_all_at(&[1; 4096], number * 200_000 / 4096 * 4096)
            .unwrap();
    }
    for words in [
        &["-b", "65536"][..],
        &["-O", "bigalloc"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let build = ["build", "-q", "-F", "image", "source"];
        place.ok(&[&build[..], words].concat());
        assert_clean(&place.path("image"));
    }
}

/// A size that has room for a journal may have none for the files then.
#[test]
fn sizes_that_are_too_small_for_the_journal_say_which_is_not() {
    let place = Place::new();
    fs::create_dir(place.path("source")).unwrap();
    fs::write(place.path("source/file"), vec![1; 7 << 20]).unwrap();
    for size in ["8500k", "9m", "10m"] {
        let build = ["build", "-q", "-F", "--size", size, "image", "source"];
        let said = place.fails(1, &build);
        let (before, rest) = said.split_once("--size ").unwrap();
        assert!(
            before.starts_with("finefs: image: the files do not fit: "),
            "{said}"
        );
        let needed = rest.split(' ').next().unwrap();
        assert!(
            said.ends_with("in all; or leave out the journal: -O ^has_journal\n"),
            "{said}"
        );
        place.ok(&["build", "-q", "-F", "--size", needed, "image", "source"]);
        place.ok(&[&build[..], &["-O", "^has_journal"]].concat());
        assert_clean(&place.path("image"));
        let said = place.fails(1, &[&build[..], &["-j"]].concat());
        assert!(said.ends_with("in all\n"), "{said}");
    }
}

/// `tar --label` begins with a header without a size, and `--listed-incremental` has directories of
/// another type.
#[test]
fn archives_with_labels_and_incremental_ones_are_read() {
    let place = Place::new();
    small(&place);
    fs::create_dir(place.path("source/dir")).unwrap();
    fs::set_permissions(place.path("source/dir"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::write(place.path("source/dir/inner"), vec![b'i'; 3000]).unwrap();
    place.ok(&["build", "-q", "image", "source"]);
    for words in [
        &["--label=of a volume"][..],
        &["--listed-incremental=snapshot"],
        &["--format=posix", "--label=of a volume"],
    ] {
        let mut tar = Command::new("tar");
        tar.args(words).args(["-C", "source", "-cf", "tar", "."]);
        assert!(tar.current_dir(place.path("")).status().unwrap().success());
        place.ok(&["build", "-q", "-F", "other", "tar"]);
        assert_clean(&place.path("other"));
        let differences = place.ok(&["diff", "--no-mtime", "image", "other"]);
        assert_eq!(differences, "", "{words:?}");
        let listed = place.ok(&["tar", "-tf", "tar"]);
        let mut listed: Vec<&str> = listed.lines().collect();
        listed.sort_unstable();
        assert_eq!(listed, ["./", "./dir/", "./dir/inner", "./file"]);
    }
}

/// It is not the image that is too small.
#[test]
fn a_full_disk_of_the_host_is_told() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("source")).unwrap();
    fs::write(place.path("source/file"), vec![1; 6 << 20]).unwrap();
    fs::create_dir(place.path("small")).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=4m", "tmpfs", "small"];
    let mounted = Command::new("mount")
        .args(mount)
        .current_dir(place.path(""))
        .status();
    assert!(mounted.unwrap().success());
    let said = [&[][..], &["--size", "20m"]].map(|words| {
        let build = ["build", "-q", "small/image", "source"];
        let output = place
            .finefs(&[&build[..], words].concat())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    });
    let left = fs::read_dir(place.path("small")).unwrap().count();
    finefs_sim::unmount(&place.path("small")).unwrap();
    let reason = "there is no space left on the disk that it is made on";
    let wanted = format!("finefs: small/image: {reason}\n");
    assert_eq!(said, [wanted.clone(), wanted]);
    assert_eq!(left, 0);
}

/// Of each kind of source. What is left out is not read: an ordinary user may not be able to.
#[test]
fn what_is_excluded_is_in_no_image() {
    let place = Place::new();
    for dir in ["source/.git", "source/a/cache", "source/b"] {
        fs::create_dir_all(place.path(dir)).unwrap();
    }
    for file in [".git/x", "a/x.o", "a/x.c", "a/cache/x", "b/x.o", "b/cache"] {
        fs::write(place.path("source").join(file), file).unwrap();
    }
    fs::write(place.path("source/b/y"), "y").unwrap();
    run_in(&place.path("source"), "tar -cf ../a.tar .");
    // The first name goes, the other stays.
    fs::remove_file(place.path("source/b/y")).unwrap();
    fs::hard_link(place.path("source/a/x.o"), place.path("source/b/y")).unwrap();
    layout_of(&place.path("layout"), &[bytes_of(&place.path("a.tar"))]);
    place.ok(&["build", "-q", "whole", "source"]);
    fs::set_permissions(place.path("source/.git"), fs::Permissions::from_mode(0o0)).unwrap();
    fs::write(place.path("patterns"), "*.o\na/cache\n").unwrap();
    let options = ["--exclude", ".git", "-X", "patterns"];
    for source in ["source", "a.tar", "oci:layout", "whole"] {
        place.ok(&[&["build", "-qF", "image", source][..], &options].concat());
        assert_clean(&place.path("image"));
        let found = place.ok(&["find", "image:/", "-type", "f"]);
        let mut names: Vec<&str> = found.lines().collect();
        names.sort_unstable();
        let expected = ["image:/a/x.c", "image:/b/cache", "image:/b/y"];
        assert_eq!(names, expected, "{source}");
    }
    place.image("there", "ext4", 16);
    place.ok(&[&["build", "-q", "--onto", "there", "source"][..], &options].concat());
    assert!(!place.ok(&["find", "there:/"]).contains(".git"));
}

/// A further name of a file that is excluded has its contents; one of a file that is not chosen is
/// told.
#[test]
fn links_to_what_is_not_taken_stop_nothing() {
    let place = Place::new();
    place.image("there", "ext4", 16);
    let script = "mkdir source; cd source; echo text > a; ln a b; ln a c; echo d > d
        tar -cf ../a.tar ./a ./b ./c ./d";
    run_in(&place.path("."), script);
    place.ok(&["build", "-q", "image", "a.tar", "--exclude=a"]);
    place.ok(&["tar", "-xf", "a.tar", "--exclude=a", "there:/"]);
    for image in ["image", "there"] {
        assert_clean(&place.path(image));
        let names = place.ok(&["ls", &format!("{image}:/")]);
        assert_eq!(names, "b\nc\nd\nlost+found\n");
        let file = format!("{image}:/b");
        assert_eq!(place.ok(&["cat", &file]), "text\n");
        assert_eq!(place.ok(&["stat", "-c", "%h", &file]), "2\n");
    }
    place.ok(&["mkdir", "there:/out"]);
    let said = place.fails(2, &["tar", "-xf", "a.tar", "b", "d", "there:/out"]);
    let wanted = "left out: a.tar: ./b: a link to ./a, which is left out\n";
    assert!(
        said.ends_with(wanted) && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(place.ok(&["ls", "there:/out"]), "d\n");
    assert_clean(&place.path("there"));
}
