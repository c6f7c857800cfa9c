//! finefs.h is what the functions are; programs in C are built with it, by pkg-config, and run.

use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where this build's libraries are: beside the test.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The library as it is installed, below `prefix`.
fn install(prefix: &Path) {
    for directory in ["include", "lib/pkgconfig"] {
        std::fs::create_dir_all(prefix.join(directory)).unwrap();
    }
    std::fs::copy(
        here().join("include/finefs.h"),
        prefix.join("include/finefs.h"),
    )
    .unwrap();
    let lib = prefix.join("lib");
    for (built, installed) in [("so", "libfinefs.so.0"), ("a", "libfinefs.a")] {
        let built = libraries().join(format!("libfinefs_capi.{built}"));
        std::os::unix::fs::symlink(built, lib.join(installed)).unwrap();
    }
    std::os::unix::fs::symlink("libfinefs.so.0", lib.join("libfinefs.so")).unwrap();
    let text = std::fs::read_to_string(here().join("finefs.pc.in")).unwrap();
    let text = text
        .replace("@PREFIX@", prefix.to_str().unwrap())
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    std::fs::write(lib.join("pkgconfig/finefs.pc"), text).unwrap();
}

fn compile(prefix: &Path, source: &str, is_static: bool) -> PathBuf {
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    pkg_config.args(["--cflags", "--libs", "finefs"]);
    if is_static {
        pkg_config.arg("--static");
    }
    let flags = run(&mut pkg_config);
    let flags = match is_static {
        true => flags.replace("-lfinefs", "-l:libfinefs.a"),
        false => flags,
    };
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let program = prefix.join(format!("{name}-{is_static}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    cc.arg(here().join(source)).arg("-o").arg(&program);
    run(cc.args(flags.split_whitespace()));
    program
}

fn e2fsck(image: &Path) {
    run(Command::new("e2fsck").arg("-fn").arg(image));
}

#[test]
fn the_header_is_that_of_the_functions() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let mut text = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_crate(here())
        .generate()
        .unwrap()
        .write(&mut text);
    let path = here().join("include/finefs.h");
    if std::env::var_os("FINEFS_UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let there = std::fs::read(&path).unwrap_or_default();
    assert!(
        there == text,
        "include/finefs.h is not what cbindgen makes: FINEFS_UPDATE=1 cargo test -p finefs-capi"
    );
}

#[test]
fn each_function_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path());
    for is_static in [false, true] {
        let program = compile(dir.path(), "tests/api.c", is_static);
        let image = dir.path().join(format!("{is_static}.img"));
        let [other, journal] = ["reiserfs.img", "journal"].map(|name| dir.path().join(name));
        for (path, mebibytes) in [(&other, 64), (&journal, 40)] {
            let file = std::fs::File::create(path).unwrap();
            file.set_len(mebibytes << 20).unwrap();
        }
        let mut mkfs = Command::new("mkfs.reiserfs");
        run(mkfs.args(["-q", "-f", "-j"]).arg(&journal).arg(&other));
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", dir.path().join("lib"));
        let printed = run(command.args([&image, &other, &journal]));
        assert_eq!(printed, format!("finefs {}\n", env!("CARGO_PKG_VERSION")));
        e2fsck(&image);
    }
}

#[test]
fn the_example_copies_a_file() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path());
    let program = compile(dir.path(), "examples/put.c", false);
    let image = dir.path().join("disk.img");
    run(Command::new("mke2fs")
        .args(["-q", "-t", "ext4"])
        .arg(&image)
        .arg("8m"));
    let source = dir.path().join("source");
    let content: Vec<u8> = (0..200_000_u32).map(|byte| byte as u8).collect();
    std::fs::write(&source, &content).unwrap();
    let put = |path: &str| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", dir.path().join("lib"));
        command.arg(&image).arg(&source).arg(path).output().unwrap()
    };
    let output = put("/copy");
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains(" copy\n") && printed.contains(" lost+found\n"),
        "{printed}"
    );
    e2fsck(&image);
    let out = dir.path().join("out");
    run(Command::new("debugfs")
        .arg("-R")
        .arg(format!("dump /copy {}", out.display()))
        .arg(&image));
    assert_eq!(std::fs::read(out).unwrap(), content);

    let output = put("/nowhere/copy");
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("No such file or directory"), "{printed}");
}
