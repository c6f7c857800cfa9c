//! The commands that change an image; after each e2fsck finds nothing.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::{KernelMount, Place, assert_clean, debugfs, is_root};

/// Runs lines of commands; e2fsck judges after each.
fn script(place: &Place, lines: &[&str]) {
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        place.ok(&words);
        assert_clean(&place.path("image"));
    }
}

#[test]
fn each_edit_leaves_a_clean_image() {
    for kind in ["ext2", "ext3", "ext4"] {
        let place = Place::new();
        let image = place.image("image", kind, 32);
        script(
            &place,
            &[
                "mkdir image:/a image:/b",
                "mkdir -p image:/a/deep/er image:/a/deep",
                "mkdir -m 1777 image:/tmp",
                "touch image:/a/file image:/b/other",
                "touch -d 2001-02-03T04:05:06.5Z image:/a/file",
                "chown 1000:100 image:/a/file",
                "chmod u+sx,g=rwx,o= image:/a/file",
                "chown -R 7 image:/a/deep",
                "chmod -R 700 image:/a/deep",
                "ln image:/a/file image:/hard",
                "ln -s a/file image:/soft",
                "ln -sf nowhere image:/soft",
                "truncate -s 1m image:/b/other",
                "truncate -s -4k image:/b/other",
                "setfattr -n user.note -v 0x00ff image:/a/file",
                "mv image:/b/other image:/a",
                "mv image:/a image:/c",
                "rm image:/hard",
                "rmdir image:/b",
                "rm -f image:/none",
            ],
        );
        assert_eq!(
            place
                .ok(&["ls", "-AnR", "--full-time", "--json", "image:/c"])
                .matches("\"path\"")
                .count(),
            4
        );
        let file = place.ok(&["stat", "-c", "%a %u:%g %h %y", "image:/c/file"]);
        // mode, owner, links; in ext2 and ext3 with inodes of 128 bytes times are whole seconds.
        assert!(
            file.starts_with("4770 1000:100 1 2001-02-03 04:05:06."),
            "{file}"
        );
        let dump = debugfs(&image, "stat /c/file");
        assert!(
            dump.contains("Mode:  04770") && dump.contains("User:  1000"),
            "{dump}"
        );
        assert_eq!(
            place.ok(&["stat", "-c", "%s", "image:/c/other"]),
            "1044480\n"
        );
        assert_eq!(
            place.ok(&["getfattr", "-n", "user.note", "image:/c/file"]),
            "# file: image:/c/file\nuser.note=0sAP8=\n\n"
        );
        assert_eq!(place.ok(&["stat", "-c", "%a", "image:/tmp"]), "1777\n");
        script(
            &place,
            &[
                "setfattr -x user.note image:/c/file",
                "rm -r image:/c image:/tmp image:/soft",
            ],
        );
        assert_eq!(place.ok(&["ls", "image"]), "lost+found\n");
    }
}

