//! Experimental device code: whether this build has it, and the refusal of options that need it.

use crate::error::ClientError;
use redoubt_types::needs_experimental;

/// Whether this build has raw block devices and logs on persistent memory.
pub const IS_BUILT_IN: bool = cfg!(feature = "experimental-devices");

/// The error for an option, a sub-command or a location that needs that code in a build without it.
pub fn refused(what: &str) -> ClientError {
    ClientError::NotBuiltIn(needs_experimental(what))
}

#[cfg(test)]
mod tests {
    #[test]
    fn refusal_names_option_and_package() {
        let error = super::refused("--local-log");
        assert!(matches!(error, super::ClientError::NotBuiltIn(_)));
        let error = error.to_string();
        assert!(error.contains("--local-log") && error.contains("package redoubt-experimental"), "{error}");
    }
}
