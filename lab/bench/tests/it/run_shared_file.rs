//! `finefs-bench` of dbench, randrw, append, posix-lock and file-list, as users run it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const LOAD: &str = r#"NTCreateX "\clients\client1" 0x1 0x2 1 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX "\clients\client1\a" 0x40 0x2 2 NT_STATUS_OK
WriteX 2 0 65536 65536 NT_STATUS_OK
ReadX 2 4096 4096 4096 NT_STATUS_OK
LockX 2 100 1 NT_STATUS_OK
UnlockX 2 100 1 NT_STATUS_OK
Flush 2 NT_STATUS_OK
Close 2 NT_STATUS_OK
Rename "\clients\client1\a" "\clients\client1\b" NT_STATUS_OK
"#;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs-bench"));
    command.args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn load_file(dir: &TempDir) -> String {
    let path = dir.path().join("load.txt");
    fs::write(&path, LOAD).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Each with few operations, verified.
fn tiny(load: &str) -> [Vec<&str>; 5] {
    let end = ["--operations=40", "--verify", "--threads=3"];
    [
        vec!["dbench", "--loadfile", load],
        vec!["randrw", "--blocks=20"],
        vec!["append"],
        vec!["posix-lock"],
        vec!["file-list"],
    ]
    .map(|own| [own, end.to_vec()].concat())
}

fn image(dir: &Path, name: &str, kind: &str) -> PathBuf {
    let path = dir.join(name);
    fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let make = Command::new("mke2fs")
        .args(["-q", "-F", "-t", kind])
        .arg(&path)
        .output();
    assert!(make.unwrap().status.success());
    path
}

fn assert_sound(image: &Path) {
    let check = Command::new("e2fsck")
        .args(["-f", "-n"])
        .arg(image)
        .output();
    let check = check.unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn they_run_in_memory_and_on_a_directory() {
    let dir = TempDir::new().unwrap();
    let load = load_file(&dir);
    let place = dir.path().join("place");
    fs::create_dir(&place).unwrap();
    for arguments in tiny(&load) {
        assert_eq!(json(&arguments)["operations"], 120, "{arguments:?}");
        let on_dir = [&arguments[..], &["--dir", place.to_str().unwrap()]].concat();
        assert_eq!(json(&on_dir)["operations"], 120, "{arguments:?}");
    }
    for workload in ["posix-lock", "append", "randrw"] {
        let end = ["--operations=40", "--verify", "--processes=3", "--dir"];
        let found = json(&[&[workload][..], &end, &[place.to_str().unwrap()]].concat());
        assert_eq!(found["operations"], 120, "{found}");
    }
    assert!(fs::read_dir(&place).unwrap().next().is_none());
}

#[test]
fn images_are_sound_afterwards() {
    let dir = TempDir::new().unwrap();
    let load = load_file(&dir);
    for kind in ["ext2", "ext4"] {
        let image = image(dir.path(), kind, kind);
        for arguments in tiny(&load) {
            let on_image = [&arguments[..], &["--image", image.to_str().unwrap()]].concat();
            assert_eq!(json(&on_image)["operations"], 120, "{arguments:?}");
        }
        assert_sound(&image);
    }
}

#[test]
fn dbench_runs_on_two_at_once() {
    let dir = TempDir::new().unwrap();
    let load = load_file(&dir);
    let common = [
        "dbench",
        "--loadfile",
        &load,
        "--operations=20",
        "--threads=2",
    ];
    let found = json(&[&common[..], &["--memory=64m", "--dual"]].concat());
    assert_eq!(
        (&found[0]["operations"], &found[1]["operations"]),
        (&40.into(), &40.into())
    );
    let images = ["a", "b"].map(|name| image(dir.path(), name, "ext4"));
    let [a, b] = [&images[0], &images[1]].map(|path| path.to_str().unwrap());
    let found = json(&[&common[..], &["--image", a, "--dual", b]].concat());
    assert_eq!(
        (&found[0]["target"], &found[1]["target"]),
        (&a.into(), &b.into())
    );
    images.iter().for_each(|image| assert_sound(image));
    let refused = run(&[&common[..], &["--image", a, "--dual"]].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("--dual needs the path"), "{said}");
}

#[test]
fn what_is_missing_is_told() {
    let refused = run(&["dbench", "--loadfile=/nowhere/client.txt"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said.contains("load file /nowhere/client.txt: No such file"),
        "{said}"
    );
}
