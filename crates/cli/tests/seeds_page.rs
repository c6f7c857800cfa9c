//! The page of `finefs bench seeds` in a browser: nothing is missing, nothing is complained of, and nothing
//! is wider than the window, in light and dark, on a desk and on a telephone.

use std::path::{Path, PathBuf};
use std::process::Command;

use headless_chrome::protocol::cdp::{Emulation, Log, Runtime, types::Event};
use headless_chrome::{Browser, LaunchOptions, Tab};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// As Debian and others call it.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

fn browser_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|dir| BROWSERS.map(|name| dir.join(name)))
        .find(|file| file.is_file())
}

fn make_page(dir: &Path) -> PathBuf {
    let page = dir.join("page.html");
    let json = dir.join("page.json");
    let output = Command::new(env!("CARGO_BIN_EXE_finefs"))
        .args(["bench", "seeds", "--seconds", "0.01", "--rounds", "1"])
        .args(["--only", "bkl-removal,bkl-semaphore,what-if"])
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
    assert_eq!(json["sections"].as_array().unwrap().len(), 3);
    page
}

fn set(tab: &Tab, width: u32, scheme: &str) {
    tab.call_method(Emulation::SetDeviceMetricsOverride {
        width,
        height: 900,
        device_scale_factor: 1.0,
        mobile: false,
        scale: None,
        screen_width: None,
        screen_height: None,
        position_x: None,
        position_y: None,
        dont_set_visible_size: None,
        screen_orientation: None,
        viewport: None,
        display_feature: None,
        device_posture: None,
    })
    .unwrap();
    tab.call_method(Emulation::SetEmulatedMedia {
        media: None,
        features: Some(vec![Emulation::MediaFeature {
            name: "prefers-color-scheme".to_owned(),
            value: scheme.to_owned(),
        }]),
    })
    .unwrap();
}

fn ask(tab: &Tab, expression: &str) -> Value {
    let found = tab.evaluate(expression, false).unwrap();
    found.value.unwrap_or(Value::Null)
}

#[test]
fn the_page_is_whole_at_any_width_and_in_any_light() {
    let Some(path) = browser_path() else {
        eprintln!("skipped: no Chromium here; `cargo run -p xtask -- setup` installs it");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let page = make_page(dir.path());
    let options = LaunchOptions::default_builder()
        .path(Some(path))
        // Chromium's own sandbox wants privileges that neither root nor a container has.
        .sandbox(false)
        .build()
        .unwrap();
    let browser = Browser::new(options).unwrap();
    let tab = browser.new_tab().unwrap();
    let complaints = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&complaints);
    let listener = move |event: &Event| match event {
        Event::LogEntryAdded(entry) => heard.lock().unwrap().push(format!("{:?}", entry.params)),
        Event::RuntimeExceptionThrown(thrown) => {
            heard.lock().unwrap().push(format!("{:?}", thrown.params));
        }
        Event::RuntimeConsoleAPICalled(call) => {
            heard.lock().unwrap().push(format!("{:?}", call.params));
        }
        _ => {}
    };
    tab.add_event_listener(Arc::new(listener)).unwrap();
    tab.call_method(Log::Enable(None)).unwrap();
    tab.call_method(Runtime::Enable(None)).unwrap();
    tab.navigate_to(&format!("file://{}", page.display())).unwrap();
    tab.wait_until_navigated().unwrap();
    let mut papers = Vec::new();
    for scheme in ["light", "dark"] {
        for width in [1200, 400] {
            set(&tab, width, scheme);
            let at = format!("{scheme}, {width} px");
            let wide = ask(&tab, "document.documentElement.scrollWidth");
            assert_eq!(wide, Value::from(width), "{at}: scrolls sideways");
            let tables = ask(&tab, "document.querySelectorAll('table tbody tr').length");
            assert!(tables.as_u64().unwrap() > 40, "{at}: {tables} rows");
            let seen = "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width > 200)";
            let charts = ask(&tab, &format!("{seen}.length"));
            assert_eq!(charts, 5, "{at}: one drawing of each chart");
            let named = format!("{seen}.every(s => s.querySelector('title').textContent.length > 5 && s.getAttribute('aria-labelledby') === s.querySelector('title').id)");
            assert_eq!(ask(&tab, &named), true, "{at}: a chart without a title");
            // Labels at the lines' ends must not be cut off.
            let inside = format!(
                "{seen}.every(s => [...s.querySelectorAll('text')].every(t => t.getBoundingClientRect().right <= {width}))"
            );
            assert_eq!(ask(&tab, &inside), true, "{at}: a label leaves the window");
            let ids = "new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size === document.querySelectorAll('[id]').length";
            assert_eq!(ask(&tab, ids), true, "{at}: an id twice");
            papers.push(ask(&tab, "getComputedStyle(document.body).backgroundColor"));
        }
    }
    assert_eq!(papers[0], papers[1]);
    assert_ne!(papers[0], papers[2], "light and dark look alike");
    let complaints = complaints.lock().unwrap();
    assert!(complaints.is_empty(), "{complaints:#?}");
}
