//! What cp does with files that are there, links, streams and holes.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use crate::support::{Place, assert_clean, debugfs};

#[test]
fn destinations_are_those_of_cp() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    fs::write(place.path("one"), "1").unwrap();
    fs::write(place.path("two"), "22").unwrap();
    place.ok(&["mkdir", "-p", "image:/dir/sub"]);
    place.ok(&["cp", "one", "image:/dir"]);
    place.ok(&["cp", "one", "two", "image:/dir/sub/"]);
    place.ok(&["cp", "-t", "image:/", "two"]);
    place.ok(&["cp", "one", "image:/dir/renamed"]);
    assert_eq!(
        place.ok(&["find", "image:/", "-type", "f"]),
        "image:/dir/one\nimage:/dir/renamed\nimage:/dir/sub/one\nimage:/dir/sub/two\nimage:/two\n"
    );
    assert_eq!(debugfs(&image, "cat /dir/sub/two"), "22");
    // A directory goes beside others, or is the new one.
    fs::create_dir_all(place.path("d/e")).unwrap();
    place.ok(&["cp", "-r", "d", "image:/dir"]);
    place.ok(&["cp", "-r", "d", "image:/new"]);
    place.ok(&["cp", "-rT", "d", "image:/dir/sub"]);
    assert_eq!(
        place.ok(&["find", "image:/", "-name", "e"]),
        "image:/dir/d/e\nimage:/dir/sub/e\nimage:/new/e\n"
    );
    for (arguments, line) in [
        (
            &["cp", "d", "image:/"][..],
            "d: is a directory (-r copies it)",
        ),
        (
            &["cp", "one", "two", "image:/two"],
            "image:/two: is no directory",
        ),
        (
            &["cp", "one", "image:/none/x"],
            "image:/none: no such file or directory",
        ),
        (
            &["cp", "-rT", "d", "image:/two"],
            "image:/two: is no directory, and would be",
        ),
        (
            &["cp", "-T", "one", "image:/dir"],
            "image:/dir: is a directory, and would be",
        ),
        (&["cp", "image:/two", "image:/two"], "are the same file"),
        (
            &["cp", "-r", "image:/dir", "image:/dir/sub/x"],
            "would be copied into itself",
        ),
        (
            &["cp", "-r", "image:/dir", "image:/dir/fresh"],
            "image:/dir: would be copied into itself",
        ),
        (
            &["cp", "-a", "image:/dir", "image:/dir"],
            "image:/dir: would be copied into itself",
        ),
        (&["cp", "one"], "give a source and a destination"),
    ] {
        let said = place.fails(1, arguments);
        assert!(
            said.starts_with("finefs cp: ") && said.contains(line),
            "{arguments:?}: {said}"
        );
    }
    assert!(!place.ok(&["ls", "-A", "image:/dir"]).contains("fresh"));
    assert_clean(&image);
}

#[test]
fn files_that_are_there_are_replaced_whole() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    fs::write(place.path("new"), "new").unwrap();
    place.with_input(&["cp", "-", "image:/file"], b"old contents");
    place.ok(&["chmod", "640", "image:/file"]);
    place.ok(&["chown", "5:6", "image:/file"]);
    place.ok(&["setfattr", "-n", "user.a", "-v", "kept", "image:/file"]);
    place.ok(&["cp", "-n", "new", "image:/file"]);
    assert_eq!(place.ok(&["cat", "image:/file"]), "old contents");
    place.ok(&["touch", "-d", "2099-01-01", "image:/file"]);
    place.ok(&["cp", "-u", "new", "image:/file"]);
    assert_eq!(place.ok(&["cat", "image:/file"]), "old contents");
    // As cp does, which writes into the file: it stays whose it was.
    place.ok(&["cp", "new", "image:/file"]);
    assert_eq!(place.ok(&["cat", "image:/file"]), "new");
    assert_eq!(
        place.ok(&["stat", "-c", "%a %u:%g", "image:/file"]),
        "640 5:6\n"
    );
    assert!(
        place
            .ok(&["getfattr", "-d", "image:/file"])
            .contains("user.a=\"kept\"")
    );
    // New ones are root's, whatever the umask is.
    place.ok(&["cp", "new", "image:/fresh"]);
    assert_eq!(
        place.ok(&["stat", "-c", "%a %u:%g", "image:/fresh"]),
        "644 0:0\n"
    );
    assert_clean(&image);

    fs::write(place.path("host"), "was here").unwrap();
    let before = fs::metadata(place.path("host")).unwrap();
    place.ok(&["cp", "image:/file", "host"]);
    assert_eq!(fs::read(place.path("host")).unwrap(), b"new");
    assert_eq!(
        fs::metadata(place.path("host")).unwrap().mode(),
        before.mode()
    );
}

