//! Bugs that tests plant, to see that they would be found.

use std::cell::Cell;

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// Room in the ring is given free before the files are synced.
    TailBeforeHome,
    /// Recovery takes a group whose images it did not check.
    ImagesNotChecked,
    /// No forget record is written.
    NothingForgotten,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

pub(super) fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

pub(super) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
