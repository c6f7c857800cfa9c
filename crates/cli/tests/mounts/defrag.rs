//! `finefs defrag` in a mount, while a program writes and syncs one of the files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::*;

const PIECE: usize = 4096;
/// More than what is kept for root, which may be free in one run.
const PIECES: usize = 1300;

/// Two files in many runs: when they are made, all that is free but what is kept for root is so in
/// runs of two pieces.
fn scattered(place: &Path) -> [File; 2] {
    fs::create_dir(place.join("fill")).unwrap();
    fs::write(place.join("whole"), vec![1; 20 << 20]).unwrap();
    let mut count = 0;
    while fs::write(place.join(format!("fill/{count}")), [2; 2 * PIECE]).is_ok() {
        count += 1;
    }
    for number in (0..count).step_by(2) {
        fs::remove_file(place.join(format!("fill/{number}"))).unwrap();
    }
    File::open(place).unwrap().sync_all().unwrap();
    let files = ["one", "two"].map(|name| {
        let mut options = fs::OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .open(place.join(name));
        let file = file.unwrap();
        for number in 0..PIECES {
            let data = [number as u8; PIECE];
            file.write_all_at(&data, (number * PIECE) as u64).unwrap();
        }
        // Else the kernel may keep it until there is room in one piece.
        file.sync_all().unwrap();
        file
    });
    fs::remove_file(place.join("whole")).unwrap();
    files
}

fn shown(output: std::process::Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn files_in_use_are_moved() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let image = place.image("ext4");
    let top = place.mount_point();
    mount(&image, &top, &["-o", "sandbox=on"]);
    let [one, two] = scattered(&top);
    let listed = shown(run(finefs().args(["defrag", "-c"]).arg(&top)));
    assert!(
        listed.contains("/one\n") && listed.contains("/two\n"),
        "{listed}"
    );
    let is_over = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0;
            while !is_over.load(Ordering::SeqCst) {
                round += 1;
                for number in (0..PIECES).step_by(7) {
                    let data = [(number + round) as u8; PIECE];
                    one.write_all_at(&data, (number * PIECE) as u64).unwrap();
                }
                one.sync_all().unwrap();
            }
            round
        });
        let said = shown(run(finefs().args(["defrag", "-v"]).arg(&top)));
        assert!(said.contains("/two\n") && said.contains(" -> "), "{said}");
        is_over.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    let listed = shown(run(finefs().args(["defrag", "-c"]).arg(top.join("two"))));
    assert!(listed.contains("1 file, none in several runs"), "{listed}");
    drop((one, two));
    unmount(&place);
    check(&image);
    let mut cat = finefs();
    cat.arg("cat").arg(format!("{}:/one", image.display()));
    let bytes = run(&mut cat).stdout;
    assert_eq!(bytes.len(), PIECE * PIECES);
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        let round = if number % 7 == 0 { rounds } else { 0 };
        assert!(
            piece.iter().all(|byte| *byte == (number + round) as u8),
            "{number}"
        );
    }
}
