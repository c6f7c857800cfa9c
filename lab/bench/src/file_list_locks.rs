//! Lists of open files under three ways of locking: per CPU under a local/global lock (ours), one
//! list under one spinlock (Linux before 2.6.36), one list with a lock in each node (Zijlstra's of
//! 2007, which the thread on scaling `files_lock` argues about).

mod locked_list;

use crate::result::median;
use crate::workload::postmark;
use anyhow::{Result, anyhow, ensure};
use finefs_locks::{LockClass, ShardedList, Ticket};
use finefs_workloads::affinity::{self, Tour};
use finefs_workloads::{InProcess, Target};
use locked_list::LockedList;
use serde_json::json;
use spin::mutex::SpinMutex;
use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::Instant;

static FILES: LockClass = LockClass::new("bench.files", 1);

/// How to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    threads: Vec<usize>,
    /// Rounds; each runs all lists in turn
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Pairs of adding and removing, of each thread
    #[arg(long, default_value_t = 3_000_000)]
    pairs: usize,
    /// Remove files in batches on another CPU than they were added on
    #[arg(long)]
    closed_elsewhere: bool,
    /// Only this list (per-cpu, spinlock, locked-list), once with the first number of threads: for
    /// counting instructions
    #[arg(long)]
    only: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Files that each thread keeps open.
const OPEN: usize = 16;
/// So many instead where they are removed on another CPU: what it costs to move is theirs, too.
const OPEN_BEFORE_A_MOVE: usize = 2000;

/// A list of open files. A thread adds its files by numbers of its own, as the kernel's files carry
/// their list nodes in them.
trait FileList: Sync {
    type Entry;
    fn add(&self, file: usize) -> Self::Entry;
    fn remove(&self, entry: Self::Entry) -> usize;
    fn len(&self) -> usize;
}

struct PerCpu(ShardedList<usize>);

