//! Keys of encrypted files, which are given as files.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use finefs::MasterKey;

use crate::{CliResult, Failure, logger};

/// Reads the key that a file holds.
pub(crate) fn read(path: &Path) -> CliResult<MasterKey> {
    let key = MasterKey::from_file(path);
    key.map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Where keys were given, it is told which are missing.
pub(crate) fn tell_of(keys: &[MasterKey]) {
    if !keys.is_empty() {
        logger::start(false);
    }
}

/// Takes the name of a file for the key that it holds.
pub(crate) fn parser() -> impl TypedValueParser<Value = MasterKey> {
    PathBufValueParser::new().try_map(|path: PathBuf| MasterKey::from_file(&path))
}
