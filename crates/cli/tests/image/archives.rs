//! Archives that are written of images hold what those hold: GNU tar unpacks them, and images that
//! are built of them are archived as the same bytes again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use crate::round_trip::{seeds, tree};
use crate::support::{Place, assert_clean, assert_same, bytes_of, is_root, run, run_in, snapshot};

/// What tree() does not make: names, links and numbers that only extended headers hold.
fn add_odd_files(place: &Place) {
    let long = "n".repeat(120);
    let deep = place.path("source").join(&long).join(&long);
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "deep").unwrap();
    symlink("t".repeat(300), deep.join("link")).unwrap();
    for (name, size) in [("hole", 5 << 20), ("empty", 0)] {
        File::create(deep.join(name))
            .unwrap()
            .set_len(size)
            .unwrap();
    }
    if is_root() {
        std::os::unix::fs::chown(deep.join("file"), Some(3_000_000_000), Some(70_000)).unwrap();
    }
}

#[test]
fn archives_hold_what_images_hold() {
    for seed in 0..seeds() {
        let place = Place::new();
        tree(&place.path("source"), seed);
        add_odd_files(&place);
        place.ok(&["build", "-q", "image", "source"]);
        place.ok(&["tar", "-cf", "archive", "image"]);
        let archive = bytes_of(&place.path("archive"));
        let streamed = place.finefs(&["tar", "-c", "image"]).output().unwrap();
        assert!(streamed.status.success() && streamed.stdout == archive);
        place.ok(&["build", "-q", "again", "archive"]);
        assert_clean(&place.path("again"));
        place.ok(&["tar", "-cf", "archive-again", "again"]);
        assert!(bytes_of(&place.path("archive-again")) == archive);
        if is_root() {
            let out = place.path("out");
            fs::create_dir(&out).unwrap();
            let archive = place.path("archive");
            let words = [
                "--xattrs",
                "--xattrs-include=*",
                "--acls",
                "--numeric-owner",
                "-xf",
            ];
            let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
            words.extend([archive.as_os_str(), OsStr::new("-C"), out.as_os_str()]);
            let output = run("tar", &words);
            assert!(output.status.success(), "{output:?}");
            assert_same(&snapshot(&place.path("source")), &snapshot(&out));
        }
    }
}

#[test]
fn archives_are_compressed_as_asked() {
    let place = Place::new();
    tree(&place.path("source"), 3);
    place.ok(&["build", "-q", "image", "source"]);
    place.ok(&["tar", "-cf", "plain", "image"]);
    place.ok(&["build", "-q", "of-plain", "plain"]);
    let wanted = bytes_of(&place.path("of-plain"));
    for (words, start) in [
        (&["-czf", "packed"][..], &[0x1f, 0x8b][..]),
        (&["-cJf", "packed"], b"\xfd7zXZ"),
        (&["-c", "--zstd", "-f", "packed"], &[0x28, 0xb5]),
        (&["-caf", "packed.tar.zst"], &[0x28, 0xb5]),
        (&["cfz", "letters.tar.gz"], &[0x1f, 0x8b]),
        (
            &["--xattrs", "--acls", "-Spzcf", "kept.tar.gz"],
            &[0x1f, 0x8b],
        ),
    ] {
        place.ok(&[&["tar"], words, &["image"]].concat());
        let packed = words.last().unwrap();
        assert!(
            bytes_of(&place.path(packed)).starts_with(start),
            "{words:?}"
        );
        place.ok(&["build", "-qF", "of-packed", packed]);
        assert!(bytes_of(&place.path("of-packed")) == wanted, "{words:?}");
    }
}