#[test]
fn what_cannot_be_done_is_told_with_its_place() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    script(&place, &["mkdir -p image:/dir/sub", "touch image:/file"]);
    for (arguments, line) in [
        (
            &["rm", "image:/dir"][..],
            "finefs rm: image:/dir: is a directory (-r removes it)\n",
        ),
        (
            &["rm", "-rf", "image:/"],
            "finefs rm: image:/: the root, . and .. are not removed\n",
        ),
        (
            &["rm", "-r", "image:/dir/.."],
            "finefs rm: image:/dir/..: the root, . and .. are not removed\n",
        ),
        (
            &["rm", "-f", "no-image:/file"],
            "finefs rm: no-image: no such file; check the path\n",
        ),
        (
            &["rmdir", "image:/dir"],
            "finefs rmdir: image:/dir: directory not empty\n",
        ),
        (
            &["mkdir", "image:/dir"],
            "finefs mkdir: image:/dir: file exists\n",
        ),
        (
            &["mkdir", "image:/x/y"],
            "finefs mkdir: image:/x/y: no such file or directory\n",
        ),
        (
            &["ln", "image:/dir", "image:/h"],
            "finefs ln: image:/h: operation not permitted\n",
        ),
        (
            &["ln", "-f", "image:/file", "image:/file"],
            "finefs ln: image:/file: is the same file\n",
        ),
        (
            &["chown", "alice", "image:/file"],
            "finefs chown: image:/file: the image has no user 'alice'; give a number\n",
        ),
        (
            &["setfattr", "-x", "user.a", "image:/file"],
            "finefs setfattr: image:/file: no such attribute\n",
        ),
        (
            &["mv", "image:/dir", "image:/dir/sub"],
            "finefs mv: image:/dir: invalid argument\n",
        ),
        (
            &["touch", "image:/file/x"],
            "finefs touch: image:/file/x: not a directory\n",
        ),
    ] {
        assert_eq!(place.fails(1, arguments), line, "{arguments:?}");
    }
    // The others are done all the same.
    place.fails(1, &["rm", "image:/none", "image:/file"]);
    assert!(!place.ok(&["ls", "image"]).contains("file"));
    assert_clean(&image);
    let said = place.fails(1, &["touch", "/dev/null:/x"]);
    assert!(
        said.contains("neither a regular file nor a block device"),
        "{said}"
    );
    fs::write(place.path("text"), "no image").unwrap();
    place.fails(1, &["touch", "text:/x"]);
    for (arguments, word) in [
        (
            &["touch", "-d", "someday", "image:/file"][..],
            "invalid date",
        ),
        (&["truncate", "image:/file"], "--size"),
        (&["ls"], "IMAGE:/PATH"),
    ] {
        let said = place.fails(2, arguments);
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn attributes_of_a_tree_are_printed_and_restored() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    place.image("other", "ext4", 32);
    for name in ["image", "other"] {
        script_on(
            &place,
            name,
            &["mkdir -p IMAGE:/d/sub", "touch IMAGE:/d/sub/file"],
        );
        let odd = format!("{name}:/d/a\nb\\c");
        place.ok(&["touch", &odd]);
        place.ok(&["ln", "-s", "sub/file", &format!("{name}:/d/link")]);
    }
    for (path, value) in [
        ("image:/d", "0x00ff0a"),
        ("image:/d/sub/file", "text"),
        ("image:/d/a\nb\\c", ""),
    ] {
        place.ok(&["setfattr", "-n", "user.a", "-v", value, path]);
    }
    place.ok(&[
        "setfattr",
        "-h",
        "-n",
        "trusted.b",
        "-v",
        "of the link",
        "image:/d/link",
    ]);
    let dump = place.ok(&["getfattr", "-Rhdm", "-", "image:/d"]);
    assert!(
        dump.contains("# file: image:/d/a\\012b\\134c\nuser.a=\"\"\n"),
        "{dump}"
    );
    fs::write(place.path("dump"), &dump).unwrap();
    place.ok(&["setfattr", "-h", "--restore=dump", "other:"]);
    let restored = place.ok(&["getfattr", "-Rhdm", "-", "other:/d"]);
    assert_eq!(restored.replace("other:", "image:"), dump);
    // Without an operand the names are those of the dump.
    place.ok(&["setfattr", "-x", "user.a", "image:/d/sub/file"]);
    place.ok(&["setfattr", "-h", "--restore", "dump"]);
    assert_eq!(place.ok(&["getfattr", "-Rhdm", "-", "image:/d"]), dump);
    // Links in a tree are left out, or followed.
    let plain = place.ok(&["getfattr", "-R", "image:/d"]);
    assert_eq!(plain.matches("# file").count(), 3, "{plain}");
    let logical = place.ok(&["getfattr", "-RL", "image:/d"]);
    assert!(
        logical.contains("# file: image:/d/link\nuser.a\n"),
        "{logical}"
    );
    let said = place.fails(1, &["setfattr", "--restore=dump", "image:/", "other:/"]);
    assert!(said.contains("takes one IMAGE:/PATH"), "{said}");
    fs::write(place.path("dump"), "# file: none\nuser.a=0x1\n").unwrap();
    let said = place.fails(1, &["setfattr", "--restore=dump", "image:/"]);
    assert!(said.contains("dump: line 2: invalid value"), "{said}");
    assert_clean(&image);
}

