//! [`Script`]: what a client does, understood before the run or while it runs.

use crate::error::{Result, WorkloadError};
use finefs_dbench_load::{Load, Operation, Reader};
use std::path::Path;

/// The operations of a load file, for one client.
pub(super) enum Script<'a> {
    /// Understood before, once for all clients.
    Parsed {
        load: &'a Load,
        paths: Vec<String>,
        next: usize,
    },
    /// Read and understood line by line, as dbench does.
    Read(Box<Reader>),
}

/// A client's name, from its number, which begins with 0.
fn name(index: usize) -> String {
    format!("client{}", index + 1)
}

impl<'a> Script<'a> {
    pub(super) fn parsed(load: &'a Load, index: usize) -> Script<'a> {
        let own = name(index);
        let paths = load.paths.iter();
        Script::Parsed {
            load,
            paths: paths.map(|path| path.replace("client1", &own)).collect(),
            next: 0,
        }
    }

    pub(super) fn read(file: &Path, index: usize) -> Result<Script<'a>> {
        let reader = Reader::open(file, &name(index)).map_err(WorkloadError::LoadFile)?;
        Ok(Script::Read(Box::new(reader)))
    }

    /// The next operation; none at the file's end.
    #[inline]
    pub(super) fn next_operation(&mut self) -> Result<Option<Operation>> {
        match self {
            Script::Parsed { load, next, .. } => {
                let operation = load.operations.get(*next).copied();
                *next += 1;
                Ok(operation)
            }
            // It was understood when the run began: somebody changes it.
            Script::Read(reader) => reader.next_operation().map_err(WorkloadError::LoadFile),
        }
    }

    /// All paths of the operations so far; or more.
    #[inline]
    pub(super) fn paths(&self) -> &[String] {
        match self {
            Script::Parsed { paths, .. } => paths,
            Script::Read(reader) => reader.paths(),
        }
    }

    /// Goes back to the first line.
    pub(super) fn rewind(&mut self) -> Result<()> {
        match self {
            Script::Parsed { next, .. } => {
                *next = 0;
                Ok(())
            }
            Script::Read(reader) => reader.rewind().map_err(WorkloadError::LoadFile),
        }
    }
}
