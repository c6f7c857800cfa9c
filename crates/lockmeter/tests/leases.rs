//! Who gets which reports, and what is on, where the program itself and clients with leases want
//! something.

#![cfg(not(feature = "off"))]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use finefs_lockmeter::control::{Reply, Request, answer};
use finefs_lockmeter::{
    HOLD_SAMPLING_DEFAULT, Kind, LastCpu, LockClass, Mode, Report, Thresholds, Waiting, Wanted,
    hold_sampling, set_hold_sampling, set_mode, set_thresholds, take_reports,
};

static TURN: Mutex<()> = Mutex::new(());
static CLASS: LockClass = LockClass::new("test.leases", 1);

/// All waits.
const WAITS: Wanted = Wanted {
    is_full: false,
    hold_sampling: None,
    wait_us: Some(0),
    hold_us: None,
    waiters: None,
};

/// A turn, since the switches are global, with these as at first.
fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    set_mode(Mode::ContendedOnly);
    set_hold_sampling(HOLD_SAMPLING_DEFAULT);
    report_waits(None);
    take_reports();
    turn
}

/// As the program itself has it.
fn report_waits(wait: Option<Duration>) {
    set_thresholds(&Thresholds {
        wait,
        per_second_max: 1000,
        ..Thresholds::default()
    });
}

fn wait_for_lock() {
    let waiting = Waiting::begin(&CLASS, Kind::Writer, 0x1000);
    drop(waiting.granted(&LastCpu::new()));
}

/// Ended when it is dropped.
struct Lease(u64);

impl Lease {
    fn take(wanted: Wanted) -> Lease {
        Lease(Lease::ask(None, wanted))
    }

    fn ask(id: Option<u64>, wanted: Wanted) -> u64 {
        let asked = Request::Lease {
            id,
            time_ms: 60_000,
            wanted,
        };
        let Reply::Leased { id, .. } = answer(&asked) else {
            panic!()
        };
        id
    }

    fn renew(&self, wanted: Wanted) {
        assert_eq!(Lease::ask(Some(self.0), wanted), self.0);
    }

    fn reports(&self) -> Vec<Report> {
        reports(&Request::ReportsOf(self.0))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        answer(&Request::EndLease(self.0));
    }
}

fn reports(request: &Request) -> Vec<Report> {
    let Reply::Reports(reports) = answer(request) else {
        panic!()
    };
    reports
}

#[test]
fn reports_outlive_the_thresholds_that_they_crossed() {
    let _turn = turn();
    let set = |wait_us| Request::SetThresholds {
        wait_us,
        hold_us: None,
        waiters: None,
    };
    answer(&set(Some(0)));
    wait_for_lock();
    answer(&set(None));
    assert_eq!(reports(&Request::Reports).len(), 1);
    // A threshold that is set later does not make reports of others one's own.
    let lease = Lease::take(WAITS);
    wait_for_lock();
    answer(&set(Some(0)));
    assert!(reports(&Request::Reports).is_empty());
    assert_eq!(lease.reports().len(), 1);
}

#[test]
fn the_program_and_leases_leave_each_other_their_reports() {
    let _turn = turn();
    report_waits(Some(Duration::ZERO));
    wait_for_lock();
    let lease = Lease::take(WAITS);
    lease.renew(WAITS);
    assert_eq!(take_reports().len(), 1, "made before there was the lease");
    assert!(lease.reports().is_empty());
    wait_for_lock();
    assert_eq!(take_reports().len(), 1);
    assert_eq!(lease.reports().len(), 1);
    report_waits(None);
    wait_for_lock();
    assert!(take_reports().is_empty());
    assert_eq!(lease.reports().len(), 1);
}

#[test]
fn reports_that_nobody_takes_in_time_are_counted() {
    let _turn = turn();
    report_waits(Some(Duration::ZERO));
    let lease = Lease::take(WAITS);
    for count in [200, 150, 300] {
        (0..count).for_each(|_| wait_for_lock());
        lease.renew(WAITS);
    }
    report_waits(None);
    for kept in [take_reports(), lease.reports()] {
        let left_out: u64 = kept.iter().map(|report| report.left_out).sum();
        assert_eq!((kept.len(), left_out), (256, 394));
        assert_eq!(kept[0].left_out, 394, "they are told of first");
    }
}

/// One whose threshold everything crosses uses up its own reports of a second, not those of the
/// others.
#[test]
fn a_low_threshold_takes_no_report_from_a_high_one() {
    let _turn = turn();
    set_thresholds(&Thresholds {
        per_second_max: 3,
        ..Thresholds::default()
    });
    let low = Lease::take(WAITS);
    let high = Lease::take(Wanted {
        wait_us: Some(20_000),
        ..WAITS
    });
    for _ in 0..2 {
        (0..20).for_each(|_| wait_for_lock());
        let waiting = Waiting::begin(&CLASS, Kind::Writer, 0x1000);
        std::thread::sleep(Duration::from_millis(30));
        drop(waiting.granted(&LastCpu::new()));
    }
    let kept = high.reports();
    let left_out: u64 = kept.iter().map(|report| report.left_out).sum();
    // A machine that stood still for a moment makes more.
    assert!(kept.len() as u64 + left_out >= 2 && !kept.is_empty());
    let left_out: Vec<u64> = kept.iter().map(|report| report.left_out).collect();
    assert!(left_out.iter().sum::<u64>() < 20, "its own: {left_out:?}");
    assert!(low.reports().len() < 42);
}

#[test]
fn a_lease_makes_sampling_no_coarser_for_others() {
    let _turn = turn();
    let wanted = |is_full, hold_sampling| Wanted {
        is_full,
        hold_sampling,
        ..Wanted::default()
    };
    {
        let _lease = Lease::take(wanted(true, Some(1000)));
        assert_eq!(hold_sampling(), 1000, "nobody else is there");
        let _other = Lease::take(wanted(true, None));
        assert_eq!(hold_sampling(), HOLD_SAMPLING_DEFAULT);
        let _other = Lease::take(wanted(true, Some(7)));
        let _other = Lease::take(wanted(false, Some(3)));
        assert_eq!(hold_sampling(), 7, "who does not count all has no say");
    }
    assert_eq!(hold_sampling(), HOLD_SAMPLING_DEFAULT);
    set_mode(Mode::Full);
    let _lease = Lease::take(wanted(true, Some(1000)));
    assert_eq!(hold_sampling(), HOLD_SAMPLING_DEFAULT);
    set_mode(Mode::ContendedOnly);
    assert_eq!(hold_sampling(), 1000);
}
