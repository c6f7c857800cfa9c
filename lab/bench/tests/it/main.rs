//! The command `finefs-bench`.

mod chromium;
mod mounted;
mod real_tools;
mod run;
mod run_shared_file;
mod sequential;
mod studies_page;
mod usage;
