//! A state held for an export, compared with the model.

use crate::disk::Life;
use crate::facts::Facts;
use crate::history::{PAGES, Space, What};
use redoubt_node::volume::{Export, Volume};
use redoubt_node::{Kind, NodeError};
use redoubt_wire::control::EntryKind;
use std::sync::atomic::Ordering;

/// Why a held state is not as it should be.
pub(super) enum HeldError {
    NotRead(NodeError),
    Wrong(String),
}

impl From<NodeError> for HeldError {
    fn from(error: NodeError) -> Self {
        Self::NotRead(error)
    }
}

impl std::fmt::Display for HeldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotRead(error) => write!(f, "a held state cannot be read: {error}"),
            Self::Wrong(what) => what.fmt(f),
        }
    }
}

/// Something failed in this life of the node, or the disk is full.
pub(super) fn may_fail(life: &Life, error: &NodeError) -> bool {
    life.had_errors.load(Ordering::Acquire)
        || life.is_over.load(Ordering::Acquire)
        || error.kind() == Kind::Retry
        || matches!(error, NodeError::Stopped(_))
}

/// Every file of a held state is the model's at that point.
pub(super) fn check_held(volume: &Volume, held: &Export, facts: &Facts) -> Result<(), HeldError> {
    let at = held.point.seq.0;
    let names = facts.history().names_at(at);
    let wrong = |what: String| Err(HeldError::Wrong(what));
    for entry in &held.attachment.entries {
        let path = entry.path.as_str();
        let space: Option<Space> = match entry.kind {
            EntryKind::Plain => {
                let Some(expected) = names.plain.get(path) else {
                    return wrong(format!("{path} is held at {at}, where it is not there"));
                };
                let mut contents = vec![0; expected.len()];
                volume.read_export(held, path, 0, &mut contents, None)?;
                if entry.len_bytes != expected.len() as u64 || contents != *expected {
                    let first = contents.iter().zip(expected).position(|(ours, theirs)| ours != theirs);
                    return wrong(format!(
                        "{path} of the state held at {at} has {} bytes, not {}; first other byte {first:?}",
                        entry.len_bytes,
                        expected.len()
                    ));
                }
                continue;
            }
            EntryKind::Tablespace => match names.spaces.get(path) {
                Some(space) => *space,
                None => return wrong(format!("{path} is held at {at}, where it is not there")),
            },
            _ => continue,
        };
        let Some(space) = space else { continue };
        // The redo that ends it is in, the system call is not: its pages are void already, and a server that starts on
        // this state removes the file.
        if names.intent == Some(What::Unlink(path.to_owned())) {
            continue;
        }
        let page_len = facts.history().page_len();
        for page_no in 0..PAGES {
            let mut page = vec![0; page_len];
            let offset = u64::from(page_no) * page_len as u64;
            volume.read_export(held, path, offset, &mut page, None)?;
            let checked = facts.history().check_held(space, page_no, &page, at);
            checked.map_err(HeldError::Wrong)?;
        }
    }
    let held_files = held
        .attachment
        .entries
        .iter()
        .filter(|entry| matches!(entry.kind, EntryKind::Plain | EntryKind::Tablespace))
        .count();
    if held_files != names.plain.len() + names.spaces.len() {
        return wrong(format!("{held_files} files in the state held at {at}, not those of the model"));
    }
    Ok(())
}
