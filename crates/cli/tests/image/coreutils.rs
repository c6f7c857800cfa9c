//! The commands beside those of coreutils and findutils, line by line: what they print of an image
//! that the kernel has mounted, and what they make of the same tree on the host.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{KernelMount, Place, assert_clean, is_root, run_in};

/// A tree that has something for each option.
const TREE: &str = "mkdir -p d/sub; echo one > d/a; echo twotwo > d/b.txt; ln d/a d/sub/hard
    ln -s a d/link; ln -s sub d/tosub; touch d/.dot d/back~ 'd/q\"uote'; head -c 300000 /dev/zero > d/big
    printf 'one\\n\\n\\n\\n\\ttwo\\r\\n\\001\\177\\200\\377\\r\\nthree\\r' > d/text
    chmod 755 d/b.txt; chmod 4711 d/big; chown 70005:70006 d/sub
    touch -d 2001-01-01 d/f9; touch -d '2020-05-05 01:02:03.123456789' d/f10
    touch -a -d 2003-03-03 d/f9; touch -d 2019-01-01 d/a";

/// A directory of the host, and an image with the same tree.
fn pair(place: &Place) {
    place.image_with("image", 32, &["-t", "ext4", "-b", "4096", "-I", "256"]);
    fs::create_dir(place.path("host")).unwrap();
    run_in(&place.path("host"), TREE);
    place.ok(&["cp", "-a", "host/d", "image:/"]);
}

/// What a program of the host prints, with its status; `@` in words is where the tree is.
fn theirs(dir: &Path, words: &[&str], input: &str) -> (Vec<String>, bool) {
    let words: Vec<String> = words.iter().map(|word| word.replace('@', ".")).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(dir);
    run(&mut command, input)
}

/// The same of finefs.
fn ours(place: &Place, words: &[&str], input: &str) -> (Vec<String>, bool) {
    let words: Vec<String> = words
        .iter()
        .map(|word| word.replace('@', "image:"))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (lines, is_good) = run(&mut place.finefs(&words), input);
    let lines = lines.iter().map(|line| line.replace("image:", "."));
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    (lines, is_good)
}

fn run(command: &mut Command, input: &str) -> (Vec<String>, bool) {
    command.env("TZ", "UTC").env("LC_ALL", "C");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Directories of the host are in another order.
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    (lines, output.status.success())
}

/// Lines as `sh` reads them, but for `'` around words.
fn words(line: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        match index % 2 {
            0 => parts.extend(part.split_whitespace()),
            _ => parts.push(part),
        }
    }
    parts
}

