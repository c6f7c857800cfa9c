//! One instance of PostMark: its files, and what it does to them.

use super::stdio::{self, Place};
use super::{Counts, PostMark, directory};
use crate::error::{During, Result, WorkloadError};
use crate::targets::{Entry, OFlags, Target};
use crate::worker::Worker;
use std::fmt::Write;
use std::ops::{ControlFlow, Range};

/// A file that exists.
struct Named {
    number: u64,
    subdirectory: u32,
    size: usize,
}

pub(super) struct Instance<'a, T> {
    parameters: &'a PostMark,
    target: &'a T,
    dir: String,
    files: Vec<Named>,
    next_number: u64,
    /// Random text, twice as long as a file can be.
    text: Vec<u8>,
    buffer: Vec<u8>,
    path: String,
    verifies: bool,
    /// All created files count as created by transactions, until the end.
    pub counts: Counts,
}

impl<'a, T: Target> Instance<'a, T> {
    /// Makes its directories.
    pub fn new(
        parameters: &'a PostMark,
        target: &'a T,
        worker: &mut Worker<'_>,
    ) -> Result<Instance<'a, T>> {
        let dir = directory(worker.index());
        target.create_dir(&dir).during("mkdir", &dir)?;
        for number in 0..parameters.subdirectories {
            let dir = format!("{dir}/s{number}");
            target.create_dir(&dir).during("mkdir", &dir)?;
        }
        let length = 2 * parameters.size_high as usize;
        Ok(Instance {
            parameters,
            target,
            dir,
            files: Vec::with_capacity(2 * parameters.number as usize),
            next_number: 1,
            text: (0..length).map(|_| worker.rng.u8(b' '..=b'~')).collect(),
            buffer: vec![0; parameters.size_high as usize],
            path: String::new(),
            verifies: worker.verifies(),
            counts: Counts::default(),
        })
    }

    pub fn transact(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let (bias_read, bias_create) = (self.parameters.bias_read, self.parameters.bias_create);
        if bias_read >= 0 && !self.files.is_empty() {
            let at = rng.usize(..self.files.len());
            if rng.i8(0..10) < bias_read {
                self.read(at)?;
            } else {
                self.append(at, rng)?;
            }
        }
        if bias_create >= 0 {
            if rng.i8(0..10) < bias_create {
                // PostMark's table has room for twice the files that it begins with.
                if self.files.len() < self.files.capacity() {
                    self.create(rng)?;
                }
            } else if !self.files.is_empty() {
                self.delete(rng.usize(..self.files.len()))?;
            }
        }
        Ok(())
    }

    pub fn create(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let sizes = self.parameters.size_low..=self.parameters.size_high;
        let file = Named {
            number: self.next_number,
            subdirectory: match self.parameters.subdirectories {
                0 => 0,
                count => rng.u32(..count),
            },
            size: rng.u32(sizes) as usize,
        };
        self.next_number += 1;
        name(&mut self.path, &self.dir, self.parameters, &file);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let open = self.target.open(&self.path, flags);
        let open = open.during("create", &self.path)?;
        let place = self.place(&file);
        self.write(&open, place..place + file.size, Place::Start)?;
        self.counts.created_mixed += 1;
        self.files.push(file);
        Ok(())
    }

    fn read(&mut self, at: usize) -> Result<()> {
        let file = &self.files[at];
        let (size, place) = (file.size, self.place(file));
        name(&mut self.path, &self.dir, self.parameters, file);
        let path = &self.path;
        let open = self.target.open(path, OFlags::RDONLY);
        let open = open.during("open", path)?;
        let piece = self.parameters.read as usize;
        let into = &mut self.buffer[..size];
        let count = if self.parameters.unbuffered {
            stdio::read_pieces(&open, into, piece)
        } else {
            stdio::read(&open, into, piece)
        };
        let count = count.during("read", path)?;
        if count != size {
            return Err(wrong(path, format!("has {count} bytes instead of {size}")));
        }
        if self.verifies && self.buffer[..size] != self.text[place..place + size] {
            return Err(wrong(
                path,
                "has not the contents that it should".to_owned(),
            ));
        }
        self.counts.read += 1;
        self.counts.bytes_read += size as u64;
        Ok(())
    }

    /// Does nothing to a file that is as large as files get.
    fn append(&mut self, at: usize, rng: &mut fastrand::Rng) -> Result<()> {
        let file = &self.files[at];
        let (size, place) = (file.size, self.place(file));
        let room = (self.parameters.size_high as usize).saturating_sub(size);
        if room == 0 {
            return Ok(());
        }
        let more = rng.usize(1..=room);
        name(&mut self.path, &self.dir, self.parameters, file);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let open = self.target.open(&self.path, flags);
        let open = open.during("open", &self.path)?;
        self.write(&open, place + size..place + size + more, Place::End)?;
        self.counts.appended += 1;
        self.files[at].size += more;
        Ok(())
    }

    fn delete(&mut self, at: usize) -> Result<()> {
        let file = self.files.swap_remove(at);
        name(&mut self.path, &self.dir, self.parameters, &file);
        let removed = self.target.remove_file(&self.path);
        removed.during("unlink", &self.path)?;
        self.counts.deleted_mixed += 1;
        Ok(())
    }

    pub fn delete_all(&mut self) -> Result<()> {
        while !self.files.is_empty() {
            self.delete(self.files.len() - 1)?;
        }
        Ok(())
    }

    /// Reads every file, and counts the names.
    pub fn verify(&mut self) -> Result<()> {
        let before = self.counts.clone();
        (0..self.files.len()).try_for_each(|at| self.read(at))?;
        self.counts = before;
        let mut dirs = vec![self.dir.clone()];
        dirs.extend((0..self.parameters.subdirectories).map(|n| format!("{}/s{n}", self.dir)));
        let mut names = 0;
        for dir in &dirs {
            let count = |_: Entry<'_>| {
                names += 1;
                ControlFlow::Continue(())
            };
            self.target.read_dir(dir, count).during("read", dir)?;
        }
        let expected = self.files.len() + self.parameters.subdirectories as usize;
        if names != expected {
            let found = format!("lists {names} names instead of {expected}");
            return Err(wrong(&self.dir, found));
        }
        Ok(())
    }

    /// Removes the directories. It fails if a file is left, so nothing was left.
    pub fn finish(self) -> Result<Counts> {
        for number in 0..self.parameters.subdirectories {
            let dir = format!("{}/s{number}", self.dir);
            self.target.remove_dir(&dir).during("rmdir", &dir)?;
        }
        self.target
            .remove_dir(&self.dir)
            .during("rmdir", &self.dir)?;
        Ok(self.counts)
    }

    /// Writes this part of the text.
    fn write(&mut self, open: &T::File, part: Range<usize>, to: Place) -> Result<()> {
        let (data, piece) = (&self.text[part], self.parameters.write as usize);
        let written = if self.parameters.unbuffered {
            stdio::write_pieces(open, data, to, piece)
        } else {
            stdio::write(open, data, to, piece)
        };
        self.counts.bytes_written += data.len() as u64;
        written.during("write", &self.path)
    }

    /// Where in the text a file's contents begin.
    fn place(&self, file: &Named) -> usize {
        (file.number % u64::from(self.parameters.size_high)) as usize
    }
}

fn name(path: &mut String, dir: &str, parameters: &PostMark, file: &Named) {
    path.clear();
    // Writing to a string cannot fail.
    let _ = match parameters.subdirectories {
        0 => write!(path, "{dir}/{}", file.number),
        _ => write!(path, "{dir}/s{}/{}", file.subdirectory, file.number),
    };
}

#[cold]
fn wrong(path: &str, what: String) -> WorkloadError {
    WorkloadError::Wrong(format!("{path} {what}"))
}
