//! Every link of a document leads to a file that is there.

use super::files::normal;
use std::path::{Path, PathBuf};

/// Findings in the documents of the workspace at `root`.
pub fn check(root: &Path, documents: &[(PathBuf, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in documents {
        let dir = path.parent().unwrap_or(Path::new(""));
        for (index, line) in text.lines().enumerate() {
            for target in targets(line) {
                if !root.join(normal(&dir.join(target))).exists() {
                    let name = path.display();
                    findings.push(format!("{name}:{}: no such file: {target}", index + 1));
                }
            }
        }
    }
    findings
}

/// The files that the links of a line name, without the place in them. Not those elsewhere in the
/// net.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty() && !target.contains(':'))
}
