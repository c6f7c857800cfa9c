//! The page of `finefs-bench studies` in a browser: nothing is missing, nothing is complained of,
//! and nothing is wider than the window, in light and dark, on a desk and on a telephone.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::chromium::Chromium;
use serde_json::{Value, json};

fn make_page(dir: &Path) -> PathBuf {
    let page = dir.join("page.html");
    let json = dir.join("page.json");
    let output = Command::new(env!("CARGO_BIN_EXE_finefs-bench"))
        .args([
            "studies",
            "--seconds",
            "0.01",
            "--rounds",
            "1",
            "--threads",
            "2",
        ])
        .args(["--only", "bkl-removal,bkl-semaphore,extent-locks,what-if"])
        .arg("--html")
        .arg(&page)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("| published | 2.4.17, BKL"), "{text}");
    let json: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(json["sections"].as_array().unwrap().len(), 4);
    page
}

fn set(browser: &mut Chromium, width: u32, scheme: &str) {
    let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", metrics);
    let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
    browser.call(
        "Emulation.setEmulatedMedia",
        json!({ "features": [feature] }),
    );
}

/// The drawings of the width that is shown.
const SEEN: &str =
    "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width > 200)";

#[test]
fn the_page_is_whole_at_any_width_and_in_any_light() {
    let Some(mut browser) = Chromium::start() else {
        eprintln!("skipped: no Chromium here; `cargo run -p xtask -- setup` installs it");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let page = make_page(dir.path());
    browser.open(&page);
    let mut papers = Vec::new();
    for scheme in ["light", "dark"] {
        for width in [1200, 400] {
            set(&mut browser, width, scheme);
            let at = format!("{scheme}, {width} px");
            let mut ask = |expression: &str| browser.ask(expression);
            let root = "document.documentElement";
            let fits = ask(&format!("{root}.scrollWidth <= {root}.clientWidth"));
            assert_eq!(fits, true, "{at}: scrolls sideways");
            let rows = ask("document.querySelectorAll('table tbody tr').length");
            assert!(rows.as_u64().unwrap() > 40, "{at}: {rows} rows");
            let charts = ask(&format!("{SEEN}.length"));
            assert_eq!(charts, 6, "{at}: one drawing of each chart");
            let named = "s.querySelector('title').textContent.length > 5 \
                         && s.getAttribute('aria-labelledby') === s.querySelector('title').id";
            let named = ask(&format!("{SEEN}.every(s => {named})"));
            assert_eq!(named, true, "{at}: a chart without a title");
            let inside = format!("t => t.getBoundingClientRect().right <= {width}");
            let inside =
                format!("{SEEN}.every(s => [...s.querySelectorAll('text')].every({inside}))");
            assert_eq!(ask(&inside), true, "{at}: a label leaves the window");
            let ids = "[...document.querySelectorAll('[id]')].map(e => e.id)";
            let ids = ask(&format!("new Set({ids}).size === {ids}.length"));
            assert_eq!(ids, true, "{at}: an id twice");
            papers.push(ask("getComputedStyle(document.body).backgroundColor"));
        }
    }
    assert_eq!(papers[0], papers[1]);
    assert_ne!(papers[0], papers[2], "light and dark look alike");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Without this the test above would find no complaints whatever a page does.
#[test]
fn complaints_of_a_page_are_heard() {
    let Some(mut browser) = Chromium::start() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("bad.html");
    std::fs::write(&page, "<img src='missing.png'><script>nothing()</script>").unwrap();
    browser.open(&page);
    let complaints = browser.complaints().join(" ");
    assert!(complaints.contains("ReferenceError"), "{complaints}");
    assert!(complaints.contains("missing.png"), "{complaints}");
}
