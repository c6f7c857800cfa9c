//! The table of one directory on its own.

use super::*;
use crossbeam_epoch::pin;
use std::collections::BTreeMap;

fn add(table: &NameTable, name: &str, ino: u64) {
    let guard = &pin();
    let wants_room = {
        let held = table
            .lock(Ino(2), table.hashed(name.as_bytes()), guard)
            .unwrap();
        assert!(held.find(table.hashed(name.as_bytes()), guard).is_none());
        table.insert(
            &held,
            table.hashed(name.as_bytes()),
            Ino(ino),
            FileKind::Regular,
            guard,
        )
    };
    if wants_room {
        table.grow(Ino(2), guard);
    }
}

fn names_after(table: &NameTable, after: u64) -> Vec<(u64, String)> {
    let mut names = Vec::new();
    table.for_each_after(after, &pin(), |node| {
        names.push((
            node.cookie(),
            String::from_utf8(node.name.to_vec()).unwrap(),
        ));
        true
    });
    names
}

/// Readdir asks ahead for what it comes to: all buckets, in the order of their intervals.
#[test]
fn buckets_follow_each_other_in_the_order_of_cookies() {
    for count in [4, 64, 4096] {
        let table = Table::new(count);
        let order: Vec<usize> =
            std::iter::successors(Some(0), |index| table.index_after(*index)).collect();
        assert_eq!(order.len(), count);
        assert!(order.is_sorted_by_key(|index| Table::position(*index)));
    }
}

#[test]
fn names_are_found_after_growth_and_gone_after_removal() {
    let table = NameTable::new();
    for number in 0..2_000 {
        add(&table, &format!("name{number}"), number);
    }
    let guard = &pin();
    for number in (0..2_000).step_by(2) {
        let name = format!("name{number}");
        let held = table
            .lock(Ino(2), table.hashed(name.as_bytes()), guard)
            .unwrap();
        let node = held.find(table.hashed(name.as_bytes()), guard).unwrap();
        held.remove(node, guard);
    }
    for number in 0..2_000 {
        let found = table.find(table.hashed(format!("name{number}").as_bytes()), guard);
        assert_eq!(
            found.map(|node| node.ino.0),
            (number % 2 == 1).then_some(number)
        );
    }
}

#[test]
fn readdir_resumes_at_any_cookie_across_growth() {
    let table = NameTable::new();
    let mut expected = BTreeMap::new();
    for number in 0..100 {
        add(&table, &format!("stays{number}"), number);
    }
    for (cookie, name) in names_after(&table, 0) {
        assert!(cookie >= COOKIE_FIRST);
        assert!(expected.insert(cookie, name).is_none());
    }
    assert_eq!(expected.len(), 100);
    let mut seen = Vec::new();
    let mut after = 0;
    for round in 0.. {
        let batch = names_after(&table, after);
        let stays = batch.iter().find(|(_, name)| name.starts_with("stays"));
        let Some((cookie, name)) = stays else { break };
        seen.push(name.clone());
        after = *cookie;
        // Names come while the reader goes on, and the table grows several times.
        for number in 0..20 {
            add(&table, &format!("comes{round}-{number}"), 7);
        }
    }
    assert_eq!(seen, expected.into_values().collect::<Vec<_>>());
}

#[test]
fn a_dead_table_takes_no_names() {
    let table = NameTable::new();
    let guard = &pin();
    {
        let resize = table.lock_resize();
        let all = lock_all(
            &[Request::Whole {
                dir: Ino(9),
                table: &table,
                resize: &resize,
            }],
            guard,
        )
        .unwrap();
        assert!(all.is_empty(&table, guard));
        all.kill(&table, guard);
    }
    assert!(table.lock(Ino(9), table.hashed(b"x"), guard).is_err());
    assert!(table.find(table.hashed(b"x"), guard).is_none());
    table.grow(Ino(9), guard);
}

