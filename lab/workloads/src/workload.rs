//! What a workload is: [`Workload`], and what it counts.

use crate::error::Result;
use crate::plan::{Crew, Length, Plan, Watch};
use crate::report::Report;
use crate::targets::Target;
use crate::worker::Worker;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A workload with its parameters, which travel to worker processes as JSON.
///
/// A run is: [`Workload::prepare`] once; [`Workload::work`] by every worker at the same time;
/// [`Workload::clean_up`] once. In a run by processes, the first and the last happen in the parent,
/// so nothing but the parameters and what is on the target passes between them.
pub trait Workload: Clone + Send + Sync + Serialize + DeserializeOwned {
    /// Its name on the command line.
    const NAME: &'static str;

    /// How many workers there are if nothing else is said.
    const THREADS: usize = 1;

    /// What workers count besides operations.
    type Detail: Detail;

    /// What an operation is, in the plural.
    fn operations(&self) -> &'static str;

    /// How long it runs if nothing else is said.
    fn usual_length(&self) -> Length {
        Length::Seconds(10.0)
    }

    /// Whether the parameters make sense for this plan.
    fn check(&self, plan: &Plan) -> Result<()> {
        let _ = plan;
        Ok(())
    }

    /// Makes what the workers share. Whatever takes long looks now and then at
    /// [`Watch::check_stop`].
    fn prepare<T: Target>(&self, target: &T, plan: &Plan, watch: Watch<'_>) -> Result<()> {
        let _ = (target, plan, watch);
        Ok(())
    }

    /// One worker's part: makes what it needs for itself, then [`Worker::start`], then operations
    /// as long as [`Worker::goes_on`], each with [`Worker::done`]; then it checks and removes what
    /// it made.
    fn work<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<Self::Detail>;

    /// What is to be done when all workers have made what they need, before they start.
    fn settle<T: Target>(&self, target: &T) -> Result<()> {
        let _ = target;
        Ok(())
    }

    /// Removes all that is left, also after a failure.
    fn clean_up<T: Target>(&self, target: &T, crew: Crew) -> Result<()>;

    /// What a user raises who wants a run that [`Worker::end_all`] ended to go on for longer.
    fn what_to_raise(&self) -> &'static str {
        "the numbers of the workload"
    }

    /// The report as text.
    fn describe(&self, report: &Report<Self>) -> String {
        report.line()
    }
}

/// What workers of a workload count besides operations.
pub trait Detail: Default + Send + std::fmt::Debug + Serialize + DeserializeOwned {
    /// Adds what another worker counted.
    fn add(&mut self, other: Self);
}

/// Nothing.
impl Detail for () {
    fn add(&mut self, (): ()) {}
}
