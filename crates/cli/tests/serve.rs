//! `finefs serve`, and the commands that name what is served. The protocol has its tests in
//! crates/nfs.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

fn finefs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
    command.stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    finefs().args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeed(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    text(&output.stdout)
}

fn image(directory: &TempDir, name: &str) -> String {
    let image = directory.path().join(name);
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .arg(&image)
        .arg("16m")
        .status();
    assert!(made.unwrap().success());
    image.to_str().unwrap().to_owned()
}

fn is_sound(image: &str) -> bool {
    let checked = Command::new("e2fsck").args(["-fn", image]).output();
    checked.unwrap().status.success()
}

/// A server in the foreground.
struct Serving {
    child: Child,
    address: String,
    told: String,
}

impl Serving {
    fn start(words: &[&str]) -> Serving {
        Serving::start_by(&mut finefs(), words)
    }

    /// By a command that runs finefs, or by finefs.
    fn start_by(command: &mut Command, words: &[&str]) -> Serving {
        let mut child = command
            .args(["serve", "-f", "--nfs", "127.0.0.1:0"])
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut told = String::new();
        while !told.contains("to end: ") {
            assert!(out.read_line(&mut told).unwrap() > 0, "it ended: {told}");
        }
        let address = told.split("finefs umount ").nth(1).unwrap();
        let address = address.split(',').next().unwrap().to_owned();
        std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
        Serving {
            child,
            address,
            told,
        }
    }