#[test]
fn a_table_grows_where_writers_meet() {
    let table = NameTable::new();
    let guard = &pin();
    let before = table.length_about(guard);
    // The other thread may come too late to meet this one, but not always.
    for number in 0..1000 {
        let name = number.to_string();
        let held = table
            .lock(Ino(2), table.hashed(name.as_bytes()), guard)
            .unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| add(&table, &name, number));
            std::thread::sleep(std::time::Duration::from_millis(1));
            drop(held);
            other.join().unwrap();
        });
        if table.length_about(guard) > before {
            break;
        }
        // Nothing but the meeting makes it grow.
        let held = table
            .lock(Ino(2), table.hashed(name.as_bytes()), guard)
            .unwrap();
        let node = held.find(table.hashed(name.as_bytes()), guard).unwrap();
        held.remove(node, guard);
    }
    assert_eq!(table.length_about(guard), 2 * before);
}

#[test]
fn growth_leaves_names_where_they_are() {
    let table = NameTable::new();
    let guard = &pin();
    let name = |number: u64| format!("name{number}");
    let place = |number| {
        let found = table.find(table.hashed(name(number).as_bytes()), guard);
        std::ptr::from_ref(found.unwrap())
    };
    (0..20).for_each(|number| add(&table, &name(number), number));
    let before: Vec<_> = (0..20).map(place).collect();
    // Beyond the size from which two buckets share a line.
    (20..20_000).for_each(|number| add(&table, &name(number), number));
    let after: Vec<_> = (0..20).map(place).collect();
    assert_eq!(before, after);
    let current = table.current(guard);
    assert!(current.count() > APART_MAX);
    for (index, bucket) in current.buckets().enumerate() {
        let nodes: Vec<&Node> = walk(bucket.head(guard), guard).collect();
        assert_eq!(nodes.len(), bucket.length() as usize);
        assert!(nodes.iter().all(|node| current.index(node.hash()) == index));
        assert!(nodes.is_sorted_by(|one, other| one.cookie() < other.cookie()));
    }
    assert_eq!(names_after(&table, 0).len(), 20_000);
}

/// Names of one position get cookies one after the other, within the interval of the smallest bucket.
#[test]
fn names_of_one_hash_have_their_cookies() {
    // The greatest position of the lower half, the least, and two in between.
    for hash in [u64::MAX - 1, 0, 7, 0x8000_0000_0000_0000] {
        let guard = &pin();
        let (whole, mut low, mut high) = (Bucket::new(), Bucket::new(), Bucket::new());
        let names: Vec<String> = (0..9).map(|number| number.to_string()).collect();
        let hashed = |name: &'static str, hash| HashedName {
            bytes: name.as_bytes(),
            hash,
        };
        for name in &names {
            let bytes = name.as_bytes();
            whole.insert(HashedName { bytes, hash }, Ino(1), None, guard);
        }
        whole.insert(hashed("neighbour", hash ^ 1), Ino(2), None, guard);
        let first = whole.head(guard);
        let cookies: Vec<u64> = walk(first, guard).map(Node::cookie).collect();
        assert!(cookies.is_sorted_by(|one, other| one < other));
        assert!(cookies[0] >= COOKIE_FIRST);
        whole.split([&low, &high], |node| node.hash() & 1 != 0, guard);
        let halves = [low.length(), high.length()];
        assert_eq!(halves, if hash & 1 == 0 { [9, 1] } else { [1, 9] });
        let split: Vec<u64> = [&low, &high]
            .into_iter()
            .flat_map(|bucket| walk(bucket.head(guard), guard).map(Node::cookie))
            .collect();
        assert_eq!(split, cookies);
        let half = if hash & 1 == 0 { &low } else { &high };
        for name in &names {
            let bytes = name.as_bytes();
            let name = HashedName { bytes, hash };
            assert!(half.find(half.head(guard), name, guard).is_some());
        }
        low.clear();
        high.clear();
    }
}

