//! `finefs top` on a terminal: it draws, follows keys, and leaves the terminal as it was, however
//! it ends. Needs root, /dev/fuse and script(1); says so and passes where they are missing.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, can_mount, mount_in_front, unmount, wait_until};
use crate::top_server::settings;

/// `finefs top` on a pseudo-terminal of 80 columns.
struct OnTerminal<'a> {
    place: &'a Place,
    script: Child,
}

impl OnTerminal<'_> {
    fn start(place: &Place) -> OnTerminal<'_> {
        let directory = place.path();
        let finefs = env!("CARGO_BIN_EXE_finefs");
        let top = format!("echo $$ > pid; exec {finefs} top --full --delay 0.3 mnt");
        let commands = format!(
            "stty rows 24 cols 80; stty -g > before; sh -c '{top}'; echo $? > status; stty -g > after"
        );
        for file in ["screen", "pid", "status", "before", "after"] {
            let _ = fs::remove_file(directory.join(file));
        }
        let script = Command::new("script")
            .args(["-q", "-f", "-c", &commands, "screen"])
            .current_dir(directory)
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        OnTerminal { place, script }
    }

    fn file(&self, name: &str) -> String {
        let content = fs::read(self.place.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&content).trim().to_owned()
    }

    fn has_drawn(&self, text: &str) {
        wait_until(text, || self.file("screen").contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.script
            .stdin
            .as_mut()
            .unwrap()
            .write_all(keys.as_bytes())
            .unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = self.file("pid").parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// It ends with this status, and leaves the terminal as it was.
    fn ends(mut self, status: &str) -> String {
        wait_until("it has ended", || !self.file("after").is_empty());
        // Then the last of what it has said is there, too.
        self.script.wait().unwrap();
        let screen = self.file("screen");
        assert_eq!(self.file("status"), status, "{screen}");
        assert_eq!(self.file("before"), self.file("after"));
        let (_, left) = screen
            .split_once("\u{1b}[?1049h")
            .expect("the alternate screen is entered");
        assert_eq!(
            left.matches("\u{1b}[?1049l").count(),
            1,
            "and left: {left:?}"
        );
        assert!(
            left.contains("\u{1b}[?25h"),
            "the cursor is shown: {left:?}"
        );
        screen
    }
}

impl Drop for OnTerminal<'_> {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// A process that stands still, until it is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(child: &Child) -> Stopped {
        let process = Pid::from_child(child);
        kill_process(process, Signal::STOP).unwrap();
        Stopped(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn the_terminal_is_as_before_however_it_ends() {
    let has_script = Command::new("script").arg("--version").output().is_ok();
    if !can_mount() || !has_script {
        eprintln!("skipped: needs script(1) too");
        return;
    }
    let place = Place::new();
    let mut server = mount_in_front(&place, &["--memory"]);

    let mut top = OnTerminal::start(&place);
    top.has_drawn("interval");
    // The next pictures.
    top.has_drawn("threads");
    fs::write(place.mount_point().join("file"), "text").unwrap();
    top.has_drawn("writer");
    top.press("h");
    top.has_drawn("Ctrl-C");
    for is_full in [false, true] {
        top.press("f");
        wait_until("f toggles full mode", || settings(&place).0 == is_full);
    }
    top.press("\u{1b}[B q");
    top.ends("0");
    assert!(!settings(&place).0);

    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let top = OnTerminal::start(&place);
        top.has_drawn("threads");
        top.signal(signal);
        top.ends("0");
    }

    // The server is busy for long.
    let mut top = OnTerminal::start(&place);
    top.has_drawn("threads");
    let stopped = Stopped::new(&server);
    wait_until("it tells so", || {
        top.file("screen").contains("the server does not answer")
    });
    drop(stopped);
    wait_until("the next pictures", || {
        let screen = top.file("screen");
        let (_, later) = screen.rsplit_once("not answer").unwrap();
        later.contains("threads")
    });
    top.press("q");
    top.ends("0");

    // The terminal itself goes.
    let mut top = OnTerminal::start(&place);
    top.has_drawn("threads");
    top.script.kill().unwrap();
    let process = format!("/proc/{}/stat", top.file("pid"));
    wait_until("it ends with the terminal", || {
        fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "))
    });
    assert!(!settings(&place).0);
    drop(top);

    let top = OnTerminal::start(&place);
    top.has_drawn("threads");
    unmount(&place);
    assert!(server.wait().unwrap().success());
    let screen = top.ends("1");
    let (_, after) = screen.split_once("\u{1b}[?1049l").unwrap();
    assert!(after.contains("finefs: "), "it says why: {screen:?}");
}
