//! The table of options as text, for `--help-options`.

use std::fmt::Write;

use super::row::{Row, What};
use super::table::GROUPS;

/// Where descriptions begin, and where lines end.
const INDENT: usize = 25;
const WIDTH: usize = 100;

/// What `finefs mount --help-options` and finefs-mount(1) tell.
pub struct OptionsPage {
    /// Before the options.
    pub intro: &'static str,
    /// A heading, and the options below it.
    pub groups: Vec<(&'static str, Vec<OptionText>)>,
    /// After them.
    pub sizes: &'static str,
}

/// What is told of an option.
pub struct OptionText {
    /// All that are treated alike, each with its value.
    pub names: String,
    /// What becomes of it.
    pub text: String,
}

impl OptionText {
    fn new(row: &Row) -> OptionText {
        let names = row.names.iter().map(|name| match row.value {
            None => (*name).to_owned(),
            Some(value) if value.is_optional => format!("{name}[={}]", value.shown),
            Some(value) => format!("{name}={}", value.shown),
        });
        let (kind, text) = match &row.what {
            What::Flag(_, text) | What::Done(_, text) => ("", *text),
            What::Ignored(text) => ("no effect: ", *text),
            What::Refused(text) => ("refused: ", *text),
        };
        OptionText {
            names: names.collect::<Vec<_>>().join(", "),
            text: format!("{kind}{text}"),
        }
    }
}

/// All options, and what becomes of each.
pub fn options_page() -> OptionsPage {
    let groups = GROUPS.iter().map(|group| {
        let options = group.rows.iter().map(OptionText::new);
        (group.heading, options.collect())
    });
    OptionsPage {
        intro: "Options of finefs mount (-o, comma separated, may be repeated; the last of two \
                that conflict counts). With -v it says which have no effect.",
        groups: groups.collect(),
        sizes: SIZES,
    }
}

/// One option after the other, and what becomes of it.
fn describe(out: &mut String, option: &OptionText) {
    let names = fill(&option.names, 2);
    let mut lines = fill(&option.text, INDENT);
    match names.len() {
        1 if names[0].chars().count() < INDENT => {
            lines[0] = format!("{:INDENT$}{}", names[0], lines[0].trim_start());
        }
        _ => lines.splice(0..0, names).for_each(drop),
    }
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
}

/// Lines of words, indented.
fn fill(text: &str, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{:indent$}{word}", "")),
        }
    }
    lines
}

const SIZES: &str = "SIZE is in bytes, or with k, m, g, t, or % of memory.";

/// For the help: what is done.
pub(crate) fn help() -> String {
    let mut out = String::from(
        "Mount options (-o, comma separated, may be repeated; the last of two that conflict counts):\n",
    );
    for group in GROUPS {
        for row in group.rows {
            if matches!(row.what, What::Flag(..) | What::Done(..)) {
                describe(&mut out, &OptionText::new(row));
            }
        }
    }
    let others = "Options of mount(8), of the kernel's ext4 and of other FUSE file systems are known too: \
                  those that would change nothing here have no effect, others are refused. finefs mount \
                  --help-options tells of each.";
    for line in fill(others, 0) {
        let _ = writeln!(out, "{line}");
    }
    out + SIZES
}

/// All of it as text.
pub(crate) fn page() -> String {
    let page = options_page();
    let mut out = fill(page.intro, 0).join("\n") + "\n";
    for (heading, options) in &page.groups {
        let _ = writeln!(out, "\n{heading}:");
        for option in options {
            describe(&mut out, option);
        }
    }
    let _ = writeln!(out, "\n{}", page.sizes);
    out
}
