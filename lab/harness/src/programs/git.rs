//! git: init, add and commit of the tree, and its own check of every object.

use super::Work;
use crate::run::{self, Output};
use crate::tree::{PARTS, copy_parts};
use anyhow::{Result, ensure};
use std::ffi::OsStr;

pub(super) fn run(work: &Work<'_>) -> Result<String> {
    let parts: Vec<&OsStr> = PARTS
        .iter()
        .take(work.size.git_parts)
        .map(OsStr::new)
        .collect();
    copy_parts(&work.tree.root, work.dir, &parts)?;
    let git = |args: &[&str]| -> Result<Output> {
        let mut command = run::cmd("git", args);
        // Only what is said here: no configuration of the machine or the user.
        command
            .current_dir(work.dir)
            .env("HOME", work.scratch)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_DATE", "2001-02-03T04:05:06Z")
            .env("GIT_COMMITTER_DATE", "2001-02-03T04:05:06Z")
            .args([] as [&str; 0]);
        run::ok(&mut command)
    };
    git(&["init", "-q", "-b", "main"])?;
    for (key, value) in [
        ("user.name", "prove"),
        ("user.email", "prove@localhost"),
        ("gc.auto", "0"),
    ] {
        git(&["config", key, value])?;
    }
    git(&["add", "-A"])?;
    git(&["commit", "-q", "-m", "all"])?;
    git(&["fsck", "--full", "--strict"])?;
    let status = git(&["status", "--porcelain"])?.stdout;
    ensure!(
        status.is_empty(),
        "git sees changes after the commit:\n{}",
        run::tail(&status)
    );
    let files = git(&["ls-files", "-z"])?.stdout.matches('\0').count();
    let expected = parts.len() * work.tree.plan.files / PARTS.len();
    ensure!(
        files * 10 >= expected * 9,
        "git committed {files} files of about {expected}"
    );
    Ok(format!("{files} files committed"))
}
