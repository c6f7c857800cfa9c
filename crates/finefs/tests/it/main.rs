//! The library as programs use it.

mod access_time;
mod differential;
mod image;
mod nbd;
mod nearly_full;
mod set_id;
mod threads;
