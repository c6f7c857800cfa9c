//! Images on NBD servers that are killed and started again under load, by confined servers of
//! mounts. nbdkit keeps what is written in memory until a flush, and loses it with its life.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

/// A server that can be started again.
pub(crate) struct Storage {
    program: &'static str,
    arguments: Vec<String>,
    /// Where it listens, if that is a file.
    socket: Option<PathBuf>,
    child: Child,
}

impl Storage {
    fn start(program: &'static str, arguments: Vec<String>, socket: Option<PathBuf>) -> Storage {
        let child = launch(program, &arguments, socket.as_deref());
        Storage {
            program,
            arguments,
            socket,
            child,
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, upon which it may still answer some requests, with errors.
    fn end(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let has_ended = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            self.child.try_wait().is_ok_and(|ended| ended.is_some())
        });
        // On a busy machine nbdkit was seen not to end.
        if !has_ended {
            self.kill();
        }
    }

    fn start_again(&mut self) {
        self.child = launch(self.program, &self.arguments, self.socket.as_deref());
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(program: &str, arguments: &[String], socket: Option<&Path>) -> Child {
    if let Some(socket) = socket {
        let _ = fs::remove_file(socket);
    }
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    if let Some(socket) = socket {
        // It is there before somebody listens at it.
        wait_until("it listens", || UnixStream::connect(socket).is_ok());
    }
    child
}

/// nbdkit that loses with its life what was not flushed.
fn forgetful(image: &Path, place: &[&str]) -> Vec<String> {
    let mut arguments: Vec<String> = ["-f", "--filter=cache", "file", "cache=writeback"]
        .map(str::to_owned)
        .to_vec();
    arguments.extend(place.iter().map(|&word| word.to_owned()));
    arguments.push(image.display().to_string());
    arguments
}

/// One at a socket in `place`, and what a client calls it, with these options.
pub(crate) fn forgetful_server(place: &Place, image: &Path, options: &str) -> (Storage, String) {
    let socket = place.path().join("socket");
    let at = socket.display().to_string();
    let arguments = forgetful(image, &["-U", &at]);
    let url = format!("nbd+unix:///?socket={at}{options}");
    (Storage::start("nbdkit", arguments, Some(socket)), url)
}

/// A port that nobody has, and that the kernel gives to no client, which would else connect to
/// itself while no server listens.
fn free_port() -> u16 {
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (first..32_000).find(is_free).unwrap()
}

fn content(thread: usize, number: usize) -> Vec<u8> {
    let length = (thread * 7919 + number * 104_729) % 90_000;
    (0..length)
        .map(|at| (at * 3 + number + thread) as u8)
        .collect()
}

/// So many of the newest files of a thread stay: a fast machine does not fill the image.
const KEPT: usize = 150;

/// Makes files until it is over, and syncs some; how many it made. Of each tenth nothing stays.
fn work(dir: &Path, thread: usize, is_over: &AtomicBool) -> usize {
    let mut number = 0;
    while !is_over.load(Ordering::SeqCst) {
        let new = dir.join(format!("{thread}.new"));
        let mut file = File::create(&new).unwrap();
        file.write_all(&content(thread, number)).unwrap();
        if number % 4 == 0 {
            file.sync_all().unwrap();
        }
        fs::rename(&new, dir.join(format!("{thread}.{number}"))).unwrap();
        let old = number.checked_sub(KEPT).filter(|old| old % 10 != 9);
        let tenth = (number % 10 == 9).then_some(number);
        for gone in old.into_iter().chain(tenth) {
            fs::remove_file(dir.join(format!("{thread}.{gone}"))).unwrap();
        }
        number += 1;
    }
    number
}

fn verify(dir: &Path, counts: &[usize]) {
    for (thread, count) in counts.iter().enumerate() {
        let kept = count.saturating_sub(KEPT)..*count;
        for number in kept.filter(|number| number % 10 != 9) {
            let found = fs::read(dir.join(format!("{thread}.{number}"))).unwrap();
            assert!(found == content(thread, number), "{thread}.{number}");
        }
    }
}

/// Mounts, and kills the storage under load; everything is there, and the unmount succeeds.
fn kill_under_load(place: &Place, url: &str, storage: &mut Storage, options: &str) {
    mount(Path::new(url), &place.mount_point(), &["-o", options]);
    let (is_over, mount_point) = (&AtomicBool::new(false), &place.mount_point());
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| scope.spawn(move || work(mount_point, thread, is_over)))
            .collect();
        for time in 0..8 {
            std::thread::sleep(Duration::from_millis(150 + time * 53 % 200));
            match time % 3 {
                2 => storage.end(),
                _ => storage.kill(),
            }
            std::thread::sleep(Duration::from_millis(time * 37 % 120));
            storage.start_again();
        }
        is_over.store(true, Ordering::SeqCst);
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.collect::<Vec<_>>()
    });
    verify(mount_point, &counts);
    // And once more while nobody uses it.
    storage.kill();
    storage.start_again();
    unmount(place);
    mount(Path::new(url), &place.mount_point(), &["-r"]);
    verify(mount_point, &counts);
    unmount(place);
    storage.kill();
}

pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {program}");
    }
    found
}

#[test]
fn a_server_that_forgets_is_told_again() {
    if !can_mount() || !has("nbdkit") {
        return;
    }
    for (kind, options) in [("ext4", "sandbox=on,commit=1"), ("ext2", "sandbox=off")] {
        let place = Place::new();
        let image = place.image(kind);
        let (mut storage, url) = forgetful_server(&place, &image, "&reconnect-delay=20");
        kill_under_load(&place, &url, &mut storage, options);
        check(&image);
    }
}

#[test]
fn a_server_of_the_network_comes_back() {
    if !can_mount() || !has("nbdkit") {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let port = free_port();
    let at = port.to_string();
    let arguments = forgetful(&image, &["-i", "127.0.0.1", "-p", &at]);
    let mut storage = Storage::start("nbdkit", arguments, None);
    let is_there = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_until("it listens", is_there);
    let url = format!("nbd://localhost:{port}/?reconnect-delay=20");
    kill_under_load(&place, &url, &mut storage, "sandbox=on,commit=1");
    check(&image);
}

#[test]
fn qemu_nbd_is_killed_with_what_it_knows_of_clusters() {
    if !can_mount() || !has("qemu-nbd") {
        return;
    }
    let place = Place::new();
    let raw = place.image("ext4");
    let image = place.path().join("image.qcow2");
    let convert = |from: (&str, &Path), to: (&str, &Path)| {
        let mut qemu_img = Command::new("qemu-img");
        qemu_img.args(["convert", "-f", from.0, "-O", to.0]);
        succeed(qemu_img.arg(from.1).arg(to.1));
    };
    convert(("raw", &raw), ("qcow2", &image));
    let socket = place.path().join("socket");
    let at = socket.display().to_string();
    let words = "--persistent --shared=0 -f qcow2 --cache=writeback -k";
    let words = words.split(' ').chain([at.as_str()]);
    let mut arguments: Vec<String> = words.map(str::to_owned).collect();
    arguments.push(image.display().to_string());
    let mut storage = Storage::start("qemu-nbd", arguments, Some(socket));
    let url = format!("nbd+unix:///?socket={at}&reconnect-delay=20");
    kill_under_load(&place, &url, &mut storage, "sandbox=on,commit=1");
    convert(("qcow2", &image), ("raw", &raw));
    check(&raw);
}

/// Without the option, and when the time is over, it is as ever: nothing can be changed any more.
#[test]
fn what_does_not_come_back_ends_the_mount() {
    if !can_mount() || !has("nbdkit") {
        return;
    }
    for option in ["", "&reconnect-delay=1"] {
        let place = Place::new();
        let image = place.image("ext4");
        let (mut storage, url) = forgetful_server(&place, &image, option);
        mount(Path::new(&url), &place.mount_point(), &[]);
        let file = File::create(place.mount_point().join("file")).unwrap();
        file.sync_all().unwrap();
        storage.kill();
        (&file).write_all(&[1; 5000]).unwrap();
        assert!(file.sync_all().is_err());
        drop(file);
        storage.start_again();
        assert!(File::create(place.mount_point().join("other")).is_err());
        let line = unmount_with_loss(&place.mount_point());
        assert!(line.contains("not everything is on the image"), "{line}");
        assert!(line.contains("has closed the connection"), "{line}");
        storage.kill();
        let mut e2fsck = Command::new("e2fsck");
        let fixed = run(e2fsck.arg("-p").arg(&image));
        assert!(
            fixed.status.code().is_some_and(|code| code <= 1),
            "{fixed:?}"
        );
    }
}

/// The server of NFS is confined too, and connects anew at its end.
#[test]
fn what_is_served_by_nfs_comes_back() {
    if !has("nbdkit") {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let (mut storage, url) = forgetful_server(&place, &image, "&reconnect-delay=20");
    let mut serve = finefs();
    serve.args(["serve", "--nfs", "127.0.0.1:0", "-o", "sandbox=on", &url]);
    let said = run(&mut serve);
    let said = String::from_utf8(said.stdout).unwrap();
    let port = said.split_once("port=").unwrap().1;
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    storage.kill();
    storage.start_again();
    succeed(finefs().arg("umount").arg(format!("127.0.0.1:{port}")));
    storage.kill();
    check(&image);
}
