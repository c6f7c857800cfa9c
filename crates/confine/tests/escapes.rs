//! A confined process that tries to get out: this program runs itself again, confines itself while
//! it has several threads, and each kind of thread tries one thing.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::thread;

use finefs_confine::{Confinement, Needs};

/// What the process that is confined tries, and where it may.
const ATTEMPT: &str = "FINEFS_CONFINE_ATTEMPT";
const PLACE: &str = "FINEFS_CONFINE_PLACE";
const PORT: &str = "FINEFS_CONFINE_PORT";

/// Runs this program with an attempt; what it said.
fn attempt(name: &str, place: &Path, port: u16) -> Output {
    let itself = std::env::current_exe().unwrap();
    Command::new(itself)
        .args([
            "--exact",
            "the_confined_one",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ATTEMPT, name)
        .env(PLACE, place)
        .env(PORT, port.to_string())
        .output()
        .unwrap()
}

/// What each thread said, "main", "old" and "new".
fn answers(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let answers = text.lines().filter_map(|line| line.split_once("said "));
    answers.map(|(_, said)| said.to_owned()).collect()
}

struct Around {
    place: tempfile::TempDir,
    listener: TcpListener,
    _socket: UnixListener,
}

impl Around {
    fn new() -> Around {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("secret"), b"secret").unwrap();
        fs::write(place.path().join("image"), b"image").unwrap();
        fs::create_dir(place.path().join("readable")).unwrap();
        fs::create_dir(place.path().join("writable")).unwrap();
        fs::write(place.path().join("readable/file"), b"public").unwrap();
        let socket = UnixListener::bind(place.path().join("socket")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Around {
            place,
            listener,
            _socket: socket,
        }
    }

    fn attempt(&self, name: &str) -> Output {
        let port = self.listener.local_addr().unwrap().port();
        attempt(name, self.place.path(), port)
    }
}

/// Everything is refused to every thread, those that ran before included.
#[test]
fn nothing_gets_out() {
    let around = Around::new();
    for (name, errno) in [
        ("read", libc::EACCES),
        #[cfg(target_arch = "x86_64")]
        ("open", libc::EACCES),
        ("create", libc::EACCES),
        ("write-readable", libc::EACCES),
        ("environment", libc::EACCES),
        ("memory", libc::EACCES),
        ("remove", libc::EPERM),
        ("rename", libc::EPERM),
        ("chmod", libc::EPERM),
        ("connect", libc::EPERM),
        ("connect-unix", libc::EPERM),
        ("listen", libc::EPERM),
        ("fork", libc::EPERM),
        ("spawn", libc::EPERM),
        ("kill", libc::EPERM),
        ("mount", libc::EPERM),
        ("unshare", libc::EPERM),
        ("set-user", libc::EPERM),
        ("run-memory", libc::EPERM),
        ("io-uring", libc::EPERM),
        ("terminal", libc::EPERM),
        ("limits", libc::EPERM),
    ] {
        let said = answers(&around.attempt(name));
        assert_eq!(said, vec![errno.to_string(); 3], "{name}");
    }
    assert_eq!(
        fs::read(around.place.path().join("secret")).unwrap(),
        b"secret"
    );
}

/// What is open, and what was asked for, goes on.
#[test]
fn what_is_needed_stays() {
    let around = Around::new();
    for name in [
        "image",
        "readable",
        "device",
        "thread",
        "pipe",
        "abort-caught",
    ] {
        assert_eq!(answers(&around.attempt(name)), ["0"; 3], "{name}");
    }
}

/// A server of a network connects to others by it, and replaces files in one directory.
#[test]
fn a_network_server_gets_no_further() {
    let around = Around::new();
    for (name, errno) in [
        ("network-connect", 0),
        ("network-replace", 0),
        ("network-kill-self", 0),
        ("network-connect-unix", libc::EPERM),
        ("network-listen", libc::EPERM),
        ("network-create", libc::EACCES),
        ("network-remove", libc::EACCES),
        ("network-read", libc::EACCES),
        ("network-spawn", libc::EPERM),
        ("network-kill", libc::EPERM),
    ] {
        let said = answers(&around.attempt(name));
        assert_eq!(said, vec![errno.to_string(); 3], "{name}");
    }
    if rustix::process::geteuid().is_root() {
        // CAP_NET_BIND_SERVICE, permitted and effective.
        for said in answers(&around.attempt("network-status")) {
            assert!(said.contains("caps 400400 privileges 1"), "{said}");
        }
    }
}

/// Programs are not run: the attempt is the end.
#[test]
fn who_runs_a_program_is_killed() {
    use std::os::unix::process::ExitStatusExt;
    let around = Around::new();
    for name in ["exec", "ptrace", "read-process"] {
        let output = around.attempt(name);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGSYS),
            "{name}: {output:?}"
        );
    }
}

