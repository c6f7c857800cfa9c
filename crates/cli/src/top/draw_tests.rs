//! What is seen on terminals of several sizes.

use std::time::Duration;

use finefs_lockmeter::{ClassCounts, Counts, Kind, Queue, Report, Snapshot, Waiter, What};

use super::super::model::Wish;
use super::super::terminal::Key;
use super::*;

/// Two classes: one that is much taken, one that is waited for.
fn picture(is_full: bool) -> Picture {
    let counts = |acquisitions, contended, wait_ns: u64, hold_ns: u64| {
        let mut counts = Counts {
            acquisitions,
            contended,
            contended_counted: contended,
            ..Counts::default()
        };
        for (times, count, ns) in [
            (&mut counts.wait, contended, wait_ns),
            (&mut counts.hold, acquisitions, hold_ns),
        ] {
            times.histogram.add(ns, count);
            (times.min_ns, times.max_ns, times.total_ns) = (ns, ns, count * ns);
        }
        counts.hold_timed = acquisitions;
        counts
    };
    let class = |name: &'static str, level, writer| ClassCounts {
        name: name.into(),
        level,
        writer,
        reader: Counts::default(),
    };
    Picture {
        interval: Snapshot {
            hold_sampling: 1,
            classes: vec![
                class("ns.inode", 30, counts(4000, 0, 0, 100)),
                class("ns.commit", 10, counts(1000, 100, 2_000_000, 40_000)),
            ],
        },
        took: Duration::from_secs(2),
        waiting: vec![Queue {
            class: "ns.commit".into(),
            lock: 0x77,
            waiters: vec![Waiter {
                thread: "worker".into(),
                thread_id: 4711,
                kind: Kind::Writer,
                waited_ns: 3_000_000,
                location: "commit.rs:1:2".into(),
            }],
        }],
        is_full,
    }
}

fn model(is_full: bool) -> Model {
    let mut model = Model::new("/mnt (image)".into(), Duration::from_secs(2));
    model.is_full = is_full;
    model.picture = Some(picture(is_full));
    model
}

fn seen(model: &mut Model, width: usize, height: usize) -> Vec<String> {
    let lines = draw(model, width, height).into_iter();
    let texts = lines.map(|line| line.0.into_iter().map(|(_, text)| text).collect::<String>());
    texts.map(|text| text.trim_end().to_owned()).collect()
}

#[test]
fn eighty_columns_have_what_matters() {
    let lines = seen(&mut model(true), 80, 24);
    assert_eq!(
        lines[..10],
        [
            "finefs top every 2.0 s - /mnt (image)",
            "all acquisitions: 2500/s, contention 2.0% (ns.commit=2.0%)",
            "1 threads wait now, for 1 locks; by waiting",
            "CLASS            KIND    TAKEN/S WAITED/S      %    WAIT     p99    HOLD     p99",
            "ns.commit        writer      500       50  10.00 2.00 ms 2.00 ms 40.0 us 40.0 us",
            "ns.inode         writer     2000        0   0.00       -       -  100 ns  100 ns",
            "",
            "1 wait for ns.commit at 0x77:",
            "    1. worker (4711) as writer, for 3.00 ms, at commit.rs:1:2",
            "",
        ]
    );
    assert_eq!(lines[23], KEYS);
}

#[test]
fn styles_tell_what_matters() {
    let mut model = model(true);
    let styles = |model: &mut Model, row: usize| -> Vec<(Style, String)> {
        let texts = draw(model, 80, 24)[row].0.clone().into_iter();
        texts
            .map(|(style, text)| (style, text.trim().to_owned()))
            .collect()
    };
    let is = |style, text: &str| (style, text.to_owned());
    assert_eq!(styles(&mut model, 0)[0], is(Style::Bold, "finefs top"));
    model.sorted_by = Column::WaitMean;
    let heads = styles(&mut model, 3);
    assert_eq!(heads[0], is(Style::Reversed, "CLASS"));
    let chosen: Vec<_> = heads
        .iter()
        .filter(|(style, _)| *style == Style::Chosen)
        .collect();
    assert_eq!(chosen, [&is(Style::Chosen, "WAIT")]);
    // One that is waited for, one that is not, the keys.
    for (row, style) in [(4, Style::Bold), (5, Style::Plain), (23, Style::Dim)] {
        assert_eq!(styles(&mut model, row)[0].0, style, "{row}");
    }
}

#[test]
fn narrow_and_tiny_terminals_stay_usable() {
    let lines = seen(&mut model(true), 60, 20);
    assert_eq!(
        lines[3..6],
        [
            "CLASS                 KIND    TAKEN/S      %    WAIT     p99",
            "ns.commit             writer      500  10.00 2.00 ms 2.00 ms",
            "ns.inode              writer     2000   0.00       -       -",
        ]
    );
    assert_eq!(lines[19], KEYS);
    for (width, height) in [(1, 1), (5, 3), (20, 4), (500, 2), (79, 5)] {
        let lines = seen(&mut model(true), width, height);
        assert_eq!(lines.len(), height);
        assert!(lines.iter().all(|line| line.chars().count() <= width));
    }
}

