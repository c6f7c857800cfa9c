//! The store beside reiserfsck.

mod damaged;
mod damaged_writes;
mod external_journal;
mod full;
mod holes;
mod images;
mod names;
mod no_storage;
mod old_format;
mod support;
