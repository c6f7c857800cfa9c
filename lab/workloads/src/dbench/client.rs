//! [`Client`]: replays the operations of a load file, each as dbench 4 does it.
//!
//! # What an operation becomes
//! Before an operation on a path the server would look the name up in any case; so the path is
//! asked for, and where it is not there, its directory is read for a name that differs by case
//! only.
//!
//! | operation | calls |
//! |---|---|
//! | NTCreateX | open and fstat; for a directory, mkdir first; a directory that was not asked for is opened for reading |
//! | Qpathinfo | only the look-up |
//! | Find | for a pattern, the directory's entries, as many as the client took |
//! | Sfileinfo | fstat, and utime with earlier times |
//! | Qfsinfo | statvfs |
//! | Flush | fsync |
//!
//! The statuses of NTCreateX, Unlink, Rename and Rmdir must be those of the file; reads and writes
//! must be as long as the file says. The other operations may fail: what dbench ignores is ignored
//! here.
//!
//! Data differs by client and offset; where contents are checked, what is read must be that or, in
//! a hole, zeros.

use crate::error::{During, Result, WorkloadError};
use crate::targets::{Errno, File, LockMode, OFlags, Target, remove_tree};
use finefs_dbench_load::{Load, Operation, OperationKind as Kind};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// FILE_DIRECTORY_FILE of NTCreateX's options.
const DIRECTORY_FILE: i64 = 0x1;
/// NTCreateX's dispositions.
const CREATE: i64 = 2;
const OVERWRITE: i64 = 4;
const OVERWRITE_IF: i64 = 5;

/// Of the data's bytes, which begin anew after so many.
const PERIOD: u64 = 251;

struct Opened<F> {
    file: F,
    path: u32,
}

/// One who replays.
pub(super) struct Client<'a, T: Target> {
    target: &'a T,
    index: usize,
    /// Those of the script's operations, for this client.
    paths: Vec<String>,
    open: HashMap<i64, Opened<T::File>>,
    data: Vec<u8>,
    buffer: Vec<u8>,
    verifies: bool,
    /// Bytes that were read and written.
    pub bytes: u64,
}

impl<'a, T: Target> Client<'a, T> {
    pub(super) fn new(target: &'a T, load: &Load, index: usize, verifies: bool) -> Self {
        let transfer_max = load
            .operations
            .iter()
            .filter(|operation| matches!(operation.kind, Kind::ReadX | Kind::WriteX))
            .map(|operation| operation.numbers[2].max(0) as usize)
            .max()
            .unwrap_or(0);
        Client {
            target,
            index,
            paths: Vec::new(),
            open: HashMap::new(),
            data: (0..transfer_max as u64 + PERIOD)
                .map(|at| 1 + (at % PERIOD) as u8)
                .collect(),
            buffer: vec![0; transfer_max],
            verifies,
            bytes: 0,
        }
    }

    /// Operations refer to these paths from now on: what was known, and perhaps more.
    pub(super) fn learn(&mut self, paths: &[String]) {
        let known = self.paths.len();
        self.paths.extend_from_slice(&paths[known..]);
    }

    /// The first line again: what is open is closed.
    pub(super) fn rewind(&mut self) {
        self.open.clear();
    }

    /// Does an operation.
    pub(super) fn replay(&mut self, operation: &Operation) -> Result<()> {
        let numbers = operation.numbers;
        match operation.kind {
            Kind::NTCreateX => self.create(operation),
            Kind::Close => {
                self.opened(operation)?;
                self.open.remove(&numbers[0]);
                Ok(())
            }
            Kind::ReadX => self.read(operation),
            Kind::WriteX => self.write(operation),
            Kind::Flush => {
                let opened = self.opened(operation)?;
                opened
                    .file
                    .sync_all()
                    .during("sync", self.path(opened.path))
            }
            Kind::Qpathinfo => {
                self.resolve(operation.paths[0]);
                Ok(())
            }
            Kind::Qfileinfo => {
                let opened = self.opened(operation)?;
                opened
                    .file
                    .stat()
                    .map(drop)
                    .during("stat", self.path(opened.path))
            }
            Kind::Qfsinfo => self.target.free_blocks().map(drop).during("statvfs", "."),
            Kind::Sfileinfo => self.set_times(operation),
            Kind::Find => {
                self.find(operation);
                Ok(())
            }
            Kind::Unlink => {
                self.resolve(operation.paths[0]);
                let result = self.target.remove_file(self.path(operation.paths[0]));
                self.check(operation, "unlink", result)
            }
            Kind::Rename => {
                operation.paths.iter().for_each(|path| self.resolve(*path));
                let [from, to] = operation.paths.map(|path| self.path(path));
                let result = self.target.rename(from, to);
                self.check(operation, "rename", result)
            }
            Kind::Mkdir => {
                self.resolve(operation.paths[0]);
                let _exists = self.target.create_dir(self.path(operation.paths[0]));
                Ok(())
            }
            Kind::Rmdir => {
                self.resolve(operation.paths[0]);
                let result = self.target.remove_dir(self.path(operation.paths[0]));
                self.check(operation, "rmdir", result)
            }
            Kind::Deltree => {
                let path = self.path(operation.paths[0]);
                remove_tree(self.target, path).during("deltree", path)
            }
            Kind::LockX | Kind::UnlockX => self.lock(operation),
        }
    }

    fn path(&self, path: u32) -> &str {
        &self.paths[path as usize]
    }

    fn wrong(&self, operation: &Operation, what: impl std::fmt::Display) -> WorkloadError {
        let client = self.index + 1;
        let kind = operation.kind;
        WorkloadError::Wrong(format!(
            "client {client}, line {}, {kind:?}: {what}",
            operation.line
        ))
    }

