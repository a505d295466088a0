//! The messages for a file of a format version that this program does not read. All stored formats use them, so that
//! an operator finds the same way out everywhere.

/// Says that `found` is not known, up to which version this program knows the format, and what to do.
pub fn unknown_version(found: u64, known: u32) -> String {
    if found > u64::from(known) {
        return format!(
            "its format has version {found}, and this program knows versions up to {known}: it was written by a newer \
             Redoubt; use that version or a later one (to go back, export the volume with it and import the export)"
        );
    }
    format!(
        "its format has version {found}, which no Redoubt ever wrote (versions up to {known} are known): it is damaged; \
         restore it from a copy"
    )
}

/// The message for format version `found`, which only builds before 0.1.0 wrote. Redoubt 0.1.0 still reads it.
pub fn version_before_0_1_0(found: u32, known: u32) -> String {
    format!(
        "its format has version {found}, and this program knows version {known}: it was written by a build before Redoubt \
         0.1.0; export the volume with that build or with Redoubt 0.1.0, and import the export here"
    )
}
