//! Programs for the thread sanitizer (`xtask prove tsan`), in `tests`. They stand in a package of
//! their own because cargo builds all that the tests of a package may need: those of the namespace
//! need the stores on disk, too.
