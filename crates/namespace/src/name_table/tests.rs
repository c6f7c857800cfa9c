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
        names.push((node.cookie, String::from_utf8(node.name.to_vec()).unwrap()));
        true
    });
    names
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
