//! Readdir: the names of a table in the order of their cookies.
//!
//! Names lie in memory in the order in which they were made, and are listed in that of their
//! hashes, so in a large directory each is a cache miss. What can be done is to have many under way
//! at a time: buckets are read up to [`BATCH`] at a time, all first nodes of their chains asked
//! for, then all second ones and so on, and the first ones of the next batch before the names of
//! this one are handed out. A caller that wants only some names shall not wait for those of many
//! buckets: the first batch of a call is of [`BATCH_FIRST`], each further one twice as large.
//!
//! # What a batch may hold
//! Buckets of the current table that neither changed hands nor were in a rename when their heads
//! were read, and had not left when all chains had been walked (see [`super`], Growth). Their
//! chains were cut before the table became the current one. A batch ends before any other bucket,
//! which is read on its own, perhaps in the next table.

use crossbeam_epoch::{Guard, Shared};

use super::chain::{LEFT, Node, RENAMING, node_at, scheduling_point, walk};
use super::{COOKIE_MAX, NameTable, Table, next_of, wait_a_little};

/// Most buckets that are read at a time.
pub(super) const BATCH: usize = if cfg!(feature = "shuttle") { 3 } else { 32 };
/// Buckets that are read at a time at first.
const BATCH_FIRST: usize = if cfg!(feature = "shuttle") { 2 } else { 4 };

impl NameTable {
    /// Visits the names whose cookie is greater than `after`, in order of cookie, until `visit`
    /// answers false. Every name that is there throughout is visited exactly once.
    pub fn for_each_after(&self, after: u64, guard: &Guard, mut visit: impl FnMut(&Node) -> bool) {
        let mut after = after;
        let mut nodes: Vec<&Node> = Vec::new();
        let mut buckets = BATCH_FIRST;
        while after < COOKIE_MAX {
            // From the current table each time: that one bucket has moved to the next
            // table says nothing of the others.
            let table = self.current(guard);
            nodes.clear();
            let last = match batch(table, after, buckets, &mut nodes, guard) {
                Some(last) => last,
                None => one_bucket(table, after, &mut nodes, guard),
            };
            for node in &nodes {
                if !node.is_absent() && !visit(node) {
                    return;
                }
            }
            after = last;
            buckets = (2 * buckets).min(BATCH);
        }
    }
}

/// The names after a cookie in the next buckets, so many or fewer; gives the last cookie of their
/// interval. `None` where the first bucket has to be read on its own.
pub(super) fn batch<'g>(
    table: &'g Table,
    after: u64,
    buckets: usize,
    nodes: &mut Vec<&'g Node>,
    guard: &'g Guard,
) -> Option<u64> {
    let first = table.index_of_cookie(after + 1);
    let mut end = (first + buckets).min(table.count());
    let mut heads = [Shared::null(); BATCH];
    scheduling_point();
    for (index, head) in (first..end).zip(&mut heads) {
        let found = table.bucket(index).head(guard);
        // What a head that has left leads to may be gone.
        if found.tag() & (LEFT | RENAMING) != 0 {
            end = index;
            break;
        }
        *head = found;
    }
    if end == first {
        return None;
    }
    for index in end..(end + (2 * buckets).min(BATCH)).min(table.count()) {
        table.bucket(index).prefetch(guard);
    }
    let chains = heads.map(node_at);
    let count = end - first;
    fetch(chains, count, guard);
    for node in chains[..count].iter().copied().flatten() {
        let chain = std::iter::successors(Some(node), |node| node.after(guard));
        nodes.extend(chain.filter(|node| node.cookie() > after));
    }
    scheduling_point();
    // They leave in their order: where the first has not, none had when its chain was walked.
    if table.bucket(first).head(guard).tag() & LEFT != 0 {
        nodes.clear();
        return None;
    }
    Some(table.last_cookie(end - 1))
}

/// Fetches so many chains into the CPU's caches, the first nodes of all, then the second and so on.
fn fetch<'g>(chains: [Option<&'g Node>; BATCH], count: usize, guard: &'g Guard) {
    let mut wanted = chains;
    let mut count = keep(&mut wanted, count, |node| node);
    while count > 0 {
        count = keep(&mut wanted, count, |node| {
            node.and_then(|node| node.after(guard))
        });
    }
}

/// Puts what `next` makes of the first `count` places into the first ones, without those of which
/// it makes nothing, asks for it and gives its number. No branch hangs on how long a chain is,
/// which no CPU can foresee.
#[inline(always)]
fn keep<'g>(
    wanted: &mut [Option<&'g Node>; BATCH],
    count: usize,
    next: impl Fn(Option<&'g Node>) -> Option<&'g Node>,
) -> usize {
    let mut kept = 0;
    for index in 0..count {
        let node = next(wanted[index]);
        finefs_locks::prefetch_to_read(node.map_or(std::ptr::null(), std::ptr::from_ref));
        wanted[kept] = node;
        kept += usize::from(node.is_some());
    }
    kept
}

/// The names after a cookie in the bucket that holds the next one; gives the last cookie of its
/// interval.
#[cold]
pub(super) fn one_bucket<'g>(
    table: &'g Table,
    after: u64,
    nodes: &mut Vec<&'g Node>,
    guard: &'g Guard,
) -> u64 {
    let mut table = table;
    let mut spins = 0;
    loop {
        let index = table.index_of_cookie(after + 1);
        let (bucket, last) = (table.bucket(index), table.last_cookie(index));
        scheduling_point();
        let head = bucket.head(guard);
        if head.tag() & LEFT != 0 {
            table = next_of(table, guard);
            continue;
        }
        if head.tag() & RENAMING != 0 {
            wait_a_little(&mut spins);
            continue;
        }
        nodes.clear();
        let is_due = |node: &&Node| (after + 1..=last).contains(&node.cookie());
        nodes.extend(walk(head, guard).filter(is_due));
        scheduling_point();
        if bucket.head(guard).tag() & LEFT == 0 {
            return last;
        }
    }
}
