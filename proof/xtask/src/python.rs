//! The Python package: laid out as pip would, and tested by pytest; and its wheel.

use crate::setup;
use anyhow::{Context, Result, bail};
use finefs_harness::cleanup::{Scratch, TempDirs};
use finefs_harness::run;
use finefs_harness::tools;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);

/// Builds the wheel into `target/wheels`, and tests it.
pub fn wheel() -> Result<PathBuf> {
    let wheels = tools::target_dir().join("wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels)?;
    }
    let manifest = tools::workspace().join("crates/python/Cargo.toml");
    let mut command = run::cmd(setup::maturin()?, ["build", "--quiet", "--locked"]);
    command.args(["--compatibility", "linux", "--release"]);
    command.arg("--manifest-path").arg(manifest);
    command.arg("--interpreter").arg(setup::python()?);
    command.arg("--out").arg(&wheels);
    let output = run::capture_with(&mut command, b"", LIMIT)?;
    run::expect_ok("maturin build", output)?;
    let mut built = std::fs::read_dir(&wheels)?;
    let wheel = built.next().context("maturin has built no wheel")??;
    let wheel = wheel.path();
    let site = Scratch::new_in(&std::env::temp_dir())?;
    let mut command = run::cmd(setup::python()?, ["-m", "zipfile", "-e"]);
    run::ok(command.arg(&wheel).arg(site.path()))?;
    test(site.path())?;
    Ok(wheel)
}

/// Builds the package as it is in a wheel, without maturin, and tests it; says how many passed.
pub fn run() -> Result<String> {
    let site = Scratch::new_in(&std::env::temp_dir())?;
    let package = tools::workspace().join("crates/python/python/finefs");
    run::ok(run::cmd("cp", ["-r"]).arg(package).arg(site.path()))?;
    // As a part of all with a test among it, whose features are those of the build of all tests:
    // so what that has built is not built again.
    let build = [
        "build",
        "--quiet",
        "--workspace",
        "--lib",
        "--test",
        "order",
    ];
    let mut command = run::cargo(build);
    let output = run::capture_with(command.current_dir(tools::workspace()), b"", LIMIT)?;
    run::expect_ok("cargo build", output)?;
    let library = tools::target_dir().join("debug/lib_finefs.so");
    std::fs::copy(library, site.path().join("finefs/_finefs.abi3.so"))?;
    test(site.path())
}

/// Runs the tests against the package in `site`.
fn test(site: &Path) -> Result<String> {
    let dirs = TempDirs::new()?;
    let mut command = run::cmd(setup::python()?, ["-B", "-m", "pytest", "-q"]);
    command
        .args(["-p", "no:cacheprovider"])
        .arg(tools::workspace().join("crates/python/tests"))
        .env("PYTHONPATH", site);
    dirs.tell(&mut command);
    let output = run::capture_with(&mut command, b"", LIMIT)?;
    if !output.status.success() {
        bail!("pytest:\n{}", output.both());
    }
    Ok(output.stdout.lines().last().unwrap_or_default().to_owned())
}
