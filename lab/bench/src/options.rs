//! What several of the programs here are told: which finefs, and where images are made.

use anyhow::Result;
use finefs_harness::cleanup::Scratch;
use finefs_harness::server::{Kind, Server};
use std::path::PathBuf;

/// The finefs that is measured.
#[derive(clap::Args, Debug)]
pub struct Binary {
    /// The finefs binary, where it is not target/release/finefs
    #[arg(long)]
    finefs: Option<PathBuf>,
}

impl Binary {
    /// The server of a kind; this binary, where that is finefs.
    pub fn server(&self, kind: Kind) -> Result<Server> {
        Server::new(kind, self.finefs.as_deref())
    }
}

/// Where images are made.
#[derive(clap::Args, Debug)]
pub struct ImageDir {
    /// Where images are made
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl ImageDir {
    /// A directory for them, which goes with what is in it.
    pub fn scratch(&self) -> Result<Scratch> {
        Scratch::new_in(&self.dir.clone().unwrap_or_else(std::env::temp_dir))
    }
}
