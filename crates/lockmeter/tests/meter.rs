//! What the meter counts and reports. Tests that switch it take turns, since its switches are
//! global.

#![cfg(not(feature = "off"))]

use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use finefs_lockmeter::{
    Holding, Kind, LastCpu, LockClass, Mode, Thresholds, Waiting, What, rates, set_hold_sampling,
    set_mode, set_thresholds, snapshot, take_reports, waiting,
};

static TURN: Mutex<()> = Mutex::new(());

/// A turn with the switches as at first, but for that all holdings are timed in full mode.
fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    set_mode(Mode::ContendedOnly);
    set_hold_sampling(1);
    set_thresholds(&Thresholds::default());
    take_reports();
    turn
}

/// One contended acquisition.
#[track_caller]
fn contend(class: &'static LockClass, kind: Kind, wait: Duration) -> Holding {
    let waiting = Waiting::begin(class, kind, 0x1000);
    std::thread::sleep(wait);
    waiting.granted(&LastCpu::new())
}

#[test]
fn counts_survive_the_thread_that_made_them() {
    static CLASS: LockClass = LockClass::new("test.retired", 1);
    let _turn = turn();
    let ms = Duration::from_millis;
    std::thread::spawn(move || {
        drop(contend(&CLASS, Kind::Reader, ms(5)));
        drop(contend(&CLASS, Kind::Reader, ms(9)));
    })
    .join()
    .unwrap();
    drop(contend(&CLASS, Kind::Writer, ms(1)));
    let snapshot = snapshot();
    let class = snapshot.class("test.retired").unwrap();
    assert_eq!((class.reader.contended, class.writer.contended), (2, 1));
    let wait = &class.reader.wait;
    assert_eq!(wait.count(), 2);
    assert!(wait.min_ns >= 5_000_000 && wait.max_ns >= 9_000_000 && wait.min_ns < wait.max_ns);
    assert!(wait.total_ns >= 14_000_000);
    assert_eq!(wait.quantile_ns(0.999), wait.quantile_ns(1.0));
    assert_eq!(
        class.reader.hold.count(),
        2,
        "a contended acquisition's holding is timed"
    );
    let table = snapshot.to_string();
    assert!(table.contains("test.retired (reader)"), "{table}");
    assert!(table.contains(file!()), "{table}");
}

#[test]
fn uncontended_acquisitions_count_in_full_mode_only() {
    static CLASS: LockClass = LockClass::new("test.mode", 1);
    let _turn = turn();
    let last_cpu = LastCpu::new();
    let take = || drop(Holding::begin(&CLASS, Kind::Writer, &last_cpu));
    drop(contend(&CLASS, Kind::Writer, Duration::ZERO));
    let before = snapshot();
    take();
    set_mode(Mode::Full);
    take();
    take();
    drop(contend(&CLASS, Kind::Writer, Duration::ZERO));
    let during = Holding::begin(&CLASS, Kind::Writer, &last_cpu);
    set_mode(Mode::ContendedOnly);
    take();
    drop(during);
    let since = snapshot().since(&before);
    let counts = &since.class("test.mode").unwrap().writer;
    assert_eq!(counts.acquisitions, 4);
    assert_eq!(counts.hold.count(), 4);
    assert_eq!(counts.contended, 1);
    assert_eq!(counts.contention_percent(), Some(25.0));
    let all = snapshot();
    let all = &all.class("test.mode").unwrap().writer;
    assert_eq!((all.contended, all.contention_percent()), (2, Some(25.0)));
}

