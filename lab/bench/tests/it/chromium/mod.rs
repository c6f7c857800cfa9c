//! A browser without a window, spoken to in the DevTools protocol over a pair of pipes: messages
//! are JSON, each ended by a zero byte. Crates for this bring an HTTP client and a TLS library
//! along; a pipe needs neither.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// As Debian and others call it.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|dir| NAMES.map(|name| dir.join(name)))
        .find(|file| file.is_file())
}

/// A running browser with one page. It ends when this is dropped.
pub struct Chromium {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    next_id: u64,
    complaints: Vec<String>,
    events: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Chromium {
    /// Starts it with an empty page; `None` where none is installed.
    pub fn start() -> Option<Chromium> {
        let profile = tempfile::tempdir().unwrap();
        // It reads from descriptor 3 and writes to 4. Its own sandbox wants privileges that neither
        // root nor a container has.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null",
            ])
            .arg(program()?)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut browser = Chromium {
            requests: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
            session: None,
            next_id: 0,
            complaints: Vec::new(),
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let mut request = json!({ "id": self.next_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        write!(self.requests, "{request}\0").unwrap();
        self.requests.flush().unwrap();
        loop {
            let message = self.hear();
            if message["id"] == self.next_id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// The next message; events are noted.
    fn hear(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.answers.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser went away");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        if let Some(event) = message["method"].as_str() {
            self.events.push(event.to_owned());
            let is_complaint = [
                "Log.entryAdded",
                "Runtime.exceptionThrown",
                "Runtime.consoleAPICalled",
            ];
            if is_complaint.contains(&event) {
                self.complaints.push(message["params"].to_string());
            }
        }
        message
    }

    /// Opens a file and waits until all of it is there.
    pub fn open(&mut self, file: &Path) {
        self.events.clear();
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", json!({ "url": url }));
        while !self
            .events
            .iter()
            .any(|event| event == "Page.loadEventFired")
        {
            self.hear();
        }
    }

    /// The value of an expression in the page.
    pub fn ask(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let found = self.call("Runtime.evaluate", params);
        assert!(found["exceptionDetails"].is_null(), "{expression}: {found}");
        found["result"]["value"].clone()
    }

    /// What the page wrote to the console, failed at or could not load.
    pub fn complaints(&mut self) -> Vec<String> {
        // Whatever was under way comes before this answer.
        self.ask("0");
        self.complaints.clone()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