#[test]
fn what_is_read_is_shown_as_coreutils_show_it() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    pair(&place);
    let mount = KernelMount::new(&place, &place.path("image"), "ro");
    for line in [
        "cat -n @/d/text @/d/a",
        "cat -b @/d/text @/d/a",
        "cat -sn @/d/text",
        "cat -A @/d/text",
        "cat -e @/d/text",
        "cat -E @/d/text @/d/a",
        "cat -tu @/d/text",
        "cat -T @/d/text",
        "cat -vsb @/d/text",
        "ls -s @/d",
        "ls -lis @/d",
        "ls -lsh @/d",
        "ls -m @/d",
        "ls -C -w 30 @/d",
        "ls -C -w 0 @/d",
        "ls -x -T 0 -w 30 @/d",
        "ls -x -T 0 -w 24 @/d",
        "ls --format=vertical -w 40 -T 0 @/d",
        "ls --format=long --color=auto @/d",
        "ls --format=single-column --color=never @/d",
        "ls --indicator-style=slash @/d",
        "ls --indicator-style=classify -l @/d",
        "ls --quoting-style=c @/d",
        "ls --quoting-style=escape --show-control-chars @/d",
        "ls -ls --block-size=K @/d",
        "ls -ls --block-size=4k @/d",
        "ls -l --time-style=posix-long-iso @/d",
        "ls -Hl @/d/link",
        "ls -F -l @/d",
        "ls --hide '*.txt' @/d",
        "ls -a --hide '*.txt' @/d",
        "ls -p @/d",
        "ls --file-type @/d",
        "ls -Q @/d",
        "ls -b @/d",
        "ls -B -I '*.txt' @/d",
        "ls -f @/d",
        "ls -lg @/d",
        "ls -lo @/d",
        "ls -lG @/d",
        "ls -lF @/d",
        "ls -lu @/d",
        "ls -l --time=ctime --time-style=full-iso @/d",
        "ls -l --time-style=long-iso @/d",
        "ls -l --time-style=iso @/d",
        "ls -l --time-style='+%Y %j %a %B %e %k %p' @/d",
        "ls @/d/sub @/d/b.txt @/d/a",
        "du -l @/d",
        "du -lS @/d",
        "du -lm @/d",
        "du -lB 10k @/d",
        "du -l --inodes @/d",
        "du -a --exclude='*.txt' --exclude=hard @/d",
        "du -a -t 100k @/d",
        "du -a -t -4k -l @/d",
        "du -s @/d @/d",
        "du -c @/d/sub @/d",
        "du -l -x -k @/d",
        "du -l -BM @/d",
        "du -P -a @/d/tosub",
        "du -D -a @/d/tosub @/d/link",
        "du -lH @/d/tosub",
        "find @/d -newer @/d/f10 -type f",
        "find @/d -executable -o -name f9 ! -readable",
        "find @/d -name f10 -printf '%Tx %TX %Tr\\n'",
        "find @/d -neweram @/d/f9",
        "find @/d -newermt '2 years ago'",
        "find @/d -samefile @/d/a",
        "find @/d -lname 'a*'",
        "find @/d -nogroup -o -nouser",
        "find @/d -mindepth 1 -printf '%p|%P|%f|%h|%H|%s|%k|%b|%m|%M|%u|%U|\
         %g|%G|%n|%i|%d|%y%Y|%l\\n'",
        "find @/d -name 'f*' -printf '%TY-%Tm-%Td %TT %T@ %T+ %t %AH|%6s|%-6s|\\101\\t%%\\n'",
        "find @/d -name a -printf '%p\\c\\n'",
        "find @/d/a @/d/b.txt -print -quit -print",
        "stat -c '%n %.3Y %.Y %.0X %N %06s' @/d/f10 @/d/link",
        "stat -c '%#a %#f %+s % s %.4F|%15F|%-15F|%015F' @/d/f10",
        "stat --cached=never --printf '\\x41\\101\\060\\a\\e\\\\\\n' @/d/f10",
        "stat -f -c '%l %t %T %s %S %b %f %c %d' @/d",
        "stat -f -t @/d/zz",
    ] {
        let words = words(line);
        let ours = ours(&place, &words, "");
        assert_eq!(ours, theirs(&mount.dir, &words, ""), "{line}");
    }
    // The order counts here.
    for options in [
        "-X",
        "-v",
        "-t",
        "-tu",
        "-u",
        "-S",
        "-rS",
        "--sort=time",
        "-tSU -t",
        "-S -X",
        "--group-directories-first -r",
        "--sort=width",
    ] {
        let options: Vec<&str> = options.split(' ').collect();
        let ours = place.ok(&[&["ls"], &options[..], &["image:/d"]].concat());
        let theirs = Command::new("ls")
            .args(&options)
            .arg("d")
            .current_dir(&mount.dir)
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        assert_eq!(ours, String::from_utf8_lossy(&theirs.stdout), "{options:?}");
    }
}

/// What a program prints, byte for byte.
fn raw(mut command: Command) -> Vec<u8> {
    let output = command.env("TZ", "UTC").output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}