#[test]
fn what_was_removed_is_found_again_when_it_comes_back() {
    let table = NameTable::new();
    let guard = &pin();
    let remove = |name: &str| {
        let name = table.hashed(name.as_bytes());
        let held = table.lock(Ino(2), name, guard).unwrap();
        held.remove(held.find(name, guard).unwrap(), guard);
    };
    let is_there = |name: &str| table.find(table.hashed(name.as_bytes()), guard).is_some();
    let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    for _ in 0..3 {
        for name in &names {
            assert!(!is_there(name));
            add(&table, name, 1);
            assert!(is_there(name));
        }
        for (index, name) in names.iter().enumerate() {
            remove(name);
            assert!(!is_there(name));
            assert!(names[index + 1..].iter().all(|name| is_there(name)));
        }
        assert!(table.seems_empty(guard));
    }
}

/// In the middle of a growth the buckets that left still show the names of before, which are gone by now, or not.
#[test]
fn who_asks_a_growing_table_whether_it_is_empty_is_sent_to_the_exact_check() {
    for is_removed in [true, false] {
        let table = NameTable::new();
        let guard = &pin();
        add(&table, "name", 1);
        let old = table.current(guard);
        let name = table.hashed(b"name");
        assert!(!table.seems_empty(guard));
        // As `grow` does, but for its last steps.
        let growing = table.lock_resize();
        let fresh = Owned::new(Table::new(2 * old.count())).into_shared(guard);
        old.next.store(fresh, Ordering::Release);
        let new = next_of(old, guard);
        for (index, bucket) in old.buckets().enumerate() {
            let halves = [index, index + old.count()].map(|half| new.bucket(half));
            bucket.split(halves, |node| new.index(node.hash()) != index, guard);
        }
        if is_removed {
            let held = table.lock(Ino(2), name, guard).unwrap();
            held.remove(held.find(name, guard).unwrap(), guard);
        }
        assert!(table.seems_empty(guard));
        table.table.store(fresh, Ordering::Release);
        // SAFETY: `table.table` no longer names it.
        unsafe { retire(Shared::from(std::ptr::from_ref(old)), guard) };
        drop(growing);
        let resize = table.lock_resize();
        let whole = Request::Whole {
            dir: Ino(2),
            table: &table,
            resize: &resize,
        };
        let held = lock_all(&[whole], guard).unwrap();
        assert_eq!(held.is_empty(&table, guard), is_removed);
        assert_eq!(table.seems_empty(guard), is_removed);
    }
}

/// Of the two names of a bucket one is in each half: who has read the head, and then waits, meets the cut.
///
/// Without: the second look at the head in `find`; LEFT in what `find_in_change` and `for_each_after` look at after
/// their walk; the first of the two tags that `split` sets. (Each was tried, in a copy.)
#[cfg(feature = "shuttle")]
#[test]
fn names_that_stay_are_found_while_their_bucket_is_cut() {
    use finefs_locks::primitive::{Arc, thread};
    let run = || {
        let table = Arc::new(NameTable::new());
        let (min, name) = (BUCKETS_MIN as u64, |number: u64| number.to_string());
        // Bucket 0 of 4 becomes buckets 0 and 4 of 8.
        let names = [0, min].map(|bucket| {
            let is_its = |name: &String| table.hashed(name.as_bytes()).hash % (2 * min) == bucket;
            (0..).map(name).find(is_its).unwrap()
        });
        names.iter().for_each(|name| add(&table, name, 7));
        let mut tasks: Vec<_> = (0..4)
            .map(|index| {
                let (table, names) = (Arc::clone(&table), names.clone());
                thread::spawn(move || {
                    for name in names.iter().cycle().take(40) {
                        let guard = &pin();
                        let hashed = table.hashed(name.as_bytes());
                        let found = match index % 2 {
                            0 => table.find(hashed, guard),
                            _ => table.find_in_change(hashed, guard),
                        };
                        assert!(found.is_some(), "{name}");
                    }
                })
            })
            .collect();
        let listed = Arc::clone(&table);
        tasks.push(thread::spawn(move || {
            (0..8).for_each(|_| assert_eq!(names_after(&listed, 0).len(), 2));
        }));
        table.grow(Ino(2), &pin());
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(table.current(&pin()).count(), 2 * BUCKETS_MIN);
    };
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(200), config).run(run);
}
