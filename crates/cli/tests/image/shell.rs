//! `finefs shell`: scripts that stop where something fails, and a prompt on a pseudo-terminal.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Place, assert_clean};

/// An image with `/etc/one` in it.
fn place() -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path("source/etc/conf.d")).unwrap();
    fs::write(place.path("source/etc/one"), "1\n").unwrap();
    place.ok(&["build", "-q", "--free", "8m", "image", "source"]);
    place
}

#[test]
fn scripts_do_all_lines_on_an_image_that_is_opened_once() {
    let place = place();
    fs::write(place.path("input"), "from the host\n").unwrap();
    let script = "
        # relative paths, quotes, and files of the host
        cd etc
        pwd
        cp host:input 'a b'
        mkdir -p conf.d/deep && # a word as any other
    ";
    let good = &script.replace(" && # a word as any other", "")[..];
    let more = "
        lcd source
        cp host:etc/one conf.d/two
        ln -s ../one conf.d/link
        ls
        cat conf.d/link ../etc/'a b'
        chmod 600 one
        stat -c %a one /etc/one
        - cat nothing
        find . -name two
        df --json
        tar -cf host:../archive .
        - diff --quiet conf.d/two host:etc/one
        exit
        cat never
    ";
    fs::write(place.path("script"), format!("{good}{more}")).unwrap();
    let output = place
        .finefs(&["shell", "-f", "script", "image"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("etc/nothing") && said.lines().count() == 1,
        "{said}"
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let wanted = "/etc\na b\nconf.d\none\n1\nfrom the host\n600\n600\nimage:/etc/conf.d/two\n";
    assert!(printed.starts_with(wanted), "{printed}");
    assert_clean(&place.path("image"));
    assert_eq!(place.ok(&["cat", "image:/etc/conf.d/two"]), "1\n");
    let listed = place.ok(&["tar", "-tf", "archive"]);
    assert!(listed.contains("etc/conf.d/link\n"), "{listed}");
    let output = place.with_input(&["shell", "image:/etc"], b"pwd\nls\n");
    assert_eq!(output.stdout, b"/etc\na b\nconf.d\none\n");
    let printed = place.ok(&[
        "shell",
        "-r",
        "image",
        "-c",
        "cd /etc/conf.d",
        "-c",
        "cat link",
    ]);
    assert_eq!(printed, "1\n");
}

/// Files that options name are the host's, and said to be; names are bytes.
#[test]
fn options_name_files_of_the_host_and_names_are_bytes() {
    let place = place();
    fs::create_dir(place.path("out")).unwrap();
    fs::write(place.path("out/names"), "etc/one\n").unwrap();
    let lines = [
        "lcd out",
        "tar -cf host:made.tar -T host:names",
        "mkdir new",
        "tar -xf host:made.tar new",
        "diff --oci host:layer.tar new etc",
    ];
    let mut words = vec!["shell", "image"];
    words.extend(lines.iter().flat_map(|line| ["-c", line]));
    place.ok(&words);
    let made = fs::read_dir(place.path("out")).unwrap().count();
    assert_eq!((made, place.path("out/layer.tar").exists()), (3, true));
    assert_eq!(place.ok(&["cat", "image:/new/etc/one"]), "1\n");
    for (line, status) in [
        ("tar -cf /made.tar etc", 2),
        ("tar -tf made.tar", 2),
        ("diff --oci layer.tar new etc", 2),
        ("setfattr --restore dump etc", 1),
    ] {
        let said = place.fails(status, &["shell", "image", "-c", line]);
        assert!(said.contains("host:FILE"), "{line}: {said}");
    }
    let script = b"mkdir '/b\xFFd dir'\ncd /b\xFFd*\ntouch n\xFEme\n";
    let output = place.with_input(&["shell", "image"], script);
    assert!(output.status.success(), "{output:?}");
    let output = place.with_input(&["ls", "image:/b?d dir"], b"");
    assert_eq!(output.stdout, b"n\xFEme\n");
    assert_clean(&place.path("image"));
}

#[test]
fn scripts_stop_at_the_first_failure_and_say_where() {
    let place = place();
    fs::write(
        place.path("script"),
        "mkdir one\n\ncat nothing\nmkdir two\n",
    )
    .unwrap();
    let said = place.fails(1, &["shell", "-f", "script", "image"]);
    assert!(
        said.contains("script: line 3: 'cat nothing' failed with status 1"),
        "{said}"
    );
    // What came before is there.
    assert_eq!(place.ok(&["ls", "image"]), "etc\nlost+found\none\n");
    assert_clean(&place.path("image"));
    for (line, status, part) in [
        ("cat 'open", 2, "a quote is not closed"),
        ("cat etc/one | wc", 2, "'|': there are no pipes"),
        ("cat etc/one >x", 2, "'>': there are no pipes"),
        ("touch a; touch b", 2, "';': there are no pipes"),
        ("rm etc/*.none", 1, "etc/*.none: no such file"),
        ("!exit 7", 7, "failed with status 7"),
        ("!kill -9 $$", 137, "failed with status 137"),
        ("lls /nowhere", 2, "nowhere"),
        ("mount x", 2, "unrecognized subcommand"),
        ("shell image", 2, "unrecognized subcommand"),
        ("ls --nonsense", 2, "--nonsense"),
        ("ls nothing", 2, "nothing"),
        ("cd etc/one", 1, "is no directory"),
        ("cd nowhere", 1, "nowhere"),
        ("lcd nowhere", 1, "nowhere"),
        ("cp host:nothing x", 1, "nothing"),
        ("cat-not", 2, "unrecognized subcommand"),
        ("stat host:source", 1, "is no file of an image"),
    ] {
        let said = place.fails(status, &["shell", "image", "-c", line, "-c", "mkdir never"]);
        assert!(
            said.contains(part) && said.contains("-c: line 1"),
            "{line}: {said}"
        );
    }
    let said = place.fails(1, &["shell", "-r", "image", "-c", "mkdir x"]);
    assert!(said.contains("open to be read"), "{said}");
    let said = place.fails(1, &["shell", "-f", "nothing", "image"]);
    assert!(said.contains("nothing: No such file"), "{said}");
    let said = place.fails(1, &["shell", "image:/etc/none"]);
    assert!(said.contains("image:/etc/none"), "{said}");
    assert_eq!(place.ok(&["ls", "image"]), "etc\nlost+found\none\n");
}

#[test]
fn patterns_stand_for_files_and_the_host_has_commands() {
    let place = place();
    for name in ["a.txt", "b.txt", ".c.txt", "*"] {
        let path = format!("image:/etc/{name}");
        place.with_input(&["cp", "-", &path], name.as_bytes());
    }
    let printed = |lines: &[&str]| {
        let mut words = vec!["shell", "image"];
        lines.iter().for_each(|line| words.extend(["-c", line]));
        place.ok(&words)
    };
    assert_eq!(
        printed(&["cd etc", "ls *.txt"]),
        "image:/etc/a.txt\nimage:/etc/b.txt\n"
    );
    assert_eq!(
        printed(&["ls -d /e*/[!a].* etc/'*'"]),
        "image:/etc/*\nimage:/etc/b.txt\n"
    );
    assert_eq!(printed(&["cat etc/\\*"]), "*");
    assert_eq!(printed(&["cd etc", "cd conf.d", "cd -", "pwd"]), "/etc\n");
    printed(&[
        "mkdir new",
        "cp etc/?.txt new",
        "rm etc/*.txt",
        "cp host:source/etc/o* new",
    ]);
    assert_eq!(
        printed(&["ls -A etc new"]),
        "image:/etc:\n*\n.c.txt\nconf.d\none\n\nimage:/new:\na.txt\nb.txt\none\n"
    );
    let shown = printed(&[
        "lcd source",
        "lpwd",
        "lls -d etc",
        "!echo $((1 + 1)) | cat",
        "history",
    ]);
    let source = place.path("source").canonicalize().unwrap();
    assert_eq!(shown, format!("{}\netc\n2\n", source.display()));
    assert!(printed(&["?"]).contains("lpwd"));
    place.fails(3, &["shell", "image", "-c", "exit 3", "-c", "cat never"]);
    // Outside of a shell the paths are whole; a file of that very name comes first.
    assert_eq!(place.ok(&["cat", "image:/etc/*"]), "*");
    assert_eq!(
        place.ok(&["ls", "image:/n*/?.txt"]),
        "image:/new/a.txt\nimage:/new/b.txt\n"
    );
    place.ok(&["cp", "image:/new/*.txt", "image:/"]);
    place.ok(&["mv", "image:/new/[a]*", "image:/new/o*", "source"]);
    place.ok(&["chmod", "600", "image:/?.txt"]);
    assert_eq!(
        place.ok(&["stat", "-c", "%n %a", "image:/*.txt"]),
        "image:/a.txt 600\nimage:/b.txt 600\n"
    );
    place.ok(&["rm", "image:/new/*", "image:/*.txt"]);
    assert!(place.path("source/a.txt").exists());
    assert_eq!(place.ok(&["ls", "image:/new"]), "");
    let said = place.fails(1, &["rm", "image:/q*"]);
    assert_eq!(said, "finefs rm: image:/q*: no such file or directory\n");
    assert_clean(&place.path("image"));
}

#[test]
fn what_may_fail_and_what_has_no_operand_is_done_as_elsewhere() {
    let place = place();
    let printed = |lines: &[&str]| {
        let mut words = vec!["shell", "image"];
        lines.iter().for_each(|line| words.extend(["-c", line]));
        place.ok(&words)
    };
    // The host's commands may fail too.
    let lines = b"-!echo one; exit 7\n - !kill -9 $$\n-! echo two\n";
    let output = place.with_input(&["shell", "image"], lines);
    assert_eq!(output.stdout, b"one\ntwo\n", "{output:?}");
    assert!(output.status.success(), "{output:?}");
    // find has the directory for an operand also where it deletes, and leaves it.
    printed(&["cd etc", "touch a.log b.log", "find -name '*.log' -delete"]);
    assert_eq!(place.ok(&["ls", "image:/etc"]), "conf.d\none\n");
    printed(&["cd etc", "find -delete"]);
    assert_eq!(place.ok(&["ls", "image:/etc"]), "");
    assert_clean(&place.path("image"));
    printed(&["find . -delete"]);
    assert_eq!(place.ok(&["ls", "image"]), "");
}

#[test]
fn names_that_a_pattern_finds_are_always_of_the_image() {
    let place = place();
    place.image("other.img", "ext4", 16);
    place.ok(&["mkdir", "other.img:/d"]);
    place.ok(&["cp", "source/etc/one", "other.img:/d/file"]);
    fs::create_dir(place.path("odd")).unwrap();
    for name in ["host:source", "-", "-rf", "!"] {
        fs::write(place.path("odd").join(name), name).unwrap();
    }
    fs::create_dir_all(place.path("odd/other.img:/d")).unwrap();
    fs::write(place.path("odd/other.img:/d/file"), "inside").unwrap();
    place.ok(&["cp", "-r", "odd", "image:/"]);
    let done = |line: &str| place.ok(&["shell", "image", "-c", "cd odd", "-c", line]);
    assert_eq!(done("cat -- ?"), "!-");
    assert_eq!(done("cat */d/file"), "inside");
    assert_eq!(done("cat /odd/*/d/file"), "inside");
    let root = ["shell", "image:/odd", "-c", "cat /*.img:/d/file"];
    place.ok(&["mv", "image:/odd/other.img:", "image:/"]);
    assert_eq!(place.ok(&root), "inside");
    assert_eq!(done("find * -name '!'"), "image:/odd/./!\n");
    done("mkdir /backup");
    done("mv * /backup");
    assert_eq!(place.ok(&["ls", "image:/odd"]), "");
    assert_eq!(
        place.ok(&["ls", "image:/backup"]),
        "!\n-\n-rf\nhost:source\n"
    );
    assert!(place.path("source/etc/one").exists());
    place.ok(&["shell", "image:/backup", "-c", "rm *"]);
    assert_eq!(place.ok(&["ls", "image:/backup"]), "");
    // What is typed still names the host and other images.
    let other = place.path("other.img");
    let typed = format!("cat host:source/etc/one {}:/d/file", other.display());
    assert_eq!(done(&typed), "1\n1\n");
    assert_clean(&place.path("image"));
}

/// A shell on a pseudo-terminal that script(1) makes.
struct Terminal<'a> {
    place: &'a Place,
    script: Child,
    /// Where on the screen the last prompt has begun.
    begun: u64,
}

/// What a terminal is told when a line begins and ends: bracketed paste.
const BEGINS: &str = "\x1b[?2004h";
const ENDS: &str = "\x1b[?2004l";

impl<'a> Terminal<'a> {
    fn start(place: &'a Place) -> Terminal<'a> {
        let _ = fs::remove_file(place.path("screen"));
        let finefs = env!("CARGO_BIN_EXE_finefs");
        // While the terminal is cooked, Ctrl-C is a signal for the shell that runs this, too.
        let commands =
            format!("trap : INT; stty cols 80 rows 24; {finefs} shell image; echo ended $?");
        let script = Command::new("script")
            .args(["-q", "-f", "-c", &commands, "screen"])
            .current_dir(place.path(""))
            .env("TERM", "xterm")
            .env("XDG_STATE_HOME", place.path("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Terminal {
            place,
            script,
            begun: 0,
        }
    }

    /// Waits for something that is on the screen from an offset on; gives the one behind it.
    fn wait_for(&self, text: &str, mut from: u64) -> u64 {
        let start = Instant::now();
        let mut part = vec![0; 1 << 16];
        let read_at = |part: &mut [u8], from| {
            let screen = fs::File::open(self.place.path("screen"));
            screen.map_or(0, |screen| screen.read_at(part, from).unwrap())
        };
        loop {
            let read = read_at(&mut part, from);
            let mut windows = part[..read].windows(text.len());
            if let Some(at) = windows.position(|some| some == text.as_bytes()) {
                return from + (at + text.len()) as u64;
            }
            // The last of it may be the first of the text.
            let passed = (read + 1).saturating_sub(text.len());
            if passed > 0 {
                from += passed as u64;
                continue;
            }
            if start.elapsed() > Duration::from_secs(60) {
                let read = read_at(&mut part, self.begun);
                panic!("no {text:?}: {}", String::from_utf8_lossy(&part[..read]));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types at the next prompt, and waits for something that is then on the screen.
    fn types(&mut self, keys: &str, text: &str) {
        // What is typed before is lost.
        self.begun = self.wait_for(BEGINS, self.begun);
        self.send(keys);
        self.wait_for(text, self.begun);
    }

    /// Types at once.
    fn send(&mut self, keys: &str) {
        let input = self.script.stdin.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
    }

    /// Passes over what is on the screen by now.
    fn pass_over(&mut self) {
        self.begun = fs::metadata(self.place.path("screen")).unwrap().len();
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn a_prompt_has_completion_and_history() {
    let place = place();
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("skipped: needs script(1)");
        return;
    }
    let mut terminal = Terminal::start(&place);
    // The tabulator completes a command and a path.
    terminal.types("mkd\tet\tnew\r", ENDS);
    terminal.types("ls etc\r", "conf.d  new  one");
    terminal.types("cd etc\r", "image:/etc> ");
    terminal.types("cat nothing\r", "image:/etc/nothing: no such file");
    terminal.types("touch kept\r", ENDS);
    // Ctrl-C takes a line back, Ctrl-D ends.
    terminal.types("rm kept\x03", ENDS);
    terminal.types("ls\r", "conf.d  kept  new  one");
    terminal.types("\x04", "ended 0");
    assert_eq!(place.ok(&["ls", "image:/etc"]), "conf.d\nkept\nnew\none\n");
    assert_clean(&place.path("image"));
    // The history is there the next time: two lines up is what made a file.
    let mut terminal = Terminal::start(&place);
    terminal.types("\x1b[A\x1b[A\r", ENDS);
    terminal.types("ls\r", "etc  kept  lost+found");
    // In quotes too.
    terminal.types("mkdir 'two words'\r", ENDS);
    terminal.types("cd \"tw\t\"\r", "image:/two words> ");
    // Ctrl-C ends what prints, and the shell goes on.
    terminal.types("truncate -s 4g zeros\r", ENDS);
    terminal.types("cat zeros\r", "\0\0\0\0");
    // They may have become many.
    terminal.pass_over();
    terminal.send("\x03");
    terminal.types("history\r", "  cat zeros");
    terminal.types("rm zeros\r", ENDS);
    terminal.types("exit 5\r", "ended 5");
    assert_eq!(
        place.ok(&["stat", "-c", "%F", "image:/kept"]),
        "regular empty file\n"
    );
}
