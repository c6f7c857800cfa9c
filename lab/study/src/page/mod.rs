//! Documents of tables and plots, for people and programs: [`Document`].
//!
//! | Module | What |
//! |---|---|
//! | `document` | sections, tables, charts as plain data; JSON by serde |
//! | `text` | Markdown |
//! | `html` | one page that needs nothing but itself |
//! | `svg` | charts: frame, axes, marks, labels |
//! | `labels` | labels that stand beside their lines without covering each other |
//!
//! The page has no script and loads nothing. Its colours are CSS variables, one set for light and
//! one for dark surroundings. Lines and bars carry their names, and published, measured and
//! predicted ones also differ in their dashes or patterns, so nothing is told by colour alone.
//!
//! The charts are written here and not by a plotting crate: those draw colours as literals, which
//! neither follow a style sheet nor the reader's theme.

mod document;
mod html;
mod labels;
mod svg;
mod text;

pub use document::{
    Bar, BarGroup, Cell, Chart, Column, Document, Exhibit, Fact, Line, Origin, Row, Scale, Section,
    Table, Tone,
};
