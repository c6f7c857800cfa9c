//! Tests of the mutations: against a model in memory, and on images that reiserfsck judges.

mod check;
mod damage;
mod image;
mod memory;
mod model;
mod random;
