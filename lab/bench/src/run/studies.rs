//! `finefs-bench studies`: the tables of five published threads, measured again, as text, JSON and
//! a page.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use finefs_study::page::Document;
use finefs_study::studies::{DeviceTimes, MEMORY_BYTES, Options, Place, Study, run};
use finefs_workloads::Watch;
use indicatif::{ProgressBar, ProgressStyle};

use super::mounted;
use super::numbers::{at_least_one, crew, positive, seconds};
use super::output_file::OutputFile;
use super::place::{Where, check_image, own_directory};
use super::signals;
use finefs_cli::output::print;
use finefs_cli::output::say;
use finefs_cli::{CliResult, Failure};

#[derive(Args)]
pub(crate) struct Studies {
    #[command(flatten)]
    at: Where,
    /// Seconds of each run
    #[arg(long, value_name = "S", default_value_t = 1.0, allow_negative_numbers = true,
          value_parser = seconds)]
    seconds: f64,
    /// Times that everything runs; the tables show medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one::<usize>)]
    rounds: usize,
    /// Threads of each load, instead of as many as were published
    #[arg(long, value_name = "N", value_parser = crew)]
    threads: Option<usize>,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Study>,
    /// Time that the modelled device of extent-locks takes for a request, µs; only in memory
    #[arg(long, value_name = "N", default_value_t = DeviceTimes::default().latency_us.round(),
          value_parser = positive)]
    device_us: f64,
    /// Requests a second that it does at most
    #[arg(long, value_name = "N", default_value_t = DeviceTimes::default().requests_per_s,
          value_parser = positive)]
    device_iops: f64,
    /// Write all numbers as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with tables and charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Studies {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        let stop = signals::catch()?;
        // Before minutes of work, not after them.
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutputFile::open).transpose();
        let (json, html) = (open(&self.json)?, open(&self.html)?);
        // It goes with all that is left in it.
        let own = self.at.dir.as_deref().map(own_directory).transpose()?;
        let place = match (&own, &self.at.image) {
            (Some(own), _) => Place::Directory(mounted::look_at(own.path())?),
            (None, Some(image)) => {
                check_image(image)?;
                say(format!("{} is modified", image.display()));
                Place::Image(image.clone())
            }
            (None, None) => Place::Memory(match &self.at.memory {
                Some(size) => size.bytes_in_memory()?,
                None => MEMORY_BYTES,
            }),
        };
        let options = Options {
            place,
            device: DeviceTimes {
                latency_us: self.device_us,
                requests_per_s: self.device_iops,
            },
            seconds: self.seconds,
            rounds: self.rounds,
            threads: self.threads,
            only: self.only,
        };
        let bar = bar();
        let progress = |share: f64| bar.set_position((share * f64::from(STEPS)) as u64);
        let watch = Watch {
            stop: &stop,
            progress: &progress,
            ..Watch::nobody()
        };
        let name = |name: &str| bar.set_message(name.to_owned());
        let outcome = run(&options, watch, &name);
        bar.finish_and_clear();
        let removed = own.map_or(Ok(()), tempfile::TempDir::close);
        let document = outcome.map_err(Failure::new)?;
        // Before anything was measured reports of earlier runs stay.
        if !(document.is_partial && document.is_empty) {
            write(&document, json, html)?;
        }
        removed.map_err(Failure::new)?;
        Ok(match document.is_partial {
            true => signals::exit_code(),
            false => ExitCode::SUCCESS,
        })
    }
}

fn write(document: &Document, json: Option<OutputFile>, html: Option<OutputFile>) -> CliResult<()> {
    // Minutes of work: each is tried, also where another fails.
    let json = json.map_or(Ok(()), |output| {
        let text = serde_json::to_string_pretty(document).map_err(Failure::new)?;
        output.write(&(text + "\n"))
    });
    let html = html.map_or(Ok(()), |output| output.write(&document.to_html()));
    let printed = print(&document.to_markdown());
    json.and(html).and(printed)
}

const STEPS: u32 = 10_000;

/// Drawn on a terminal only.
fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::from(STEPS));
    let template = "{bar:30} {percent:>3} % {elapsed} of about {duration}  {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
