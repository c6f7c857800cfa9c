//! Lists the directories of an image's root and reads all files in them, once for each line of the
//! input; says how many seconds each took. `crates/python/bench.py` runs it beside Python.

use std::io::{BufRead, Write};
use std::time::Instant;

use finefs::ImageOptions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args().nth(1).ok_or("give an image")?;
    let fs = ImageOptions::new().read_only(true).open(image)?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let (start, mut bytes) = (Instant::now(), 0);
        for directory in fs.read_dir("/")? {
            let directory = directory?;
            if directory.file_name() == "lost+found" {
                continue;
            }
            for file in fs.read_dir(directory.file_name())? {
                let path = std::path::Path::new(directory.file_name()).join(file?.file_name());
                bytes += fs.read(path)?.len();
            }
        }
        println!("{} {bytes}", start.elapsed().as_secs_f64());
        std::io::stdout().flush()?;
    }
    Ok(())
}