    fn end(mut self, by: &str) {
        succeed(&["umount", by]);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Serving {
    /// Where a test fails.
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

#[test]
fn the_commands_on_mounts_take_what_is_served() {
    let directory = TempDir::new().unwrap();
    let image = image(&directory, "image");
    let serving = Serving::start(&[&image]);
    assert!(serving.told.contains(&format!("serving {image}")));
    let port = serving.address.rsplit(':').next().unwrap();
    assert!(serving.told.contains(&format!("mountport={port},nolock")));

    let nobody = run(&["lsof", &serving.address]);
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    let _client = std::net::TcpStream::connect(&serving.address).unwrap();
    let start = std::time::Instant::now();
    while !run(&["lsof", &image]).status.success() {
        assert!(start.elapsed().as_secs() < 60, "the client is not seen");
    }
    let users = succeed(&["lsof", "--json", &image]);
    assert!(users.contains("\"client\": \"127.0.0.1\""), "{users}");

    assert!(succeed(&["lsof", &image]).ends_with(" 1 connection\n"));

    let second = run(&["serve", "-f", "--nfs", "127.0.0.1:0", &image]);
    assert_eq!(second.status.code(), Some(1));
    let said = text(&second.stderr);
    assert!(said.contains("already in use by finefs serve"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");

    succeed(&["freeze", &image]);
    let again = run(&["freeze", &serving.address]);
    assert!(
        text(&again.stderr).contains("is frozen already"),
        "{again:?}"
    );
    // What is frozen is as after a clean unmount.
    assert!(is_sound(&image));
    succeed(&["thaw", &serving.address]);
    succeed(&["sync", &image]);
    let top = succeed(&[
        "top",
        "--batch",
        "--iterations",
        "1",
        "--delay",
        "0.1",
        &image,
    ]);
    assert!(top.contains("CLASS"), "{top}");
    serving.end(&image);
    assert!(is_sound(&image));
    let gone = run(&["freeze", &image]);
    assert!(text(&gone.stderr).contains("not mounted"), "{gone:?}");
}

#[test]
fn several_images_are_served_by_their_names() {
    let directory = TempDir::new().unwrap();
    let (one, two) = (image(&directory, "one,1"), image(&directory, "two"));
    let exports = [format!("a={one}"), format!("b={two},ro,squash=all")];
    let serving = Serving::start(&["--export", &exports[0], "--export", &exports[1]]);
    assert!(serving.told.contains(&format!("serving {two} as /b at")));
    // One image alone, and all together.
    succeed(&["freeze", &one]);
    let all = run(&["freeze", &serving.address]);
    assert!(!all.status.success());
    succeed(&["thaw", &one]);
    // The second is read-only.
    succeed(&["freeze", &serving.address]);
    assert!(!run(&["freeze", &one]).status.success());
    succeed(&["thaw", &serving.address]);
    succeed(&["sync", &serving.address]);
    let address = serving.address.clone();
    serving.end(&address);
    assert!(is_sound(&one) && is_sound(&two));
}

/// Puts an image behind a boot record that says so.
fn disk_of(directory: &TempDir, image: &str) -> String {
    let mut bytes = vec![0; 1 << 20];
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    bytes[450] = 0x83;
    bytes[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    bytes[458..462].copy_from_slice(&(16_u32 << 11).to_le_bytes());
    bytes.extend(std::fs::read(image).unwrap());
    let disk = directory.path().join("disk");
    std::fs::write(&disk, bytes).unwrap();
    disk.to_str().unwrap().to_owned()
}

#[test]
fn a_partition_is_served() {
    let directory = TempDir::new().unwrap();
    let disk = disk_of(&directory, &image(&directory, "image"));
    let part = format!("{disk}@p1");
    let export = format!("a={part}");
    for words in [&[part.as_str()][..], &["--export", &export]] {
        let serving = Serving::start(words);
        succeed(&["freeze", &part]);
        succeed(&["thaw", &part]);
        serving.end(&part);
        succeed(&["check", &part]);
    }
    let both = run(&[
        "serve",
        "-f",
        "--nfs",
        "127.0.0.1:0",
        "-o",
        "offset=1m",
        &part,
    ]);
    let said = text(&both.stderr);
    assert!(said.contains("the partition says where"), "{said}");
    let none = run(&["serve", "-f", "--nfs", "127.0.0.1:0", &format!("{disk}@p2")]);
    let said = text(&none.stderr);
    assert!(said.contains("no partition p2; there are p1"), "{said}");
}

#[test]
fn what_cannot_be_served_is_told() {
    let directory = TempDir::new().unwrap();
    let image = image(&directory, "image");
    let copy = directory.path().join("copy");
    std::fs::copy(&image, &copy).unwrap();
    let exports = [format!("a={image}"), format!("b={}", copy.display())];
    let same = run(&[
        "serve",
        "-f",
        "--nfs",
        "127.0.0.1:0",
        "--export",
        &exports[0],
        "--export",
        &exports[1],
    ]);
    assert_eq!(same.status.code(), Some(1));
    assert!(text(&same.stderr).contains("same UUID"), "{same:?}");
    assert!(is_sound(&image));
    for wrong in [
        &["serve", "--memory", "--export", &exports[0]][..],
        &["serve", "--export", &exports[0], "--squash", "all"],
        &["serve", "--export", "a=x,squash=some"],
        &["serve", "--memory", "--rpcbind", "here"],
        &["serve"],
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let nothing = run(&["umount", "127.0.0.1:1"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(
        text(&nothing.stderr).contains("nothing is served"),
        "{nothing:?}"
    );
}

/// Which option, of which export, and what there is: in the first line of the usage error.
#[test]
fn what_is_no_option_of_an_export_is_named() {
    let directory = TempDir::new().unwrap();
    let image = image(&directory, "a,image");
    let there_are = "there are ro, rw, sync, async, secure, insecure, clients=CIDR and \
                     squash=root|all|none";
    for (options, said) in [
        ("typo", format!("no option \"typo\"; {there_are}")),
        ("ro,typo,rw", format!("no option \"typo\"; {there_are}")),
        ("ro=yes", format!("no option \"ro=yes\"; {there_are}")),
        ("", format!("no option \"\"; {there_are}")),
        ("squash=some", "squash=some: give root, all or none".into()),
        (
            "clients=192.0.2.0/33",
            "clients=192.0.2.0/33: give an address".into(),
        ),
    ] {
        let export = format!("data={image},{options}");
        let refused = run(&["serve", "-f", "--export", &export]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let line = text(&refused.stderr).lines().next().unwrap().to_owned();
        assert!(line.contains(&format!("'{export}'")), "{line}");
        assert!(line.contains(&said), "{line}");
    }
    // What is not there may be meant with its commas.
    let missing = run(&["serve", "-f", "--export", "a=/none,typo"]);
    assert_eq!(missing.status.code(), Some(1));
    let said = text(&missing.stderr);
    assert_eq!(said, "finefs: /none,typo: no such file; check the path\n");
}

/// root of a client is nobody, and everybody else may not write in what mkfs has made.
#[test]
fn an_image_in_which_no_client_can_write_is_told() {
    let directory = TempDir::new().unwrap();
    let image = image(&directory, "image");
    let advice = |words: &[&str]| {
        let log = directory.path().join("said");
        let words: Vec<&str> = words.iter().copied().chain([&*image]).collect();
        let to = std::fs::File::create(&log).unwrap();
        let serving = Serving::start_by(finefs().stderr(to), &words);
        serving.end(&image);
        std::fs::read_to_string(log).unwrap()
    };
    let told = advice(&[]);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("no client can write in /"), "{told}");
    assert!(
        told.contains(&format!("finefs chown UID {image}:/")),
        "{told}"
    );
    let told = advice(&["--squash", "all"]);
    assert!(
        told.contains(&format!("finefs chown 65534 {image}:/")),
        "{told}"
    );
    assert_eq!(advice(&["--squash", "none"]), "");
    assert_eq!(advice(&["--ro"]), "");
    succeed(&["chown", "1000", &format!("{image}:/")]);
    assert_eq!(advice(&[]), "");
    assert!(advice(&["--squash", "all"]).contains("no client can write"));
    succeed(&["chown", "0", &format!("{image}:/")]);
    // What is in it may be for those who have it.
    succeed(&["mkdir", &format!("{image}:/home")]);
    assert_eq!(advice(&[]), "");
}

#[test]
fn who_has_locks_is_noted_where_the_user_says() {
    let directory = TempDir::new().unwrap();
    let image = image(&directory, "image");
    let state: PathBuf = directory.path().join("state");
    let state_name = state.to_str().unwrap().to_owned();
    let words = [
        "--rpcbind",
        "127.0.0.1:0",
        "--lock-state",
        &state_name,
        &image,
    ];
    let serving = Serving::start(&words);
    assert!(!serving.told.contains("nolock"), "{}", serving.told);
    let noted = std::fs::read_to_string(&state).unwrap();
    assert_eq!(noted, "finefs locks 1\nstate 3\n");
    serving.end(&image);
}

#[test]
fn a_grace_period_of_more_than_a_day_is_refused() {
    let output = run(&["serve", "--memory", "--grace", "18446744073709551615"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("--grace") && said.contains("86400"), "{said}");
}

/// It only sees that the connection is closed.
#[test]
fn a_client_that_is_refused_is_told_of_to_the_server() {
    let directory = TempDir::new().unwrap();
    let said = directory.path().join("said");
    let to = std::fs::File::create(&said).unwrap();
    let words = ["--memory", "--clients", "192.0.2.0/24"];
    let serving = Serving::start_by(finefs().stderr(to), &words);
    let mut client = std::net::TcpStream::connect(&serving.address).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    let said = std::fs::read_to_string(said).unwrap();
    let own = client.local_addr().unwrap();
    assert!(said.contains(&format!("{own} is refused")), "{said}");
    let address = serving.address.clone();
    serving.end(&address);
}

/// A line of the status of each thread of a process.
fn of_threads(process: u32, name: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let values = threads.filter_map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("status")).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.trim().to_owned())
    });
    values.collect()
}

/// It still tells clients, and notes who has locks.
#[test]
fn a_server_is_confined() {
    let directory = TempDir::new().unwrap();
    let image = image(&directory, "image");
    let place = directory.path().join("state");
    std::fs::create_dir(&place).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let mut client = None;
    if is_root {
        // Another user's, and a client whose rpcbind can be had.
        std::os::unix::fs::chown(&place, Some(1234), Some(1234)).unwrap();
        client = std::net::TcpListener::bind("127.0.0.77:111").ok();
    }
    let state = place.join("locks");
    let before = "finefs locks 1\nstate 3\n127.0.0.77 127.0.0.1 6e616d65\n";
    std::fs::write(&state, before).unwrap();
    let state_name = state.to_str().unwrap();
    let words = [
        "--rpcbind",
        "127.0.0.1:0",
        "--grace",
        "1",
        "--lock-state",
        state_name,
    ];
    let serving = Serving::start(&[&words[..], &["-o", "sandbox=on", &image]].concat());
    let process = serving.child.id();
    let start = std::time::Instant::now();
    while of_threads(process, "Seccomp:")
        .iter()
        .any(|value| value != "2")
    {
        assert!(start.elapsed().as_secs() < 60, "it is not confined");
    }
    let capabilities = if is_root {
        "0000000000000002"
    } else {
        "0000000000000000"
    };
    for (name, expected) in [("NoNewPrivs:", "1"), ("CapEff:", capabilities)] {
        assert!(
            of_threads(process, name)
                .iter()
                .all(|value| value == expected),
            "{name}"
        );
    }
    if let Some(client) = client {
        client.accept().unwrap();
    }
    while std::fs::read_to_string(&state)
        .unwrap()
        .contains("127.0.0.77")
    {
        assert!(start.elapsed().as_secs() < 60, "nothing is noted");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    for word in ["freeze", "thaw", "sync"] {
        succeed(&[word, &serving.address]);
    }
    serving.end(&image);
    assert!(is_sound(&image));
    for (option, said) in [
        ("setuid=owner", "option setuid"),
        ("umask=077", "only a mount shows"),
        ("gid=5", "only a mount shows"),
        ("nosuid,allow_other", "option allow_other: only of a mount"),
        ("threads=2", "only of a mount"),
        ("auto_unmount", "only of a mount"),
    ] {
        let refused = run(&["serve", "-f", "-o", option, &image]);
        assert!(text(&refused.stderr).contains(said), "{refused:?}");
    }
}

/// The shell's limit, 1024 mostly, is less than the connections that are served.
#[test]
fn connections_are_not_kept_out_by_the_shells_limit_of_files() {
    let serving = Serving::start_by(
        Command::new("prlimit")
            .arg("--nofile=200:3000")
            .arg(env!("CARGO_BIN_EXE_finefs"))
            .stdin(Stdio::null()),
        &["--memory"],
    );
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.child.id())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let limit = files.unwrap().split_whitespace().nth(3);
    assert_eq!(limit, Some("3000"), "{limits}");
    let address = serving.address.clone();
    serving.end(&address);
}

/// libnfs is a client of its own: another reading of the protocol.
#[test]
fn libnfs_copies_in_and_out() {
    let directory = TempDir::new().unwrap();
    let image = image(&directory, "image");
    // As whoever runs this; and root of the image is another's.
    let serving = Serving::start(&["--squash", "none", &image]);
    let port = serving.address.rsplit(':').next().unwrap();
    let url = |path: &str| {
        format!(
            "nfs://127.0.0.1{path}?nfsport={port}&mountport={port}&version=3&auto-traverse-mounts=0"
        )
    };
    let libnfs = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output().unwrap();
        assert!(output.status.success(), "{program} {words:?}: {output:?}");
        text(&output.stdout)
    };
    let (data, back) = (directory.path().join("data"), directory.path().join("back"));
    let bytes: Vec<u8> = (0..3_000_000u32).map(|number| (number * 7) as u8).collect();
    std::fs::write(&data, &bytes).unwrap();
    libnfs("nfs-cp", &[data.to_str().unwrap(), &url("/data")]);
    let list = libnfs("nfs-ls", &[&url("/")]);
    assert!(
        list.contains("lost+found") && list.contains("data"),
        "{list}"
    );
    libnfs("nfs-cp", &[&url("/data"), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == bytes);
    let shown = Command::new("nfs-cat").arg(url("/data")).output().unwrap();
    assert!(shown.status.success() && shown.stdout == bytes);
    serving.end(&image);
    assert!(is_sound(&image));
}

#[test]
fn a_server_in_the_background_keeps_no_descriptor_of_its_script() {
    let directory = TempDir::new().unwrap();
    let script = r#"exec 9> lock; flock 9; exec "$FINEFS" serve --memory --nfs 127.0.0.1:0"#;
    let mut sh = Command::new("sh");
    sh.args(["-ec", script]).current_dir(directory.path());
    let output = sh
        .env("FINEFS", env!("CARGO_BIN_EXE_finefs"))
        .output()
        .unwrap();
    let told = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let address = told.split("finefs umount ").nth(1).unwrap();
    let address = address.split(',').next().unwrap();
    let start = std::time::Instant::now();
    let is_free = || {
        let mut flock = Command::new("flock");
        flock.args(["-n", "lock", "true"]);
        let tried = flock.current_dir(directory.path()).status();
        tried.unwrap().success()
    };
    while !is_free() && start.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let was_free = is_free();
    succeed(&["umount", address]);
    assert!(was_free, "the lock is held");
}