#[test]
fn names_that_are_no_text_come_as_their_bytes() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.image("image", "ext4", 32);
    fs::create_dir(place.path("host")).unwrap();
    // A byte that is no text, a letter of two bytes, a new line, a bell; a device, and ACLs.
    let script = "mkdir d; cd d; touch \"$(printf 'bad\\377')\" 'ä' \"$(printf 'a\\nb\\007')\"
        mkdir \"$(printf 'dir\\377')\"; touch \"$(printf 'dir\\377/x')\"; ln -s \"$(printf 'to\\376')\" link
        mknod node c 5 1; mkdir acl; setfacl -d -m u:1000:rwx acl; setfacl -m g:7:r acl";
    run_in(&place.path("host"), script);
    place.ok(&["cp", "-a", "host/d", "image:/"]);
    let mount = KernelMount::new(&place, &place.path("image"), "ro");
    for line in [
        "ls -Q @/d",
        "ls -b @/d",
        "ls -q @/d",
        "ls @/d",
        "ls -l @/d",
        "ls -lb @/d",
        "ls -nd @/d/acl",
        "ls -n @/d/link",
        "ls -R @/d",
        "ls -m @/d/acl @/d",
        "stat -c '%n %r %R %Hr %Lr %t' @/d/link @/d/node",
        "du -0S --apparent-size @/d",
        "getfattr -dm - @/d/acl",
        "lsattr -d @/d",
        "lsattr -dpv @/d",
        "lsattr -a @/d",
        "getfattr -m . @/d/acl",
        "getfattr -m '^(user|system)' --absolute-names @/d/acl",
        "getfattr -m 'default$' @/d/acl",
    ] {
        let words = words(line);
        let at = |to: &str| {
            words
                .iter()
                .map(|word| word.replace('@', to))
                .collect::<Vec<_>>()
        };
        let (own, other) = (at("image:"), at("."));
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let ours = raw(place.finefs(&own));
        let mut command = Command::new(&other[0]);
        command.args(&other[1..]).current_dir(&mount.dir);
        command.env("LC_ALL", "C.UTF-8");
        let theirs = raw(command);
        let shown = |bytes: &[u8]| {
            let text: String = bytes.escape_ascii().to_string();
            let mut lines: Vec<String> = text
                .replace("image:/", "")
                .replace("./", "")
                .split("\\n")
                .flat_map(|line| line.split("\\x00"))
                .map(str::to_owned)
                .collect();
            lines.sort();
            lines
        };
        assert_eq!(shown(&ours), shown(&theirs), "{line}");
    }
}

