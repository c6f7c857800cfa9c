//! Whether others used the machine during a measurement: such a one says little and is repeated.

use std::fs::read_to_string;

/// CPU time in clock ticks, of everybody and of this process.
#[derive(Clone, Copy)]
pub struct Usage {
    all: u64,
    own: u64,
}

/// Now, where `/proc` tells.
pub fn usage() -> Option<Usage> {
    let all = read_to_string("/proc/stat").ok()?;
    let numbers = |text: &str| -> Vec<u64> {
        let words = text.split_whitespace();
        words.map(|word| word.parse().unwrap_or(0)).collect()
    };
    // user, nice, system, idle, iowait, irq, softirq, steal
    let all = numbers(all.lines().next()?.strip_prefix("cpu ")?);
    let own = read_to_string("/proc/self/stat").ok()?;
    // After the name in parentheses: state is field 3, utime 14, stime 15.
    let own = numbers(own.rsplit_once(')')?.1);
    Some(Usage {
        all: all.iter().take(8).sum::<u64>() - all.get(3)? - all.get(4)?,
        own: own.get(11)? + own.get(12)?,
    })
}

/// True when others used less than a tenth of a CPU between, or nobody knows.
pub fn was_quiet(before: Option<Usage>, ticks: u64) -> bool {
    let (Some(before), Some(after)) = (before, usage()) else {
        return true;
    };
    let others = (after.all - before.all).saturating_sub(after.own - before.own);
    // Ticks are coarse: one may belong to either.
    others <= 1 + ticks / 10
}
