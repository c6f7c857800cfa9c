//! The published tables measured again, in a run of milliseconds: every section has its rows, the
//! ratios are those of the rows, and what a run finds reaches the page.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use finefs_lockmeter::Snapshot;
use finefs_study::page::{Cell, Document, Origin, Section};
use finefs_study::studies::{
    DeviceTimes, MEMORY_BYTES, Mounted, Options, Place, ServerMeter, Study, run,
};
use finefs_workloads::Watch;

/// The meter's mode and the CPUs are the process's: one run at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn options(only: &[Study]) -> Options {
    Options {
        place: Place::Memory(MEMORY_BYTES),
        device: DeviceTimes::default(),
        seconds: 0.02,
        rounds: 1,
        threads: Some(3),
        only: only.to_vec(),
    }
}

fn section<'a>(document: &'a Document, id: &str) -> &'a Section {
    let mut sections = document.sections.iter();
    sections.find(|section| section.id == id).unwrap()
}

/// The numbers of a column in the measured rows of a section's first table.
fn measured(section: &Section, column: usize) -> Vec<Option<f64>> {
    let rows = section.exhibits[0].table.rows.iter();
    rows.filter(|row| row.origin == Origin::Measured)
        .map(|row| match row.cells[column] {
            Cell::Number { value, .. } => Some(value),
            _ => None,
        })
        .collect()
}

#[test]
fn opens_over_nfs_are_measured() {
    let _alone = alone();
    let document = run(&options(&[Study::OverNfs]), Watch::nobody(), &|_| {}).unwrap();
    let over_nfs = section(&document, "over-nfs");
    assert_eq!(over_nfs.exhibits.len(), 3);
    // nocto, close-to-open.
    for exhibit in &over_nfs.exhibits[..2] {
        let ours = exhibit.table.rows.iter();
        let mut ours = ours.filter(|row| row.origin == Origin::Measured);
        assert!(ours.all(|row| matches!(row.cells[3], Cell::Number { value, .. } if value > 0.0)));
    }
    let published = &over_nfs.exhibits[0].table.rows[0];
    assert_eq!(published.origin, Origin::Published);
}

