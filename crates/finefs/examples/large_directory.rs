//! Makes very many files in one directory of an image, finds, lists and removes them, and tells how
//! many a second, and how much memory the process had at most:
//!
//! ```console
//! $ truncate -s 8G disk.img && mke2fs -q -t ext4 -N 1100000 disk.img
//! $ cargo run --release -p finefs --example large_directory -- disk.img 1000000 128
//! ```
//!
//! The last argument is what may stay in memory, in MiB; without, what is the default.

use std::error::Error;
use std::time::Instant;

use finefs::{FileSystem, ImageOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (image, count, options) = match &arguments[..] {
        [image, count] => (image, count, ImageOptions::new()),
        [image, count, mebibytes] => {
            let bytes = mebibytes.parse::<u64>()? << 20;
            (image, count, ImageOptions::new().cache(bytes))
        }
        _ => return Err("usage: large_directory IMAGE COUNT [CACHE_MIB]".into()),
    };
    let count: u64 = count.parse()?;
    let fs = options.open(image)?;
    fs.create_dir("large")?;
    measure("create", count, |number| {
        fs.create(path(number))?;
        Ok(())
    })?;
    fs.sync()?;
    measure("stat", count, |number| {
        fs.symlink_metadata(path(scattered(number, count)))?;
        Ok(())
    })?;
    list(&fs, count)?;
    measure("remove", count, |number| {
        fs.remove_file(path(scattered(number, count)))?;
        Ok(())
    })?;
    fs.remove_dir("large")?;
    fs.close()?;
    println!("peak {}", peak());
    Ok(())
}

fn path(number: u64) -> String {
    format!("large/file-{number}")
}

/// All numbers below `count`, each once, one far from the other.
fn scattered(number: u64, count: u64) -> u64 {
    const PRIME: u64 = 2_147_483_647;
    number.wrapping_mul(PRIME) % count
}

/// A tenth at a time, so that one sees whether it becomes slower.
fn measure(
    what: &str,
    count: u64,
    one: impl Fn(u64) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    print!("{what:>7} a second:");
    for part in 0..10 {
        let (begin, numbers) = (Instant::now(), part * count / 10..(part + 1) * count / 10);
        let length = numbers.end - numbers.start;
        for number in numbers {
            one(number)?;
        }
        print!(" {:8.0}", length as f64 / begin.elapsed().as_secs_f64());
    }
    println!("   {}", peak());
    Ok(())
}

fn list(fs: &FileSystem, count: u64) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let mut listed = 0;
    for entry in fs.read_dir("large")? {
        entry?;
        listed += 1;
    }
    assert_eq!(listed, count, "each name once");
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    println!("   list a second: {rate:8.0}   {}", peak());
    Ok(())
}

/// The most memory that the process had.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.unwrap_or_default().replace(char::is_whitespace, "")
}
