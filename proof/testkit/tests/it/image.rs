//! A namespace over an image as the subject of random operations: reopened now and then, and the
//! checker of its format finds nothing each time.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::sized;
use finefs_namespace::Namespace;
use finefs_testkit::{Subject, check_seeds};
use tempfile::TempDir;

/// A format of images.
#[derive(Clone, Copy)]
pub struct Format {
    pub open: fn(&Path) -> Namespace,
    /// Why its checker is not content, if it is not.
    pub check: fn(&Path) -> Result<(), String>,
}

struct Image {
    _directory: TempDir,
    path: PathBuf,
    format: Format,
    /// `None` only between a shut-down and what follows.
    namespace: Option<Namespace>,
}

impl Image {
    fn new(format: Format, make: &dyn Fn(&Path)) -> Image {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        make(&path);
        Image {
            namespace: Some((format.open)(&path)),
            _directory: directory,
            path,
            format,
        }
    }
}

impl Subject for Image {
    fn namespace(&self) -> &Namespace {
        self.namespace.as_ref().unwrap()
    }

    fn reopen(&mut self) -> Result<bool, String> {
        let shut = self.namespace().shut_down();
        shut.map_err(|error| error.to_string())?;
        self.namespace = None;
        (self.format.check)(&self.path)?;
        self.namespace = Some((self.format.open)(&self.path));
        Ok(true)
    }
}

/// Seeds of each kind of image in a usual run.
const SEEDS: u64 = 3;

/// Runs the operations of the seeds, or of the first of them, on images that `make` makes.
pub fn check_images(format: Format, seeds: Range<u64>, make: &dyn Fn(&Path)) {
    let some = seeds.start..seeds.end.min(seeds.start + SEEDS);
    let seeds = sized(some, seeds);
    check_seeds(seeds, 400, &|| Box::new(Image::new(format, make)));
}