#[test]
fn links_are_copied_or_followed() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.path("d/file"), "contents").unwrap();
    symlink("file", place.path("d/link")).unwrap();
    symlink("d", place.path("named")).unwrap();
    place.ok(&["cp", "d/link", "image:/followed"]);
    place.ok(&["cp", "-d", "d/link", "image:/kept"]);
    place.ok(&["cp", "-r", "d", "image:/tree"]);
    place.ok(&["cp", "-rL", "d", "image:/all"]);
    place.ok(&["cp", "-rH", "named", "image:/some"]);
    let shown = place.ok(&[
        "stat",
        "-c",
        "%F",
        "image:/followed",
        "image:/kept",
        "image:/tree/link",
        "image:/all/link",
        "image:/some/link",
    ]);
    let link = "symbolic link\n";
    let file = "regular file\n";
    assert_eq!(shown, [file, link, link, file, link].concat());
    // A link that the user names leads to where the copy goes, inside the image.
    place.ok(&["ln", "-s", "/tree/file", "image:/way"]);
    place.with_input(&["cp", "-", "image:/way"], b"through the link");
    assert_eq!(place.ok(&["cat", "image:/tree/file"]), "through the link");
    assert_eq!(place.ok(&["stat", "-c", "%F", "image:/way"]), link);
}

#[test]
fn streams_go_in_and_out() {
    let place = Place::new();
    let image = place.image("image", "ext4", 32);
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    let output = place.with_input(&["cp", "-", "image:/data"], &data);
    assert!(output.status.success(), "{output:?}");
    let output = place.finefs(&["cp", "image:/data", "-"]).output().unwrap();
    assert!(output.stdout == data && output.status.success());
    let output = place.with_input(&["cat", "image:/data", "-"], b"more");
    assert!(output.stdout.ends_with(b"more") && output.stdout.len() == data.len() + 4);
    let said = place.fails(1, &["cp", "-", "image:/"]);
    assert!(said.contains("name the file that it becomes"), "{said}");
    assert_clean(&image);
    // A pipe of the shell is read.
    let mut shell = std::process::Command::new("bash");
    shell.arg("-c").arg(format!(
        "cd {} && {} cp <(echo piped) image:/piped",
        place.path("").display(),
        env!("CARGO_BIN_EXE_finefs")
    ));
    assert!(shell.status().unwrap().success());
    assert_eq!(place.ok(&["cat", "image:/piped"]), "piped\n");
}

#[test]
fn holes_are_kept_made_or_filled() {
    let place = Place::new();
    place.image_with("image", 32, &["-t", "ext4", "-b", "4096"]);
    fs::write(place.path("zeros"), vec![0; 1 << 20]).unwrap();
    let file = fs::File::create(place.path("hole")).unwrap();
    file.set_len(1 << 20).unwrap();
    let blocks = |arguments: &[&str]| {
        place.ok(&[&["cp"], arguments, &["image:/x"]].concat());
        let shown = place.ok(&["stat", "-c", "%b %s", "image:/x"]);
        place.ok(&["rm", "image:/x"]);
        shown
    };
    assert_eq!(blocks(&["hole"]), "0 1048576\n");
    assert_eq!(blocks(&["zeros"]), "2048 1048576\n");
    assert_eq!(blocks(&["--sparse=always", "zeros"]), "0 1048576\n");
    assert_eq!(blocks(&["--sparse=never", "hole"]), "2048 1048576\n");
}

/// Files of sysfs are shorter than they say, as is one that has lost its end meanwhile.
#[test]
fn a_copy_ends_where_the_file_ends() {
    let place = Place::new();
    place.image("image", "ext4", 16);
    let known = [
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
    ];
    let is_short = |path: &&str| {
        let read = fs::read(path).map_or(u64::MAX, |bytes| bytes.len() as u64);
        fs::metadata(path).is_ok_and(|found| found.len() > read)
    };
    let Some(file) = known.into_iter().find(is_short) else {
        eprintln!("skipped: needs a file of sysfs");
        return;
    };
    for sparse in ["auto", "always", "never"] {
        place.ok(&["cp", &format!("--sparse={sparse}"), file, "image:/copy"]);
        let copied = place.finefs(&["cat", "image:/copy"]).output().unwrap();
        assert!(copied.stdout == fs::read(file).unwrap(), "{sparse}");
    }
}