#[test]
fn nobody_keeps_rights() {
    let around = Around::new();
    for name in ["status", "status-of-user"] {
        if name == "status-of-user" && !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root changes users");
            continue;
        }
        let output = around.attempt(name);
        let said = answers(&output);
        assert_eq!(said.len(), 3, "{output:?}");
        for one in said {
            let expected = if name == "status" { "" } else { "uid 65534" };
            assert!(
                one.contains("caps 0 privileges 1 seccomp 2"),
                "{name}: {one}"
            );
            assert!(one.contains(expected), "{name}: {one}");
        }
    }
}

fn needs(name: &str, place: &Path) -> Needs {
    let mut needs = Needs {
        readable: vec![
            place.join("readable"),
            place.join("missing"),
            "/proc".into(),
        ],
        devices: vec!["/dev/zero".into()],
        ..Needs::default()
    };
    if name.starts_with("network-") {
        needs.is_networked = true;
        needs.writable.push(place.join("writable"));
        needs.capabilities = finefs_confine::capability::NET_BIND_SERVICE;
    }
    if name == "status-of-user" {
        needs.user = Some((65_534, 65_534));
    }
    needs
}

/// Of the process that is confined; nothing for the one that tests.
#[test]
fn the_confined_one() {
    let Ok(name) = std::env::var(ATTEMPT) else {
        return;
    };
    let place = std::path::PathBuf::from(std::env::var_os(PLACE).unwrap());
    let port = std::env::var(PORT).unwrap().parse().unwrap();
    let image = File::options()
        .read(true)
        .write(true)
        .open(place.join("image"))
        .unwrap();
    let tasks = File::open("/proc/self/task").unwrap();
    let status = File::open("/proc/self/status").unwrap();
    let confinement = Confinement::prepare(&needs(&name, &place)).unwrap();
    assert_eq!(
        confinement.missing(),
        [] as [&str; 0],
        "this kernel lacks it"
    );
    let (go, gone) = channel::<()>();
    let trial = std::sync::Arc::new(Trial {
        name,
        place,
        port,
        image,
        status,
        parent: std::os::unix::process::parent_id(),
    });
    let of_old = trial.clone();
    let old = thread::spawn(move || {
        gone.recv().unwrap();
        of_old.run()
    });
    drop(tasks);
    confinement.apply().unwrap();
    println!("\nmain said {}", trial.run());
    go.send(()).unwrap();
    println!("old said {}", old.join().unwrap());
    let of_new = trial.clone();
    let new = thread::spawn(move || of_new.run());
    println!("new said {}", new.join().unwrap());
    std::process::exit(0);
}

struct Trial {
    name: String,
    place: std::path::PathBuf,
    port: u16,
    image: File,
    status: File,
    parent: u32,
}

fn code<T>(result: std::io::Result<T>) -> String {
    match result {
        Ok(_) => "0".to_owned(),
        Err(error) => error.raw_os_error().unwrap_or(-1).to_string(),
    }
}

/// Of a system call that gives -1 upon failure.
fn raw(result: i64) -> String {
    code(match result {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    })
}

impl Trial {
    fn run(&self) -> String {
        let at = |name: &str| self.place.join(name);
        let of_parent = |name: &str| format!("/proc/{}/{name}", self.parent);
        let name = self.name.strip_prefix("network-").unwrap_or(&self.name);
        match name {
            "read" => code(File::open(at("secret"))),
            "create" => code(File::create(at("made"))),
            "write-readable" => code(File::options().write(true).open(at("readable/file"))),
            "environment" => code(File::open(of_parent("environ")).and_then(|mut file| {
                // Some kernels refuse the reading.
                file.read(&mut [0]).and_then(|read| match read {
                    0 => Err(std::io::Error::from_raw_os_error(libc::EACCES)),
                    _ => Ok(()),
                })
            })),
            "memory" => code(File::open(of_parent("mem"))),
            "replace" => code(self.replace(&at("writable"))),
            "remove" => code(fs::remove_file(at("secret"))),
            "rename" => code(fs::rename(at("secret"), at("readable/secret"))),
            "connect" => code(TcpStream::connect(("127.0.0.1", self.port))),
            "connect-unix" => code(UnixStream::connect(at("socket"))),
            "listen" => code(TcpListener::bind("127.0.0.1:0")),
            "spawn" => code(Command::new("/bin/true").status()),
            "image" => code(self.read_and_write_image()),
            "readable" => code(fs::read(at("readable/file"))),
            "device" => code(File::options().read(true).write(true).open("/dev/zero")),
            "thread" => code(thread::Builder::new().spawn(|| ()).map(|one| one.join())),
            "pipe" => code(std::io::pipe()),
            "status" | "status-of-user" => self.rights(),
            name => raw(self.call(name)),
        }
    }