    /// The status must be the file's.
    fn check(
        &self,
        operation: &Operation,
        what: &'static str,
        result: std::result::Result<(), Errno>,
    ) -> Result<()> {
        let path = self.path(operation.paths[0]);
        match (operation.is_ok, result) {
            (true, Ok(())) | (false, Err(_)) => Ok(()),
            (true, Err(error)) => {
                Err(self.wrong(operation, format_args!("{what} {path}: {error}")))
            }
            (false, Ok(())) => Err(self.wrong(operation, format_args!("{what} {path} succeeded"))),
        }
    }

    fn opened(&self, operation: &Operation) -> Result<&Opened<T::File>> {
        let handle = operation.numbers[0];
        self.open
            .get(&handle)
            .ok_or_else(|| self.wrong(operation, format_args!("handle {handle} is not open")))
    }

    /// What a server does to find a name, whatever its case.
    fn resolve(&self, path: u32) {
        let path = self.path(path);
        if self.target.stat(path).is_ok() {
            return;
        }
        let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
        let _is_no_directory = self.target.read_dir(dir, |entry| {
            match entry.name.eq_ignore_ascii_case(name.as_bytes()) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
    }

    fn create(&mut self, operation: &Operation) -> Result<()> {
        let [options, disposition, handle, _] = operation.numbers;
        self.resolve(operation.paths[0]);
        let path = self.path(operation.paths[0]);
        let as_directory = OFlags::RDONLY | OFlags::DIRECTORY;
        let result = if options & DIRECTORY_FILE != 0 {
            let _exists = self.target.create_dir(path);
            self.target.open(path, as_directory)
        } else {
            let flags = match disposition {
                CREATE => OFlags::CREATE,
                OVERWRITE | OVERWRITE_IF => OFlags::CREATE | OFlags::TRUNC,
                _ => OFlags::empty(),
            };
            match self.target.open(path, OFlags::RDWR | flags) {
                Err(Errno::ISDIR) => self.target.open(path, as_directory),
                result => result,
            }
        };
        let outcome = result.as_ref().map(|_| ()).map_err(|error| *error);
        self.check(operation, "open", outcome)?;
        if let Ok(file) = result {
            // The server looks whether it is a regular file.
            file.stat().during("stat", path)?;
            let opened = Opened {
                file,
                path: operation.paths[0],
            };
            self.open.insert(handle, opened);
        }
        Ok(())
    }

    /// What this client writes at `offset`.
    fn data(&self, offset: u64, length: usize) -> &[u8] {
        let first = (offset + 17 * self.index as u64) % PERIOD;
        &self.data[first as usize..][..length]
    }

    fn write(&mut self, operation: &Operation) -> Result<()> {
        let [_, offset, length, expected] = operation.numbers;
        let opened = self.opened(operation)?;
        let data = self.data(offset as u64, length as usize);
        let count = opened.file.write_at(data, offset as u64);
        let count = count.during("write", self.path(opened.path))?;
        self.check_length(operation, count, expected)?;
        self.bytes += length as u64;
        Ok(())
    }

    fn read(&mut self, operation: &Operation) -> Result<()> {
        let [_, offset, length, expected] = operation.numbers;
        let mut buffer = std::mem::take(&mut self.buffer);
        let opened = self.opened(operation)?;
        let found = &mut buffer[..length as usize];
        let count = opened.file.read_at(found, offset as u64);
        let count = count.during("read", self.path(opened.path))?;
        self.check_length(operation, count, expected)?;
        if self.verifies {
            self.check_data(operation, &found[..count], offset as u64)?;
        }
        self.buffer = buffer;
        self.bytes += length as u64;
        Ok(())
    }

    fn check_length(&self, operation: &Operation, count: usize, expected: i64) -> Result<()> {
        if count as i64 == expected {
            return Ok(());
        }
        Err(self.wrong(
            operation,
            format_args!("{count} bytes instead of {expected}"),
        ))
    }

    fn check_data(&self, operation: &Operation, found: &[u8], offset: u64) -> Result<()> {
        let expected = self.data(offset, found.len());
        if found == expected {
            return Ok(());
        }
        let is_right = |(found, expected): (&u8, &u8)| *found == 0 || found == expected;
        match found.iter().zip(expected).position(|pair| !is_right(pair)) {
            None => Ok(()),
            Some(at) => {
                let at = offset + at as u64;
                Err(self.wrong(operation, format_args!("something else at offset {at}")))
            }
        }
    }

    fn set_times(&self, operation: &Operation) -> Result<()> {
        let opened = self.opened(operation)?;
        let path = self.path(opened.path);
        let found = opened.file.stat().during("stat", path)?;
        // It may have another name by now.
        let _ = self
            .target
            .set_times(path, found.accessed_s - 10, found.modified_s - 12);
        Ok(())
    }

    fn find(&self, operation: &Operation) {
        self.resolve(operation.paths[0]);
        let path = self.path(operation.paths[0]);
        if !path.contains(['<', '>', '*', '?', '"']) {
            return;
        }
        let (dir, _) = path.rsplit_once('/').unwrap_or((".", path));
        let mut left = operation.numbers[1];
        let _is_no_directory = self.target.read_dir(dir, |_| {
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
    }

    fn lock(&self, operation: &Operation) -> Result<()> {
        let [_, offset, length, _] = operation.numbers;
        let opened = self.opened(operation)?;
        let path = self.path(opened.path);
        let range = offset as u64..offset as u64 + length as u64;
        match operation.kind {
            Kind::LockX => opened.file.lock(range, LockMode::Exclusive, true),
            _ => opened.file.unlock(range),
        }
        .during("lock", path)
    }
}
