//! The OpenMetrics text, as a scraper reads it.

use std::collections::{BTreeMap, BTreeSet};

use finefs_lockmeter::{ClassCounts, Counts, Snapshot, Times};

fn times(durations: &[u64]) -> Times {
    let mut times = Times {
        total_ns: durations.iter().sum(),
        min_ns: durations.iter().copied().min().unwrap_or(0),
        max_ns: durations.iter().copied().max().unwrap_or(0),
        ..Times::default()
    };
    durations.iter().for_each(|ns| times.histogram.add(*ns, 1));
    times
}

/// Counts of contended acquisitions that waited and held for so long.
fn counts(waits: &[u64], holds: &[u64]) -> Counts {
    Counts {
        contended: waits.len() as u64,
        wait: times(waits),
        hold: times(holds),
        hold_timed: holds.len() as u64,
        ..Counts::default()
    }
}

fn class(name: &'static str, level: u16, writer: Counts, reader: Counts) -> ClassCounts {
    ClassCounts {
        name: name.into(),
        level,
        writer,
        reader,
    }
}

fn snapshot(classes: Vec<ClassCounts>) -> Snapshot {
    Snapshot {
        classes,
        ..Snapshot::default()
    }
}

/// One histogram: its buckets in the order of the text, as label and value.
#[derive(Default, Debug)]
struct Histogram {
    buckets: Vec<(String, u64)>,
    count: Option<u64>,
    sum: Option<f64>,
}

/// All samples by name and labels, and the histograms among them by name and labels but `le`.
/// Panics where the text breaks a rule.
fn parse(text: &str) -> (BTreeMap<String, String>, BTreeMap<String, Histogram>) {
    let (mut samples, mut histograms) = (BTreeMap::new(), BTreeMap::<String, Histogram>::new());
    let lines = text.strip_suffix("# EOF\n").expect("the line that ends it");
    let mut families = BTreeSet::new();
    let mut family = String::new();
    for line in lines.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.split(' ');
            let (what, name) = (words.next().unwrap(), words.next().unwrap());
            assert!(["TYPE", "HELP", "UNIT"].contains(&what), "{line}");
            if what == "TYPE" {
                assert!(families.insert(name.to_owned()), "{name} comes twice");
                family = name.to_owned();
            }
            assert_eq!(name, family, "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        assert!(series.starts_with(&family), "{line} is among {family}");
        let old = samples.insert(series.to_owned(), value.to_owned());
        assert_eq!(old, None, "{series} comes twice");
        let (name, labels) = series.strip_suffix('}').unwrap().split_once('{').unwrap();
        if let Some(name) = name.strip_suffix("_bucket") {
            let (labels, le) = labels.split_once(",le=\"").unwrap();
            let histogram = histograms.entry(format!("{name} {labels}")).or_default();
            let le = le.strip_suffix('"').unwrap().to_owned();
            histogram.buckets.push((le, value.parse().unwrap()));
        } else if let Some(histogram) = histograms.get_mut(&format!("{family} {labels}")) {
            match name.strip_prefix(&family).unwrap() {
                "_count" => histogram.count = Some(value.parse().unwrap()),
                "_sum" => histogram.sum = Some(value.parse().unwrap()),
                other => panic!("{other}"),
            }
        }
    }
    (samples, histograms)
}

#[test]
fn all_histograms_have_the_same_exact_buckets() {
    // On both sides of the bounds, of no time at all, and longer than all bounds.
    let edges: Vec<u64> = (6..=34)
        .flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])
        .collect();
    let of = [
        ("first", edges.as_slice(), &[0][..]),
        ("second", &[5, 70, 70, 1 << 40], &[u64::MAX >> 20]),
        ("third", &[1_000_000], &[]),
    ];
    let classes =
        of.map(|(name, waits, holds)| class(name, 1, counts(waits, holds), counts(holds, waits)));
    let (_, histograms) = parse(&snapshot(classes.to_vec()).to_openmetrics());
    // Wait and hold of writer and reader.
    let with_counts = 3 * 2 * 2;
    assert_eq!(histograms.len(), with_counts);
    let bounds = |histogram: &Histogram| -> Vec<String> {
        let labels = histogram.buckets.iter().map(|(le, _)| le.clone());
        labels.collect()
    };
    let all: BTreeSet<_> = histograms.values().map(bounds).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    let all = all.first().unwrap();
    assert_eq!(all.last().unwrap(), "+Inf");
    let finite: Vec<f64> = all[..all.len() - 1]
        .iter()
        .map(|le| le.parse().unwrap())
        .collect();
    let powers: Vec<f64> = (6..=34).map(|bit| (1_u64 << bit) as f64 / 1e9).collect();
    assert_eq!(finite, powers);

    for (name, waits, holds) in of {
        for (metric, kind, durations) in [
            ("wait", "writer", waits),
            ("wait", "reader", holds),
            ("hold", "writer", holds),
            ("hold", "reader", waits),
        ] {
            let key = format!("lock_{metric}_seconds class=\"{name}\",kind=\"{kind}\"");
            let histogram = &histograms[&key];
            let count = durations.len() as u64;
            assert_eq!(histogram.count, Some(count));
            assert_eq!(histogram.buckets.last().unwrap().1, count);
            let sum = durations.iter().sum::<u64>() as f64 / 1e9;
            assert_eq!(histogram.sum, Some(sum));
            for (bit, (le, value)) in (6..=34).zip(&histogram.buckets) {
                let shorter = durations.iter().filter(|ns| **ns < 1 << bit).count();
                assert_eq!(*value, shorter as u64, "{key} {le}");
            }
            assert!(histogram.buckets.is_sorted_by_key(|(_, value)| *value));
        }
    }
}

/// What a class has waited so far changes no label: series do not come and go.
#[test]
fn no_series_appears_because_of_a_duration() {
    let series = |waits: &[u64]| -> Vec<String> {
        let counts = counts(waits, &[]);
        let text = snapshot(vec![class("log", 1, counts, Counts::default())]).to_openmetrics();
        parse(&text).0.into_keys().collect()
    };
    assert_eq!(series(&[100]), series(&[5, 100, 1 << 20, 1 << 50]));
}

#[test]
fn classes_of_one_name_are_summed() {
    let mut writer = counts(&[100, 5000], &[7]);
    writer.acquisitions = 10;
    let classes = vec![
        class("twin", 1, writer, Counts::default()),
        class("other", 2, counts(&[1], &[]), Counts::default()),
        class("twin", 3, counts(&[100], &[]), counts(&[9], &[])),
    ];
    let counts = snapshot(classes);
    let (samples, histograms) = parse(&counts.to_openmetrics());
    let twin = "{class=\"twin\",kind=\"writer\"}";
    assert_eq!(samples[&format!("lock_acquisitions_total{twin}")], "10");
    assert_eq!(samples[&format!("lock_contended_total{twin}")], "3");
    let waits = &histograms["lock_wait_seconds class=\"twin\",kind=\"writer\""];
    assert_eq!((waits.count, waits.sum), (Some(3), Some(0.0000052)));
    let readers = &histograms["lock_wait_seconds class=\"twin\",kind=\"reader\""];
    assert_eq!(readers.count, Some(1));
    assert_eq!(counts.classes.len(), 3, "other reports tell them apart");
}
