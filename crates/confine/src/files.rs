//! What may be opened: a Landlock ruleset.
//!
//! All rights that this kernel's Landlock knows are taken away, those to TCP ports too, and given
//! back for what is needed.
//! What an older one does not know (truncate(2) before 6.2, TCP before 6.7, ioctl(2) on devices
//! before 6.10) is left to `calls`.

use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    path_beneath_rules,
};

use crate::Needs;

/// The newest whose rights are known here; older kernels have fewer.
const KNOWN: ABI = ABI::V5;

/// The ruleset; `None` where the kernel has no Landlock.
pub(crate) fn ruleset(needs: &Needs) -> Result<Option<OwnedFd>, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let writable =
        read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    let mut handled = Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?;
    if !needs.is_networked {
        handled = handled.handle_access(AccessNet::from_all(KNOWN))?;
    }
    let created = handled
        .create()?
        // What is not there is not opened either.
        .add_rules(path_beneath_rules(&needs.readable, read))?
        .add_rules(path_beneath_rules(&needs.devices, device))?
        .add_rules(path_beneath_rules(&needs.writable, writable))?;
    Ok(created.into())
}