/// Runs lines of commands on an image.
fn script_on(place: &Place, image: &str, lines: &[&str]) {
    for line in lines {
        let line = line.replace("IMAGE", image);
        place.ok(&line.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn edits_side_by_side_wait_for_each_other() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    let children: Vec<_> = (0..6)
        .map(|number| {
            let path = format!("image:/dir{number}");
            place
                .finefs(&["mkdir", "--wait", "600", &path])
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(place.ok(&["ls", "image:/dir*", "-d"]).lines().count(), 6);
    assert_clean(&image);
    // The shell has it until its input ends.
    let mut shell = place.finefs(&["shell", "image"]);
    let mut shell = shell
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    input.write_all(b"pwd\n").unwrap();
    let mut line = [0; 2];
    shell
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut line)
        .unwrap();
    let said = place.fails(1, &["touch", "--wait", "1", "image:/file"]);
    assert!(said.contains("already in use"), "{said}");
    drop(input);
    assert!(shell.wait().unwrap().success());
}

#[test]
fn names_of_users_are_those_of_the_image() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    place.ok(&["mkdir", "image:/etc"]);
    place.with_input(
        &["cp", "-", "image:/etc/passwd"],
        b"root:x:0:0::/:\nalice:x:1234:55::/:\n",
    );
    place.with_input(&["cp", "-", "image:/etc/group"], b"staff:x:55:\n");
    place.ok(&["touch", "image:/file"]);
    place.ok(&["chown", "alice:staff", "image:/file"]);
    assert_eq!(
        place.ok(&["stat", "-c", "%U %u %G %g", "image:/file"]),
        "alice 1234 staff 55\n"
    );
    assert!(
        place
            .ok(&["ls", "-l", "image:/file"])
            .contains(" alice staff ")
    );
    assert!(place.ok(&["ls", "-n", "image:/file"]).contains(" 1234 55 "));
    assert_eq!(
        place.ok(&["find", "image", "-user", "alice"]),
        "image:/file\n"
    );
}

#[test]
fn names_with_brackets_are_no_patterns_of_edits() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    script(
        &place,
        &["touch image:/a1 image:/b1 image:/c1", "touch image:/a[1]"],
    );
    place.ok(&["rm", "image:/a[1]"]);
    place.ok(&["rm", "-f", "image:/a[1]"]);
    let said = place.fails(1, &["mv", "image:/a[1]", "image:/lost+found"]);
    assert!(said.contains("image:/a[1]: no such file"), "{said}");
    place.fails(1, &["chmod", "600", "image:/a[1]"]);
    place.ok(&["truncate", "-s", "0", "image:/b[1]"]);
    place.ok(&["mkdir", "image:/c[1]"]);
    place.ok(&["touch", "image:/?1"]);
    assert_eq!(
        place.ok(&["ls", "image"]),
        "?1\na1\nb1\nb[1]\nc1\nc[1]\nlost+found\n"
    );
    // In a pattern they are.
    place.ok(&["rm", "image:/?[1]"]);
    assert_eq!(place.ok(&["ls", "image"]), "b[1]\nc[1]\nlost+found\n");
    assert_clean(&image);
}

#[test]
fn rm_counts_what_a_pattern_stands_for() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    script(
        &place,
        &["touch image:/a.1 image:/a.2 image:/a.3 image:/a.4"],
    );
    let asked = place.with_input(&["rm", "-I", "image:/a.*"], b"n\n");
    let said = String::from_utf8(asked.stderr).unwrap();
    assert!(said.contains("remove 4 arguments?"), "{said}");
    assert_eq!(place.ok(&["ls", "image:/a.1"]), "image:/a.1\n");
    place.with_input(&["rm", "-I", "image:/a.*"], b"y\n");
    assert_eq!(place.ok(&["ls", "image"]), "lost+found\n");
    assert_clean(&image);
}

