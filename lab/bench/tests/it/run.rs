//! `finefs-bench`, as users run it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs-bench"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    bench(arguments).output().unwrap()
}

fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&succeed(&[arguments, &["--json"]].concat())).unwrap()
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn every_workload_runs_in_memory() {
    let text = succeed(&["openspeed", "--operations", "100", "--verify"]);
    assert!(text.starts_with("openspeed: 400 opens in "), "{text}");
    let text = succeed(&["postmark", "--transactions", "100", "--verify"]);
    assert!(text.contains("Creation alone: 500 files"), "{text}");
    let text = succeed(&["dirops", "mwcl", "--operations", "10", "--memory", "64m"]);
    assert!(text.starts_with("MWCL dirops: 10 creates in "), "{text}");
}

#[test]
fn processes_work_together_and_leave_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().to_str().unwrap();
    let found = json(&[
        "postmark",
        "--number=50",
        "--transactions=200",
        "--verify",
        "--latencies",
        "--processes=3",
        "--dir",
        path,
    ]);
    assert_eq!(found["operations"], 600);
    assert_eq!(found["plan"]["crew"]["processes"], 3);
    assert_eq!(found["detail"]["created_alone"], 150);
    assert!(found["latencies"]["median_ns"].as_u64() > Some(0));
    assert!(is_empty(dir.path()));
    let found = json(&[
        "dirops",
        "mwrm",
        "--files=50",
        "--operations=50",
        "--verify",
        "--processes=2",
        "--dir",
        path,
    ]);
    assert!(found["operations"].as_u64() >= Some(50), "{found}");
    assert!(is_empty(dir.path()));
}

