//! In place of `local_log.rs` in a build without the feature `experimental-devices`: the mode is refused, and no file is
//! intercepted for it.

use crate::base::config::LOCAL_LOG_VARIABLE;
use crate::base::real::Errno;
use redoubt_types::needs_experimental;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The mode: this build does not have it.
pub enum LocalLog {}

/// A descriptor of a redo file: this build has none.
pub enum OpenRedo {}

/// `None`.
pub const fn active() -> Option<&'static LocalLog> {
    None
}

/// `None`.
pub const fn tracked(_: RawFd) -> Option<Arc<OpenRedo>> {
    None
}

/// Refuses the mode, whatever the variables are: a server that ran on without it would not have the durability that its
/// caller selected.
///
/// # Errors
/// The message, always.
pub fn activate(_: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), String> {
    Err(needs_experimental(&format!("the environment variable {LOCAL_LOG_VARIABLE}")))
}

/// No effect.
pub const fn forked() {}

/// Accepts every file.
///
/// # Errors
/// None.
pub const fn opened(_: RawFd, _: &[u8], _: i32) -> Result<(), Errno> {
    Ok(())
}

/// No effect.
pub const fn duplicated(_: RawFd, _: RawFd) {}

/// No effect.
pub const fn closing(_: RawFd) {}

/// False.
pub const fn refuses_map(_: RawFd, _: i32, _: i32) -> bool {
    false
}

/// Accepts every call.
///
/// # Errors
/// None.
pub fn refuse_asynchronous(_: impl Iterator<Item = RawFd>) -> Result<(), Errno> {
    Ok(())
}

impl OpenRedo {
    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn write(&self, _: RawFd, _: &[u8], _: Option<u64>) -> Result<usize, Errno> {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn sync(&self, _: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn change_size<T>(&self, _: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn build_without_the_mode_names_variable_and_package() {
        let error = super::activate(&|_| None).unwrap_err();
        assert!(error.contains("REDOUBT_LOCAL_LOG") && error.contains("redoubt-experimental"), "{error}");
    }
}
