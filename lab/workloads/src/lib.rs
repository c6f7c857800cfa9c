//! Workloads that file systems are measured with, each on a finefs file system in process or on any
//! directory, by threads or processes.
//!
//! # Example
//! ```
//! use finefs_workloads::{Crew, HostDirectory, Length, OpenSpeed, Plan, Watch, run};
//!
//! let dir = tempfile::tempdir()?;
//! let plan = Plan::new(Crew::Threads(2), Length::Operations(1000));
//! let report = run(&OpenSpeed::default(), &HostDirectory::open(dir.path())?, &plan, Watch::nobody())?;
//! assert_eq!(report.operations, 2000);
//! println!("{}", report.text());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it is about |
//! |---|---|
//! | [`targets`] | the file system under test |
//! | `workload` | what a workload is |
//! | `plan` | by whom and how long it is run |
//! | [`affinity`] | which CPUs threads may use |
//! | `worker` | one of those who work, and how they start and end together |
//! | `threads`, `processes` | crews |
//! | `run` | the way in |
//! | `report` | what a run found |
//! | `clock`, `timing` | times of a run; times of operations |
//! | `error` | why a workload fails |
//! | `room` | whether what is to be made fits |
//! | [`postmark`] | a mail server's many small files |
//! | [`dirops`] | one operation again and again, in private or shared places |
//! | [`dbench`] | what clients of a file server did, replayed |
//! | [`randrw`], [`append`] | one file, read and written or appended to by many |
//! | [`posix_lock`] | locks on byte ranges |
//! | [`file_list`] | how local the list of open files is |
//! | [`openspeed`] | opening and closing files that all use |

pub mod affinity;
pub mod append;
mod clock;
pub mod dbench;
pub mod dirops;
mod error;
pub mod file_list;
pub mod openspeed;
mod plan;
pub mod posix_lock;
pub mod postmark;
mod processes;
pub mod randrw;
mod report;
mod room;
mod run;
pub mod targets;
mod threads;
mod timing;
mod worker;
mod workload;

pub use append::Append;
pub use clock::{Span, now_ns};
pub use dbench::Dbench;
pub use dirops::DirOps;
pub use error::{During, Result, WorkloadError};
pub use file_list::FileList;
pub use openspeed::OpenSpeed;
pub use plan::{Crew, Length, Plan, Watch};
pub use posix_lock::{LockForm, PosixLock};
pub use postmark::PostMark;
pub use randrw::RandRw;
pub use report::{Latencies, Report, rate};
pub use run::{run, run_on_host, serve};
pub use targets::{HostDirectory, InProcess, Nothing, Target};
pub use worker::Worker;
pub use workload::{Detail, Workload};