/// Of holdings that nobody waited for some are timed and stand for all; everything else is exact.
#[test]
fn some_holdings_stand_for_all() {
    static CLASS: LockClass = LockClass::new("test.sampled", 1);
    const ACQUISITIONS: u64 = 20_000;
    let _turn = turn();
    set_hold_sampling(16);
    set_mode(Mode::Full);
    let last_cpu = LastCpu::new();
    let before = snapshot();
    for number in 1..=ACQUISITIONS {
        if number % 2_000 == 0 {
            drop(contend(&CLASS, Kind::Writer, Duration::ZERO));
        } else {
            drop(Holding::begin(&CLASS, Kind::Writer, &last_cpu));
        }
    }
    let since = snapshot().since(&before);
    let counts = &since.class("test.sampled").unwrap().writer;
    assert_eq!((counts.acquisitions, counts.contended), (ACQUISITIONS, 10));
    assert_eq!((counts.wait.count(), counts.contended_counted), (10, 10));
    // Each stands for the ones since the last; behind the last are 30 at most.
    let stands_for = counts.hold.count();
    assert!(
        (ACQUISITIONS - 30..=ACQUISITIONS).contains(&stands_for),
        "{stands_for}"
    );
    let timed = counts.hold_timed;
    assert!(
        (ACQUISITIONS / 20..ACQUISITIONS / 13).contains(&timed),
        "{timed}"
    );
    let sites: u64 = counts.sites.iter().map(|site| site.hold_ns_total).sum();
    assert_eq!(sites, counts.hold.total_ns);
    assert!(counts.hold.total_ns >= counts.hold.min_ns * stands_for);
    assert!(counts.hold.total_ns <= counts.hold.max_ns * stands_for);
    assert!(since.is_hold_estimated());
    for text in [since.to_string(), since.to_openmetrics()] {
        assert!(text.contains("1 of 16 was timed"), "{text}");
    }
    assert!(since.to_string().contains(" hold~"), "{since}");
    let read = finefs_lockmeter::Snapshot::from_json(&since.to_json()).unwrap();
    assert_eq!((read.hold_sampling, &read), (16, &since));
}

/// Long and short holdings in turn: a sample taken at fixed distances would see only one kind.
#[test]
fn a_pattern_does_not_hide_from_the_sample() {
    static CLASS: LockClass = LockClass::new("test.pattern", 1);
    let _turn = turn();
    set_hold_sampling(8);
    set_mode(Mode::Full);
    let last_cpu = LastCpu::new();
    for number in 0..8_000 {
        let holding = Holding::begin(&CLASS, Kind::Writer, &last_cpu);
        if number % 8 == 5 && holding.is_running() {
            std::thread::sleep(Duration::from_micros(200));
        }
        drop(holding);
    }
    let counts = snapshot().class("test.pattern").unwrap().writer.clone();
    let buckets = counts.hold.histogram.buckets();
    let long: u64 = buckets
        .filter(|(from, ..)| *from >= 150_000)
        .map(|(.., count)| count)
        .sum();
    assert!((600..1_500).contains(&long), "an eighth of 8000: {long}");
}

/// While there is a threshold for holdings, none is missed.
#[test]
fn a_threshold_sees_holdings_that_a_sample_would_not() {
    static CLASS: LockClass = LockClass::new("test.all", 1);
    let _turn = turn();
    set_hold_sampling(1_000_000);
    set_mode(Mode::Full);
    let last_cpu = LastCpu::new();
    drop(Holding::begin(&CLASS, Kind::Writer, &last_cpu));
    drop(Holding::begin(&CLASS, Kind::Writer, &last_cpu));
    set_thresholds(&Thresholds {
        hold: Some(Duration::ZERO),
        ..Thresholds::default()
    });
    for _ in 0..5 {
        drop(Holding::begin(&CLASS, Kind::Writer, &last_cpu));
    }
    set_thresholds(&Thresholds::default());
    drop(Holding::begin(&CLASS, Kind::Writer, &last_cpu));
    assert_eq!(take_reports().len(), 5);
    let counts = snapshot().class("test.all").unwrap().writer.clone();
    assert_eq!((counts.acquisitions, counts.hold_timed), (8, 6));
}

#[test]
fn a_holding_ends_where_it_is_stopped_and_pauses_where_it_is_interrupted() {
    static CLASS: LockClass = LockClass::new("test.hold", 1);
    let _turn = turn();
    set_mode(Mode::Full);
    let last_cpu = LastCpu::new();
    let pause = Duration::from_millis(200);
    let began = Instant::now();
    let mut holding = Holding::begin(&CLASS, Kind::Reader, &last_cpu);
    holding.interrupted(|| std::thread::sleep(pause));
    std::thread::sleep(Duration::from_millis(20));
    holding.stop();
    let until_stop = began.elapsed();
    std::thread::sleep(until_stop);
    drop(holding);
    let snapshot = snapshot();
    let reader = &snapshot.class("test.hold").unwrap().reader;
    assert_eq!((reader.acquisitions, reader.hold.count()), (1, 2));
    assert!(reader.hold.max_ns >= 20_000_000);
    // The two clocks may differ by a thousandth.
    let held = Duration::from_nanos(reader.hold.total_ns);
    assert!(held + pause <= until_stop + until_stop / 100, "{held:?}");
}

