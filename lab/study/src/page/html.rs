//! A document as one page of HTML: no script, no network, light and dark.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::document::{Cell, Chart, Document, Exhibit, Origin, Section, Table};
use super::svg;

const STYLE: &str = include_str!("style.css");

/// Widths of the two drawings of each chart, CSS pixels: for wide and narrow windows.
const WIDE: f64 = 400.0;
const NARROW: f64 = 340.0;

impl Document {
    /// The whole as a page.
    pub fn to_html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    // No favicon is asked for.
                    link rel="icon" href="data:,";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { (self.title) }
                        @if self.is_partial {
                            p.partial { "The run was ended early: what it had not come to is missing." }
                        }
                        @for paragraph in &self.lead { p { (prose(paragraph)) } }
                        dl {
                            @for fact in &self.facts { dt { (fact.name) } dd { (prose(&fact.value)) } }
                        }
                        nav aria-label="Parts" {
                            ol { @for part in &self.sections { li { a href={ "#" (part.id) } { (part.title) } } } }
                        }
                    }
                    main { @for part in &self.sections { (section(part)) } }
                    footer {
                        p {
                            "Made by " code { "finefs bench studies" }
                            ". This page needs nothing but itself."
                        }
                    }
                }
            }
        };
        page.into_string()
    }
}

fn section(part: &Section) -> Markup {
    html! {
        section id=(part.id) {
            h2 { (part.title) }
            @for paragraph in &part.paragraphs { p { (prose(paragraph)) } }
            @for (index, shown) in part.exhibits.iter().enumerate() {
                (exhibit(shown, &format!("{}-{index}", part.id)))
            }
        }
    }
}

fn exhibit(shown: &Exhibit, id: &str) -> Markup {
    let heading = format!("{id}-h");
    let pair = if shown.chart.is_some() {
        "pair charted"
    } else {
        "pair"
    };
    html! {
        div.exhibit {
            h3 id=(heading) { (shown.table.caption) }
            div class=(pair) {
                @if let Some(chart) = &shown.chart { (figure(chart, id)) }
                (table(&shown.table, &heading))
            }
            @if !shown.notes.is_empty() {
                ul.notes { @for note in &shown.notes { li { (prose(note)) } } }
            }
        }
    }
}

fn figure(chart: &Chart, id: &str) -> Markup {
    html! {
        figure {
            figcaption { (chart.title()) }
            div.wide { (svg::chart(chart, &format!("{id}-w"), WIDE)) }
            div.narrow { (svg::chart(chart, &format!("{id}-n"), NARROW)) }
            p.key { (key(chart)) }
        }
    }
}

/// How what is in the chart is told apart.
fn key(chart: &Chart) -> String {
    let (looks, origins): ([&str; 3], Vec<Origin>) = match chart {
        Chart::Lines { lines, .. } => (
            ["Solid", "Dashed, hollow", "Dotted"],
            lines.iter().map(|line| line.origin).collect(),
        ),
        Chart::Bars { groups, .. } => (
            ["Filled", "Pale", "Dashed"],
            groups
                .iter()
                .flat_map(|group| &group.bars)
                .map(|bar| bar.origin)
                .collect(),
        ),
    };
    let all = [Origin::Measured, Origin::Published, Origin::Predicted];
    let named: Vec<String> = all
        .into_iter()
        .zip(looks)
        .filter(|(origin, _)| origins.contains(origin))
        .map(|(origin, look)| format!("{look}: {}.", origin.name()))
        .collect();
    named.join(" ")
}

fn table(shown: &Table, heading: &str) -> Markup {
    html! {
        // Reachable by keyboard, because a narrow window has to scroll it.
        div.scroll role="region" tabindex="0" aria-labelledby=(heading) {
            table aria-labelledby=(heading) {
                thead {
                    tr {
                        th.words scope="col" { "" span { "from" } }
                        @for column in &shown.columns {
                            th scope="col" class=(alignment(column.is_text)) { (column.title) }
                        }
                    }
                }
                tbody {
                    @for row in &shown.rows {
                        tr class=(row.origin.name()) {
                            td.words.origin { (row.origin.name()) }
                            @for (cell, column) in row.cells.iter().zip(&shown.columns) {
                                td class=(alignment(column.is_text)) { (shown_cell(cell)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn alignment(is_text: bool) -> &'static str {
    if is_text { "words" } else { "number" }
}

fn shown_cell(cell: &Cell) -> Markup {
    match cell {
        Cell::Text(words) => prose(words),
        _ => html! { (cell.shown()) },
    }
}

/// Text in which backquotes mark code.
fn prose(text: &str) -> Markup {
    html! {
        @for (index, piece) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Column, Fact, Line, Row, Scale, Tone};
    use super::*;

    #[test]
    fn text_is_escaped_and_code_is_marked() {
        let document = Document {
            title: "a & b".to_owned(),
            lead: vec!["run `x<y>` now".to_owned()],
            facts: vec![Fact {
                name: "CPUs",
                value: "2".to_owned(),
            }],
            sections: vec![Section {
                id: "one",
                title: "One".to_owned(),
                paragraphs: Vec::new(),
                exhibits: vec![Exhibit {
                    table: Table {
                        caption: "t".to_owned(),
                        columns: vec![Column {
                            title: "v".to_owned(),
                            is_text: false,
                        }],
                        rows: vec![Row {
                            origin: Origin::Published,
                            cells: vec![Cell::number(1.5, 1)],
                        }],
                    },
                    chart: None,
                    notes: vec!["<b>".to_owned()],
                }],
            }],
            is_partial: true,
            is_empty: false,
        };
        let page = document.to_html();
        assert!(page.contains("<title>a &amp; b</title>"));
        assert!(page.contains("<code>x&lt;y&gt;</code>"));
        assert!(page.contains("<td class=\"number\">1.5</td>"));
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"));
        assert!(page.contains("ended early"));
        for outside in ["http:", "https:", "url(", "@import", "<script", " src="] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    /// Only what the chart shows, and nothing else is dotted.
    #[test]
    fn the_key_names_what_is_there() {
        let chart = |origins: &[Origin]| Chart::Lines {
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            y_scale: Scale::Linear,
            lines: origins
                .iter()
                .map(|origin| Line {
                    name: String::new(),
                    origin: *origin,
                    tone: Tone::Fine,
                    points: Vec::new(),
                })
                .collect(),
        };
        use Origin::{Measured, Predicted, Published};
        assert_eq!(
            key(&chart(&[Published, Measured, Measured])),
            "Solid: measured. Dashed, hollow: published."
        );
        assert_eq!(key(&chart(&[Predicted])), "Dotted: predicted.");
        let style = include_str!("style.css");
        let leader = style.lines().find(|line| line.contains(".leader")).unwrap();
        assert!(!leader.contains("dasharray"), "{leader}");
    }
}
