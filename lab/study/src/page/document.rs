//! What a page shows, as plain data.

use serde::Serialize;

/// A page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// What it is about, paragraph by paragraph.
    pub lead: Vec<String>,
    /// When, where and how it was made.
    pub facts: Vec<Fact>,
    /// Its parts.
    pub sections: Vec<Section>,
    /// True when the work ended early: parts may be missing.
    pub is_partial: bool,
    /// Nothing was measured: no reason to replace what an earlier run wrote.
    #[serde(skip)]
    pub is_empty: bool,
}

/// One fact of how the page came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Of what.
    pub name: &'static str,
    /// Which.
    pub value: String,
}

/// A part with a heading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Section {
    /// A name for links.
    pub id: &'static str,
    /// The heading.
    pub title: String,
    /// Text below it, paragraph by paragraph.
    pub paragraphs: Vec<String>,
    /// Tables and plots.
    pub exhibits: Vec<Exhibit>,
}

/// A table, the chart that belongs to it, and what to say about them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exhibit {
    /// The table.
    pub table: Table,
    /// The chart, if the table has one.
    pub chart: Option<Chart>,
    /// Remarks, in order.
    pub notes: Vec<String>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with a cell per column.
    pub rows: Vec<Row>,
}

impl Table {
    /// An empty table. A column whose title ends in `<` holds text, the others numbers.
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Table {
        let column = |title: &&str| Column {
            title: title.trim_end_matches('<').to_owned(),
            is_text: title.ends_with('<'),
        };
        Table {
            caption: caption.into(),
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn push(&mut self, origin: Origin, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "{}", self.caption);
        self.rows.push(Row { origin, cells });
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its title, with the unit.
    pub title: String,
    /// True for words, false for numbers.
    pub is_text: bool,
}

/// Where numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Copied from a publication.
    Published,
    /// Measured in this run.
    Measured,
    /// Computed by the model.
    Predicted,
}

impl Origin {
    /// As the page names it.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Published => "published",
            Origin::Measured => "measured",
            Origin::Predicted => "predicted",
        }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Where its numbers come from.
    pub origin: Origin,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number.
    Number {
        /// Its value, in the column's unit.
        value: f64,
        /// Digits after the point when it is shown.
        decimals: usize,
    },
    /// There is none.
    Missing(()),
}

impl Cell {
    /// Words.
    pub fn text(words: impl Into<String>) -> Cell {
        Cell::Text(words.into())
    }

    /// A number with some decimals.
    pub fn number(value: f64, decimals: usize) -> Cell {
        if value.is_finite() {
            Cell::Number { value, decimals }
        } else {
            Cell::missing()
        }
    }

    /// A whole number.
    pub fn count(value: f64) -> Cell {
        Cell::number(value, 0)
    }

    /// Nothing.
    pub fn missing() -> Cell {
        Cell::Missing(())
    }

    /// A number with some decimals, if there is one.
    pub fn maybe(value: Option<f64>, decimals: usize) -> Cell {
        value.map_or_else(Cell::missing, |value| Cell::number(value, decimals))
    }

    /// As it is shown: thousands apart, a dash for nothing.
    pub fn shown(&self) -> String {
        match self {
            Cell::Text(words) => words.clone(),
            Cell::Number { value, decimals } => number(*value, *decimals),
            Cell::Missing(()) => "–".to_owned(),
        }
    }
}

/// A number with a comma between thousands.
pub(super) fn number(value: f64, decimals: usize) -> String {
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut shown = String::new();
    if value < 0.0 && plain.contains(|digit: char| ('1'..='9').contains(&digit)) {
        shown.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index != 0 && (whole.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    if !fraction.is_empty() {
        shown.push('.');
        shown.push_str(fraction);
    }
    shown
}

/// A chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Chart {
    /// Values over numbers of CPUs, threads or clients, whose axis is logarithmic.
    Lines {
        /// What it shows.
        title: String,
        /// The horizontal axis.
        x_label: String,
        /// The vertical axis.
        y_label: String,
        /// Its scale.
        y_scale: Scale,
        /// The lines.
        lines: Vec<Line>,
    },
    /// Values side by side.
    Bars {
        /// What it shows.
        title: String,
        /// The unit of all values.
        unit: String,
        /// Digits after the point.
        decimals: usize,
        /// The bars, in groups.
        groups: Vec<BarGroup>,
    },
}

/// How an axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// From 0, in equal steps.
    Linear,
    /// In equal factors; values are positive.
    Logarithmic,
}

impl Chart {
    /// What it shows.
    pub fn title(&self) -> &str {
        match self {
            Chart::Lines { title, .. } | Chart::Bars { title, .. } => title,
        }
    }

    /// What it shows in words, for those who cannot see it.
    pub fn description(&self) -> String {
        let join = |parts: Vec<String>| parts.join("; ");
        match self {
            Chart::Lines { lines, x_label, .. } => join(
                lines
                    .iter()
                    .filter_map(|line| {
                        let (first, last) = (line.points.first()?, line.points.last()?);
                        Some(format!(
                            "{}: {:.2} at {} {x_label}, {:.2} at {}",
                            line.name, first.1, first.0, last.1, last.0
                        ))
                    })
                    .collect(),
            ),
            Chart::Bars {
                groups,
                unit,
                decimals,
                ..
            } => join(
                groups
                    .iter()
                    .flat_map(|group| {
                        group.bars.iter().map(|bar| {
                            let value = number(bar.value, *decimals);
                            format!("{}, {}: {value} {unit}", group.name, bar.name)
                        })
                    })
                    .collect(),
            ),
        }
    }
}

/// A colour by its meaning, the same all over a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// One lock, spinning.
    Spin,
    /// One lock, sleeping.
    Sleep,
    /// A lock per file system or file.
    Coarse,
    /// Fine locks.
    Fine,
    /// No lock.
    None,
}

impl Tone {
    /// The class of its marks.
    pub(super) fn class(self) -> &'static str {
        match self {
            Tone::Spin => "tone-spin",
            Tone::Sleep => "tone-sleep",
            Tone::Coarse => "tone-coarse",
            Tone::Fine => "tone-fine",
            Tone::None => "tone-none",
        }
    }
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What it is; stands beside it.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Its colour.
    pub tone: Tone,
    /// From left to right; x at least 1.
    pub points: Vec<(f64, f64)>,
}

/// Bars that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BarGroup {
    /// What they share.
    pub name: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// What it is; stands beside it.
    pub name: String,
    /// Its length, not negative.
    pub value: f64,
    /// Where it comes from.
    pub origin: Origin,
    /// Its colour.
    pub tone: Tone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (value, decimals, shown) in [
            (0.0, 0, "0"),
            (999.4, 0, "999"),
            (999.6, 0, "1,000"),
            (1_234_567.891, 1, "1,234,567.9"),
            (-1234.5, 1, "-1,234.5"),
            (-0.001, 1, "0.0"),
        ] {
            assert_eq!(number(value, decimals), shown);
        }
        assert_eq!(Cell::number(f64::NAN, 2).shown(), "–");
        assert_eq!(Cell::maybe(Some(2.25), 2).shown(), "2.25");
    }
}