impl FileList for PerCpu {
    type Entry = Ticket;
    fn add(&self, file: usize) -> Ticket {
        self.0.add(file)
    }
    fn remove(&self, entry: Ticket) -> usize {
        self.0.remove(entry)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// A doubly linked list in an array, under one spinlock; node 0 is its head.
struct OneSpinlock(SpinMutex<Vec<(u32, u32)>, spin::Yield>);

impl OneSpinlock {
    fn new(files: usize) -> OneSpinlock {
        OneSpinlock(SpinMutex::new(vec![(0, 0); files + 1]))
    }
}

impl FileList for OneSpinlock {
    type Entry = usize;

    fn add(&self, file: usize) -> usize {
        let (node, mut links) = (file as u32 + 1, self.0.lock());
        let next = links[0].1;
        links[node as usize] = (0, next);
        links[0].1 = node;
        links[next as usize].0 = node;
        file
    }

    fn remove(&self, file: usize) -> usize {
        let mut links = self.0.lock();
        let (before, after) = links[file + 1];
        links[before as usize].1 = after;
        links[after as usize].0 = before;
        file
    }

    fn len(&self) -> usize {
        let (links, mut count, mut at) = (self.0.lock(), 0, 0);
        loop {
            at = links[at as usize].1;
            if at == 0 {
                return count;
            }
            count += 1;
        }
    }
}

/// How a list is used.
#[derive(Clone, Copy)]
struct Use {
    threads: usize,
    /// Pairs of adding and removing, of each thread.
    pairs: usize,
    closed_elsewhere: bool,
}

impl Use {
    /// Files that each thread can have, at most.
    fn files(self) -> usize {
        match self.closed_elsewhere {
            true => OPEN_BEFORE_A_MOVE,
            false => OPEN + 1,
        }
    }

    /// Pairs of all threads.
    fn all_pairs(self) -> usize {
        self.threads
            * match self.closed_elsewhere {
                true => self.batches() * OPEN_BEFORE_A_MOVE,
                false => self.pairs,
            }
    }

    /// Of each thread that moves.
    fn batches(self) -> usize {
        self.pairs.div_ceil(OPEN_BEFORE_A_MOVE)
    }

    /// What each thread does; gives when it began and ended.
    fn work<L: FileList>(self, list: &L, thread: usize, start: &Barrier) -> (Instant, Instant) {
        match self.closed_elsewhere {
            true => self.move_about(list, thread, start),
            false => self.stay(list, thread, start),
        }
    }

    fn stay<L: FileList>(self, list: &L, thread: usize, start: &Barrier) -> (Instant, Instant) {
        affinity::bind_by_turns(thread);
        let first = thread * self.files();
        let mut open = VecDeque::with_capacity(self.files());
        open.extend((first..first + OPEN).map(|file| list.add(file)));
        let mut free = first + OPEN;
        start.wait();
        let started = Instant::now();
        for _ in 0..self.pairs {
            open.push_back(list.add(free));
            free = list.remove(open.pop_front().expect("files are open"));
        }
        let ended = Instant::now();
        for entry in open {
            list.remove(entry);
        }
        (started, ended)
    }

    fn move_about<L: FileList>(
        self,
        list: &L,
        thread: usize,
        start: &Barrier,
    ) -> (Instant, Instant) {
        let first = thread * self.files();
        let mut open = Vec::with_capacity(self.files());
        let tour = Tour::start(thread);
        start.wait();
        let started = Instant::now();
        let mut tour = tour.expect("`run` has seen that there are two CPUs");
        for _ in 0..self.batches() {
            open.extend((first..first + self.files()).map(|file| list.add(file)));
            tour.move_on();
            for entry in open.drain(..) {
                list.remove(entry);
            }
        }
        (started, Instant::now())
    }
}

/// Pairs of adding and removing per second.
fn rate<L: FileList>(list: &L, how: Use) -> Result<f64> {
    let start = Barrier::new(how.threads);
    let times = std::thread::scope(|scope| {
        let start = &start;
        let running: Vec<_> = (0..how.threads)
            .map(|thread| scope.spawn(move || how.work(list, thread, start)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked")))
            .collect::<Result<Vec<_>>>()
    })?;
    let started = times.iter().map(|(started, _)| *started).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    let took = ended.zip(started).map(|(end, start)| end - start);
    let took = took.ok_or_else(|| anyhow!("no threads"))?;
    ensure!(list.len() == 0, "files were left on the list");
    Ok(how.all_pairs() as f64 / took.as_secs_f64())
}

const LISTS: [&str; 3] = ["per-cpu", "spinlock", "locked-list"];

fn one_rate(list: &str, how: Use) -> Result<f64> {
    let files = how.threads * how.files();
    match list {
        "per-cpu" => rate(&PerCpu(ShardedList::new(&FILES)), how),
        "spinlock" => rate(&OneSpinlock::new(files), how),
        "locked-list" => rate(&LockedList::new(files), how),
        other => Err(anyhow!("no list {other}: one of {LISTS:?}")),
    }
}

/// Runs all lists by turns and prints their rates, and the share of removals on the adding CPU.
pub fn run(options: &Options) -> Result<()> {
    let how = |threads: usize| Use {
        threads,
        pairs: options.pairs,
        closed_elsewhere: options.closed_elsewhere,
    };
    ensure!(
        !options.closed_elsewhere || affinity::cpus() > 1,
        "--closed-elsewhere: this process may use one CPU only"
    );
    if let Some(list) = &options.only {
        let threads = options.threads.first().copied().unwrap_or(1);
        println!("{:.0}", one_rate(list, how(threads))?);
        return Ok(());
    }
    let mut rows = Vec::new();
    for threads in &options.threads {
        let mut rates = LISTS.map(|_| Vec::new());
        for round in 0..options.rounds {
            for turn in 0..LISTS.len() {
                let at = (round + turn) % LISTS.len();
                rates[at].push(one_rate(LISTS[at], how(*threads))?);
            }
        }
        rows.push((*threads, rates.map(|rates| median(&rates).unwrap_or(0.0))));
    }
    let shares = [2, 8]
        .into_iter()
        .map(|threads| Ok((threads, local_share(threads)?)))
        .collect::<Result<Vec<_>>>()?;
    if options.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(threads, rates)| {
                json!({"threads": threads, "per_cpu": rates[0], "spinlock": rates[1],
                       "locked_list": rates[2]})
            })
            .collect();
        let text = json!({"pairs_per_second": rows, "postmark_local_percent": shares});
        println!("{}", serde_json::to_string_pretty(&text)?);
        return Ok(());
    }
    println!(
        "Pairs of adding and removing a file per second{}, millions, medians of {} rounds\n",
        match options.closed_elsewhere {
            true => ", removed on another CPU",
            false => "",
        },
        options.rounds
    );
    println!(
        "| threads | per CPU | one spinlock | locked list | against spinlock | against list |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    for (threads, [own, spinlock, list]) in rows {
        println!(
            "| {threads} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
            own / 1e6,
            spinlock / 1e6,
            list / 1e6,
            own / spinlock,
            own / list,
        );
    }
    println!("\nRemovals on the adding CPU, PostMark in process:\n");
    for (threads, (removals, percent)) in shares {
        println!("- {threads} threads: {percent:.2} % of {removals}");
    }
    Ok(())
}

/// Removals in a PostMark run, and how many of them, in per cent, ran on the CPU of the adding.
fn local_share(threads: usize) -> Result<(u64, f64)> {
    let target = InProcess::memory(2 << 30)?;
    postmark(&target, threads, 500, 100_000 / threads as u64)?;
    let found = target.open_file_statistics();
    let found = found.ok_or_else(|| anyhow!("a file system in process tells its removals"))?;
    let percent = found.removals_on_cpu as f64 / found.removals as f64 * 100.0;
    Ok((found.removals, percent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postmark_closes_what_it_opens_and_one_thread_mostly_where_it_opened_it() {
        let (removals, percent) = local_share(1).unwrap();
        // A create, and a read or an append, in most transactions.
        assert!(removals > 100_000, "{removals}");
        assert!((0.0..=100.0).contains(&percent), "{percent}");
    }

    #[test]
    fn all_lists_keep_their_files() {
        for list in LISTS {
            for threads in [1, 4] {
                for closed_elsewhere in [false, affinity::cpus() > 1] {
                    let how = Use {
                        threads,
                        pairs: 20_000,
                        closed_elsewhere,
                    };
                    assert!(one_rate(list, how).unwrap() > 0.0, "{list}");
                }
            }
        }
    }
}
