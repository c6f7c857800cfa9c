//! Workloads of `finefs bench` as the programs here run them: by threads, nothing verified, nobody
//! watching.

use anyhow::Result;
use finefs_workloads::{
    Crew, Length, OpenSpeed, Plan, PostMark, Report, Target, Watch, Workload, run,
};

/// Runs `workload` by so many threads of this process.
pub fn by_threads<W: Workload, T: Target>(
    workload: &W,
    target: &T,
    threads: usize,
    length: Length,
) -> Result<Report<W>> {
    let plan = Plan {
        is_verified: false,
        ..Plan::new(Crew::Threads(threads), length)
    };
    Ok(run(workload, target, &plan, Watch::nobody())?)
}

/// PostMark of `files` files and `transactions` transactions in each thread.
pub fn postmark<T: Target>(
    target: &T,
    threads: usize,
    files: u32,
    transactions: u64,
) -> Result<Report<PostMark>> {
    let workload = PostMark {
        number: files,
        transactions,
        ..PostMark::default()
    };
    by_threads(&workload, target, threads, Length::Operations(transactions))
}

/// Four threads open and close one of ten files each.
pub fn open_speed<T: Target>(target: &T, seconds: f64) -> Result<Report<OpenSpeed>> {
    let workload = OpenSpeed::default();
    by_threads(
        &workload,
        target,
        OpenSpeed::THREADS,
        Length::Seconds(seconds),
    )
}
