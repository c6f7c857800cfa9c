//! How much of the memory that threads take on an image another thread frees: with most allocators
//! such a piece goes back under a lock, or by an atomic operation on a word that both use.
//!
//! `cargo run --release -p finefs-bench --example whose_memory -- [THREADS]`
//!
//! Each workload runs twice in process, on a default ext4 image, in directories of its own. Only
//! the second run is counted, with the commits during it: what grows once has grown by then.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, Result};
use finefs::ImageOptions;
use finefs_harness::{cleanup::Scratch, sets};
use finefs_workloads::dirops::Operation;
use finefs_workloads::{
    Crew, DirOps, InProcess, Length, Plan, PostMark, Report, Watch, Workload, run,
};

/// glibc's allocator. Before each piece is who took it.
struct Tagging;

#[global_allocator]
static ALLOCATOR: Tagging = Tagging;

static TAKEN: AtomicU64 = AtomicU64::new(0);
static FREED_BY_ANOTHER: AtomicU64 = AtomicU64::new(0);
static BYTES_FREED_BY_ANOTHER: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// A number of this thread; 0 of one that ends.
fn thread() -> u64 {
    let number = THREAD.try_with(|cell| {
        if cell.get() == 0 {
            cell.set(THREADS.fetch_add(1, Relaxed));
        }
        cell.get()
    });
    number.unwrap_or(0)
}

/// What is taken for a piece, and where in it the piece begins.
fn with_tag(layout: Layout) -> (Layout, usize) {
    let tag = Layout::new::<u64>();
    let both = tag
        .extend(layout)
        .map(|(both, at)| (both.pad_to_align(), at));
    both.unwrap_or_else(|_| std::process::abort())
}

// SAFETY: pieces of System's with room for a tag before them.
unsafe impl GlobalAlloc for Tagging {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (both, at) = with_tag(layout);
        // SAFETY: with a tag the size is not zero.
        let start = unsafe { System.alloc(both) };
        if start.is_null() {
            return start;
        }
        TAKEN.fetch_add(1, Relaxed);
        // SAFETY: the tag is what a piece begins with, aligned as the whole is.
        unsafe {
            start.cast::<u64>().write(thread());
            start.add(at)
        }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        let (both, at) = with_tag(layout);
        // SAFETY: `alloc` made it so.
        unsafe {
            let start = piece.sub(at);
            if start.cast::<u64>().read() != thread() {
                FREED_BY_ANOTHER.fetch_add(1, Relaxed);
                BYTES_FREED_BY_ANOTHER.fetch_add(layout.size() as u64, Relaxed);
            }
            System.dealloc(start, both);
        }
    }
}

fn counts() -> [u64; 3] {
    [&TAKEN, &FREED_BY_ANOTHER, &BYTES_FREED_BY_ANOTHER].map(|count| count.load(Relaxed))
}

/// Runs the workload twice and prints what the second run counted.
fn measure<W: Workload>(name: &str, workload: &W, threads: usize, length: Length) -> Result<()> {
    let scratch = Scratch::new_in(&std::env::temp_dir())?;
    let image = scratch.path().join("image");
    sets::find("ext4")?.make_image_with(&image, 2048, &["-i", "4096"])?;
    let fs = ImageOptions::new().open(&image)?;
    let plan = Plan {
        is_verified: false,
        ..Plan::new(Crew::Threads(threads), length)
    };
    let work = |directory: &str| -> Result<Report<W>> {
        fs.create_dir(directory)?;
        let target = InProcess::new(fs.clone(), fs.open_dir(directory)?, name.to_owned());
        let report = run(workload, &target, &plan, Watch::nobody())?;
        fs.sync()?;
        Ok(report)
    };
    work("first")?;
    let before = counts();
    let operations = work("second")?.operations as f64;
    let after = counts();
    let [taken, by_another, bytes] = [0, 1, 2].map(|at| (after[at] - before[at]) as f64);
    println!(
        "| {name} | {:.2} | {:.3} | {:.1} |",
        taken / operations,
        by_another / operations,
        bytes / operations
    );
    fs.close()?;
    Ok(())
}

fn main() -> Result<()> {
    let threads = std::env::args().nth(1).map_or(Ok(2), |text| text.parse());
    let threads: usize = threads.context("how many threads?")?;
    println!("| {threads} threads, of an operation | taken | freed by another | bytes |");
    println!("|---|---:|---:|---:|");
    let postmark = PostMark {
        number: 1000,
        transactions: 50_000,
        ..PostMark::default()
    };
    measure("PostMark", &postmark, threads, Length::Operations(50_000))?;
    for operation in [
        Operation::Mwcl,
        Operation::Mwul,
        Operation::Mwrl,
        Operation::Mwcm,
        Operation::Dwal,
        Operation::Dwol,
        Operation::Dwsl,
    ] {
        let length = Length::Seconds(1.0);
        measure(&operation.name(), &DirOps::new(operation), threads, length)?;
    }
    Ok(())
}
