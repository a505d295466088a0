//! `grastate.dat`, a file that people who know Galera look for: removed from a server that does not run, it has the
//! server get its state again.
//!
//! Nothing in it is read, and it is no part of what this member has to remember: that is in the store, which stays as it
//! is. It is written when the server has its data, and after it a mark that it was: without that mark the directory is of
//! a server that never wrote one, and nobody has removed anything.

use crate::replica::GroupId;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{MemberId, Membership};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

const FILE: &str = "grastate.dat";
const MARK: &str = "redoubt_group.saved.log";

/// Somebody has removed it.
pub(super) fn was_removed(directory: &Path) -> bool {
    directory.join(MARK).exists() && !directory.join(FILE).exists()
}

/// Writes it, as Galera does for a server that runs.
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

/// Whether a member is the only one by the records of its store: then nobody has a state for it.
///
/// # Errors
/// The first of a record.
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
