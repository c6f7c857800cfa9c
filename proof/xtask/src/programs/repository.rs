//! A repository for git, and what git does with its clones, in a mount here and by NFS in a guest.

use anyhow::Result;
use finefs_harness::run;
use finefs_harness::tools;
use std::path::{Path, PathBuf};

/// Functions of a script.
pub(crate) const GIT: &str = include_str!("git.sh");

/// Of which the repository is made.
const SOURCES: [&str; 2] = ["crates/nfs", "crates/namespace"];

/// Makes a repository in one file below `dir`; how many files it has.
pub(crate) fn bundle(dir: &Path) -> Result<(PathBuf, usize)> {
    let tree = dir.join("repository");
    if tree.exists() {
        std::fs::remove_dir_all(&tree)?;
    }
    std::fs::create_dir(&tree)?;
    let git = |words: &[&str]| {
        let user = ["-c", "user.name=proof", "-c", "user.email=proof@localhost"];
        let mut command = run::cmd("git", [&user, words].concat());
        command.current_dir(&tree).env("HOME", &tree);
        // Of a repository whose hook may have started this.
        for name in [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "XDG_CONFIG_HOME",
        ] {
            command.env_remove(name);
        }
        run::ok(command.env("GIT_CONFIG_NOSYSTEM", "1"))
    };
    git(&["init", "-q", "-b", "main"])?;
    for source in SOURCES {
        let source = tools::workspace().join(source);
        run::ok(run::cmd("cp", ["-R"]).arg(source).arg(&tree))?;
        git(&["add", "-A"])?;
        git(&["commit", "-q", "-m", "more"])?;
    }
    let listed = git(&["ls-files", "-z"])?.stdout;
    let bundle = dir.join("bundle");
    let create = ["bundle", "create", "-q"];
    git(&[&create[..], &[&bundle.to_string_lossy(), "HEAD", "main"]].concat())?;
    Ok((bundle, listed.matches('\0').count()))
}
