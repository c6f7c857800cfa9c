//! Both kinds of targets do the same.

use crate::on_both;
use crate::support::names;
use finefs_workloads::Target;
use finefs_workloads::targets::{Errno, File, FileType, OFlags, remove_tree, write_all_at};
use std::ops::ControlFlow;

fn files_and_directories<T: Target>(target: &T) {
    target.create_dir("d").unwrap();
    assert_eq!(target.create_dir("d"), Err(Errno::EXIST));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = target.open("d/f", flags).unwrap();
    assert_eq!(target.open("d/f", flags).err(), Some(Errno::EXIST));
    write_all_at(&file, b"hello", 3).unwrap();
    let mut buffer = [1; 16];
    assert_eq!(file.read_at(&mut buffer, 0), Ok(8));
    assert_eq!(&buffer[..8], b"\0\0\0hello");
    assert_eq!(file.read_at(&mut buffer, 8), Ok(0));
    let end = target.open("d/f", OFlags::WRONLY | OFlags::APPEND).unwrap();
    assert_eq!(end.append(b"!"), Ok(1));
    let stat = target.stat("d/f").unwrap();
    assert_eq!((stat.size_bytes, stat.kind), (9, FileType::RegularFile));
    assert_eq!(file.stat().unwrap(), stat);
    file.set_len(4).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    target.sync().unwrap();
    target.hard_link("d/f", "d/g").unwrap();
    assert_eq!(target.stat("d/g").unwrap().link_count, 2);
    target.symlink("g", "d/s").unwrap();
    assert_eq!(target.stat("d/s").unwrap().size_bytes, 4);
    target.rename("d/f", "f").unwrap();
    assert_eq!(target.stat("d/f"), Err(Errno::NOENT));
    assert_eq!(names(target, "d"), ["g", "s"]);
    let mut seen = 0;
    let one = |_: finefs_workloads::targets::Entry<'_>| {
        seen += 1;
        ControlFlow::Break(())
    };
    target.read_dir("d", one).unwrap();
    assert_eq!(seen, 1);
    let emptied = target.open("f", OFlags::WRONLY | OFlags::TRUNC).unwrap();
    assert_eq!(emptied.stat().unwrap().size_bytes, 0);
    assert_eq!(target.remove_dir("d"), Err(Errno::NOTEMPTY));
    target.create_dir("d/e").unwrap();
    remove_tree(target, "d").unwrap();
    remove_tree(target, "d").unwrap();
    target.remove_file("f").unwrap();
    assert_eq!(names(target, "."), [""; 0]);
}

#[test]
fn files_and_directories_work() {
    on_both!(files_and_directories);
}
