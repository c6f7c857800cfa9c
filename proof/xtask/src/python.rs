//! The Python package: its wheel is built, unpacked as pip would, and tested by pytest.

use crate::setup;
use anyhow::{Context, Result, bail};
use finefs_harness::run;
use finefs_harness::tools;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1800);

/// Builds the wheel in this profile of cargo, into `target/wheels`.
pub fn wheel(profile: &str) -> Result<PathBuf> {
    let wheels = tools::target_dir().join("wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels)?;
    }
    let manifest = tools::workspace().join("crates/python/Cargo.toml");
    let mut command = run::cmd(setup::maturin()?, ["build", "--quiet", "--locked"]);
    command.args(["--compatibility", "linux", "--profile", profile]);
    command.arg("--manifest-path").arg(manifest);
    command.arg("--interpreter").arg(setup::python()?);
    command.arg("--out").arg(&wheels);
    let output = run::capture_with(&mut command, b"", LIMIT)?;
    run::expect_ok("maturin build", output)?;
    let mut built = std::fs::read_dir(&wheels)?;
    let wheel = built.next().context("maturin has built no wheel")??;
    Ok(wheel.path())
}

/// Runs the tests of the package against a wheel; says how many passed.
pub fn test(wheel: &Path) -> Result<String> {
    let python = setup::python()?;
    let site = tempfile::tempdir()?;
    let mut command = run::cmd(&python, ["-m", "zipfile", "-e"]);
    run::ok(command.arg(wheel).arg(site.path()))?;
    let mut command = run::cmd(&python, ["-B", "-m", "pytest", "-q"]);
    command
        .args(["-p", "no:cacheprovider"])
        .arg(tools::workspace().join("crates/python/tests"))
        .env("PYTHONPATH", site.path());
    let output = run::capture_with(&mut command, b"", LIMIT)?;
    if !output.status.success() {
        bail!("pytest:\n{}", output.both());
    }
    Ok(output.stdout.lines().last().unwrap_or_default().to_owned())
}

/// Both.
pub fn run(profile: &str) -> Result<String> {
    test(&wheel(profile)?)
}
