//! An open file: reads and writes at offsets. Positions and buffers are the package's.

use finefs::File;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::detached::Detached;
use crate::error;
use crate::stat::{Stat, stat};

/// An open file of an image.
#[pyclass(frozen, module = "finefs._finefs")]
pub(crate) struct RawFile {
    file: Detached<File>,
}

impl RawFile {
    pub fn new(file: File) -> RawFile {
        RawFile {
            file: Detached::new(file),
        }
    }
}

#[pymethods]
impl RawFile {
    /// Up to `size` bytes at `offset`; none at the end of the file. `MemoryError` where there is no
    /// memory for them.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let len = py.detach(|| self.file.metadata().map(|found| found.len()));
        let len = len.map_err(|e| error::of(&e))?;
        let there = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let size = size.min(there);
        let mut count = 0;
        let bytes = PyBytes::new_with(py, size, |buffer| {
            let read = py.detach(|| self.file.read_at(buffer, offset));
            count = read.map_err(|e| error::of(&e))?;
            Ok(())
        })?;
        // The file may have become shorter.
        match count == size {
            true => Ok(bytes),
            false => Ok(PyBytes::new(py, &bytes.as_bytes()[..count])),
        }
    }

    /// Writes at `offset`; how many bytes.
    fn pwrite(&self, py: Python<'_>, data: &[u8], offset: u64) -> PyResult<usize> {
        py.detach(|| self.file.write_at(data, offset))
            .map_err(|e| error::of(&e))
    }

    /// Writes at the end, whole; the offset that is now the end.
    fn append(&self, py: Python<'_>, data: &[u8]) -> PyResult<u64> {
        py.detach(|| self.file.append(data))
            .map(|start| start + data.len() as u64)
            .map_err(|e| error::of(&e))
    }

    /// Makes the file this long.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        py.detach(|| self.file.set_len(size))
            .map_err(|e| error::of(&e))
    }

    /// Returns when the file is on the image.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.file.sync_all())
            .map_err(|e| error::of(&e))
    }

    /// Its attributes, as `Image.stat` has them.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        py.detach(|| self.file.metadata())
            .map(|found| stat(&found))
            .map_err(|e| error::of(&e))
    }

    /// Where the next data is; `OSError` (ENXIO) where there is none.
    fn seek_data(&self, py: Python<'_>, offset: u64) -> PyResult<u64> {
        py.detach(|| self.file.seek_data(offset))
            .map_err(|e| error::of(&e))
    }

    /// Where the next hole is, or the end of the file.
    fn seek_hole(&self, py: Python<'_>, offset: u64) -> PyResult<u64> {
        py.detach(|| self.file.seek_hole(offset))
            .map_err(|e| error::of(&e))
    }
}