/// Commands, and what is answered to what they ask.
const EDITS: &[(&str, &str)] = &[
    ("chmod -v u+x @/d/a @/d/a", ""),
    ("chmod -c -R g+w @/d/sub", ""),
    ("chmod -x,g=u -v @/d/a", ""),
    ("chmod --reference=@/d/b.txt -v @/d/f9", ""),
    ("chmod -f 644 @/none", ""),
    ("chmod -R 711 @/d/link", ""),
    ("chmod =644 @/d/sub", ""),
    ("chown -v 70005:70006 @/d/a", ""),
    ("chown -v 70005:70006 @/d/a", ""),
    ("chown -v 70007 @/d/a", ""),
    ("chown -v :70008 @/d/a", ""),
    ("chown -v --from=70007 70009:70009 @/d/a", ""),
    ("chown -v --from=70007:1 70010:70010 @/d/a", ""),
    ("chown -c --from=:70009 70010:70010 @/d/a", ""),
    ("chown --reference=@/d/a @/d/b.txt", ""),
    ("chgrp -v 70001 @/d/a", ""),
    ("chgrp -R 70005 @/d", ""),
    ("chgrp -hv 70006 @/d/link", ""),
    ("chgrp -v --reference=@/d/a @/d/sub", ""),
    ("chgrp 7 @/none", ""),
    ("cp -i @/d/a @/d/b.txt", "n\n"),
    ("cp -i @/d/a @/d/f9", "y\n"),
    ("cp -i @/d/a @/d/new", ""),
    ("cp -l @/d/big @/hl", ""),
    ("cp -l @/d/a @/hl", ""),
    ("cp -lf @/d/a @/hl", ""),
    ("cp -rl @/d @/tree", ""),
    ("cp -al @/d @/tree2", ""),
    ("cp --reflink=auto @/d/a @/r1", ""),
    ("cp --reflink=never @/d/a @/r2", ""),
    ("cp -u @/d/f10 @/d/new", ""),
    (
        "cp --no-preserve=mode --remove-destination @/d/big @/r5",
        "",
    ),
    (
        "cp -r --no-preserve=mode --strip-trailing-slashes @/d/sub/ @/r6",
        "",
    ),
    ("chown 70003.70004 @/r5", ""),
    ("rm -rf --preserve-root @/r5 @/r6", ""),
    ("cp -x -T @/d/a @/r4", ""),
    ("mv -n @/r1 @/r2", ""),
    ("mv -u @/d/f10 @/r2", ""),
    ("mv -i @/r1 @/r2", "n\n"),
    ("mv -i @/r1 @/r2", "y\n"),
    ("mv -t @/d @/r2", ""),
    ("mv -T @/r4 @/d", ""),
    ("mv @/r4 @/r4", ""),
    ("mv @/hl @/d/sub/hard", ""),
    ("ln -sf b.txt @/d/l2", ""),
    ("ln -t @/d/sub @/d/b.txt", ""),
    ("ln @/d/link @/lk", ""),
    ("ln -L @/d/l2 @/lk2", ""),
    ("ln -si a @/d/l2", "n\n"),
    ("ln -si big @/d/l2", "y\n"),
    ("ln -sv b.txt @/d/l3", ""),
    ("ln -sr @/d/b.txt @/d/sub/rel", ""),
    ("ln -sr @/d/none/x @/rel2", ""),
    ("ln -sr @/d @/d/here", ""),
    ("ln -s d @/dl", ""),
    ("ln -sr @/d/a @/dl/through", ""),
    ("ln -sfn d/sub @/dl", ""),
    ("rm -i @/lk", "n\n"),
    ("rm -i @/lk", "y\n"),
    ("rm -I @/hl @/r4 @/rel2 @/lk2", "n\n"),
    ("rm -Iv @/hl @/r4 @/rel2 @/lk2", "y\n"),
    ("rm -rv @/tree", ""),
    ("rm -rI @/tree2/sub", "n\n"),
    ("rm -ri @/tree2/sub", "n\n"),
    ("rm -rf --interactive=never @/tree2/sub", ""),
    ("rm -f", ""),
    ("mkdir -p @/x/y/z", ""),
    ("mkdir -m u=rwx,go= @/q", ""),
    ("rm -dv @/q", ""),
    ("touch -d '2001-02-03 04:05:06' @/t1", ""),
    ("touch -a -d 20010204 @/t1", ""),
    ("touch --time=mtime -t 200203040506.07 @/t1", ""),
    ("touch -r @/t1 -d '-1 day' @/t1", ""),
    ("touch -r @/t1 -d 'next month' @/t1", ""),
    ("touch -d '2001-01-31 1 month 3 hours ago' @/t2", ""),
    ("touch -c @/none", ""),
    ("truncate -s 10 @/t1", ""),
    ("truncate -s %4 @/t1", ""),
    ("truncate -s /5 @/t2", ""),
    ("truncate -r @/d/big @/t2", ""),
    ("truncate -r @/d/big -s +5 @/t1", ""),
    ("touch -d 2001-09-09 @/t2", ""),
    ("touch -r @/t2 -d 'last week' @/t1 @/d @/x/y @/d/sub", ""),
];

