//! The five threads that finefs begins with, and their tables.

pub mod published;