/// What a program may do is not what one that replaces it may.
#[test]
fn capabilities_go_with_the_contents_that_they_were_of() {
    const NAME: &str = "security.capability";
    // cap_net_raw, permitted and effective.
    const CAPABILITIES: &str = "0sAQAAAgAgAAAAAAAAAAAAAAAAAAA=";
    let place = Place::new();
    place.image("image", "ext4", 16);
    fs::write(place.path("program"), "program").unwrap();
    place.ok(&["cp", "program", "image:/first"]);
    place.ok(&["setfattr", "-n", NAME, "-v", CAPABILITIES, "image:/first"]);
    place.ok(&["setfattr", "-n", "user.a", "-v", "1", "image:/first"]);
    let has = |name: &str| {
        let all = place.ok(&["getfattr", "-d", "-m", "-", &format!("image:/{name}")]);
        assert!(all.contains("user.a"), "{all}");
        all.contains(NAME)
    };
    let changes: [(&[&str], bool); 6] = [
        (&["chmod", "700", "image:/copy"], true),
        (&["touch", "image:/copy"], true),
        (&["cp", "-a", "image:/first", "image:/copy"], true),
        (&["chown", "5:5", "image:/copy"], false),
        (&["truncate", "-s", "3", "image:/copy"], false),
        (&["cp", "program", "image:/copy"], false),
    ];
    for (words, stays) in changes {
        place.ok(&["cp", "-a", "image:/first", "image:/copy"]);
        place.ok(words);
        assert_eq!(has("copy"), stays, "{words:?}");
    }
}

#[test]
fn what_is_no_regular_file_on_the_host_is_written_and_stays() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    place.ok(&["mkdir", "image:/tree"]);
    for path in ["image:/pipe", "image:/tree/pipe"] {
        place.with_input(&["cp", "-", path], path.as_bytes());
    }
    fs::create_dir_all(place.path("dir/tree")).unwrap();
    let pipe = place.path("dir/pipe");
    let inner = place.path("dir/tree/pipe");
    for path in [&pipe, &inner] {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    }
    symlink("dir/pipe", place.path("link")).unwrap();
    fs::create_dir(place.path("links")).unwrap();
    symlink("../dir/pipe", place.path("links/pipe")).unwrap();
    for (arguments, from, text) in [
        (&["image:/pipe", "dir/pipe"][..], &pipe, "image:/pipe"),
        (&["image:/pipe", "link"], &pipe, "image:/pipe"),
        (&["image:/pipe", "dir"], &pipe, "image:/pipe"),
        (&["image:/pipe", "links"], &pipe, "image:/pipe"),
        (&["-r", "image:/tree", "dir"], &inner, "image:/tree/pipe"),
    ] {
        // Without a writer that comes it waits no longer than the test does.
        let keeper = fs::OpenOptions::new().read(true).write(true).open(from);
        let mut reader = fs::File::open(from).unwrap();
        place.ok(&[&["cp"], arguments].concat());
        let mut read = vec![0; text.len()];
        std::io::Read::read_exact(&mut reader, &mut read).unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), text, "{arguments:?}");
        drop(keeper);
    }
    assert!(place.path("link").is_symlink() && place.path("links/pipe").is_symlink());
}

#[test]
fn what_leads_to_an_open_file_is_written_where_that_is() {
    let place = Place::new();
    place.image("image", "ext4", 32);
    place.with_input(&["cp", "-", "image:/file"], b"file\n");
    symlink("/dev/stdout", place.path("link")).unwrap();
    let finefs = env!("CARGO_BIN_EXE_finefs");
    for to in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/7", "link"] {
        for redirected in [">", ">>"] {
            fs::write(place.path("out"), "").unwrap();
            let script = format!(
                "{{ echo before; {finefs} cp image:/file {to} 7>&1; echo after; }} {redirected} out"
            );
            crate::support::run_in(&place.path("."), &script);
            let out = fs::read_to_string(place.path("out")).unwrap();
            assert_eq!(out, "before\nfile\nafter\n", "{to} {redirected}");
        }
    }
    let said = place.fails(1, &["cp", "image:/file", "image:/file", "/dev/stdout"]);
    assert!(said.contains("is no directory"), "{said}");
}
