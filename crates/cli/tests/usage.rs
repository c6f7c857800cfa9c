//! `finefs` as a new user meets it: help, mistakes, and output that nobody reads or that has no
//! room.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn finefs(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A new image, which goes with the directory.
fn image() -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext2"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

/// A pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

fn full_device() -> Stdio {
    File::create("/dev/full").unwrap().into()
}

/// As in scripts that add to an alias.
#[test]
fn options_may_be_there_twice_and_the_last_counts() {
    let (_dir, path) = image();
    for arguments in [
        &["ls", "-l", "-l", "--all", "-a"][..],
        &["stat", "-c", "%i", "-c", "%n"],
        &["shell", "-r", "-r", "-c", "ls -a -a"],
    ] {
        let output = finefs(arguments).arg(&path).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let output = finefs(&["tar", "-c", "-C", &path, "-C", "other", "."]).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("-C: is given once"), "{said}");
}

#[test]
fn every_command_has_help() {
    let commands = [
        "mount", "umount", "freeze", "thaw", "info", "mkfs", "top", "serve", "ls", "tree", "stat",
        "cat", "find", "du", "df", "getfattr", "cp", "mv", "rm", "mkdir", "rmdir", "ln", "touch",
        "truncate", "chmod", "chown", "chgrp", "setfattr",
    ];
    let commands = commands.iter().map(|command| vec![*command]);
    for mut arguments in commands.chain([Vec::new()]) {
        arguments.push("--help");
        let output = finefs(&arguments).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{arguments:?}");
        assert!(help.contains("Usage: "), "{arguments:?}: {help}");
    }
}

#[test]
fn all_mount_options_are_shown() {
    let output = finefs(&["mount", "--help-options"]).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for option in ["nodiratime", "stripe=", "usrquota", "kernel_cache"] {
        assert!(page.contains(option), "{option}");
    }
    let (code, said) = run(&mut finefs(&["mount", "--help-options", "image"]));
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn mistakes_are_told_and_named() {
    let (_dir, image) = image();
    for (arguments, status, line) in [
        (
            &["unmout", "/mnt"][..],
            2,
            "unrecognized subcommand 'unmout', and there is no program finefs-unmout",
        ),
        (&["nothing.img", "/mnt"], 1, "nothing.img: no such file"),
        (&["mount", "--memory"], 2, "<IMAGE>"),
        (&["mount", &image], 2, "give the image and the directory"),
        (
            &["mount", "--memory", "-o", "size=4k", "/tmp"],
            1,
            "64k at least",
        ),
        (
            &["mount", "--memory", "/none"],
            1,
            "/none: no such directory",
        ),
        (
            &["mount", &image, "/tmp", "-o", "offset=5%"],
            1,
            "offset=5%: not a size",
        ),
        (
            &["mount", &image, "/tmp", "--log", "/none/log"],
            1,
            "cannot log there: No such file",
        ),
        (
            &["umount", "/none"],
            1,
            "/none: No such file or directory\n",
        ),
        (&["freeze", "/"], 1, "/: "),
        (&["top", "/none"], 1, "/none: No such file or directory\n"),
        (&["info", "/none"], 1, "/none: no such file"),
        (&["info", "/"], 1, "/: is a directory"),
        (
            &["info", &image, "--offset=5%"],
            2,
            "'--offset <SIZE>': not a size",
        ),
        (
            &["info", &image, "--offset=x"],
            2,
            "'--offset <SIZE>': not a size",
        ),
        (&["info", &image, "--offset=1t"], 1, "outside of the image"),
    ] {
        let (code, said) = run(&mut finefs(arguments));
        assert_eq!(code, Some(status), "{arguments:?}: {said}");
        assert!(said.contains(line), "{arguments:?}: {said}");
        assert!(!said.contains("os error"), "{arguments:?}: {said}");
    }
}

/// What prints much, and a little.
fn what_prints(image: &str) -> [Vec<&str>; 2] {
    [vec!["info", image], vec!["info", "--json", image]]
}

#[test]
fn a_reader_that_goes_is_no_error() {
    let (_dir, image) = image();
    for arguments in what_prints(&image) {
        let (code, said) = run(finefs(&arguments).stdout(closed_pipe()));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn output_that_finds_no_room_is_an_error() {
    let (_dir, image) = image();
    for arguments in what_prints(&image) {
        let (code, said) = run(finefs(&arguments).stdout(full_device()));
        let line = "finefs: standard output: No space left on device\n";
        assert_eq!((code, said.as_str()), (Some(1), line), "{arguments:?}");
    }
}

#[test]
fn a_program_in_path_is_a_subcommand() {
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("finefs-greet");
    std::fs::write(&program, "#!/bin/sh\necho \"greets $1\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let output = finefs(&["greet", "--you"])
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(output.stdout, b"greets --you\n");
}

#[test]
fn a_path_is_no_subcommand() {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("finefs-sub")).unwrap();
    let program = dir.path().join("finefs-sub/dir");
    std::fs::write(&program, "#!/bin/sh\nexit 7\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let output = finefs(&["sub/dir"]).current_dir(&dir).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Runs finefs with a directory in PATH that cannot be searched, which fails with EACCES where a
/// program is nowhere. Root may search all but without these capabilities.
fn with_locked_path(arguments: &[&str]) -> (Option<i32>, String) {
    let dir = TempDir::new().unwrap();
    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o000)).unwrap();
    let program = env!("CARGO_BIN_EXE_finefs");
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("/usr/bin/setpriv");
            command.arg("--bounding-set=-dac_override,-dac_read_search");
            command.arg(program);
            command
        }
        false => Command::new(program),
    };
    run(command
        .args(arguments)
        .stdin(Stdio::null())
        .env("PATH", locked))
}

#[test]
fn a_path_that_cannot_be_searched_changes_no_message() {
    let (code, said) = with_locked_path(&["chekc", "x"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("unrecognized subcommand 'chekc'"), "{said}");
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let words = ["build", "-q", out.to_str().unwrap(), "docker://nowhere/x"];
    let (code, said) = with_locked_path(&words);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("there is no skopeo; install skopeo"),
        "{said}"
    );
}

#[test]
fn an_empty_image_is_called_so() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    File::create(&image).unwrap();
    let image = image.to_str().unwrap();
    for (arguments, status) in [
        (&["check", image][..], 8),
        (&["repair", image], 8),
        (&["resize", image, "1m"], 1),
        (&["info", image], 1),
        (&["ls", image], 2),
    ] {
        let (code, said) = run(&mut finefs(arguments));
        assert_eq!(code, Some(status), "{arguments:?}: {said}");
        assert!(
            said.contains("image: the image is empty; "),
            "{arguments:?}: {said}"
        );
    }
}
