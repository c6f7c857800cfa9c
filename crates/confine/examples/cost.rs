//! What a confinement costs: processor time of a system call that is allowed whatever its arguments
//! (pread), and of one whose arguments are looked at (fcntl), before and after.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;

use finefs_confine::{Confinement, Needs};
use rustix::time::{ClockId, clock_gettime};

const CALLS: u32 = 1_000_000;

/// Processor time of this thread, in nanoseconds.
fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn ns_each(mut call: impl FnMut() -> std::io::Result<()>) -> std::io::Result<f64> {
    let start_ns = now_ns();
    for _ in 0..CALLS {
        call()?;
    }
    Ok((now_ns() - start_ns) as f64 / f64::from(CALLS))
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = File::open(std::env::current_exe()?)?;
    let print = |when: &str| -> std::io::Result<()> {
        let pread = ns_each(|| file.read_at(&mut [0], 0).map(drop))?;
        let fcntl = ns_each(|| Ok(rustix::fs::fcntl_getfl(&file).map(drop)?))?;
        println!("{when:<9} pread {pread:.0} ns, fcntl {fcntl:.0} ns");
        Ok(())
    };
    print("before")?;
    Confinement::prepare(&Needs::default())?.apply()?;
    print("confined")?;
    Ok(())
}
