//! Pieces of large files that are written out as soon as they are complete.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use finefs_namespace::{Caller, Ino, Namespace, Options, Store};
use finefs_testkit::CheckedStore;

const PIECE: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(20);

/// A file, and what is told while its first piece is on its way: with how many blocks it began. The
/// piece waits there until the second channel says something, or is closed.
fn world() -> (
    Arc<Namespace>,
    Ino,
    Receiver<u64>,
    std::sync::mpsc::Sender<()>,
) {
    let store = Arc::new(CheckedStore::new(8 << 20));
    let (tell, told) = channel();
    let (let_go, wait) = channel();
    let wait = Mutex::new(wait);
    store.call_before_writing_behind(move |run| {
        let _ = tell.send(run.length);
        let _ = wait.lock().unwrap().recv_timeout(LONG);
    });
    let shared: Arc<dyn Store> = store;
    let namespace = Arc::new(Namespace::without_thread(shared, Options::default()).unwrap());
    let made = namespace.create_file(&Caller::root(), namespace.root(), b"a", 0o644);
    let ino = made.unwrap().ino;
    (namespace, ino, told, let_go)
}

fn others_go_on(complete_piece: impl FnOnce(&Namespace, Ino) + Send + 'static) {
    let (namespace, ino, told, let_go) = world();
    let theirs = Arc::clone(&namespace);
    let writer = std::thread::spawn(move || complete_piece(&theirs, ino));
    assert!(told.recv_timeout(LONG).unwrap() > 0);
    let (appended, is_appended) = channel();
    let theirs = Arc::clone(&namespace);
    let other = std::thread::spawn(move || {
        assert_eq!(theirs.append(ino, b"next").unwrap(), PIECE as u64);
        let mut last = [0];
        theirs.read(ino, PIECE as u64 - 1, &mut last).unwrap();
        assert_eq!(last, [7]);
        appended.send(()).unwrap();
    });
    let went_on = is_appended.recv_timeout(LONG / 2);
    drop(let_go);
    writer.join().unwrap();
    other.join().unwrap();
    assert!(
        went_on.is_ok(),
        "the file was locked while its piece went out"
    );
    namespace.shut_down().unwrap();
}

#[test]
fn others_append_while_the_piece_of_an_append_goes_out() {
    others_go_on(|namespace, ino| {
        namespace.append(ino, &vec![7; PIECE - 5]).unwrap();
        namespace.append(ino, &[7; 5]).unwrap();
    });
}

#[test]
fn others_append_while_the_piece_of_a_write_goes_out() {
    others_go_on(|namespace, ino| {
        namespace.write(ino, 0, &vec![7; PIECE]).unwrap();
    });
}
