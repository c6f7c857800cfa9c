//! An image on a server: what a commit asks of it, and threads that share one.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use finefs::ImageOptions;

/// nbdkit with an image in a file, which writes down each request.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Server {
        Server::answering_after("0ms")
    }

    /// Each write takes so long.
    fn answering_after(delay: &str) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-t", "ext4", "-b", "4096"]).arg(&image);
        assert!(mke2fs.arg("256M").status().unwrap().success());
        let socket = dir.path().join("socket");
        let log = format!("logfile={}", dir.path().join("log").display());
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["-f", "--filter=log", "--filter=delay", "-U"]);
        nbdkit.arg(&socket).arg("file").arg(&image).arg(log);
        let child = nbdkit.arg(format!("wdelay={delay}")).spawn().unwrap();
        let start = Instant::now();
        // It is there before somebody listens at it.
        while UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(10));
        }
        Server { child, dir }
    }

    fn url(&self) -> PathBuf {
        let socket = self.dir.path().join("socket");
        format!("nbd+unix:///?socket={}", socket.display()).into()
    }

    /// The requests so far: what each is, with all that is said of it.
    fn requests(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap();
        let words = log
            .lines()
            .filter_map(|line| line.split_once(" connection="));
        let requests = words.filter_map(|(_, rest)| rest.split_once(' ').map(|pair| pair.1));
        let is_request = |line: &&str| {
            ["Read ", "Write ", "Zero ", "Trim ", "Flush "]
                .iter()
                .any(|kind| line.starts_with(kind))
        };
        requests.filter(is_request).map(str::to_owned).collect()
    }

    /// e2fsck finds nothing in what the server has.
    fn check(mut self) {
        self.end();
        let mut e2fsck = Command::new("e2fsck");
        let image: &Path = &self.dir.path().join("image");
        assert!(e2fsck.arg("-fn").arg(image).status().unwrap().success());
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A commit waits for the server twice: for the flush behind data and log, and for the durable
/// commit block. All else is few requests, which are on their way together.
#[test]
fn a_commit_is_few_writes_and_two_waits() {
    let server = Server::start();
    let fs = ImageOptions::new().open(server.url()).unwrap();
    let make = |round: usize| {
        let dir = format!("d{round}");
        fs.create_dir(&dir).unwrap();
        for number in 0..200 {
            fs.write(format!("{dir}/f{number}"), [7; 5000]).unwrap();
        }
        fs.sync().unwrap();
    };
    // The first one also says where the log starts.
    make(0);
    let before = server.requests().len();
    make(1);
    let requests = server.requests().split_off(before);
    let flushes = requests.iter().filter(|it| it.starts_with("Flush")).count();
    let durable = requests.iter().filter(|it| it.contains("fua=1")).count();
    let writes = requests.iter().filter(|it| it.starts_with("Write")).count();
    assert!(
        flushes == 1 && durable <= 2 && writes <= 30,
        "{requests:#?}"
    );
    fs.close().unwrap();
    server.check();
}

#[test]
fn threads_share_an_export() {
    let server = Server::start();
    let fs = ImageOptions::new().open(server.url()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let fs = &fs;
            scope.spawn(move || {
                for number in 0..40 {
                    let name = format!("t{thread}.{number}");
                    let data = vec![(thread * number) as u8; 1000 * number];
                    fs.write(&name, &data).unwrap();
                    if number % 10 == 0 {
                        fs.open(&name).unwrap().sync_all().unwrap();
                    }
                    assert!(fs.read(&name).unwrap() == data);
                }
            });
        }
    });
    fs.close().unwrap();
    let fs = ImageOptions::new()
        .read_only(true)
        .open(server.url())
        .unwrap();
    for thread in 0..8_usize {
        let data = fs.read(format!("t{thread}.39")).unwrap();
        assert!(data == vec![(thread * 39) as u8; 39_000]);
    }
    drop(fs);
    server.check();
}

/// Who waits for a commit that is under way leaves with it, and the next one is for all the others.
#[test]
fn threads_that_sync_share_commits() {
    const THREADS: usize = 32;
    const FILES: usize = 10;
    let server = Server::answering_after("2ms");
    let fs = ImageOptions::new().open(server.url()).unwrap();
    fs.sync().unwrap();
    let before = server.requests().len();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let fs = &fs;
            scope.spawn(move || {
                for number in 0..FILES {
                    let file = fs.create(format!("file{thread}-{number}")).unwrap();
                    file.write_all_at(&[7; 4096], 0).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    let requests = server.requests();
    let is_flush = |request: &&String| request.starts_with("Flush ");
    let commits = requests[before..].iter().filter(is_flush).count();
    assert!(commits * 6 <= THREADS * FILES, "{commits} commits");
    fs.close().unwrap();
    server.check();
}