#[test]
fn wide_terminals_have_all_columns() {
    let lines = seen(&mut model(true), 160, 50);
    for head in ["WAITING", "BOUNCE/S"] {
        assert!(lines[3].contains(head), "{}", lines[3]);
    }
    assert_eq!(lines[3].matches("max").count(), 2, "{}", lines[3]);
    assert!(
        lines[4].starts_with("ns.commit ") && lines[4].contains(" 0.10 "),
        "{}",
        lines[4]
    );
}

#[test]
fn without_full_mode_no_share_is_told() {
    let lines = seen(&mut model(false), 80, 24);
    assert_eq!(lines[1], "acquisitions that waited: 50/s");
    assert_eq!(
        lines[4],
        "ns.commit        writer        -       50      - 2.00 ms 2.00 ms 40.0 us 40.0 us"
    );
    let mut model = model(false);
    assert_eq!(model.press(Key::Char('f')), Wish::ToggleFull);
    // The picture is of the mode before until the next one comes.
    model.is_full = true;
    assert_eq!(seen(&mut model, 80, 24)[1], "all acquisitions from now on");
    // An interval without anything.
    let empty = model.picture.as_mut().unwrap();
    (empty.interval, empty.is_full) = (Snapshot::default(), true);
    let lines = seen(&mut model, 80, 24);
    assert_eq!(lines[1], "all acquisitions: 0/s, contention -");
    assert_eq!(lines[4], "(nothing)");
    model.picture = None;
    assert!(seen(&mut model, 80, 24)[1].contains("the first interval is under way"));
}

#[test]
fn keys_sort_scroll_and_help() {
    let mut model = model(true);
    while model.sorted_by != Column::Class {
        assert_eq!(model.press(Key::Right), Wish::Nothing);
    }
    model.press(Key::Char('>'));
    model.press(Key::Char('s'));
    let lines = seen(&mut model, 80, 24);
    assert!(lines[2].ends_with("by taken/s"), "{}", lines[2]);
    assert!(lines[4].starts_with("ns.inode "), "{}", lines[4]);

    // Eight rows: three of the head, the table's heads, three of the body, the keys.
    assert!(seen(&mut model, 80, 8)[7].ends_with("(2 lines below)"));
    model.press(Key::Down);
    let lines = seen(&mut model, 80, 8);
    assert!(
        lines[3].starts_with("CLASS") && lines[4].starts_with("ns.commit"),
        "{lines:?}"
    );
    for _ in 0..9 {
        model.press(Key::Char('j'));
    }
    assert!(seen(&mut model, 80, 8)[6].contains("worker (4711)"));
    model.press(Key::Char('k'));
    assert!(
        seen(&mut model, 80, 8)[4].starts_with("ns.commit"),
        "the end is not passed"
    );

    model.press(Key::Char('?'));
    let lines = seen(&mut model, 80, 24);
    assert!(
        lines.iter().any(|line| line.starts_with("q, Ctrl-C ")),
        "{lines:?}"
    );
    model.press(Key::Char('h'));
    assert!(seen(&mut model, 80, 24)[3].starts_with("CLASS"));
    assert_eq!(model.press(Key::Char(' ')), Wish::TogglePause);
    assert_eq!(model.press(Key::Char('q')), Wish::Quit);
    assert_eq!(model.press(Key::Char('\x03')), Wish::Quit);
}

#[test]
fn reports_stand_below_the_latest_first() {
    let mut model = model(false);
    model.is_watching = true;
    let lines = seen(&mut model, 80, 24);
    assert!(
        lines
            .iter()
            .any(|line| line == "(nothing has crossed a threshold)"),
        "{lines:?}"
    );
    let report = |thread: &str| Report {
        what: What::Hold { ns: 5_000_000 },
        class: "ns.commit".into(),
        kind: Kind::Writer,
        // What a terminal would take for an order does not get there.
        thread: format!("{thread}\u{1b}[2J"),
        thread_id: 1,
        location: "commit.rs:1:2".into(),
        backtrace: "   0: finefs::somewhere\n".into(),
        left_out: 0,
    };
    model.add_reports(vec![report("first"), report("second")]);
    let lines = seen(&mut model, 80, 24);
    let place = |of: &str| lines.iter().position(|line| line.starts_with(of)).unwrap();
    assert!(place("second") < place("first"), "{lines:?}");
    assert_eq!(lines[place("first") + 1], "   0: finefs::somewhere");
    assert!(!lines.concat().contains('\u{1b}'));
}
