//! What the server of a mount has on because of `finefs top`: as long as one wants it, and no
//! longer. Needs root and /dev/fuse; says so and passes where they are missing.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Place, can_mount, connect, finefs, mount_in_front, unmount, wait_until};

/// What the server counts and reports: full mode, thresholds of waits and holdings, of waiters.
pub fn settings(place: &Place) -> (bool, Value, Value, Value) {
    let mut stream = connect(place).unwrap();
    writeln!(stream, "{}", json!({"meter": "settings"})).unwrap();
    let mut line = String::new();
    stream.read_to_string(&mut line).unwrap();
    let reply: Value = serde_json::from_str(&line).unwrap();
    let settings = &reply["meter"]["settings"];
    (
        settings["is_full"].as_bool().unwrap(),
        settings["wait_us"].clone(),
        settings["hold_us"].clone(),
        settings["waiters"].clone(),
    )
}

/// `top` of the mount, killed at the latest when it is dropped.
struct Running(Child);

impl Running {
    fn start(place: &Place, arguments: &[&str]) -> Running {
        let mut command: Command = finefs();
        command.arg("top").args(arguments).arg(place.mount_point());
        Running(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        self.0.wait().unwrap();
    }

    /// Reads what it prints until there is such a word.
    fn prints(&mut self, word: &str) {
        let mut lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(word)));
    }

    /// Ends it; what it has printed.
    fn printed(mut self) -> String {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        let mut text = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nothing that costs is on.
fn is_at_rest(place: &Place) -> bool {
    settings(place) == (false, Value::Null, Value::Null, Value::Null)
}

#[test]
fn thresholds_of_two_are_the_least_and_go_with_the_last() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = mount_in_front(&place, &["--memory"]);
    let thresholds = |us: u64| (false, json!(us), json!(us), Value::Null);
    let mut first = Running::start(&place, &["--threshold-us", "100000"]);
    wait_until("the first's is set", || {
        settings(&place) == thresholds(100_000)
    });
    let mut second = Running::start(&place, &["--threshold-us", "200000", "--waiters", "7"]);
    wait_until("the second's is set", || settings(&place).3 == json!(7));
    assert_eq!(settings(&place).1, json!(100_000));
    first.signal(Signal::INT);
    assert_eq!(
        settings(&place),
        (false, json!(200_000), json!(200_000), json!(7))
    );
    second.signal(Signal::INT);
    assert!(is_at_rest(&place), "{:?}", settings(&place));
    unmount(&place);
    assert!(server.wait().unwrap().success());
}

#[test]
fn full_mode_lasts_as_long_as_one_of_two_wants_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = mount_in_front(&place, &["--memory"]);
    let full = ["--full", "--json", "--delay", "0.3"];
    let mut first = Running::start(&place, &full);
    wait_until("the first counts all", || settings(&place).0);
    let mut second = Running::start(&place, &full);
    let mut lines = BufReader::new(second.0.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    first.signal(Signal::TERM);
    assert!(settings(&place).0, "the second still wants it");
    // Longer than it stays without being asked for again.
    let start = Instant::now();
    let mut taken = || {
        std::fs::write(place.mount_point().join("file"), "text").unwrap();
        let line = lines.next().unwrap().unwrap();
        let picture: Value = serde_json::from_str(&line).unwrap();
        let classes = picture["locks"]["classes"].as_array().unwrap();
        let taken = classes
            .iter()
            .map(|class| class["writer"]["acquisitions"].as_u64().unwrap());
        taken.sum::<u64>()
    };
    while start.elapsed() < Duration::from_secs(7) {
        taken();
    }
    // The next pictures may be of before the file was written.
    wait_until("all is counted", || taken() > 0);
    second.signal(Signal::TERM);
    assert!(is_at_rest(&place), "{:?}", settings(&place));
    unmount(&place);
    assert!(server.wait().unwrap().success());
}

#[test]
fn what_a_killed_one_wanted_ends_by_itself() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = mount_in_front(&place, &["--memory"]);
    // Also where it comes back more seldom than it has to ask again.
    let mut counting = Running::start(&place, &["--full", "--delay", "60"]);
    let mut watching = Running::start(&place, &["--threshold-us", "5", "--delay", "60"]);
    wait_until("all is on", || {
        settings(&place) == (true, json!(5), json!(5), Value::Null)
    });
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(settings(&place), (true, json!(5), json!(5), Value::Null));
    counting.signal(Signal::KILL);
    watching.signal(Signal::KILL);
    wait_until("nothing is on", || is_at_rest(&place));
    unmount(&place);
    assert!(server.wait().unwrap().success());
}

#[test]
fn each_gets_the_reports_that_it_asked_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = mount_in_front(&place, &["--memory"]);
    // The least number of waiters tells whose lease is there.
    let start = |us, waiters: usize| {
        let most = waiters.to_string();
        let options = ["--threshold-us", us, "--waiters", &most];
        let top = Running::start(&place, &[&["--json", "-d", "0.2"], &options[..]].concat());
        wait_until("it is on", || settings(&place).3 == json!(waiters));
        top
    };
    let (none, all, second) = (start("90000000", 1002), start("0", 1001), start("0", 1000));
    std::fs::write(place.mount_point().join("file"), "text").unwrap();
    for mut top in [all, second] {
        top.prints("\"what\"");
    }
    assert_eq!(none.printed(), "");
    unmount(&place);
    assert!(server.wait().unwrap().success());
}
