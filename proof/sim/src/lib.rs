//! Devices for tests: one that keeps a record of what was written when, and what a crash at any
//! moment of that record could leave; one that fails on request; a server of network block devices.
//!
//! | Module | Thing |
//! |---|---|
//! | [`image`] | the bytes of a device, cheap to copy and to compare; a device over them |
//! | [`record`] | a device that records every request that changes it |
//! | [`crash`] | the states that a crash can leave, built from a record |
//! | [`fault`] | a device that fails the n-th request |
//! | [`loop_device`] | a file as a block device |
//! | [`nbd`] | a device as an NBD server's export |
//! | [`mod@unmount`] | unmounting beside other tests |

pub mod crash;
pub mod fault;
pub mod image;
pub mod loop_device;
pub mod nbd;
pub mod record;
pub mod unmount;

pub use crash::{Choice, Epoch, Limits, Part};
pub use fault::{Fault, FaultDevice, FaultOn};
pub use image::{Image, ImageDevice};
pub use loop_device::LoopDevice;
pub use record::{Recorded, RecordingDevice, RecordingPart, Request};
pub use unmount::unmount;