/// What slashes and dots at the end of paths, symbolic links and set-group-id bits do.
const EDITS_BY_PATH: &[(&str, &str)] = &[
    ("rm -rf @/d/sub/./", ""),
    ("rm -rf @/d/sub/.//", ""),
    ("rm -rf @/d/tosub/./", ""),
    ("rm -rf @/d/sub/../", ""),
    ("cp @/d/a @/nodir/", ""),
    ("cp -r @/d/sub @/newdir/", ""),
    ("cp @/d/a/ @/x", ""),
    ("cp @/d/link/ @/x", ""),
    ("cat @/d/a/ @/d/b.txt", ""),
    ("cat @/d/link/", ""),
    ("mv @/d/a @/nodir/", ""),
    ("mkdir @/empty", ""),
    ("cp -a @/d/./ @/empty", ""),
    ("cp -a @/d/sub/.// @/empty", ""),
    ("cp -a @/d/tosub/ @/through", ""),
    ("cp -r @/d/tosub/ @/empty", ""),
    ("ln -s d/a @/lrel", ""),
    ("cp --remove-destination @/d/b.txt @/lrel", ""),
    ("ln -sf d/a @/lrel", ""),
    ("cp -P @/d/link @/lrel", ""),
    ("ln -sf d/back~ @/lrel", ""),
    ("cp @/d/b.txt @/lrel", ""),
    ("chmod 600 @/d/f9", ""),
    ("cp @/d/b.txt @/d/f9", ""),
    ("cp --remove-destination @/d/b.txt @/d/f9", ""),
    ("ln -s nowhere @/dangling", ""),
    ("cp @/d/a @/dangling", ""),
    ("cp -a @/d/a @/dangling", ""),
    ("cp -r @/d/sub @/dangling", ""),
    ("cp -a @/lrel @/dangling", ""),
    ("cp -rT @/d/sub @/d/tosub", ""),
    ("mkdir @/sgid", ""),
    ("chgrp 70001 @/sgid", ""),
    ("chmod 2755 @/sgid", ""),
    ("mkdir @/sgid/plain", ""),
    ("mkdir -p @/sgid/some/more", ""),
    ("mkdir -m 755 @/sgid/755", ""),
    ("mkdir -m 00755 @/sgid/00755", ""),
    ("mkdir -m =755 @/sgid/equal", ""),
    ("mkdir -m g-s @/sgid/without", ""),
    ("mkdir -m u=rwx,go= @/sgid/own", ""),
    ("mkdir -m +t @/sgid/sticky @/sticky", ""),
    ("mkdir -m u+s,o= @/setuid", ""),
    ("mkdir -m 1777 @/tmp", ""),
    ("cp -r @/d @/sgid/", ""),
    ("cp -a @/d/sub @/tmp @/sgid/", ""),
    ("cp -r @/sgid/d @/without", ""),
    ("cp -a @/sgid/some @/with", ""),
    ("ln -f @/d/a @/d/sub/hard", ""),
    ("ln -f @/d/a @/d/a", ""),
    ("chown 4294967295 @/d/a", ""),
    ("chown 0:4294967295 @/d/a", ""),
    ("touch -d 2024-02-30 @/d/a", ""),
    ("touch -d 2023-02-29 @/new", ""),
    ("touch -d '2020-01-01 03:04:60' @/new", ""),
    ("touch -t 202302290304 @/new", ""),
    (
        "ls -l --time-style=+%Z:%U:%V:%G:%P:%q:%u:%w:%g:%W @/d/f10",
        "",
    ),
];

#[test]
fn what_is_changed_is_what_coreutils_change() {
    as_coreutils(EDITS);
}

#[test]
fn paths_links_and_bits_count_as_for_coreutils() {
    as_coreutils(EDITS_BY_PATH);
}

