//! PostMark's transactions (Katcher, 1997) in process: a mail server's many small files, on a memory
//! file system, each thread in a directory of its own.
//!
//! A transaction reads or appends to one file, and creates or deletes one, with equal chances. Files
//! begin with 500 to 10,000 bytes; what is read is checked for its length.

use anyhow::{Result, anyhow, ensure};
use finefs::namespace::{Attributes, Ino, Namespace, OpenAccess};
use finefs::{Caller, LockingScheme, Options, open_memory};
use finefs_locks::ShardedList;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xtask::rng::Rng;

/// The numbers that make a run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Threads, each with files and transactions of its own.
    pub threads: u64,
    /// Files that each thread makes at first.
    pub files: u64,
    /// Transactions of each thread.
    pub transactions: u64,
}

const SIZE_MIN: u64 = 500;
const SIZE_MAX: u64 = 10_000;
const BLOCK: usize = 4096;

/// What the transactions took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// From the first thread's start to the last one's end.
    pub real: Duration,
    /// CPU time of the whole process meanwhile.
    pub cpu: Duration,
}

/// Runs it on a new file system. Every open file is on `open_files` besides.
pub fn run(
    shape: &Shape,
    locking: LockingScheme,
    open_files: Option<&ShardedList<u64>>,
) -> Result<Took> {
    let options = Options {
        locking,
        ..Options::default()
    };
    let space = open_memory(2 << 30, 0o755, 0, 0, options)?;
    let users = (0..shape.threads)
        .map(|number| User::new(&space, number, shape.files, open_files))
        .collect::<Result<Vec<_>>>()?;
    let (started, cpu_before) = (Instant::now(), cpu_time());
    let users = std::thread::scope(|scope| {
        let threads: Vec<_> = users
            .into_iter()
            .map(|user| scope.spawn(|| user.transact(shape.transactions)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect::<Result<Vec<_>>>()
    })?;
    let took = Took {
        real: started.elapsed(),
        cpu: cpu_time().saturating_sub(cpu_before),
    };
    for user in users {
        user.delete_all()?;
    }
    ensure!(space.open_file_count() == 0, "a file stayed open");
    space.shut_down()?;
    Ok(took)
}

/// A thread's files.
pub struct User<'a> {
    space: Arc<Namespace>,
    caller: Caller,
    dir: Ino,
    /// Number and length of each file.
    files: Vec<(u64, u64)>,
    next: u64,
    rng: Rng,
    data: Vec<u8>,
    open_files: Option<&'a ShardedList<u64>>,
}

impl<'a> User<'a> {
    /// Makes `files` files in a directory of the user's own.
    pub fn new(
        space: &Arc<Namespace>,
        number: u64,
        files: u64,
        open_files: Option<&'a ShardedList<u64>>,
    ) -> Result<User<'a>> {
        let caller = Caller::root();
        let name = format!("user{number}");
        let dir = space.make_directory(&caller, space.root(), name.as_bytes(), 0o755)?;
        let mut user = User {
            space: Arc::clone(space),
            caller,
            dir: dir.ino,
            files: Vec::new(),
            next: 0,
            rng: Rng::new(number),
            data: vec![b'm'; SIZE_MAX as usize],
            open_files,
        };
        for _ in 0..files {
            user.create()?;
        }
        Ok(user)
    }

    fn transact(mut self, transactions: u64) -> Result<User<'a>> {
        for _ in 0..transactions {
            self.transaction()?;
        }
        Ok(self)
    }

    /// One transaction.
    pub fn transaction(&mut self) -> Result<()> {
        if self.rng.percent(50) {
            self.read()?;
        } else {
            self.append()?;
        }
        if self.rng.percent(50) {
            self.create()
        } else {
            self.delete()
        }
    }

    fn delete_all(mut self) -> Result<()> {
        while !self.files.is_empty() {
            self.delete()?;
        }
        self.space.forget(self.dir, 1);
        Ok(())
    }

    /// Opens `file`, runs `work`, closes it, and gives back the reference that finding it took.
    fn with_open(
        &self,
        file: &Attributes,
        access: OpenAccess,
        work: impl FnOnce(Ino) -> Result<()>,
    ) -> Result<()> {
        let handle = self.space.open(&self.caller, file.ino, access)?;
        let ticket = self.open_files.map(|list| list.add(file.ino.0));
        work(handle.ino())?;
        if let (Some(list), Some(ticket)) = (self.open_files, ticket) {
            list.remove(ticket);
        }
        drop(handle);
        self.space.forget(file.ino, 1);
        Ok(())
    }

    fn find(&self, number: u64) -> Result<Attributes> {
        Ok(self.space.lookup(&self.caller, self.dir, &name(number))?)
    }

    fn create(&mut self) -> Result<()> {
        let (number, size) = (self.next, self.rng.range(SIZE_MIN, SIZE_MAX));
        self.next += 1;
        let file = self
            .space
            .create_file(&self.caller, self.dir, &name(number), 0o644)?;
        self.with_open(&file, OpenAccess::Write, |ino| {
            for start in (0..size as usize).step_by(BLOCK) {
                let end = (start + BLOCK).min(size as usize);
                self.space
                    .write(ino, start as u64, &self.data[start..end])?;
            }
            Ok(())
        })?;
        self.files.push((number, size));
        Ok(())
    }

    fn delete(&mut self) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.files.len() as u64) as usize;
        let (number, _) = self.files.swap_remove(at);
        Ok(self
            .space
            .remove_file(&self.caller, self.dir, &name(number))?)
    }

    fn read(&mut self) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.files.len() as u64) as usize;
        let (number, size) = self.files[at];
        let file = self.find(number)?;
        self.with_open(&file, OpenAccess::Read, |ino| {
            let (mut buffer, mut total) = ([0; BLOCK], 0);
            loop {
                let count = self.space.read(ino, total, &mut buffer)?;
                total += count as u64;
                if count < BLOCK {
                    break;
                }
            }
            ensure!(total == size, "file {number} has {total} bytes, not {size}");
            Ok(())
        })
    }

    fn append(&mut self) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.files.len() as u64) as usize;
        let (number, size) = self.files[at];
        let more = self.rng.range(1, BLOCK as u64);
        let file = self.find(number)?;
        self.with_open(&file, OpenAccess::Write, |ino| {
            let offset = self.space.append(ino, &self.data[..more as usize])?;
            ensure!(
                offset == size,
                "file {number} ended at {offset}, not {size}"
            );
            Ok(())
        })?;
        self.files[at].1 += more;
        Ok(())
    }
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn name(number: u64) -> Vec<u8> {
    format!("{number}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_checks_out() {
        static CLASS: finefs_locks::LockClass = finefs_locks::LockClass::new("test.bench", 1);
        let list = ShardedList::new(&CLASS);
        let shape = Shape {
            threads: 2,
            files: 20,
            transactions: 200,
        };
        run(&shape, LockingScheme::Fine, Some(&list)).unwrap();
        assert!(list.is_empty() && list.removals_total() >= 400);
    }
}