#[test]
fn moves_and_copies_do_not_replace_what_they_have_just_made() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    for name in ["a", "b"] {
        fs::create_dir(place.path(name)).unwrap();
        fs::write(place.path(name).join("conf"), name).unwrap();
    }
    fs::create_dir(place.path("all")).unwrap();
    place.ok(&["cp", "-r", "a", "b", "image:/"]);
    place.ok(&["mkdir", "image:/all", "image:/other"]);
    for words in [
        &["cp", "image:/*/conf", "all"][..],
        &["cp", "a/conf", "b/conf", "image:/other"],
        &["mv", "image:/?/conf", "image:/all"],
        &["mv", "a/conf", "b/conf", "image:/other"],
    ] {
        let said = place.fails(1, words);
        assert!(
            said.contains("will not overwrite just-created") && said.lines().count() == 1,
            "{words:?}: {said}"
        );
    }
    assert_eq!(fs::read(place.path("all/conf")).unwrap(), b"a");
    assert_eq!(
        place.ok(&[
            "cat",
            "image:/all/conf",
            "image:/other/conf",
            "image:/b/conf"
        ]),
        "aab"
    );
    assert!(!place.path("a/conf").exists() && place.path("b/conf").exists());
    // A source that is missing has made nothing; -n leaves the second; a file that is named twice
    // is copied once.
    place.ok(&["rm", "image:/other/conf"]);
    let said = place.fails(1, &["cp", "a/conf", "b/conf", "image:/other"]);
    assert!(said.contains("a/conf: No such file"), "{said}");
    place.ok(&["mkdir", "image:/third"]);
    place.ok(&["cp", "-n", "b/conf", "image:/all/conf", "image:/third"]);
    assert_eq!(place.ok(&["cat", "image:/third/conf"]), "b");
    place.ok(&["cp", "b/conf", "b/conf", "image:/third"]);
    assert_clean(&image);
}

/// As cp(1): the later has what both have.
#[test]
fn copied_directories_of_one_name_become_one() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    for (name, files) in [("a", ["x", "both"]), ("b", ["y", "both"])] {
        let dir = place.path(name).join("sub");
        fs::create_dir_all(&dir).unwrap();
        for file in files {
            fs::write(dir.join(file), format!("{name}{file}")).unwrap();
        }
    }
    fs::hard_link(place.path("a/sub/x"), place.path("b/sub/link")).unwrap();
    fs::create_dir(place.path("out")).unwrap();
    place.ok(&["mkdir", "image:/in", "image:/copy"]);
    place.ok(&["cp", "-a", "a/sub", "b/sub", "image:/in"]);
    let twice = ["image:/in/sub", "image:/in/sub"];
    place.ok(&["cp", "-a", twice[0], twice[1], "image:/copy"]);
    place.ok(&["cp", "-a", twice[0], "a/sub", "b/sub", "out"]);
    for dir in ["image:/in/sub", "image:/copy/sub"] {
        assert_eq!(place.ok(&["ls", dir]), "both\nlink\nx\ny\n");
        let both = format!("{dir}/both");
        assert_eq!(place.ok(&["cat", &both]), "bboth");
        let links = format!("{dir}/x");
        assert_eq!(place.ok(&["stat", "-c", "%h", &links]), "2\n");
    }
    assert_eq!(fs::read(place.path("out/sub/both")).unwrap(), b"bboth");
    assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 1);
    assert_clean(&image);
}

