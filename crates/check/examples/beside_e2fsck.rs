//! How long `finefs check` takes beside e2fsck -fn, and how much memory: makes an image of many
//! files, and runs both by turns.
//!
//! ```sh
//! cargo build --release -p finefs-cli
//! cargo run --release -p finefs-check --example beside_e2fsck -- 1000000 target/release/finefs
//! ```

use std::path::Path;
use std::process::Command;

use finefs::ImageOptions;

/// Files of a directory.
const PER_DIRECTORY: usize = 2000;
/// Bytes of an image for each file: its block, its inode, its name, and some room.
const PER_FILE_BYTES: usize = 8 << 10;
const ROUNDS: usize = 3;

fn main() {
    let mut words = std::env::args().skip(1);
    let files: usize = words
        .next()
        .map_or(100_000, |word| word.parse().expect("a number"));
    let finefs = words
        .next()
        .unwrap_or_else(|| "target/release/finefs".into());
    let dir = tempfile::tempdir_in(".").expect("a directory");
    let image = dir.path().join("image");
    make(&image, files);
    println!("| {files} files | seconds | CPU seconds | peak memory |\n|---|---|---|---|");
    let image = image.display().to_string();
    for _ in 0..ROUNDS {
        measure("e2fsck -fn", &["e2fsck", "-fn", &image]);
        for jobs in ["1", "2"] {
            let words = [finefs.as_str(), "check", "--jobs", jobs, &image];
            measure(&format!("finefs check, {jobs} threads"), &words);
        }
    }
}

fn make(image: &Path, files: usize) {
    let size = ((files * PER_FILE_BYTES) >> 10).max(16 << 10);
    let made = Command::new("mke2fs")
        .args([
            "-q",
            "-t",
            "ext4",
            "-N",
            &(files + files / 50 + 1000).to_string(),
        ])
        .arg(image)
        .arg(format!("{size}k"))
        .status();
    assert!(made.expect("mke2fs runs").success());
    let fs = ImageOptions::new()
        .bulk_load(1)
        .open(image)
        .expect("the image opens");
    for number in 0..files {
        if number % PER_DIRECTORY == 0 {
            let dir = format!("directory {}", number / PER_DIRECTORY);
            fs.create_dir(&dir).expect("there is room");
        }
        let path = format!("directory {}/file {number}", number / PER_DIRECTORY);
        fs.write(path, b"some bytes").expect("there is room");
    }
    fs.close().expect("the image is written");
}

/// Runs a program under time(1), and prints a line of the table.
fn measure(name: &str, words: &[&str]) {
    let output = Command::new("/usr/bin/time")
        .args(["-f", "%e %U %S %M"])
        .args(words)
        .output()
        .expect("time runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_default();
    let numbers: Vec<f64> = last
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [wall, user, system, kib] = numbers[..] else {
        panic!("{text}");
    };
    println!(
        "| {name} | {wall:.2} | {:.2} | {:.0} MiB |",
        user + system,
        kib / 1024.0
    );
}
