//! Making images.

use std::path::PathBuf;

use finefs_image::build::{Free, Options, Owner, Owners, Progress, Rules, Source};
use finefs_image::mkfs::{FsType, Options as FsOptions, Place};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::error;

fn fs_options(fs_type: &str, label: &str, seed: Option<String>) -> PyResult<FsOptions> {
    let fs_type: FsType = fs_type
        .parse()
        .map_err(|_| PyValueError::new_err("fs_type is ext2, ext3 or ext4"))?;
    Ok(FsOptions {
        fs_type,
        label: label.as_bytes().to_vec(),
        seed,
        ..FsOptions::default()
    })
}

/// Builds an image of directories, tar archives and container images, as `finefs build` does; what
/// was made, as its --json has it.
#[pyfunction]
#[pyo3(signature = (image, sources, *, size = None, free = 0, owner = None, root_owner = None,
    fs_type = "ext4", label = "", seed = None, force = false, jobs = 1))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn build(
    py: Python<'_>,
    image: PathBuf,
    sources: Vec<PathBuf>,
    size: Option<u64>,
    free: u64,
    owner: Option<(u32, u32)>,
    root_owner: Option<(u32, u32)>,
    fs_type: &str,
    label: &str,
    seed: Option<String>,
    force: bool,
    jobs: usize,
) -> PyResult<String> {
    let mut file_system = fs_options(fs_type, label, seed)?;
    file_system.reserved_percent = 0.0;
    let options = Options {
        file_system,
        is_repeatable: true,
        size_bytes: size,
        free: Free::Bytes(free),
        rules: Rules {
            owners: Owners {
                all: owner.map(Owner::from).unwrap_or_default(),
                root: root_owner.map(Owner::from).unwrap_or_default(),
                ..Owners::default()
            },
            ..Rules::default()
        },
        may_replace: force,
        jobs: jobs.clamp(1, 64),
    };
    let built = py.detach(|| {
        let sources = sources.iter().map(|path| Source::of(path));
        let sources = sources.collect::<finefs_image::Result<Vec<Source>>>()?;
        finefs_image::build::build(&image, &sources, &options, &Progress::default())
    });
    let built = built.map_err(|failed| error::of_workshop(&failed))?;
    serde_json::to_string(&built).map_err(|failed| PyValueError::new_err(failed.to_string()))
}

/// Makes an empty file system in a new, sparse file; what was made, as `finefs mkfs --json` has it.
#[pyfunction]
#[pyo3(signature = (image, size, *, fs_type = "ext4", label = "", seed = None))]
pub(crate) fn mkfs(
    py: Python<'_>,
    image: PathBuf,
    size: u64,
    fs_type: &str,
    label: &str,
    seed: Option<String>,
) -> PyResult<String> {
    let options = fs_options(fs_type, label, seed)?;
    if py.detach(|| image.symlink_metadata().is_ok()) {
        let args = (libc::EEXIST, "is there already", image);
        return Err(PyOSError::new_err(args));
    }
    let place = Place {
        path: image,
        size_bytes: Some(size),
        offset_bytes: 0,
        may_overwrite: false,
    };
    let made = py.detach(|| finefs_image::mkfs::make_at(&place, &options));
    let made = made.map_err(|failed| error::of_mkfs(&failed, &place.path))?;
    serde_json::to_string(&made).map_err(|failed| PyValueError::new_err(failed.to_string()))
}
