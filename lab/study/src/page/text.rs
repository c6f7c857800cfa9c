//! A document as Markdown, in tables that are as straight on a terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, presets::ASCII_MARKDOWN};

use super::document::{Document, Exhibit, Table};

impl Document {
    /// The whole as Markdown.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# {}\n", self.title);
        paragraphs(&mut text, &self.lead);
        text.push('\n');
        for fact in &self.facts {
            let _ = writeln!(text, "- {}: {}", fact.name, fact.value);
        }
        for section in &self.sections {
            let _ = write!(text, "\n## {}\n", section.title);
            paragraphs(&mut text, &section.paragraphs);
            for exhibit in &section.exhibits {
                text.push_str(&exhibit.to_markdown());
            }
        }
        text
    }
}

fn paragraphs(text: &mut String, paragraphs: &[String]) {
    for paragraph in paragraphs {
        let _ = write!(text, "\n{paragraph}\n");
    }
}

impl Exhibit {
    /// The table with its caption, and the notes.
    pub fn to_markdown(&self) -> String {
        let mut text = format!(
            "\n### {}\n\n{}\n",
            self.table.caption,
            self.table.to_markdown()
        );
        for (index, note) in self.notes.iter().enumerate() {
            let _ = writeln!(text, "{}- {note}", if index == 0 { "\n" } else { "" });
        }
        text
    }
}

impl Table {
    /// Without the caption.
    pub fn to_markdown(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(ASCII_MARKDOWN);
        let mut titles = vec![""];
        titles.extend(self.columns.iter().map(|column| column.title.as_str()));
        table.set_header(titles);
        for row in &self.rows {
            let mut cells = vec![row.origin.name().to_owned()];
            // A bar would end the cell.
            let shown = row.cells.iter().map(|cell| cell.shown().replace('|', "/"));
            cells.extend(shown);
            table.add_row(cells);
        }
        for (index, column) in self.columns.iter().enumerate() {
            if let (false, Some(column)) = (column.is_text, table.column_mut(index + 1)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cell, Origin};
    use super::*;

    #[test]
    fn tables_are_markdown() {
        let mut table = Table::new("t", &["lock<", "ops/s"]);
        table.push(
            Origin::Published,
            vec![Cell::text("big|one"), Cell::count(1197.0)],
        );
        table.push(Origin::Measured, vec![Cell::text("fine"), Cell::missing()]);
        let text = table.to_markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[2], "| published | big/one | 1,197 |");
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with('|') && line.ends_with('|'))
        );
        assert!(
            lines[1].chars().all(|c| matches!(c, '|' | '-' | ':' | ' ')),
            "{text}"
        );
    }
}