#[test]
fn every_thread_is_measured() {
    let _alone = alone();
    let names = Mutex::new(Vec::new());
    let only = [Study::BklRemoval, Study::BklSemaphore, Study::ExtentLocks];
    let document = run(&options(&only), Watch::nobody(), &|name| {
        names.lock().unwrap().push(name.to_owned());
    })
    .unwrap();
    assert!(!document.is_partial);
    assert_eq!(document.sections.len(), 3);
    let removal = section(&document, "bkl-removal");
    assert!(measured(removal, 2).iter().all(|rate| rate.unwrap() > 0.0));
    // The first row of each scheme is one CPU.
    assert_eq!(measured(removal, 3)[0], Some(1.0));
    let contention = removal.exhibits[0].table.rows.last().unwrap().cells[4].shown();
    assert!(
        contention.ends_with('%') || contention.ends_with("%)"),
        "{contention}"
    );
    for section in &document.sections {
        for exhibit in &section.exhibits {
            for row in &exhibit.table.rows {
                assert_eq!(
                    row.cells.len(),
                    exhibit.table.columns.len(),
                    "{}",
                    exhibit.table.caption
                );
            }
        }
    }
    let schemes = [
        "big-spin",
        "big-sleep",
        "fine",
        "whole-file-mutex",
        "unlocked-data",
    ];
    for scheme in schemes {
        let names = names.lock().unwrap();
        assert!(names.iter().any(|name| name.contains(scheme)), "{scheme}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&document).unwrap()).unwrap();
    assert_eq!(
        json["sections"][0]["exhibits"][0]["table"]["rows"][0]["cells"][2]["value"],
        1197.0
    );
    assert!(document.to_markdown().contains("| published | 2.4.17, BKL"));
}

#[test]
fn the_model_predicts_from_what_was_measured() {
    let _alone = alone();
    let document = run(&options(&[Study::WhatIf]), Watch::nobody(), &|_| {}).unwrap();
    let what_if = section(&document, "what-if");
    let captions: Vec<&str> = what_if
        .exhibits
        .iter()
        .map(|exhibit| exhibit.table.caption.as_str())
        .collect();
    assert_eq!(captions.len(), 5, "{captions:?}");
    let post_mark = &what_if.exhibits[1].table;
    let rows = post_mark.rows.len();
    assert!(
        rows == 6 || rows == 7,
        "two rows for each scheme, and a convoy's: {rows}"
    );
    for row in &post_mark.rows {
        let values: Vec<f64> = row.cells[2..]
            .iter()
            .map(|cell| match cell {
                Cell::Number { value, .. } => *value,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(values.iter().all(|value| *value > 0.0), "{row:?}");
        if row.cells[0].shown() == "big-spin" {
            assert!(
                values[6] < values[0] * 64.0,
                "a big lock does not scale: {row:?}"
            );
        }
    }
    // One thread is what the model was fed with.
    let against = &what_if.exhibits[3].table;
    assert!(against.rows.iter().all(|row| row.cells.len() == 9));
    let Cell::Number { value, .. } = against.rows[0].cells[8] else {
        panic!("{:?}", against.rows[0]);
    };
    assert!((value - 1.0).abs() < 1e-6, "{value}");
}

#[test]
fn every_lock_is_measured_on_the_device() {
    let _alone = alone();
    let options = Options {
        device: DeviceTimes {
            latency_us: 20.0,
            requests_per_s: 1e6,
        },
        ..options(&[Study::ExtentLocks])
    };
    let document = run(&options, Watch::nobody(), &|_| {}).unwrap();
    let part = section(&document, "extent-locks");
    let caption = &part.exhibits[0].table.caption;
    assert!(caption.contains("20 µs a request"), "{caption}");
    let rates = measured(part, 1);
    assert_eq!(rates.len(), 4, "{rates:?}");
    assert!(rates.iter().all(|rate| rate.unwrap() > 0.0), "{rates:?}");
    // The first row is the mutex, the last one no lock.
    assert_eq!(measured(part, 2)[0], Some(1.0));
    assert_eq!(measured(part, 3)[3], Some(1.0));
}

/// A meter that only notes what it is asked for.
#[derive(Default)]
struct AtimeUpdate(Mutex<Vec<&'static str>>);

impl ServerMeter for AtimeUpdate {
    fn set_full(&self, is_full: bool) -> Result<(), String> {
        let what = if is_full { "full" } else { "usual" };
        self.0.lock().unwrap().push(what);
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot, String> {
        self.0.lock().unwrap().push("snapshot");
        Ok(Snapshot::default())
    }
}

#[test]
fn a_directory_has_its_own_locks_and_says_what_cannot_run() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let on = |meter| Options {
        place: Place::Directory(Mounted {
            dir: dir.path().to_owned(),
            name: "as mounted",
            meter,
        }),
        ..options(&[Study::BklRemoval])
    };
    let document = run(&on(None), Watch::nobody(), &|_| {}).unwrap();
    let removal = section(&document, "bkl-removal");
    let rows = removal.exhibits[0].table.rows.iter();
    let ours = rows.filter(|row| row.origin == Origin::Measured);
    assert!(ours.clone().count() > 0);
    assert!(ours.clone().all(|row| row.cells[0].shown() == "as mounted"));
    let contention = ours.clone().map(|row| row.cells[4].shown());
    assert!(
        contention
            .clone()
            .all(|cell| cell == Cell::missing().shown())
    );
    // What is said of a part does not depend on its runs.
    let stopped = Watch {
        stop: &AtomicBool::new(true),
        ..Watch::nobody()
    };
    let all = Options {
        only: Vec::new(),
        ..on(None)
    };
    let document = run(&all, stopped, &|_| {}).unwrap();
    assert_eq!(document.sections.len(), 7);
    let page = document.to_html();
    assert!(page.contains("1 client<") && !page.contains("1 clients"));
    for (id, line) in [
        ("kill-bkl", "Two file systems at once are not measured here"),
        ("files-lock", "Removals are not measured here"),
        ("extent-locks", "The modelled device is not measured here"),
        ("what-if", "More cores are not predicted here"),
    ] {
        let paragraphs = section(&document, id).paragraphs.join("\n");
        assert!(paragraphs.contains(line), "{id}: {paragraphs}");
    }
    assert!(
        std::fs::read_dir(dir.path()).unwrap().next().is_none(),
        "left behind"
    );

    let meter = Arc::new(AtimeUpdate::default());
    run(&on(Some(meter.clone())), Watch::nobody(), &|_| {}).unwrap();
    let asked = meter.0.lock().unwrap().join(" ");
    // A counted run and a plain one.
    let both = "full snapshot snapshot usual snapshot snapshot";
    assert!(asked.starts_with(both), "{asked}");
    assert!(asked.matches("full").count() == asked.matches("usual").count());
}

#[test]
fn a_run_that_is_stopped_tells_what_there_is() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    let watch = Watch {
        stop: &stop,
        ..Watch::nobody()
    };
    let names = Mutex::new(0);
    let document = run(&options(&[Study::BklRemoval]), watch, &|_| {
        let mut names = names.lock().unwrap();
        *names += 1;
        // The calibration, two runs, and no more.
        if *names == 4 {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .unwrap();
    assert!(document.is_partial);
    let rates = measured(&document.sections[0], 2);
    assert!(
        rates.iter().any(Option::is_some) && rates.iter().any(Option::is_none),
        "{rates:?}"
    );
    assert!(document.to_html().contains("ended early"));
}
