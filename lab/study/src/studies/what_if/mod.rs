//! More cores than there are, by the model: against what was published, against what can be
//! measured here, and beyond.
//!
//! | Module | What |
//! |---|---|
//! | `load` | what is run |
//! | `prediction` | what the model makes of the runs |
//! | `tables` | the published numbers predicted, and more cores |
//! | `here` | predicted and measured on this machine |

mod here;
mod load;
mod prediction;
mod tables;

use super::Options;
use super::experiment::{Experiment, Results};
use super::place::Place;
use crate::page::Section;
use load::Load;
pub(in crate::studies) use prediction::{rehearse, rehearse_missing};

pub(super) fn experiments(options: &Options) -> Vec<Experiment> {
    if !is_possible(options) {
        return Vec::new();
    }
    let has_several = options.place.is_memory();
    Load::ALL
        .into_iter()
        .flat_map(|load| load.experiments(has_several))
        .collect()
}

fn paragraphs() -> Vec<String> {
    vec![
        "A closed queueing network, solved by exact mean value analysis (Reiser and Lavenberg, J. ACM \
         1980): threads are customers, each lock is a station, work outside of locks needs a CPU and nothing \
         else. Visits and hold times come from one thread's run with all acquisitions counted, less what the \
         meter itself shows for an empty hold and takes in all; the time of an operation from a run with the \
         meter at rest. That memory and caches are shared is measured apart, by programs that share nothing else, \
         and all times are taken longer by it."
            .to_owned(),
        "A lock that is waited for also has to change hands. A spinning lock's lines have to come from the CPU \
         that had the lock before; and it keeps all waiters' caches busy, half a line transfer more per further \
         waiter, by which throughput falls again (Boyd-Wickizer and others, \"Non-scalable locks are dangerous\", \
         Linux Symposium 2012). A sleeping one lies idle until its next holder has been woken, as long as the \
         convoy lasts (Blasgen and others, \"The Convoy Phenomenon\", 1979). What a hand-over takes is measured \
         in each round with the locks themselves, between two threads on different CPUs that take turns. Under a big \
         lock that spins nobody keeps turns: who gives it back and comes again soon has it before the others. So it \
         is tried alone by a thread on each CPU just after each run, held as long and as often as the load holds it, and a hand-over \
         costs what makes the model get through as much. With these costs the \
         network is solved by its normalizing constants (Buzen, CACM 1973), which keep their digits near saturation."
            .to_owned(),
        "More threads than CPUs: who spins keeps its CPU, so as many are in the network as there are CPUs; when a \
         holder's time slice ends, the lock stands still until the others of its CPU have spun in vain, as \
         often and as long as two threads on one CPU show. Who sleeps leaves the CPU to others, so all are in \
         the network, and work outside of locks is a station of as many servers as CPUs."
            .to_owned(),
        "Assumed: of what is written under a lock only the lock's own lines have to come from another CPU; programs \
         slow each other down on many cores as they do on this machine's; times vary as exponential ones; each \
         core takes a lock as often as the others; a thread waits for one lock at a time. The first two make \
         predictions too good, the third one slightly too bad."
            .to_owned(),
    ]
}

/// A directory has one way of locking, and mostly that of another process.
fn is_possible(options: &Options) -> bool {
    !matches!(options.place, Place::Directory(_))
}

pub(super) fn section(options: &Options, results: &Results) -> Section {
    let mut exhibits = vec![tables::against_2002()];
    if is_possible(options) {
        exhibits.extend(Load::ALL.map(|load| tables::beyond(results, load)));
        exhibits.push(here::against_here(results));
        exhibits.push(here::inputs(results));
    }
    let mut paragraphs = paragraphs();
    if !is_possible(options) {
        paragraphs.push(
            "More cores are not predicted here: the model is fed with a run of one thread under each locking \
             scheme, and a directory has the locks that it has."
                .to_owned(),
        );
    }
    Section {
        id: "what-if",
        title: "What if there were more cores".to_owned(),
        paragraphs,
        exhibits,
    }
}
