//! What the live view shows, and what keys do to it.

use std::collections::VecDeque;
use std::time::Duration;

use finefs_lockmeter::{Queue, Rate, Report, Snapshot, rates};

use super::columns::{Column, sort};
use super::terminal::Key;

/// Reports that are kept to be looked at.
const REPORTS_MAX: usize = 100;

/// What is shown.
pub(super) struct Model {
    /// The mount.
    pub title: String,
    /// Between two pictures.
    pub delay: Duration,
    /// All acquisitions are counted, from now on.
    pub is_full: bool,
    /// Crossed thresholds are reported.
    pub is_watching: bool,
    /// The worst call sites stand below each row.
    pub shows_sites: bool,
    /// None before the first interval is over.
    pub picture: Option<Picture>,
    /// The latest first.
    pub reports: VecDeque<Report>,
    /// What the rows are sorted by.
    pub sorted_by: Column,
    /// The server does not answer.
    pub is_unanswered: bool,
    /// Nothing new is fetched.
    pub is_paused: bool,
    /// The keys are shown instead of the table.
    pub shows_help: bool,
    /// Lines of the body above the screen.
    pub scrolled: usize,
    /// Lines that a page has, as last drawn.
    pub page: usize,
}

/// An interval.
pub(super) struct Picture {
    pub interval: Snapshot,
    pub took: Duration,
    pub waiting: Vec<Queue>,
    /// All acquisitions were counted in it.
    pub is_full: bool,
}

/// What a key asks of the loop, beside another drawing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    Nothing,
    Quit,
    /// To count all acquisitions, or no longer.
    ToggleFull,
    /// To stand still, or go on.
    TogglePause,
}

impl Model {
    pub(super) fn new(title: String, delay: Duration) -> Model {
        Model {
            title,
            delay,
            is_full: false,
            is_watching: false,
            shows_sites: false,
            picture: None,
            reports: VecDeque::new(),
            sorted_by: Column::Waiting,
            is_unanswered: false,
            is_paused: false,
            shows_help: false,
            scrolled: 0,
            page: 1,
        }
    }

    /// The rows of the table, in order.
    pub(super) fn rows(&self) -> Vec<Rate> {
        let picture = self.picture.as_ref();
        let mut rows =
            picture.map_or_else(Vec::new, |picture| rates(&picture.interval, picture.took));
        sort(&mut rows, self.sorted_by);
        rows
    }

    pub(super) fn add_reports(&mut self, reports: Vec<Report>) {
        for report in reports {
            self.reports.push_front(report);
        }
        self.reports.truncate(REPORTS_MAX);
    }

    pub(super) fn press(&mut self, key: Key) -> Wish {
        match key {
            Key::Char('h' | '?') => {
                self.shows_help = !self.shows_help;
                self.scrolled = 0;
            }
            Key::Escape => self.shows_help = false,
            Key::Char('q' | '\x03') => return Wish::Quit,
            Key::Char('f') => return Wish::ToggleFull,
            Key::Char(' ') => return Wish::TogglePause,
            Key::Char('s' | '>') | Key::Right => self.sorted_by = self.sorted_by.beside(true),
            Key::Char('S' | '<') | Key::Left => self.sorted_by = self.sorted_by.beside(false),
            Key::Char('j') | Key::Down => self.scrolled += 1,
            Key::Char('k') | Key::Up => self.scrolled = self.scrolled.saturating_sub(1),
            Key::PageDown => self.scrolled += self.page,
            Key::PageUp => self.scrolled = self.scrolled.saturating_sub(self.page),
            Key::Home => self.scrolled = 0,
            // Drawing brings it back to the last page.
            Key::End => self.scrolled = usize::MAX / 2,
            _ => {}
        }
        Wish::Nothing
    }
}