#[test]
fn a_wait_that_gives_up_counts_as_contended() {
    static CLASS: LockClass = LockClass::new("test.given_up", 1);
    let _turn = turn();
    set_mode(Mode::Full);
    drop(Waiting::begin(&CLASS, Kind::Writer, 0x1000));
    let snapshot = snapshot();
    let writer = &snapshot.class("test.given_up").unwrap().writer;
    assert_eq!((writer.contended, writer.given_up), (1, 1));
    assert_eq!((writer.acquisitions, writer.hold.count()), (0, 0));
}

#[test]
fn call_sites_are_told_apart() {
    static CLASS: LockClass = LockClass::new("test.sites", 1);
    let _turn = turn();
    for wait_ms in [1, 20, 3] {
        drop(contend(
            &CLASS,
            Kind::Writer,
            Duration::from_millis(wait_ms),
        ));
    }
    let twice = snapshot();
    drop(contend(&CLASS, Kind::Writer, Duration::from_millis(1)));
    let all = snapshot();
    let sites = &all.class("test.sites").unwrap().writer.sites;
    assert_eq!(sites.len(), 2);
    // By their waits, of which the one may last longer than all the others.
    assert!(sites[0].wait_ns_total >= sites[1].wait_ns_total);
    let [often, once] = [3, 1].map(|count| {
        let mut sites = sites.iter();
        sites.find(|site| site.contended == count).unwrap()
    });
    assert!(often.wait_ns_total >= 24_000_000);
    let since = all.since(&twice);
    let later = &since.class("test.sites").unwrap().writer;
    let expected = std::slice::from_ref(once);
    assert_eq!(later.worst_sites(), expected, "only what came since");
}

#[test]
fn bounces_between_cpus_count() {
    static CLASS: LockClass = LockClass::new("test.bounce", 1);
    let _turn = turn();
    set_mode(Mode::Full);
    let Some(cpus) = two_cpus() else { return };
    let last_cpu = LastCpu::new();
    let take_on = |cpu: usize| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                run_on(cpu);
                drop(Holding::begin(&CLASS, Kind::Writer, &last_cpu));
            });
        });
    };
    for cpu in [cpus[0], cpus[0], cpus[1], cpus[1], cpus[0]] {
        take_on(cpu);
    }
    assert_eq!(snapshot().class("test.bounce").unwrap().writer.bounces, 2);
}

/// Two CPUs that this process may use.
fn two_cpus() -> Option<[usize; 2]> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Some([cpus.next()?, cpus.next()?])
}

