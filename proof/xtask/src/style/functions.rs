//! Functions that are short enough to be read at once. What is longer is excused by name: a table
//! in the form of a match, or a sequence that would not read better in pieces.

use super::source::Source;

/// More lines than this do not fit on a screen.
const MOST_LINES: usize = 70;

/// Longer functions: their files and names.
const EXCUSED: &[(&str, &str)] = &[
    // A match with an arm for each request, step or kind.
    ("fuse/src/adapter.rs", "run"),
    ("fuse/src/request.rs", "parse"),
    ("fuzz/src/work.rs", "step"),
    ("testkit/src/runner/steps.rs", "step_names"),
    ("testkit/src/runner/steps.rs", "step_data"),
    ("testkit/src/crash/workload.rs", "data"),
    ("testkit/src/checked_store/committed.rs", "apply"),
    ("xtask/src/differential/execute.rs", "data"),
    ("xtask/src/differential/execute.rs", "execute"),
    ("xtask/src/differential/generate.rs", "data"),
    // A table of rows.
    ("study/src/studies/what_if/tables.rs", "against_2002"),
    ("study/src/studies/what_if/tables.rs", "beyond"),
    ("xtask/src/bad_input.rs", "run"),
    ("testkit/src/bin/crash.rs", "one_image"),
    // One check after the other, each with its own error.
    ("ext-disk/src/geometry.rs", "new"),
    // Steps of one change.
    ("testkit/src/model.rs", "rename"),
    // The course of a run, from its preparation to its report.
    ("study/src/studies/mod.rs", "run"),
    ("workloads/src/append.rs", "work"),
    ("workloads/src/threads.rs", "run"),
    ("xtask/src/differential/lockstep.rs", "work"),
];

/// Findings in the sources, but for tests.
pub fn check(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut unused: Vec<_> = EXCUSED.to_vec();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let file = source.name();
        for function in functions(source.product_code()) {
            if function.lines <= MOST_LINES {
                continue;
            }
            let is_excused =
                |(in_file, name): &(&str, &str)| file.ends_with(in_file) && *name == function.name;
            unused.retain(|excuse| !is_excused(excuse));
            if !EXCUSED.iter().any(is_excused) {
                findings.push(format!(
                    "{file}:{}: {} has {} lines: split what is longer than {MOST_LINES}",
                    function.line, function.name, function.lines
                ));
            }
        }
    }
    let is_whole = sources.len() > 100;
    findings.extend(unused.iter().filter(|_| is_whole).map(|(file, name)| {
        format!("{file}: {name} is excused for its length, and needs it no more")
    }));
    findings
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// The functions with a body, by their braces: comments and strings are blanks already.
fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        let (mut depth, mut is_open) = (0_i32, false);
        'lines: for (end, line) in lines.iter().enumerate().skip(start) {
            for byte in line.bytes() {
                match byte {
                    b'{' => (depth, is_open) = (depth + 1, true),
                    b'}' => depth -= 1,
                    b';' if !is_open => break 'lines,
                    _ => {}
                }
            }
            if is_open && depth == 0 {
                found.push(Function {
                    name: name.to_owned(),
                    line: start + 1,
                    lines: end - start + 1,
                });
                break;
            }
        }
    }
    found
}

/// The name of the function that a line begins.
fn name(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "fn")?;
    let is_prefix = |word: &&str| {
        matches!(*word, "const" | "unsafe" | "extern" | "async") || word.starts_with("pub")
    };
    // `pub(in x)` is two words.
    let is_start = words[..at]
        .iter()
        .all(|word| is_prefix(word) || word.ends_with(')'));
    let name = words.get(at + 1)?;
    let end = name.find(['(', '<']).unwrap_or(name.len());
    is_start.then_some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_with_their_lengths() {
        let text = "trait T {\n    fn declared(&self);\n}\n\
                    pub(crate) fn one<T>(\n    t: T,\n) -> usize {\n    if t { 1 } else { 2 }\n}\n\
                    const fn short() {}\n";
        let found: Vec<_> = functions(text)
            .into_iter()
            .map(|function| (function.name, function.line, function.lines))
            .collect();
        assert_eq!(found, [("one".into(), 4, 5), ("short".into(), 9, 1)]);
    }
}
