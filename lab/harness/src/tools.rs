//! Where the workspace is, and the programs built or installed in it.

use crate::run;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// The build directory of the workspace.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// The directory that `cargo install` puts the conformance tools below. Not inside
/// [`target_dir`], so that every build directory shares one copy.
pub fn tools_dir() -> PathBuf {
    workspace().join("target/tools")
}

/// An installed conformance tool.
pub fn tool(name: &str) -> Result<PathBuf> {
    let path = tools_dir().join("bin").join(name);
    ensure!(
        path.exists(),
        "{name} is not installed: run `cargo run -p xtask --release -- setup`"
    );
    Ok(path)
}

/// The finefs binary: `given`, or the release build.
pub fn finefs(given: Option<&Path>) -> Result<PathBuf> {
    let path = given.map_or_else(
        || target_dir().join("release/finefs"),
        std::borrow::ToOwned::to_owned,
    );
    path.canonicalize().with_context(|| {
        format!(
            "{}: no finefs here: run `cargo build --release -p finefs-cli`",
            path.display()
        )
    })
}

/// True when this process may mount and make device nodes.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds `name` in PATH and the system directories that an ordinary user's PATH leaves out.
pub fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// [`which`], or the bare name so that the error says what is missing.
pub fn program(name: &str) -> PathBuf {
    which(name).unwrap_or_else(|| name.into())
}

/// What the compiler calls this machine.
pub fn host() -> Result<String> {
    let output = run::ok(&mut run::cmd("rustc", ["-vV"]))?.both();
    let line = output.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc -vV names no host")?.to_owned())
}
