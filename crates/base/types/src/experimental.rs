//! The message for device code that is in experimental builds only (cargo feature `experimental-devices`).

/// The Debian package whose programs and library have that code. Its command has the same name.
pub const EXPERIMENTAL_PACKAGE: &str = "redoubt-experimental";

/// The message of a build without that code. `what` is the option, variable or location that needs it.
///
/// ```
/// assert_eq!(
///     redoubt_types::needs_experimental("--local-log"),
///     "cannot use --local-log: this build has no experimental device code; install the package \
///      redoubt-experimental and use its command redoubt-experimental"
/// );
/// ```
pub fn needs_experimental(what: &str) -> String {
    format!(
        "cannot use {what}: this build has no experimental device code; install the package {EXPERIMENTAL_PACKAGE} \
         and use its command {EXPERIMENTAL_PACKAGE}"
    )
}
