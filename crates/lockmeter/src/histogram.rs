//! [`Histogram`] and [`Times`]: how durations are distributed.
//!
//! # Data model
//! Buckets are eight to each power of two, so that a bucket is at most an eighth as wide as the
//! durations in it: good for quantiles within about 6 %. Durations below 8 ns have buckets of their
//! own; those of a minute and more share the last.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Buckets to a power of two, as a power of two.
const SUB_BITS: u32 = 3;
const SUB: usize = 1 << SUB_BITS;
/// Durations of this many bits and more share the last bucket.
const BITS_MAX: u32 = 36;

/// The number of buckets.
pub(crate) const BUCKETS: usize = (BITS_MAX - SUB_BITS + 1) as usize * SUB;

/// The bucket of a duration.
#[inline]
pub(crate) fn bucket_of(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let exponent = 63 - ns.leading_zeros();
    let sub = (ns >> (exponent - SUB_BITS)) as usize & (SUB - 1);
    ((exponent - SUB_BITS + 1) as usize * SUB + sub).min(BUCKETS - 1)
}

/// The least duration of a bucket; that of the bucket after the last is the end of the last.
fn start_of(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let exponent = (bucket / SUB) as u32 - 1;
    ((SUB + bucket % SUB) as u64) << exponent
}

/// How many durations fell into each bucket.
///
/// ```
/// use finefs_lockmeter::Histogram;
/// let mut waits = Histogram::default();
/// (1..=1000).for_each(|ns| waits.add(ns, 1));
/// let median = waits.quantile_ns(0.5).unwrap();
/// assert!((470..530).contains(&median));
/// assert_eq!(waits.count(), 1000);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram {
    counts: BTreeMap<u16, u64>,
}

impl Histogram {
    /// Counts `count` durations of `ns`.
    pub fn add(&mut self, ns: u64, count: u64) {
        self.add_to_bucket(bucket_of(ns), count);
    }

    pub(crate) fn add_to_bucket(&mut self, bucket: usize, count: u64) {
        if count != 0 {
            let of_bucket = self.counts.entry(bucket as u16).or_default();
            *of_bucket = of_bucket.wrapping_add(count);
        }
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The duration below or at which the share `quantile` (0.99, say) of all durations lies: the
    /// middle of its bucket.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.counts.iter().find_map(|(bucket, of_bucket)| {
            seen += of_bucket;
            let (start, end) = bounds(*bucket);
            (seen >= rank).then_some(start.midpoint(end))
        })
    }

    /// The buckets that are not empty: their least and greatest duration, and how many fell there.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.counts.iter().map(|(bucket, count)| {
            let (start, end) = bounds(*bucket);
            (start, end, *count)
        })
    }

    /// How many durations were less than `1 << bits` nanoseconds: exactly, since a bucket starts
    /// there, as long as durations of so many bits have buckets.
    pub(crate) fn count_below_power(&self, bits: u32) -> u64 {
        debug_assert!(bits < BITS_MAX);
        let end = bucket_of(1 << bits) as u16;
        self.counts.range(..end).map(|(_, count)| count).sum()
    }

    /// Counts what `other` counted, too.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in &other.counts {
            self.add_to_bucket(usize::from(*bucket), *count);
        }
    }

    fn since(&self, earlier: &Histogram) -> Histogram {
        let mut difference = Histogram::default();
        for (bucket, count) in &self.counts {
            let before = earlier.counts.get(bucket).copied().unwrap_or(0);
            difference.add_to_bucket(usize::from(*bucket), count.saturating_sub(before));
        }
        difference
    }
}

/// The least and the greatest duration of a bucket.
fn bounds(bucket: u16) -> (u64, u64) {
    let bucket = usize::from(bucket);
    (start_of(bucket), start_of(bucket + 1) - 1)
}

/// Durations: their sum, extremes and distribution.
///
/// ```
/// # use finefs_lockmeter::Times;
/// # let mut waits = Times::default();
/// # waits.histogram.add(150, 2);
/// # (waits.total_ns, waits.min_ns, waits.max_ns) = (300, 150, 150);
/// assert_eq!((waits.count(), waits.mean_ns(), waits.max_ns), (2, Some(150), 150));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    /// The sum.
    pub total_ns: u64,
    /// The shortest; 0 when there is none.
    pub min_ns: u64,
    /// The longest; 0 when there is none.
    pub max_ns: u64,
    /// The distribution.
    pub histogram: Histogram,
}

impl Times {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// The mean, if there are any.
    pub fn mean_ns(&self) -> Option<u64> {
        self.total_ns.checked_div(self.count())
    }

    /// The duration below or at which the share `quantile` of all durations lies, within 6 %.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let ns = self.histogram.quantile_ns(quantile)?;
        Some(ns.clamp(self.min_ns, self.max_ns.max(self.min_ns)))
    }

    /// Adds the durations of `other`.
    pub fn merge(&mut self, other: &Times) {
        if other.histogram.counts.is_empty() {
            return;
        }
        self.min_ns = if self.histogram.counts.is_empty() {
            other.min_ns
        } else {
            self.min_ns.min(other.min_ns)
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.total_ns = self.total_ns.wrapping_add(other.total_ns);
        self.histogram.merge(&other.histogram);
    }

    /// What came after `earlier`. Its extremes are those of its buckets, as far as the extremes of
    /// the whole time do not say more.
    pub(crate) fn since(&self, earlier: &Times) -> Times {
        let histogram = self.histogram.since(&earlier.histogram);
        let least = histogram.buckets().next().map_or(0, |(start, ..)| start);
        let most = histogram.buckets().last().map_or(0, |(_, end, _)| end);
        Times {
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            min_ns: least.max(self.min_ns.min(most)),
            max_ns: most.min(self.max_ns),
            histogram,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = None;
        for ns in (0..5_000).chain((13..60).map(|bit| 1 << bit)) {
            let bucket = bucket_of(ns);
            if bucket < BUCKETS - 1 {
                assert!((start_of(bucket)..start_of(bucket + 1)).contains(&ns));
                let width = start_of(bucket + 1) - start_of(bucket);
                assert!(width <= (ns / SUB as u64).max(1), "{ns}");
            }
            assert!(last <= Some(bucket));
            last = Some(bucket);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn differences_keep_what_is_known_of_the_extremes() {
        let times = |durations: &[u64]| {
            let mut histogram = Histogram::default();
            durations.iter().for_each(|ns| histogram.add(*ns, 1));
            Times {
                total_ns: durations.iter().sum(),
                min_ns: durations.iter().copied().min().unwrap_or(0),
                max_ns: durations.iter().copied().max().unwrap_or(0),
                histogram,
            }
        };
        let since = times(&[5, 7, 1_000_000, 100, 130]).since(&times(&[5, 1_000_000]));
        assert_eq!((since.count(), since.total_ns), (3, 237));
        assert_eq!(since.min_ns, 7);
        assert!((130..=144).contains(&since.max_ns), "{}", since.max_ns);
        let grown = times(&[100, 5_000]).since(&times(&[100]));
        assert_eq!(
            grown.max_ns, 5_000,
            "the overall maximum is in the difference"
        );
        assert_eq!(times(&[]).since(&times(&[])), Times::default());
        assert_eq!(times(&[]).quantile_ns(0.5), None);
        assert_eq!(times(&[10]).since(&times(&[10, 50])), times(&[]));
        let mut merged = times(&[10]);
        merged.merge(&times(&[3, 50]));
        assert_eq!(merged, times(&[3, 10, 50]));
    }
}
