//! With the feature `off` nothing is left in locks and guards, and nothing is counted.

#![cfg(feature = "off")]

use finefs_lockmeter::{Holding, Kind, LastCpu, LockClass, Mode, Waiting, set_mode, snapshot};

static CLASS: LockClass = LockClass::new("test.off", 1);

#[test]
fn nothing_is_left() {
    assert_eq!(
        size_of::<Holding>() + size_of::<LastCpu>() + size_of::<Waiting>(),
        0
    );
    assert!(!std::mem::needs_drop::<Holding>());
    set_mode(Mode::Full);
    let last_cpu = LastCpu::new();
    let _uncontended = Holding::begin(&CLASS, Kind::Writer, &last_cpu);
    let _contended = Waiting::begin(&CLASS, Kind::Writer, 1).granted(&last_cpu);
    assert!(snapshot().classes.is_empty());
}
