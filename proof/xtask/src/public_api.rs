//! What the published crates offer, line by line, as it was when it was last agreed on.
//!
//! rustdoc tells as JSON what a crate has that is public; that form is unstable, so the compiler is
//! told to take unstable options, in a target directory of its own. A compiler whose form the crate
//! `public-api` does not know proves nothing.
//!
//! Derived and automatic implementations are left out. Of what a crate takes over from another one
//! only the name is listed.

use crate::schedule::CannotRun;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::{run, tools};
use public_api::Builder;
use std::path::PathBuf;

/// The crates, with the features that are on by default.
const CRATES: [&str; 3] = ["finefs", "finefs-locks", "finefs-lockmeter"];

/// Compares every crate with its list, or renews the lists. Says what was compared; [`CannotRun`]
/// with a compiler that proves nothing.
pub fn run(is_update: bool) -> Result<String> {
    let mut items = 0;
    let mut differences = Vec::new();
    for name in CRATES {
        let Some(is) = listed(name)? else {
            let why = "this compiler's rustdoc writes another form of JSON";
            return Err(CannotRun(why.to_owned()).into());
        };
        items += is.len();
        let path = list_of(name);
        if is_update {
            std::fs::create_dir_all(path.parent().expect("it is in a directory"))?;
            std::fs::write(&path, is.join("\n") + "\n")?;
            continue;
        }
        let was = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        differences.extend(differences_of(&was, &is));
    }
    ensure!(
        differences.is_empty(),
        "{}\nIf that is wanted: cargo run -p xtask -- public-api --update",
        differences.join("\n")
    );
    Ok(format!("{items} items"))
}

/// Where the list of a crate is kept.
fn list_of(name: &str) -> PathBuf {
    let directory = tools::workspace().join("proof/xtask/public-api");
    directory.join(name).with_extension("txt")
}

/// Lines that went (`-`) and came (`+`).
fn differences_of(was: &str, is: &[String]) -> Vec<String> {
    let gone = was
        .lines()
        .filter(|line| !is.iter().any(|item| item == line));
    let new = is
        .iter()
        .filter(|item| !was.lines().any(|line| line == **item));
    gone.map(|line| format!("- {line}"))
        .chain(new.map(|item| format!("+ {item}")))
        .collect()
}

/// The public items of a crate; `None` of a compiler that tells them in an unknown form.
fn listed(name: &str) -> Result<Option<Vec<String>>> {
    let target = tools::target_dir().join("public-api");
    let output = run::cargo([
        "rustdoc",
        "--quiet",
        "--lib",
        "--package",
        name,
        "--target-dir",
    ])
    .arg(&target)
    .args(["--", "-Z", "unstable-options", "--output-format", "json"])
    .args(["--cap-lints", "allow"])
    .env("RUSTC_BOOTSTRAP", "1")
    .current_dir(tools::workspace())
    .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    let json = target
        .join("doc")
        .join(name.replace('-', "_"))
        .with_extension("json");
    let built = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match built {
        Ok(api) => Ok(Some(api.items().map(ToString::to_string).collect())),
        Err(public_api::Error::SerdeJsonError(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_and_what_came_is_told() {
        let is = ["pub fn a()", "pub fn b(u64)"].map(str::to_owned);
        let was = "pub fn a()\npub fn b(u32)\n";
        let told = differences_of(was, &is);
        assert_eq!(told, ["- pub fn b(u32)", "+ pub fn b(u64)"]);
        assert!(differences_of(&is.join("\n"), &is).is_empty());
    }
}
