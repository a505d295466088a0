//! Finding the groups of a ring after a crash.
//!
//! The scan begins at the durable tail and continues from group to group. It ends at a header that is damaged, names
//! another position, or has an epoch below that of the previous group (for the first group, the superblock's floor).
//! A block that the drive has lost counts as damaged.
//! Groups that the last group does not record as durable are checked image by image, and the first group with a wrong
//! image ends the ring.
//!
//! A header that the disk lost looks like the end of the ring. But any group that was written after the lost one was
//! durable records this. If such a group stands within reach after the end, the ring is damaged, and opening fails.

use super::contents::Contents;
use super::format::{self, BLOCK, Group, Header};
use super::superblock::Superblock;
use super::{JOURNAL_NAME, MAX_GROUP_IMAGES, RingReader};
use crate::error::PageStoreError;

/// How far after the end of the ring the group after a damaged one begins at most.
const REACH: u64 = MAX_GROUP_IMAGES + 2 * BLOCK as u64;

/// Result of a scan.
pub(super) struct Found {
    pub contents: Contents,
    pub head: u64,
    /// Greatest epoch of a group.
    pub epoch: u64,
}

/// Reads the ring from the tail on.
pub(super) fn scan(reader: &RingReader, superblock: &Superblock) -> Result<Found, PageStoreError> {
    let mut groups: Vec<(Header, Group)> = Vec::new();
    let mut head = superblock.tail;
    let mut block = vec![0; BLOCK];
    while head - superblock.tail + BLOCK as u64 <= reader.len_bytes {
        reader.read_blocks(head, &mut block)?;
        let Some((header, group)) = format::decode(&block) else { break };
        let epoch = groups.last().map_or(superblock.epoch_floor, |(last, _)| last.epoch);
        let is_next = header.identity == superblock.identity && header.at == head && header.epoch >= epoch;
        if !is_next || group.end - superblock.tail > reader.len_bytes {
            break;
        }
        head = group.end;
        groups.push((header, group));
    }
    let epoch = groups.last().map_or(0, |(last, _)| last.epoch);
    let checked_from = groups.last().map_or(head, |(last, _)| last.synced_until);
    let mut contents = Contents::default();
    let mut is_cut = false;
    for (_, group) in groups {
        if group.at >= checked_from && !images_are_whole(reader, &group)? {
            head = group.at;
            is_cut = true;
            break;
        }
        contents.push(group);
    }
    if !is_cut {
        check_for_damage(reader, superblock, head)?;
    }
    Ok(Found { contents, head, epoch })
}

fn images_are_whole(reader: &RingReader, group: &Group) -> Result<bool, PageStoreError> {
    #[cfg(test)]
    if crate::file::planted::is_planted(crate::file::planted::Bug::ImagesNotChecked) {
        return Ok(true);
    }
    let mut images = vec![0; (group.end - group.at) as usize - BLOCK];
    reader.read_blocks(group.at + BLOCK as u64, &mut images)?;
    let mut rest = &images[..];
    for (_, entry) in group.entries() {
        let Some((image, after)) = rest.split_at_checked(entry.len as usize) else { return Ok(false) };
        if entry.len > 0 && crc32c::crc32c(image) != entry.crc {
            return Ok(false);
        }
        rest = after;
    }
    Ok(true)
}

/// Fails if a group after the end was written when the end was durable and further on.
fn check_for_damage(reader: &RingReader, superblock: &Superblock, end: u64) -> Result<(), PageStoreError> {
    let reach = REACH.min(reader.len_bytes);
    let mut after = vec![0; reach as usize];
    reader.read_blocks(end, &mut after)?;
    for (block, at) in after.chunks_exact(BLOCK).zip((end..).step_by(BLOCK)) {
        let Some((header, _)) = format::decode(block) else { continue };
        let is_ours = header.identity == superblock.identity
            && header.at >= end
            && header.at % reader.len_bytes == at % reader.len_bytes;
        if is_ours && header.synced_until > end {
            let reason = format!(
                "the entry at byte {} is damaged, and with it pages that were durable; check the disk, and \
                 restore the directory from a copy",
                reader.physical(end).0
            );
            return Err(PageStoreError::BadFile { file: JOURNAL_NAME.into(), reason });
        }
    }
    Ok(())
}
