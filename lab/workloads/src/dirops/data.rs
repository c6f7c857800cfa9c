//! DWAL, DWOL, DWOM, DWSL, DWTL, DRBL, DRBM, DRBH: pages of 4 KiB.

use super::{DirOps, Operation, SHARED, Step, make, make_private, repeat, unless_full, wrong};
use crate::error::{During, Result};
use crate::plan::Watch;
use crate::room::require_space;
use crate::targets::{File, Target, write_all_at};
use crate::worker::Worker;

pub(super) const PAGE: usize = 4096;

/// How far apart workers are in the file of all.
const REGION: u64 = 8 << 20;

/// What a worker fills its pages with.
fn mark(index: usize) -> u8 {
    index as u8 | 0x80
}

fn shared_path() -> String {
    format!("{SHARED}/file")
}

/// Makes the file of all, a region for each worker, and each region's pages marked as the worker's.
pub(super) fn make_shared<T: Target>(target: &T, regions: usize, watch: Watch<'_>) -> Result<()> {
    let path = shared_path();
    require_space(target, regions as u64 * REGION, "the file of all")?;
    let file = make(target, &path)?;
    for region in 0..regions {
        watch.check_stop()?;
        let data = vec![mark(region); REGION as usize];
        write_all_at(&file, &data, region as u64 * REGION).during("write", &path)?;
    }
    watch.check_stop()?;
    file.sync_all().during("sync", &path)
}

/// A worker's file, and where in it the worker's page is.
struct Page<F> {
    path: String,
    file: F,
    offset: u64,
    mark: u8,
}

impl<F: File> Page<F> {
    fn open<T: Target<File = F>>(
        operation: Operation,
        target: &T,
        worker: &Worker<'_>,
    ) -> Result<Page<F>> {
        use Operation::{Drbh, Drbm, Dwom};
        let index = worker.index();
        let path = match operation {
            Dwom | Drbm | Drbh => shared_path(),
            _ => make_private(target, worker)? + "/file",
        };
        let region = match operation {
            Dwom | Drbm => index,
            _ => 0,
        };
        Ok(Page {
            file: make(target, &path)?,
            path,
            offset: region as u64 * REGION,
            mark: match operation {
                Drbh => mark(0),
                _ => mark(index),
            },
        })
    }

    fn data(&self) -> [u8; PAGE] {
        [self.mark; PAGE]
    }

    /// Fails unless the page at `offset` is this worker's.
    fn check(&self, offset: u64) -> Result<()> {
        let mut found = [0; PAGE];
        let count = self.file.read_at(&mut found, offset);
        if count.during("read", &self.path)? != PAGE || found != self.data() {
            let place = format!("has something else at {offset}");
            return Err(wrong(&self.path, place));
        }
        Ok(())
    }

    fn check_size(&self, pages: u64) -> Result<()> {
        let size = self.file.stat().during("stat", &self.path)?.size_bytes;
        if size != pages * PAGE as u64 {
            return Err(wrong(
                &self.path,
                format!("has {size} bytes, not {pages} pages"),
            ));
        }
        Ok(())
    }

    fn transferred(&self, count: usize) -> Result<()> {
        if count == PAGE {
            return Ok(());
        }
        Err(wrong(
            &self.path,
            format!("gave or took {count} bytes of a page"),
        ))
    }
}

/// A worker's file of `pages` pages at its end: they must all be there, and the worker's.
fn check_file<F: File>(page: &Page<F>, pages: u64, worker: &Worker<'_>) -> Result<()> {
    if !worker.verifies() {
        return Ok(());
    }
    page.check_size(pages)?;
    (0..pages).try_for_each(|number| page.check(number * PAGE as u64))
}

pub(super) fn append<T: Target>(
    parameters: &DirOps,
    target: &T,
    worker: &mut Worker<'_>,
) -> Result<()> {
    let page = Page::open(parameters.operation, target, worker)?;
    let data = page.data();
    let mut pages = 0;
    repeat(worker, || {
        if pages == parameters.pages {
            return Ok(Step::Break(()));
        }
        // FxMark writes at the file's position, which is its end.
        let written = unless_full(page.file.write_at(&data, pages * PAGE as u64));
        let Some(count) = written.during("append", &page.path)? else {
            return Ok(Step::Break(()));
        };
        page.transferred(count)?;
        pages += 1;
        Ok(Step::Continue(()))
    })?;
    check_file(&page, pages, worker)
}

pub(super) fn truncate<T: Target>(
    parameters: &DirOps,
    target: &T,
    worker: &mut Worker<'_>,
) -> Result<()> {
    let page = Page::open(parameters.operation, target, worker)?;
    let data = page.data();
    for number in 0..parameters.pages {
        worker.check_stop()?;
        write_all_at(&page.file, &data, number * PAGE as u64).during("write", &page.path)?;
    }
    let mut pages = parameters.pages;
    repeat(worker, || {
        if pages == 0 {
            return Ok(Step::Break(()));
        }
        pages -= 1;
        let cut = page.file.set_len(pages * PAGE as u64);
        cut.during("truncate", &page.path)?;
        Ok(Step::Continue(()))
    })?;
    check_file(&page, pages, worker)
}

pub(super) fn overwrite<T: Target>(
    parameters: &DirOps,
    target: &T,
    worker: &mut Worker<'_>,
) -> Result<()> {
    let page = Page::open(parameters.operation, target, worker)?;
    let is_synced = parameters.operation == Operation::Dwsl;
    let data = page.data();
    write_all_at(&page.file, &data, page.offset).during("write", &page.path)?;
    again_and_again(&page, worker, || {
        let count = page.file.write_at(&data, page.offset);
        page.transferred(count.during("write", &page.path)?)?;
        if is_synced {
            page.file.sync_all().during("sync", &page.path)?;
        }
        Ok(())
    })
}

pub(super) fn read<T: Target>(
    parameters: &DirOps,
    target: &T,
    worker: &mut Worker<'_>,
) -> Result<()> {
    let page = Page::open(parameters.operation, target, worker)?;
    let mut data = page.data();
    if parameters.operation == Operation::Drbl {
        write_all_at(&page.file, &data, 0).during("write", &page.path)?;
    }
    again_and_again(&page, worker, || {
        let count = page.file.read_at(&mut data, page.offset);
        page.transferred(count.during("read", &page.path)?)
    })
}

/// The same with the same page, which is the worker's at the end, too.
#[inline]
fn again_and_again<F: File>(
    page: &Page<F>,
    worker: &mut Worker<'_>,
    mut operation: impl FnMut() -> Result<()>,
) -> Result<()> {
    repeat(worker, || {
        operation()?;
        Ok(Step::Continue(()))
    })?;
    match worker.verifies() {
        true => page.check(page.offset),
        false => Ok(()),
    }
}
