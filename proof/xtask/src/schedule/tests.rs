//! Steps that wait for each other, fail, and meet.

use super::*;
use anyhow::ensure;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

type Began = Mutex<Vec<&'static str>>;

/// A step that writes down that it has begun.
fn noted<'a>(began: &'a Began, name: &'static str) -> Step<'a> {
    Step::new(name, move |_| {
        began.lock().unwrap().push(name);
        Ok(String::new())
    })
}

/// What passes, fails and is skipped of these steps.
fn counts(steps: Vec<Step<'_>>, lanes: usize) -> (usize, usize, usize) {
    let mut report = Report::default();
    run(steps, lanes, &mut report);
    report.counts()
}

#[test]
fn steps_run_side_by_side() {
    let both = Barrier::new(2);
    let meets = |name| {
        Step::new(name, |_| {
            both.wait();
            Ok(String::new())
        })
    };
    assert_eq!(counts(vec![meets("a"), meets("b")], 2), (2, 0, 0));
}

#[test]
fn a_step_begins_after_what_it_needs() {
    let began = Began::default();
    let (frees, is_free) = channel();
    let is_free = Mutex::new(is_free);
    let steps = vec![
        Step::new("slow", |_| {
            is_free.lock().unwrap().recv()?;
            began.lock().unwrap().push("slow");
            Ok(String::new())
        }),
        noted(&began, "needy")
            .needs("slow")
            .needs("not in the list"),
        Step::new("free", |_| {
            began.lock().unwrap().push("free");
            frees.send(())?;
            Ok(String::new())
        }),
    ];
    assert_eq!(counts(steps, 3), (3, 0, 0));
    assert_eq!(*began.lock().unwrap(), ["free", "slow", "needy"]);
}

#[test]
fn the_longest_begins_first_and_a_build_counts_for_what_waits_for_it() {
    let began = Began::default();
    let steps = vec![
        noted(&began, "first"),
        noted(&began, "second"),
        noted(&began, "short").takes(5),
        noted(&began, "long").takes(20),
        noted(&began, "build").takes(1),
        noted(&began, "test").needs("build").takes(30),
    ];
    assert_eq!(counts(steps, 1), (6, 0, 0));
    let order = ["build", "test", "long", "short", "first", "second"];
    assert_eq!(*began.lock().unwrap(), order);
}

#[test]
fn what_needs_a_failed_step_is_skipped_and_the_rest_runs() {
    let began = Began::default();
    let steps = vec![
        Step::new("fails", |_| anyhow::bail!("no")),
        Step::new("panics", |_| panic!("on purpose")),
        noted(&began, "needy").needs("fails"),
        noted(&began, "needs the needy").needs("needy"),
        Step::impossible("impossible", "not here"),
        Step::new("finds out", |_| Err(CannotRun("not here".into()).into())),
        noted(&began, "free"),
    ];
    assert_eq!(counts(steps, 2), (1, 2, 4));
    assert_eq!(*began.lock().unwrap(), ["free"]);
}

#[test]
fn one_builds_in_a_directory() {
    let building = AtomicUsize::new(0);
    let builds = |name| {
        let build = |_: &mut String| {
            let now = building.fetch_add(1, Ordering::SeqCst) + 1;
            std::thread::sleep(Duration::from_millis(20));
            building.fetch_sub(1, Ordering::SeqCst);
            ensure!(now == 1, "{now} at once");
            Ok(String::new())
        };
        Step::new(name, build).builds_in("target")
    };
    let steps = vec![builds("a"), builds("b"), builds("c")];
    assert_eq!(counts(steps, 3), (3, 0, 0));
}

#[test]
fn a_chosen_step_brings_what_it_needs() {
    let began = Began::default();
    let steps = || {
        vec![
            noted(&began, "source"),
            noted(&began, "build").needs("source"),
            noted(&began, "other"),
            noted(&began, "test of it").needs("build"),
        ]
    };
    let names = |parts: &[&str]| -> Vec<String> {
        let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        let chosen = chosen(steps(), &parts);
        chosen.into_iter().map(|step| step.name).collect()
    };
    assert_eq!(names(&["test"]), ["source", "build", "test of it"]);
    assert_eq!(names(&["oth", "sou"]), ["source", "other"]);
    assert_eq!(names(&[]).len(), 4);
}