    fn replace(&self, directory: &Path) -> std::io::Result<()> {
        let (new, file) = (directory.join("new"), directory.join("file"));
        let mut made = File::create(&new)?;
        made.write_all(b"new")?;
        made.sync_all()?;
        fs::rename(&new, &file)?;
        fs::remove_file(&file)
    }

    fn read_and_write_image(&self) -> std::io::Result<()> {
        let mut image = &self.image;
        image.write_all(b"written")?;
        image.sync_all()?;
        rustix::fs::flock(image, rustix::fs::FlockOperation::LockShared)?;
        rustix::fs::fallocate(image, rustix::fs::FallocateFlags::empty(), 0, 8192)?;
        Ok(())
    }

    /// What the kernel says of the process' first thread, which only waits for the test's.
    fn rights(&self) -> String {
        let mut text = String::new();
        let mut status = &self.status;
        status.rewind().unwrap();
        status.read_to_string(&mut text).unwrap();
        let value = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            line.split_whitespace()
                .next()
                .unwrap()
                .trim_start_matches('0')
                .to_owned()
        };
        let caps: String = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"]
            .map(value)
            .concat();
        let caps = if caps.is_empty() { "0" } else { &caps };
        format!(
            "caps {caps} privileges {} seccomp {} uid {}",
            value("NoNewPrivs:"),
            value("Seccomp:"),
            value("Uid:")
        )
    }

    /// What no safe function calls.
    fn call(&self, name: &str) -> i64 {
        let secret = std::ffi::CString::new(self.place.join("secret").to_str().unwrap()).unwrap();
        let program = c"/bin/true".as_ptr();
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: each call has the arguments that its manual page asks for; pointers are to what
        // lives until it returns, or null where that is allowed. The forked process only ends.
        unsafe {
            match name {
                #[cfg(target_arch = "x86_64")]
                "open" => libc::syscall(libc::SYS_open, secret.as_ptr(), libc::O_RDONLY),
                "chmod" => libc::chmod(secret.as_ptr(), 0o777).into(),
                "fork" => match libc::fork() {
                    0 => libc::_exit(0),
                    child => child.into(),
                },
                "kill-self" => libc::kill(libc::getpid(), 0).into(),
                "kill" => libc::kill(1, 0).into(),
                "mount" => {
                    let to = c"/mnt".as_ptr();
                    libc::mount(to, to, std::ptr::null(), libc::MS_BIND, none).into()
                }
                "unshare" => libc::unshare(libc::CLONE_NEWUSER).into(),
                "set-user" => libc::syscall(libc::SYS_setresuid, 0, 0, 0),
                "run-memory" => {
                    let may = libc::PROT_READ | libc::PROT_EXEC;
                    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    libc::mmap(none, 4096, may, kind, -1, 0) as i64
                }
                "io-uring" => libc::syscall(libc::SYS_io_uring_setup, 8, [0_u8; 256].as_ptr()),
                "terminal" => libc::ioctl(1, libc::TIOCSTI, c"x".as_ptr()).into(),
                "limits" => {
                    let limit = libc::rlimit {
                        rlim_cur: 0,
                        rlim_max: 0,
                    };
                    libc::setrlimit(libc::RLIMIT_CORE, &raw const limit).into()
                }
                "abort-caught" => {
                    libc::signal(libc::SIGABRT, libc::SIG_IGN);
                    libc::raise(libc::SIGABRT).into()
                }
                "exec" => {
                    let none = [std::ptr::null()];
                    libc::execve(program, none.as_ptr(), none.as_ptr()).into()
                }
                "ptrace" => libc::ptrace(libc::PTRACE_TRACEME, 0, none, none),
                "read-process" => {
                    let none = std::ptr::null();
                    libc::process_vm_readv(libc::getpid(), none, 0, none, 0, 0) as i64
                }
                name => panic!("no such attempt: {name}"),
            }
        }
    }
}