fn as_coreutils(edits: &[(&str, &str)]) {
    if !is_root() {
        return;
    }
    let place = Place::new();
    pair(&place);
    let host = place.path("host");
    // Times of reading are left out: those of the host change when find reads directories.
    let shown = "find @/ -mindepth 1 -not -name lost+found -printf '%P %y %n %m %U %G %l\\n'";
    let lengths = "find @/ -type f -printf '%P %s\\n'";
    let times = "stat -c '%n %Y' @/t1 @/d @/x/y @/d/sub";
    let check = |line: &str| {
        let words = words(line);
        assert_eq!(
            ours(&place, &words, ""),
            theirs(&host, &words, ""),
            "{line}"
        );
    };
    for (line, input) in edits {
        let words = words(line);
        let ours = ours(&place, &words, input);
        assert_eq!(ours, theirs(&host, &words, input), "{line}");
        check(shown);
        check(lengths);
    }
    if edits == EDITS {
        check(times);
    }
    assert_clean(&place.path("image"));
}

#[test]
fn what_ext_has_not_is_refused() {
    let place = Place::new();
    place.image("image", "ext4", 16);
    place.image("other", "ext4", 16);
    place.ok(&["touch", "image:/a"]);
    for (arguments, part) in [
        (
            &["cp", "--reflink", "image:/a", "image:/b"][..],
            "take --reflink=auto",
        ),
        (&["cp", "-l", "image:/a", "other:/b"], "in another image"),
        (&["cp", "-s", "image:/a", "other:/b"], "in another image"),
        (
            &["ln", "-sr", "a", "image:/b"],
            "write IMAGE:/PATH or /PATH",
        ),
        (&["chown", "5:", "image:/a"], "no group is known of '5'"),
        (
            &["chgrp", "staff", "image:/a"],
            "the image has no group 'staff'; give a number",
        ),
        (&["chmod", "u+q", "image:/a"], "invalid mode 'u+q'"),
        (&["chmod", "644"], "give a mode and files"),
        (
            &["find", "image:/", "-exec", "rm", "{}", ";"],
            "xargs -0 finefs COMMAND",
        ),
        (
            &["find", "image:/", "-user", "alice"],
            "the image has no user 'alice'",
        ),
        (
            &["find", "image:/", "-newer", "image:/none"],
            "image:/none: no such file",
        ),
    ] {
        let said = place.fails(1, arguments);
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
    place.ok(&["mkdir", "image:/etc"]);
    let passwd = b"alice:x:1000:70:A:/:/bin/sh\n";
    place.with_input(&["cp", "-", "image:/etc/passwd"], passwd);
    place.with_input(&["cp", "-", "image:/etc/group"], b"staff:x:50:\n");
    place.ok(&["chown", "alice:", "image:/a"]);
    assert_eq!(place.ok(&["stat", "-c", "%u %g", "image:/a"]), "1000 70\n");
    place.ok(&["chgrp", "staff", "image:/a"]);
    assert_eq!(
        place.ok(&["stat", "-c", "%U %G", "image:/a"]),
        "alice staff\n"
    );
    // Answers that cannot be given are a no.
    place.with_input(&["cp", "-", "image:/b"], b"b");
    place.ok(&["cp", "-s", "image:/b", "image:/link"]);
    assert_eq!(
        place.ok(&["stat", "-c", "%N", "image:/link"]),
        "'image:/link' -> '/b'\n"
    );
    let asked = place
        .finefs(&["cp", "-i", "image:/a", "image:/b"])
        .output()
        .unwrap();
    assert!(asked.status.success());
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert_eq!(said, "finefs cp: overwrite 'image:/b'? ");
    assert_eq!(place.ok(&["cat", "image:/b"]), "b");
    assert_eq!(
        place.ok(&["mkdir", "-pv", "image:/x/y"]),
        "created directory 'image:/x'\ncreated directory 'image:/x/y'\n"
    );
    let total = place.ok(&["df", "--total", "-P", "image", "other"]);
    assert!(
        total.contains("Capacity") && total.contains("\ntotal "),
        "{total}"
    );
    assert_clean(&place.path("image"));
}