/// As mv(1) from one file system to another: what is there goes first, as with rename(2).
#[test]
fn a_moved_directory_replaces_an_empty_one_only() {
    let place = Place::new();
    let images = ["image", "other"].map(|name| place.image(name, "ext4", 32));
    let is_inside = |path: &str| path.contains(':');
    let text_of = |path: &str| match is_inside(path) {
        true => {
            let shown = place.finefs(&["cat", path]).output().unwrap();
            let text = String::from_utf8(shown.stdout).unwrap();
            shown.status.success().then_some(text)
        }
        false => fs::read_to_string(place.path(path)).ok(),
    };
    for (source, to) in [
        ("d", "image:/to"),
        ("image:/d", "to"),
        ("image:/d", "other:/to"),
    ] {
        fs::create_dir(place.path("d")).unwrap();
        fs::write(place.path("d/file"), "new").unwrap();
        let mode = fs::Permissions::from_mode(0o750);
        fs::set_permissions(place.path("d"), mode).unwrap();
        if is_inside(source) {
            place.ok(&["mv", "d", "image:/"]);
        }
        let there = format!("{to}/d");
        let [file, old] = ["file", "old"].map(|name| format!("{there}/{name}"));
        match is_inside(to) {
            true => {
                place.ok(&["mkdir", "-p", &there]);
                place.with_input(&["cp", "-", &old], b"old");
            }
            false => {
                fs::create_dir_all(place.path(&there)).unwrap();
                fs::write(place.path(&old), "old").unwrap();
            }
        }
        let said = place.fails(1, &["mv", source, to]).to_lowercase();
        let wanted = format!("finefs mv: {there}: directory not empty\n");
        assert!(said.starts_with(&wanted), "{said}");
        let found = [&format!("{source}/file"), &old, &file].map(|path| text_of(path));
        assert_eq!(found, [Some("new".into()), Some("old".into()), None]);
        let said = place.fails(1, &["mv", source, &old]);
        assert!(said.contains("is no directory, and would be"), "{said}");
        match is_inside(to) {
            true => drop(place.ok(&["rm", &old])),
            false => fs::remove_file(place.path(&old)).unwrap(),
        }
        let one = format!("{source}/file");
        let said = place.fails(1, &["mv", "-T", &one, &there]);
        assert!(said.contains("is a directory, and would be"), "{said}");
        place.ok(&["mv", source, to]);
        assert_eq!(
            [&one, &file].map(|path| text_of(path)),
            [None, Some("new".into())]
        );
        let mode = match is_inside(to) {
            true => place.ok(&["stat", "-c", "%a", &there]),
            false => {
                let mode = fs::metadata(place.path(&there))
                    .unwrap()
                    .permissions()
                    .mode();
                format!("{:o}\n", mode & 0o7777)
            }
        };
        assert_eq!(mode, "750\n");
    }
    // A directory does not take its own place.
    fs::create_dir_all(place.path("above/empty")).unwrap();
    place.ok(&["touch", "image:/file"]);
    let said = place.fails(1, &["mv", "image:/file", "above/empty", "above"]);
    assert!(said.contains("are the same file"), "{said}");
    assert!(place.path("above/empty").is_dir() && place.path("above/file").is_file());
    images.iter().for_each(|image| assert_clean(image));
}

#[test]
fn moves_between_host_and_image_keep_all() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    let other = place.image("other", "ext4", 32);
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/file"), "contents").unwrap();
    place.ok(&["mv", "tree", "image:/"]);
    assert!(!place.path("tree").exists());
    place.ok(&["mv", "image:/tree", "other:/moved"]);
    assert_eq!(place.ok(&["ls", "image"]), "lost+found\n");
    place.ok(&["mv", "other:/moved", "back"]);
    assert_eq!(fs::read(place.path("back/file")).unwrap(), b"contents");
    assert_eq!(place.ok(&["ls", "other"]), "lost+found\n");
    place.ok(&["touch", "image:/a", "image:/b"]);
    place.ok(&["mv", "-n", "image:/a", "image:/b"]);
    assert_eq!(place.ok(&["ls", "image"]), "a\nb\nlost+found\n");
    assert_clean(&image);
    assert_clean(&other);
    if is_root() {
        let mount = KernelMount::new(&place, &image, "ro");
        assert!(mount.dir.join("a").exists());
    }
}