#[test]
fn parts_of_images_have_the_names_that_they_have_there() {
    let place = Place::new();
    fs::create_dir_all(place.path("source/etc/inner")).unwrap();
    fs::write(place.path("source/etc/inner/first"), "1").unwrap();
    fs::hard_link(
        place.path("source/etc/inner/first"),
        place.path("source/second"),
    )
    .unwrap();
    let _socket = UnixListener::bind(place.path("source/etc/socket")).unwrap();
    place.ok(&["build", "-q", "image", "source"]);
    let output = place
        .finefs(&[
            "tar",
            "-cf",
            "archive",
            "image:/etc/inner",
            "image:/etc",
            "image:/second",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("image:/etc/socket: a socket") && said.lines().count() == 1);
    let archive = place.path("archive");
    let output = run("tar", &[OsStr::new("-tvf"), archive.as_os_str()]);
    let listed = String::from_utf8(output.stdout).unwrap();
    // With an hour and a space before the name.
    let name = |line: &str| line[line.find(':').unwrap() + 4..].to_owned();
    let names: Vec<String> = listed.lines().map(name).collect();
    let wanted = [
        "etc/inner/",
        "etc/inner/first",
        "etc/",
        "etc/inner/",
        "etc/inner/first link to etc/inner/first",
        "second link to etc/inner/first",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn archives_that_cannot_be_written_leave_nothing() {
    let place = Place::new();
    tree(&place.path("source"), 1);
    place.ok(&["build", "-q", "image", "source"]);
    fs::write(place.path("archive"), "as it was").unwrap();
    for (words, part) in [
        (
            &["-cf", "archive", "image:/nothing"][..],
            "image:/nothing: no such file",
        ),
        (
            &["-cf", "archive", "image", "nothing"],
            "nothing: no such file",
        ),
        (
            &["-cf", "nowhere/archive", "image"],
            "nowhere/archive: No such file",
        ),
        (&["-cf", "/dev/full", "image"], "/dev/full: No space left"),
    ] {
        let said = place.fails(2, &[&["tar"], words].concat());
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
    }
    let said = place.fails(2, &["tar", "-cf", "archive", "-C", "image:/"]);
    assert!(said.contains("an empty archive is not made"), "{said}");
    assert_eq!(bytes_of(&place.path("archive")), b"as it was");
    let names = fs::read_dir(place.path("")).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!names.any(|name| name.starts_with(".archive")));
    place.fails(2, &["tar", "-f", "archive", "image"]);
    // A list of names may be empty.
    place.ok(&["tar", "-cf", "none", "-C", "image:/", "-T", "/dev/null"]);
    assert_eq!(place.ok(&["tar", "-tf", "none"]), "");
}

/// What lies below a directory of an image or of the host, in the order of names.
fn listed(place: &Place, image: bool) -> Vec<String> {
    let shown = match image {
        true => place.ok(&["find", "image:/out", "-printf", "%P %y\n"]),
        false => {
            let out = place.path("out");
            let words = ["-printf", "%P %y\n"].map(OsStr::new);
            let output = run("find", &[&[out.as_os_str()], &words[..]].concat());
            String::from_utf8(output.stdout).unwrap()
        }
    };
    let mut lines: Vec<String> = shown.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn members_are_chosen_as_tar_chooses_them() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    let script = "mkdir -p src/lib/inner; cd src; touch a.c a.o lib/b.c lib/b.o lib/inner/c.o
        ln lib/b.c hard.c; ln -s a.c link; cd ..; tar -cf archive src
        printf '*.o\\ninner\\n' > patterns; printf 'src/a.c\\nsrc/lib/b.o\\n' > names";
    run_in(&place.path("."), script);
    for options in [
        "",
        "--exclude=*.o",
        "--exclude src/lib",
        "-X patterns",
        "--strip-components=1",
        "--strip-components 2 --exclude=inner --exclude=b.c --exclude=hard.c",
        "-T names",
        "--wildcards src/*.c",
        "src/lib/inner src/a.o",
        "-kv src/link --no-same-owner --xattrs-include=*",
    ] {
        let words: Vec<&str> = options.split_whitespace().collect();
        run_in(
            &place.path("."),
            &format!("set -f; rm -rf out; mkdir out; tar -xf archive -C out {options}"),
        );
        place.finefs(&["rm", "-rf", "image:/out"]).status().unwrap();
        place.ok(&["mkdir", "image:/out"]);
        let ours = place.ok(&[&["tar", "-xf", "archive"], &words[..], &["image:/out"]].concat());
        let has_names = !ours.is_empty();
        assert_eq!(has_names, options.contains("-kv"), "{options}");
        assert_eq!(listed(&place, true), listed(&place, false), "{options}");
    }
    assert_clean(&place.path("image"));
    let said = place.fails(2, &["tar", "-xf", "archive", "src/none", "image:/out"]);
    assert!(
        said.contains("there is no 'src/none' in the archive"),
        "{said}"
    );
    assert_eq!(
        place.ok(&["tar", "-tf", "archive", "src/lib/inner"]),
        "src/lib/inner/\nsrc/lib/inner/c.o\n"
    );
    // What is there stays.
    place.with_input(&["cp", "-", "image:/out/src/a.c"], b"mine");
    place.ok(&["rm", "-r", "image:/out/src"]);
    place.ok(&["mkdir", "image:/out/src"]);
    place.with_input(&["cp", "-", "image:/out/src/a.c"], b"mine");
    let said = place.fails(2, &["tar", "-xkf", "archive", "image:/out"]);
    assert!(
        said.contains("image:/out/src/a.c: is there already"),
        "{said}"
    );
    place.ok(&[
        "tar",
        "-xf",
        "archive",
        "--skip-old-files",
        "-C",
        "image:/out",
    ]);
    assert_eq!(place.ok(&["cat", "image:/out/src/a.c"]), "mine");
    assert_eq!(
        place.ok(&["stat", "-c", "%h", "image:/out/src/hard.c"]),
        "2\n"
    );
}

/// Of an archive of `.` the members `.` and `./` are all, as tar(1) has it.
#[test]
fn the_top_of_an_archive_is_all_of_it() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    run_in(
        &place.path("."),
        "mkdir -p src/inner; touch src/inner/c; tar -cf top -C src .",
    );
    for top in [".", "./"] {
        let listed = place.ok(&["tar", "-tf", "top", top]);
        assert_eq!(listed, "./\n./inner/\n./inner/c\n", "{top}");
        let directory = format!("image:/{}", top.len());
        place.ok(&["mkdir", &directory]);
        place.ok(&["tar", "-xf", "top", top, &directory]);
        assert_eq!(place.ok(&["ls", &format!("{directory}/inner")]), "c\n");
    }
}

#[test]
fn archives_are_written_as_tar_is_told_to() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    let script = "mkdir -p src/lib; cd src; echo 1 > a.c; touch a.o lib/b.o; ln -s a.c link
        ln -s lib dir; ln -s .. lib/up; ln -s nowhere lib/lost";
    run_in(&place.path("."), script);
    place.ok(&["cp", "-a", "src", "image:/"]);
    let listed = |words: &[&str]| {
        place.ok(&[&["tar", "-cf", "archive"], words].concat());
        place.ok(&["tar", "-tf", "archive"])
    };
    assert_eq!(
        listed(&["--exclude=*.o", "--exclude=lib/*", "image:/src"]),
        "src/\nsrc/a.c\nsrc/dir\nsrc/lib/\nsrc/link\n"
    );
    assert_eq!(
        listed(&["-C", "image:/src", "a.c", "./lib/b.o"]),
        "a.c\nlib/b.o\n"
    );
    fs::write(place.path("names"), "lib/b.o\0").unwrap();
    assert_eq!(
        listed(&["--null", "-T", "names", "-C", "image:/src"]),
        "lib/b.o\n"
    );
    // Links are looked through; one that leads up ends.
    let output = place
        .finefs(&["tar", "-chf", "archive", "image:/src"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("leads to a directory that it lies in"));
    let shown = place.ok(&["tar", "-tvf", "archive"]);
    let is_file = |line: &str| line.starts_with("-rw-r--r--") && line.ends_with(" src/link");
    assert!(shown.lines().any(is_file), "{shown}");
    assert!(
        shown.contains(" src/dir/b.o\n") && shown.contains("src/lib/lost -> nowhere"),
        "{shown}"
    );
    assert!(!shown.contains(" link to "), "{shown}");
    let words = [
        "--owner=7",
        "--group=x:8",
        "--mtime=@86400",
        "--sort=name",
        "--format=pax",
    ];
    listed(&[&words[..], &["image:/src/a.c"]].concat());
    let shown = place.ok(&["tar", "-tvf", "archive"]);
    assert!(
        shown.contains(" 7/8 ") && shown.contains(" 1970-01-02 00:00 "),
        "{shown}"
    );
    // Names are told, beside the archive.
    assert_eq!(
        place.ok(&["tar", "-cvf", "archive", "image:/src/lib/b.o"]),
        "src/lib/b.o\n"
    );
    let output = place
        .finefs(&["tar", "-cv", "image:/src/lib/b.o"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "src/lib/b.o\n");
    let said = place.fails(2, &["tar", "-cjf", "archive", "image"]);
    assert!(said.contains("there is no bzip2"), "{said}");
    // One that was cut off says so.
    listed(&["image:/src"]);
    let whole = bytes_of(&place.path("archive"));
    fs::write(place.path("archive"), &whole[..512 * 3 + 100]).unwrap();
    let said = place.fails(2, &["tar", "-tf", "archive"]);
    assert!(said.contains("it ends too early"), "{said}");
    fs::write(place.path("archive"), "text").unwrap();
    let said = place.fails(2, &["tar", "-tf", "archive"]);
    assert_eq!(said, "finefs tar: archive: is no tar archive\n");
}

/// As GNU tar does with both options.
#[test]
fn directories_that_stay_keep_their_attributes_and_files_their_names() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    let script = "mkdir -p src/there src/new; chmod 700 src src/there; chmod 711 src/new
        touch src/there/f; touch -d @1000000000 src src/there src/new; tar -cf archive -C src .";
    run_in(&place.path("."), script);
    let of = |path: &str| place.ok(&["stat", "-c", "%a %u:%g %Y", path]);
    for option in ["-k", "--skip-old-files"] {
        place.ok(&["mkdir", "-m", "755", "image:/out", "image:/out/there"]);
        place.ok(&["chown", "7:8", "image:/out", "image:/out/there"]);
        place.with_input(&["cp", "-", "image:/out/there/f"], b"mine");
        place.with_input(&["cp", "-", "image:/out/a-file"], b"mine");
        place.ok(&[
            "touch",
            "-d",
            "@500000000",
            "image:/out",
            "image:/out/there",
        ]);
        place
            .finefs(&["tar", "-xf", "archive", option, "image:/out"])
            .output()
            .unwrap();
        assert!(of("image:/out").starts_with("755 7:8"), "{option}");
        assert_eq!(of("image:/out/there"), "755 7:8 500000000\n", "{option}");
        assert!(of("image:/out/new").starts_with("711 "), "{option}");
        assert!(of("image:/out/new").ends_with(" 1000000000\n"), "{option}");
        // A file, or a link that leads nowhere, where the archive has a directory.
        place.ok(&["rm", "-r", "image:/out/there", "image:/out/new"]);
        place.with_input(&["cp", "-", "image:/out/there"], b"mine");
        let words = ["tar", "-xf", "archive", option, "image:/out"];
        let said = place.fails(2, &words);
        let reason = "image:/out/there: is there, and is no directory";
        assert!(said.contains(reason), "{said}");
        assert_eq!(place.ok(&["cat", "image:/out/there"]), "mine");
        place.ok(&["ln", "-sf", "nowhere", "image:/out/there"]);
        assert!(place.fails(2, &words).contains(reason));
        assert_eq!(place.ok(&["ls", "image:/out"]), "a-file\nthere\n");
        place.ok(&["rm", "-r", "image:/out"]);
    }
    assert_clean(&place.path("image"));
}

#[test]
fn an_archive_that_ends_in_the_padding_of_a_member_is_cut_off() {
    let place = Place::new();
    fs::write(place.path("t"), "x").unwrap();
    fs::write(place.path("u"), "yy").unwrap();
    run_in(&place.path(""), "tar --format=ustar -cf whole t u");
    let whole = bytes_of(&place.path("whole"));
    // Blocks: header, data, header, data, two of zeros.
    for (length, entries) in [(513, 1), (600, 1), (1023, 1), (1538, 2), (2047, 2)] {
        fs::write(place.path("cut"), &whole[..length]).unwrap();
        let line = format!("cut: is damaged behind entry {entries}: it ends too early");
        for (status, words) in [
            (2, &["tar", "-tf", "cut"][..]),
            (2, &["tar", "-xf", "cut", "image:/"]),
            (1, &["build", "-q", "-F", "built", "cut"]),
        ] {
            place.image("image", "ext4", 8);
            let said = place.fails(status, words);
            assert!(said.contains(&line), "{length}: {words:?}: {said}");
        }
    }
    for (length, names) in [(1024, "t\n"), (2048, "t\nu\n"), (2560, "t\nu\n")] {
        fs::write(place.path("cut"), &whole[..length]).unwrap();
        assert_eq!(place.ok(&["tar", "-tf", "cut"]), names);
        place.ok(&["build", "-q", "-F", "built", "cut"]);
    }
}

/// Directories of archives of before POSIX are files whose names end with a slash, as GNU tar has
/// them too.
#[test]
fn old_archives_have_directories() {
    let place = Place::new();
    let mut builder = tar::Builder::new(File::create(place.path("old")).unwrap());
    for (is_old, name, mode) in [
        (true, &b"dir/"[..], 0o711),
        (true, b"dir/file", 0o644),
        (false, b"./other/", 0o750),
        (false, b"./other/file", 0o644),
    ] {
        let mut header = match is_old {
            true => tar::Header::new_old(),
            false => tar::Header::new_ustar(),
        };
        let data = if name.ends_with(b"/") { "" } else { "text" };
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.as_old_mut().linkflag = if is_old { [0] } else { [b'0'] };
        header.set_mode(mode);
        header.set_size(data.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_cksum();
        builder.append(&header, data.as_bytes()).unwrap();
    }
    builder.finish().unwrap();
    place.ok(&["build", "-q", "image", "old"]);
    assert_clean(&place.path("image"));
    place.image("there", "ext4", 16);
    place.ok(&["mkdir", "there:/all"]);
    place.ok(&["tar", "-xf", "old", "there:/all"]);
    place.ok(&[
        "tar",
        "-xf",
        "old",
        "--strip-components=1",
        "./other",
        "there:/",
    ]);
    for (path, mode) in [
        ("image:/dir", "711"),
        ("image:/other", "750"),
        ("there:/all/dir", "711"),
        ("there:/all/other", "750"),
        ("there:/other", "750"),
    ] {
        let shown = place.ok(&["stat", "-c", "%F %a", path]);
        assert_eq!(shown, format!("directory {mode}\n"), "{path}");
        assert_eq!(place.ok(&["cat", &format!("{path}/file")]), "text");
    }
    let listed = place.ok(&["tar", "-tvf", "old"]);
    assert_eq!(
        listed.matches("\nd").count() + usize::from(listed.starts_with('d')),
        2
    );
    fs::create_dir(place.path("out")).unwrap();
    run_in(
        &place.path("out"),
        "tar -xf ../old; test -d dir; test -d other",
    );
}

/// What `tar --selinux` writes.
#[test]
fn labels_of_gnu_tar_are_attributes() {
    const LABEL: &str = "system_u:object_r:bin_t:s0";
    let place = Place::new();
    let mut builder = tar::Builder::new(File::create(place.path("tar")).unwrap());
    let gnu = ("RHT.security.selinux", LABEL.as_bytes());
    let own = ("SCHILY.xattr.security.selinux", &b"a:b:c\0"[..]);
    for (name, records) in [("gnu", &[gnu][..]), ("both", &[gnu, own])] {
        builder
            .append_pax_extensions(records.iter().copied())
            .unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(0);
        builder.append_data(&mut header, name, &b""[..]).unwrap();
    }
    builder.finish().unwrap();
    place.ok(&["build", "-q", "image", "tar"]);
    assert_clean(&place.path("image"));
    for (name, wanted) in [
        ("gnu", format!("{LABEL}\0")),
        ("both", "a:b:c\0".to_owned()),
    ] {
        let path = format!("image:/{name}");
        let label = place.ok(&["getfattr", "--only-values", "-n", "security.selinux", &path]);
        assert_eq!(label, wanted, "{name}");
    }
}
