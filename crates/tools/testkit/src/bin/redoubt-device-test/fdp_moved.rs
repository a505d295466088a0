//! Which reclaim unit handles received what was written between two states of a drive.
//!
//! A handle's state contains only the remaining space of its current reclaim unit. It is of no use once a unit was
//! filled and the next one begun. So three counts must agree: the bytes that the handles of a namespace received, the
//! bytes that the kernel wrote to its block device, and the bytes that the drive received for the whole endurance
//! group. They differ if a unit was filled in between, if a namespace was left out, or if two namespaces share a
//! handle.

use std::fmt;

use super::fdp::{GroupState, HandleUsage, NamespaceState};

/// Bytes that one reclaim unit handle received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The reclaim unit handle.
    pub handle: u16,
    /// The namespace's block device.
    pub device: String,
    /// The namespace's name for the handle.
    pub placement_id: u16,
    /// Bytes received.
    pub bytes: u64,
}

impl fmt::Display for Moved {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handle, device, placement_id, bytes } = self;
        write!(out, "handle {handle} ({device}, placement identifier {placement_id}) received {bytes} bytes")
    }
}

/// A handle that must have received at least so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtLeast {
    /// The reclaim unit handle.
    pub handle: u16,
    /// The bytes, more than none.
    pub bytes: u64,
}

impl std::str::FromStr for AtLeast {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('=').and_then(|(handle, bytes)| {
            Some(Self { handle: handle.parse().ok()?, bytes: bytes.parse().ok().filter(|bytes| *bytes > 0)? })
        });
        parsed.ok_or_else(|| format!("{text:?} is not HANDLE=BYTES with at least one byte"))
    }
}

/// Computes the bytes that each handle received between two states.
///
/// # Errors
/// A text that says which counts do not agree.
pub fn moved(before: &GroupState, after: &GroupState) -> Result<Vec<Moved>, String> {
    if before.endurance_group != after.endurance_group || before.namespaces.len() != after.namespaces.len() {
        return Err("the two states are not of the same namespaces".into());
    }
    let mut moved: Vec<Moved> = Vec::new();
    for (before, after) in before.namespaces.iter().zip(&after.namespaces) {
        for one in moved_in_namespace(before, after)? {
            if let Some(other) = moved.iter().find(|other| other.handle == one.handle) {
                return Err(format!("{} and {} share handle {}", other.device, one.device, one.handle));
            }
            moved.push(one);
        }
    }
    for one in &moved {
        match after.handle_usage.get(usize::from(one.handle)) {
            Some(HandleUsage::HostSpecified | HandleUsage::ControllerSpecified) => {}
            other => return Err(format!("handle {} has the usage {other:?} in the usage log", one.handle)),
        }
    }
    let total: u64 = moved.iter().map(|one| one.bytes).sum();
    let by_drive = difference(
        "host bytes written",
        before.statistics.host_bytes_written,
        after.statistics.host_bytes_written,
    )?;
    if total != by_drive {
        return Err(format!("the handles received {total} bytes, the drive counts {by_drive} from hosts"));
    }
    Ok(moved)
}

fn moved_in_namespace(before: &NamespaceState, after: &NamespaceState) -> Result<Vec<Moved>, String> {
    let device = &after.device;
    if before.device != after.device
        || before.nsid != after.nsid
        || before.placement_handles.len() != after.placement_handles.len()
    {
        return Err("the two states are not of the same namespaces".into());
    }
    let mut moved = Vec::new();
    for (before, after_handle) in before.placement_handles.iter().zip(&after.placement_handles) {
        if (before.placement_id, before.handle) != (after_handle.placement_id, after_handle.handle) {
            return Err(format!("{device}: the placement handles are not the same"));
        }
        let blocks = before.available_blocks.checked_sub(after_handle.available_blocks).ok_or_else(|| {
            format!("{device}: handle {} began another reclaim unit in between", before.handle)
        })?;
        moved.push(Moved {
            handle: before.handle,
            device: device.clone(),
            placement_id: before.placement_id,
            bytes: blocks.saturating_mul(after.block_len_bytes),
        });
    }
    let by_handles: u64 = moved.iter().map(|one| one.bytes).sum();
    let by_kernel = difference("bytes written", before.kernel_bytes_written, after.kernel_bytes_written)?;
    if by_handles != by_kernel {
        return Err(format!(
            "{device}: its handles received {by_handles} bytes, the kernel counts {by_kernel}"
        ));
    }
    Ok(moved)
}

fn difference(what: &str, before: u64, after: u64) -> Result<u64, String> {
    after.checked_sub(before).ok_or_else(|| format!("{what}: {before} before, {after} after"))
}

/// Checks that each handle named received enough, and every other handle nothing.
///
/// # Errors
/// A text that says which handle did not.
pub fn check(moved: &[Moved], expected: &[AtLeast]) -> Result<(), String> {
    for one in expected {
        if !moved.iter().any(|moved| moved.handle == one.handle) {
            return Err(format!("handle {} belongs to none of the namespaces", one.handle));
        }
    }
    for one in moved {
        let needed = expected.iter().find(|expected| expected.handle == one.handle);
        match needed {
            Some(needed) if one.bytes < needed.bytes => {
                return Err(format!(
                    "handle {} received {} bytes, at least {} were expected",
                    one.handle, one.bytes, needed.bytes
                ));
            }
            None if one.bytes > 0 => {
                return Err(format!(
                    "handle {} received {} bytes, none were expected",
                    one.handle, one.bytes
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "fdp_moved_tests.rs"]
mod tests;
