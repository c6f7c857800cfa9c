//! `finefs tar`

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Component, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::{ArgGroup, Args};
use finefs_image::archive::{self, Input, Progress};
use finefs_image::{Address, Operand, Packing};
use indicatif::ProgressStyle;

use super::session::Session;
use super::{Where, copying};
use crate::progress::{self, Companion};
use crate::{CliResult, Failure, output};

/// Write files of an image as a tar archive, as tar(1); finefs build makes images of archives
///
/// The archive has all that the image knows: owners as numbers, times with nanoseconds, hard links,
/// holes, device nodes, extended attributes and ACLs; tar --xattrs --xattrs-include='*' --acls
/// --numeric-owner restores it. Names are those in the image, without the first slash.
#[derive(Args)]
#[command(group = ArgGroup::new("operation").required(true))]
pub(crate) struct Tar {
    /// Write an archive
    #[arg(short, long, group = "operation")]
    create: bool,
    /// IMAGE:/PATH; IMAGE is all of it
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    operands: Vec<OsString>,
    /// The archive; - or none for standard output
    #[arg(short, long, value_name = "ARCHIVE")]
    file: Option<PathBuf>,
    /// Compress by gzip
    #[arg(short = 'z', long, group = "packing")]
    gzip: bool,
    /// Compress by xz
    #[arg(short = 'J', long, group = "packing")]
    xz: bool,
    /// Compress by zstd
    #[arg(long, group = "packing")]
    zstd: bool,
    /// Compress as the archive's name says
    #[arg(short, long, group = "packing", requires = "file")]
    auto_compress: bool,
    #[command(flatten)]
    place: Where,
}

impl Tar {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        let mut session = Session::new("finefs tar", &self.place);
        let packing = match &self.file {
            _ if self.gzip => Packing::Gzip,
            _ if self.xz => Packing::Xz,
            _ if self.zstd => Packing::Zstd,
            Some(file) if self.auto_compress => Packing::of_name(file.as_os_str()),
            _ => Packing::None,
        };
        let mut inputs = Vec::new();
        for operand in &self.operands {
            let address = Address::of_image(operand);
            let path = address.path.components();
            let path = path.filter(|part| matches!(part, Component::Normal(_)));
            let path = path.collect();
            let input = session.images.source_of(&Operand::Image(address));
            let (dir, name) = input.map_err(Failure::new)?;
            inputs.push(Input { dir, name, path });
        }
        let progress = Arc::new(Progress {
            stop: copying::watch_signals()?,
            ..Progress::default()
        });
        let file = self.file.filter(|file| file.as_os_str() != "-");
        let written = match &file {
            Some(file) => {
                let _bar = bar(&progress);
                archive::write_file(file, &inputs, packing, &progress)
            }
            None => {
                let mut output = std::io::stdout().lock();
                if output.is_terminal() {
                    let line = "an archive is not for a terminal; name a file with -f";
                    return Err(Failure::new(line));
                }
                archive::write(&mut output, "standard output", &inputs, packing, &progress)
            }
        };
        drop(inputs);
        match written {
            // What archives cannot hold does not fail tar(1) either.
            Ok(left_out) => left_out.iter().for_each(output::say),
            Err(error) if progress.stop.load(Ordering::Relaxed) => {
                session.fail_with(copying::INTERRUPTED, error);
            }
            // Who reads it may go at any time, and knows that it is not whole.
            Err(error) if error.errno() == Some(libc::EPIPE) => session.fail_silently(),
            Err(error) => session.fail(error),
        }
        session.end()
    }
}

/// Shows how far it is.
fn bar(progress: &Arc<Progress>) -> Option<Companion> {
    let progress = Arc::clone(progress);
    progress::bar(move |bar| {
        if let Ok(style) = ProgressStyle::with_template("{msg} files, {bytes}, {bytes_per_sec}") {
            bar.set_style(style);
        }
        bar.set_message(progress.files.load(Ordering::Relaxed).to_string());
        bar.set_position(progress.bytes.load(Ordering::Relaxed));
    })
}
