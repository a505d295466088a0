//! `grastate.dat`, a file that Galera users look for. If it is removed while the server is stopped, the next start
//! requests a state transfer.
//!
//! Its content is never read, and it is no part of the member's durable state: that is in the store, which stays as it
//! is. The file is written when the server has its data, followed by a mark. Without the mark the server has never
//! written the file, so its absence means nothing.

use crate::replica::GroupId;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{MemberId, Membership};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

const FILE: &str = "grastate.dat";
const MARK: &str = "redoubt_group.saved.log";

/// Whether the file was removed.
pub(super) fn was_removed(directory: &Path) -> bool {
    directory.join(MARK).exists() && !directory.join(FILE).exists()
}

/// Writes the file as Galera does for a running server.
pub(super) fn write(directory: &Path, group: GroupId) -> io::Result<()> {
    let text =
        format!("# GALERA saved state\nversion: 2.1\nuuid:    {group}\nseqno:   -1\nsafe_to_bootstrap: 0\n");
    let sync = || File::open(directory)?.sync_all();
    if !std::fs::read(directory.join(FILE)).is_ok_and(|found| found == text.as_bytes()) {
        let mut file = File::create(directory.join(FILE))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        sync()?;
    }
    if !directory.join(MARK).exists() {
        File::create(directory.join(MARK))?;
        sync()?;
    }
    Ok(())
}

/// Whether the records of the store have this member as the only one: then no other member has a state for it.
///
/// # Errors
/// The first error of a record.
pub(super) fn is_only_member<E>(
    records: impl Iterator<Item = Result<Record, E>>,
    member: MemberId,
) -> Result<bool, E> {
    let mut is_only = false;
    for record in records {
        let membership = match record? {
            Record::Adopted { start, .. } => start.membership.clone(),
            Record::Snapshot(snapshot) => snapshot.epoch.membership.clone(),
            _ => continue,
        };
        is_only = membership == Membership::new([member]);
    }
    Ok(is_only)
}

#[cfg(test)]
mod tests;