#[test]
fn an_image_is_sound_and_empty_afterwards() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let make = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .arg(&image)
        .output();
    assert!(make.unwrap().status.success());
    let path = image.to_str().unwrap();
    for arguments in [
        &["postmark", "--transactions=300", "--verify"][..],
        &["openspeed", "--operations=50"],
        &[
            "dirops",
            "mwcm",
            "--operations=200",
            "--verify",
            "--threads=2",
        ],
    ] {
        let output = run(&[arguments, &["--image", path]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said, format!("finefs-bench: {path} is modified\n"));
    }
    let text = succeed(&[
        "studies",
        "--only=bkl-removal,extent-locks",
        "--seconds=0.02",
        "--rounds=1",
        "--threads=2",
        "--image",
        path,
    ]);
    for expected in [
        "| measured  | fine ",
        "Place: the image",
        "The modelled device is not measured here",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let check = Command::new("e2fsck").args(["-f", "-n", path]).output();
    let check = check.unwrap();
    assert!(check.status.success(), "{check:?}");
    let list = Command::new("debugfs")
        .args(["-R", "ls -p", path])
        .output()
        .unwrap();
    let names = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(
        names.contains("lost+found") && !names.contains("bench"),
        "{names}"
    );
}

#[test]
fn the_studies_run_on_a_directory_and_leave_it_as_it_was() {
    let dir = TempDir::new().unwrap();
    let text = succeed(&[
        "studies",
        "--only=bkl-semaphore,what-if",
        "--seconds=0.02",
        "--rounds=1",
        "--dir",
        dir.path().to_str().unwrap(),
    ]);
    assert!(text.contains("Place: the directory"), "{text}");
    assert!(text.contains("More cores are not predicted here"), "{text}");
    assert!(is_empty(dir.path()));
}

/// Waits until openspeed has made its last file in `dir`: it is about to run, or runs.
fn await_openspeed(child: &mut Child, dir: &Path) {
    await_made(child, dir, "openspeed/9");
}

/// Waits until a run has made `path` in its directory in `dir`.
fn await_made(child: &mut Child, dir: &Path, path: &str) {
    let is_made = |own: fs::DirEntry| own.path().join(path).exists();
    while !fs::read_dir(dir).unwrap().flatten().any(is_made) {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_signal_ends_it_cleanly() {
    let dir = TempDir::new().unwrap();
    for crew in ["--threads", "--processes"] {
        let mut command = bench(&["openspeed", "--seconds=3600", crew, "2", "--dir"]);
        command.arg(dir.path()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        await_openspeed(&mut child, dir.path());
        // Not needed, but most workers have started then.
        std::thread::sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert!(is_empty(dir.path()));
    }
}

/// Making so many files would take minutes, in the run or in its worker processes.
#[test]
fn a_signal_ends_the_preparation_cleanly() {
    let dir = TempDir::new().unwrap();
    for (load, made) in [
        (&["file-list", "--files=100000000"][..], "file-list/0"),
        (&["dirops", "mrpm", "--names=30"], "dirops/0"),
    ] {
        let mut command = bench(load);
        command.arg("--dir").arg(dir.path()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        await_made(&mut child, dir.path(), made);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(is_empty(dir.path()));
    }
}

#[test]
fn mistakes_are_told() {
    for (arguments, status, line) in [
        (
            &["openspeed", "--dir", "/nonexistent"][..],
            1,
            "/nonexistent: ",
        ),
        (&["openspeed", "--image", "/nonexistent"], 1, "/nonexistent"),
        (&["postmark", "--size-low=9", "--size-high=8"], 2, "sizes: "),
        (&["dirops", "mwul", "--files=0"], 2, "'--files <N>'"),
        (&["dirops", "dwtl", "--pages=0"], 2, "'--pages <N>'"),
        (&["randrw", "--block-size=100"], 2, "multiple of 512"),
        (
            &["posix-lock", "--records=2305843009213693952"],
            2,
            "1..=1073741824",
        ),
        (&["dbench", "--dual=x"], 2, "no path"),
        (&["dbench", "--loadfile=/nonexistent"], 1, "/nonexistent"),
        (&["openspeed", "--threads=0"], 2, "'--threads <N>'"),
        (&["openspeed", "--memory=x"], 2, "not a size"),
        (&["openspeed", "--processes=2"], 2, "--dir"),
        (&["dirops"], 2, "OPERATION"),
        (&["nothing"], 2, "nothing"),
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(line), "{arguments:?}: {said}");
    }
}

#[test]
fn a_limit_of_open_files_is_named() {
    let dir = TempDir::new().unwrap();
    let script = "ulimit -n 64; exec \"$0\" openspeed --processes 100 --dir \"$1\"";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_finefs-bench")])
        .arg(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(" of 100: ") && said.contains("(ulimit -n) is 64"),
        "{said}"
    );
    assert!(is_empty(dir.path()));
}

#[test]
fn studies_that_cannot_run_leave_reports_as_they_are() {
    let dir = TempDir::new().unwrap();
    let (page, json) = (dir.path().join("p.html"), dir.path().join("p.json"));
    fs::write(&page, "an earlier report").unwrap();
    let output = bench(&["studies", "--image", "/nonexistent", "--html"])
        .arg(&page)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("/nonexistent") && !said.contains("is modified"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&page).unwrap(), "an earlier report");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let output = run(&["studies", "--html=/nonexistent/p.html"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn the_meter_tells_of_a_run_by_lock_class() {
    let run = ["openspeed", "--operations=500", "--threads=2"];
    let text = succeed(&[&run[..], &["--locking=big-sleep", "--contention"]].concat());
    assert!(text.contains("\nlock contention: "), "{text}");
    assert!(text.contains("ns.big (writer)"), "{text}");
    let found = json(&[&run[..], &["--contention"]].concat());
    let classes = found["locks"]["classes"].as_array().unwrap();
    let opens = classes
        .iter()
        .find(|class| class["name"] == "ns.files")
        .unwrap();
    assert!(
        opens["writer"]["acquisitions"].as_u64().unwrap() >= 1000,
        "{opens}"
    );
    assert_eq!(found["operations_of_each"], serde_json::json!([500, 500]));
    assert!(json(&run)["locks"].is_null());
    let alone = [
        "openspeed",
        "--operations=50",
        "--threads=1",
        "--contention",
    ];
    let text = succeed(&alone);
    assert!(text.contains("\nlock contention: 0.0%\n"), "{text}");
}

#[test]
fn long_holds_are_reported_with_backtraces() {
    let run = [
        "openspeed",
        "--operations=50",
        "--threads=1",
        "--locking=big-spin",
    ];
    let output = bench(&run).arg("--threshold-us=0").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains(" held ns.") && said.contains("finefs_namespace"),
        "{said}"
    );
    let output = bench(&run).arg("--threshold-us=60000000").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("nobody waited for or held a lock"), "{said}");
}

/// Not what the run prepares: the first ten of a second, and only these are kept, would be of that.
#[test]
fn holds_are_reported_of_what_is_measured() {
    let output = run(&[
        "dirops",
        "mwul",
        "--threads=2",
        "--files=1000",
        "--locking=big-spin",
        "--threshold-us=0",
        "--seconds=0.3",
    ]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("remove_file"), "{said}");
    assert!(!said.contains("make_files"), "{said}");
    assert!(!said.contains("remove_tree"), "{said}");
    assert!(
        said.contains("worker-0 (") || said.contains("worker-1 ("),
        "{said}"
    );
    assert!(!said.contains("finefs_lockmeter::threshold"), "{said}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("ended early: "), "{said}");
}

#[test]
fn what_the_meter_cannot_see_is_refused() {
    for option in ["--contention", "--threshold-us=5", "--locking=big-spin"] {
        let output = run(&["openspeed", "--operations=1", "--dir=.", option]);
        assert_eq!(output.status.code(), Some(2), "{option}: {output:?}");
    }
}

/// The runs would take hours: that it ends at all is the signal's doing.
#[test]
fn interrupted_studies_tell_what_there_is() {
    let dir = TempDir::new().unwrap();
    let (page, place) = (dir.path().join("page.html"), dir.path().join("place"));
    fs::create_dir(&place).unwrap();
    fs::write(&page, "of an earlier run").unwrap();
    let interrupted = |seconds: &str, worth: Duration| {
        let mut child = bench(&["studies", "--rounds=1000", "--only=bkl-semaphore", seconds])
            .arg("--html")
            .arg(&page)
            .arg("--dir")
            .arg(&place)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        await_openspeed(&mut child, &place);
        std::thread::sleep(worth);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(is_empty(&place), "left behind");
        fs::read_to_string(&page).unwrap()
    };
    let page = interrupted("--seconds=3600", Duration::ZERO);
    assert_eq!(page, "of an earlier run", "nothing was measured");
    // Until there has been time to measure something.
    let mut seconds = [3, 10, 30, 100].into_iter();
    assert!(seconds.any(|worth| {
        let page = interrupted("--seconds=0.05", Duration::from_secs(worth));
        page.contains("ended early")
    }));
}
