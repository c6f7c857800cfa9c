//! A handle that goes without the interpreter's lock: the last one of an image writes it out.

use std::ops::Deref;

use pyo3::prelude::*;

pub(crate) struct Detached<T: Send> {
    /// `None` only while it is dropped.
    handle: Option<T>,
}

impl<T: Send> Detached<T> {
    pub fn new(handle: T) -> Detached<T> {
        Detached {
            handle: Some(handle),
        }
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.handle.as_ref().expect("there until it is dropped")
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let handle = self.handle.take();
        // An interpreter that ends has no lock to give up: the closure is dropped with the handle.
        Python::try_attach(|py| py.detach(|| drop(handle)));
    }
}
