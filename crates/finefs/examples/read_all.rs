//! Lists the directories of an image's root and reads all files in them, once for each line of the
//! input, which says by how many threads; says how many seconds each took.
//! `crates/python/bench.py` runs it beside Python.

use std::error::Error;
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use finefs::{FileSystem, ImageOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args().nth(1).ok_or("give an image")?;
    let fs = ImageOptions::new().read_only(true).open(image)?;
    for line in std::io::stdin().lock().lines() {
        let threads: usize = line?.trim().parse()?;
        let start = Instant::now();
        let mut directories = Vec::new();
        for entry in fs.read_dir("/")? {
            directories.push(entry?.file_name().to_owned());
        }
        directories.retain(|name| name != "lost+found");
        let share = directories.len().div_ceil(threads.max(1)).max(1);
        let bytes = std::thread::scope(|scope| {
            let shares = directories.chunks(share);
            let running: Vec<_> = shares
                .map(|share| scope.spawn(|| read(&fs, share)))
                .collect();
            let read = running.into_iter().map(|thread| thread.join());
            read.map(|bytes| bytes.expect("no panic"))
                .sum::<finefs::Result<usize>>()
        })?;
        println!("{} {bytes}", start.elapsed().as_secs_f64());
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn read(fs: &FileSystem, directories: &[OsString]) -> finefs::Result<usize> {
    let mut bytes = 0;
    for directory in directories {
        for file in fs.read_dir(directory)? {
            bytes += fs.read(Path::new(directory).join(file?.file_name()))?.len();
        }
    }
    Ok(bytes)
}