fn run_on(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

#[test]
fn long_waits_and_holds_are_reported_with_backtraces() {
    static CLASS: LockClass = LockClass::new("test.threshold", 1);
    let _turn = turn();
    let last_cpu = LastCpu::new();
    set_thresholds(&Thresholds {
        wait: Some(Duration::from_millis(5)),
        hold: Some(Duration::from_millis(5)),
        ..Thresholds::default()
    });
    let hold = |ms| {
        let holding = Holding::begin(&CLASS, Kind::Reader, &last_cpu);
        std::thread::sleep(Duration::from_millis(ms));
        drop(holding);
    };
    hold(0);
    drop(contend(&CLASS, Kind::Writer, Duration::ZERO));
    hold(6);
    drop(contend(&CLASS, Kind::Writer, Duration::from_millis(6)));
    set_thresholds(&Thresholds::default());
    hold(6);
    let reports = take_reports();
    assert_eq!(reports.len(), 2, "{reports:#?}");
    let has_this = |text: &str| text.contains("long_waits_and_holds_are_reported");
    assert!(matches!(reports[0].what, What::Hold { ns } if ns >= 6_000_000));
    assert_eq!(reports[0].kind, Kind::Reader);
    assert!(matches!(reports[1].what, What::Wait { ns } if ns >= 6_000_000));
    assert!(reports.iter().all(|report| has_this(&report.backtrace)));
    let has_own = |text: &str| text.contains("finefs_lockmeter::");
    assert!(!reports.iter().any(|report| has_own(&report.backtrace)));
    assert!(
        reports
            .iter()
            .all(|report| report.location.contains(file!()))
    );
    assert!(
        reports[1]
            .to_string()
            .contains("waited for test.threshold as writer")
    );
    assert!(take_reports().is_empty());
}

#[test]
fn reports_are_limited_and_the_rest_is_counted() {
    static CLASS: LockClass = LockClass::new("test.limit", 1);
    let _turn = turn();
    let thresholds = Thresholds {
        wait: Some(Duration::ZERO),
        per_second_max: 3,
        ..Thresholds::default()
    };
    set_thresholds(&thresholds);
    const WAITS: u64 = 1000;
    let began = Instant::now();
    for _ in 0..WAITS {
        drop(contend(&CLASS, Kind::Writer, Duration::ZERO));
    }
    let seconds = began.elapsed().as_secs() + 2;
    std::thread::sleep(Duration::from_millis(1_100));
    drop(contend(&CLASS, Kind::Writer, Duration::ZERO));
    set_thresholds(&Thresholds::default());
    let reports = take_reports();
    // Three of each second that they have touched, and the last.
    let count = reports.len() as u64;
    assert!((4..=3 * seconds + 1).contains(&count), "{count}");
    let left_out: u64 = reports.iter().map(|report| report.left_out).sum();
    assert_eq!(left_out + count, WAITS + 1);
    assert!(left_out > 0);
}

#[test]
fn who_waits_is_told_in_the_order_of_arrival() {
    static CLASS: LockClass = LockClass::new("test.queue", 1);
    let _turn = turn();
    set_thresholds(&Thresholds {
        waiters: Some(2),
        ..Thresholds::default()
    });
    std::thread::scope(|scope| {
        let mut ends = Vec::new();
        for (name, lock) in [("first", 1), ("other", 2), ("second", 1), ("third", 1)] {
            let (end, ended) = mpsc::channel::<()>();
            let (begun, has_begun) = mpsc::channel();
            let waiter = move || {
                let waiting = Waiting::begin(&CLASS, Kind::Writer, lock);
                begun.send(()).unwrap();
                let _ = ended.recv();
                drop(waiting.granted(&LastCpu::new()));
            };
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn_scoped(scope, waiter).unwrap();
            has_begun.recv().unwrap();
            ends.push(end);
        }
        let mine = |queue: &finefs_lockmeter::Queue| queue.class == "test.queue";
        let queues: Vec<_> = waiting().into_iter().filter(mine).collect();
        let names = |at: usize| -> Vec<&str> {
            let waiters = queues[at].waiters.iter();
            waiters.map(|waiter| waiter.thread.as_str()).collect()
        };
        assert_eq!(queues.len(), 2);
        assert_eq!(names(0), ["first", "second", "third"]);
        assert_eq!(names(1), ["other"]);
        assert!(queues[0].to_string().contains("1. first"));
        drop(ends);
    });
    assert!(!waiting().iter().any(|queue| queue.class == "test.queue"));
    set_thresholds(&Thresholds::default());
    let reports = take_reports();
    assert_eq!(reports.len(), 1, "only the third made the queue too long");
    let What::Waiting { queue } = &reports[0].what else {
        panic!("{:?}", reports[0].what)
    };
    assert_eq!(queue.waiters.len(), 3);
    assert_eq!(reports[0].thread, "third");
}

#[test]
fn outputs_tell_the_same() {
    static CLASS: LockClass = LockClass::new("test.output\"", 1);
    let _turn = turn();
    let before = snapshot();
    set_mode(Mode::Full);
    for _ in 0..3 {
        drop(Holding::begin(&CLASS, Kind::Reader, &LastCpu::new()));
    }
    drop(contend(&CLASS, Kind::Reader, Duration::from_millis(2)));
    let since = snapshot().since(&before);
    let read = finefs_lockmeter::Snapshot::from_json(&since.to_json()).unwrap();
    assert_eq!(read, since);
    assert_eq!(read.contention().unwrap().percent, 25.0);
    let text = since.to_openmetrics();
    let labels = "{class=\"test.output\\\"\",kind=\"reader\"}";
    for line in [
        format!("lock_acquisitions_total{labels} 4"),
        format!("lock_contended_total{labels} 1"),
        format!("lock_wait_seconds_count{labels} 1"),
        format!("lock_hold_seconds_count{labels} 4"),
        "# TYPE lock_wait_seconds histogram".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let rows = rates(&since, Duration::from_secs(2));
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].acquisitions, rows[0].contended), (2.0, 0.5));
    assert!(rows[0].waiting >= 0.001);
}
