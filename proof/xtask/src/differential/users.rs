//! Acting as another user: this thread's own credentials, for one step. Root stays the saved user,
//! so that the thread comes back.

use super::operation::Who;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Number of the first user and its group.
pub const FIRST: u32 = 1000;
/// Number of the second user and its group, in which the first is, too.
pub const SECOND: u32 = 1001;

/// Runs `act` as `who`.
pub fn act_as<T>(who: Who, act: impl FnOnce() -> T) -> rustix::io::Result<T> {
    let (id, groups): (u32, &[u32]) = match who {
        Who::Root => return Ok(act()),
        Who::First => (FIRST, &[SECOND]),
        Who::Second => (SECOND, &[]),
    };
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, Gid::ROOT)?;
    set_thread_res_uid(uid, uid, Uid::ROOT)?;
    let outcome = act();
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_groups(&[])?;
    Ok(outcome)
}
