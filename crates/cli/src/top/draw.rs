//! How the live view is drawn: a head that stays, the table's heads, a body that scrolls, the keys.

use std::ops::Add;

use super::columns::{Column, Columns};
use super::model::{Model, Picture};
use super::terminal::{Line, Style};
use finefs_lockmeter::duration;

/// What stands on the last line.
const KEYS: &str = "q quit  f full  s sort  space pause  j/k scroll  h help";

const HELP: [&str; 14] = [
    "q, Ctrl-C          quit",
    "f                  count all acquisitions, or only those that waited",
    "s, >, right        sort by the next column",
    "S, <, left         sort by the column before",
    "space              stand still, go on",
    "j, k, down, up     scroll; also page down and up, home, end",
    "h, ?               this help, the table again",
    "",
    "TAKEN/S, %         acquisitions a second, and how many of them had to wait: with f or --full",
    "WAITED/S, WAITING  acquisitions a second that had to wait; threads that waited, on average",
    "WAIT, HOLD         for how long, on average; p99: all but one in a hundred; max since the server's start",
    "BOUNCE/S           acquisitions of a lock that another CPU had last",
    "",
    "On a wider terminal there are more columns. finefs top --help tells more.",
];

/// All lines of a screen of this size. What the model has scrolled too far is brought back.
pub(super) fn draw(model: &mut Model, width: usize, height: usize) -> Vec<Line> {
    let mut lines = head(model);
    let mut body = if model.shows_help {
        HELP.iter().map(|line| Line::plain(*line)).collect()
    } else {
        let columns = Columns::of(width);
        lines.push(heads(&columns, model.sorted_by));
        body(&columns, model)
    };
    let page = height.saturating_sub(lines.len() + 1);
    model.page = page.max(1);
    model.scrolled = model.scrolled.min(body.len().saturating_sub(page));
    let below = body.len().saturating_sub(model.scrolled + page);
    lines.extend(body.drain(model.scrolled..).take(page));
    // Where there is no room for all, the keys go first.
    lines.resize(height.saturating_sub(1), Line::default());
    lines.push(foot(below));
    for line in &mut lines {
        line.fit(width);
    }
    lines
}

fn head(model: &Model) -> Vec<Line> {
    let paused = if model.is_paused { ", paused" } else { "" };
    let delay = model.delay.as_secs_f64();
    let title = format!(" every {delay:.1} s{paused} - {}", model.title);
    let name = "finefs top".to_owned();
    let mut lines = vec![Line(vec![(Style::Bold, name), (Style::Plain, title)])];
    let mode = if model.is_full {
        "all acquisitions"
    } else {
        "acquisitions that waited"
    };
    if model.is_unanswered {
        lines.push(Line::new(Style::Bold, "the server does not answer"));
        lines.push(Line::default());
        return lines;
    }
    let Some(picture) = &model.picture else {
        let text = format!("{mode}: the first interval is under way");
        lines.push(Line::plain(text));
        lines.push(Line::default());
        return lines;
    };
    lines.push(Line::plain(format!("{mode}{}", totals(picture, model))));
    let threads: usize = picture
        .waiting
        .iter()
        .map(|queue| queue.waiters.len())
        .sum();
    let locks = picture.waiting.len();
    let sorted_by = model.sorted_by.description();
    let mut last = format!("{threads} threads wait now, for {locks} locks; by {sorted_by}");
    if picture.interval.is_hold_estimated() {
        let one_in = picture.interval.hold_sampling;
        last += &format!("; 1 of {one_in} holds timed");
    }
    lines.push(Line::plain(last));
    lines
}

/// What all locks did in a picture that is of the mode that is on.
fn totals(picture: &Picture, model: &Model) -> String {
    if picture.is_full != model.is_full {
        return " from now on".to_owned();
    }
    let rows = model.rows();
    // Not `sum`, which makes -0 of nothing.
    if !model.is_full {
        let waited: f64 = rows.iter().map(|rate| rate.contended).fold(0.0, Add::add);
        return format!(": {waited:.0}/s");
    }
    let taken: f64 = rows
        .iter()
        .map(|rate| rate.acquisitions)
        .fold(0.0, Add::add);
    let contention = picture.interval.contention();
    let contention = contention.map_or_else(|| "-".to_owned(), |contention| contention.to_string());
    format!(": {taken:.0}/s, contention {contention}")
}

fn heads(columns: &Columns, sorted_by: Column) -> Line {
    let heads = columns.heads().into_iter().map(|(column, text)| {
        let style = match column == sorted_by {
            true => Style::Chosen,
            false => Style::Reversed,
        };
        (style, text)
    });
    Line(heads.collect())
}

fn body(columns: &Columns, model: &Model) -> Vec<Line> {
    let mut lines = Vec::new();
    let Some(picture) = &model.picture else {
        return lines;
    };
    for rate in model.rows() {
        let cells = columns.row(&rate, picture.took, picture.is_full);
        let row: String = cells.into_iter().map(|(_, text)| text).collect();
        let style = match rate.contended > 0.0 {
            true => Style::Bold,
            false => Style::Plain,
        };
        lines.push(Line::new(style, row));
        if !model.shows_sites {
            continue;
        }
        for site in rate.counts.worst_sites() {
            let waited = duration(site.wait_ns_total);
            let text = format!(
                "    {} waited {waited}, at {}",
                site.contended, site.location
            );
            lines.push(Line::new(Style::Dim, text));
        }
    }
    if lines.is_empty() {
        lines.push(Line::plain("(nothing)"));
    }
    for queue in &picture.waiting {
        add(&mut lines, &queue.to_string());
    }
    if model.is_watching && model.reports.is_empty() {
        add(&mut lines, "(nothing has crossed a threshold)");
    }
    for report in &model.reports {
        add(&mut lines, &report.to_string());
    }
    lines
}

/// A text of several lines, after an empty one.
fn add(lines: &mut Vec<Line>, text: &str) {
    lines.push(Line::default());
    lines.extend(text.lines().map(Line::plain));
}

fn foot(below: usize) -> Line {
    let more = if below > 0 {
        format!("  ({below} lines below)")
    } else {
        String::new()
    };
    Line::new(Style::Dim, format!("{KEYS}{more}"))
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
