//! The sentence for a file of a format version that this program does not know. All stored formats use it, so that an
//! operator reads the same way out everywhere.

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
