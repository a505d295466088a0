//! The state of a drive with Flexible Data Placement: where its writes went.
//!
//! A drive with FDP keeps data of different *reclaim unit handles* in different reclaim units (erase blocks, more or
//! less). A namespace has a list of *placement handles*, each of which is one reclaim unit handle of its endurance
//! group. A write names an entry of that list (a write stream less one). Without a name it goes to the first entry.
//! Sources, all little-endian:
//!
//! | source | bytes | fields used |
//! |---|---|---|
//! | Identify Namespace | 4096 | 26 LBA format; 102 endurance group (16 bits); 128 + 4 n: LBA format n, whose byte 2 is the exponent of the block length |
//! | feature 0x1d | 32 bits | bit 0: on; bits 8 to 15: active configuration |
//! | log page 0x20, configurations | 16, then per configuration 64 and more | 0 configurations less one; in one: 0 length, 4 reclaim groups, 8 handles, 16 reclaim unit length in bytes (64 bits) |
//! | log page 0x21, handle usage | 8, then 8 per handle | 0 handles; in one: byte 0, lowest three bits: how it came into use |
//! | log page 0x22, statistics | 64 | 0, 16, 32: host bytes written, media bytes written, media bytes erased (128 bits) |
//! | handle status (I/O management receive) | 16, then 32 per placement handle | 14 number; in one: 0 placement identifier, 2 reclaim unit handle, 8 blocks that can still be written to the reclaim unit (64 bits) |

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::nvme::{Namespace, NvmeError};

const LOG_CONFIGURATIONS: u8 = 0x20;
const LOG_HANDLE_USAGE: u8 = 0x21;
const LOG_STATISTICS: u8 = 0x22;
/// Asked of logs whose length depends on the drive.
const LOG_LEN_BYTES: usize = 2048;
const STATISTICS_LEN_BYTES: usize = 64;

/// Why the state of a drive could not be read.
#[derive(thiserror::Error, Debug)]
pub enum FdpError {
    /// A command failed.
    #[error(transparent)]
    Nvme(#[from] NvmeError),
    /// The drive's answer ends before what it must contain.
    #[error("{what}: the answer has {len_bytes} bytes, byte {at} is needed")]
    TooShort {
        /// Which answer.
        what: &'static str,
        /// Its length.
        len_bytes: usize,
        /// A byte that is not in it.
        at: usize,
    },
    /// The drive's answer contains what cannot be.
    #[error("{what}: {problem}")]
    Wrong {
        /// Which answer.
        what: &'static str,
        /// The invalid value.
        problem: String,
    },
}

/// The statistics of an endurance group since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Statistics {
    /// Bytes that hosts wrote.
    pub host_bytes_written: u64,
    /// Bytes that the drive wrote to its media, for the host and for itself.
    pub media_bytes_written: u64,
    /// Bytes erased.
    pub media_bytes_erased: u64,
}

/// How a reclaim unit handle came into use.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum HandleUsage {
    /// No namespace has it.
    Unused,
    /// Named when a namespace was made.
    HostSpecified,
    /// Chosen by the drive.
    ControllerSpecified,
}

/// The active configuration of an endurance group, as far as needed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Configuration {
    /// Reclaim groups.
    pub reclaim_groups: u32,
    /// Reclaim unit handles.
    pub handles: u16,
    /// Nominal length of a reclaim unit.
    pub reclaim_unit_len_bytes: u64,
}

/// One placement handle of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct PlacementHandle {
    /// The identifier in a write, the write stream less one.
    pub placement_id: u16,
    /// The reclaim unit handle behind it.
    pub handle: u16,
    /// Logical blocks that can still be written to its current reclaim unit.
    pub available_blocks: u64,
}

/// A namespace at one instant.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct NamespaceState {
    /// The block device's name, as in `/sys/class/block`.
    pub device: String,
    /// The namespace's number.
    pub nsid: u32,
    /// Length of a logical block.
    pub block_len_bytes: u64,
    /// Bytes written to the block device, as counted by the kernel.
    pub kernel_bytes_written: u64,
    /// Its placement handles.
    pub placement_handles: Vec<PlacementHandle>,
}

/// An endurance group at one instant.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct GroupState {
    /// The group's number.
    pub endurance_group: u16,
    /// Its configuration.
    pub configuration: Configuration,
    /// Its statistics.
    pub statistics: Statistics,
    /// Per reclaim unit handle.
    pub handle_usage: Vec<HandleUsage>,
    /// The namespaces asked about.
    pub namespaces: Vec<NamespaceState>,
}

impl GroupState {
    /// Asks a drive about namespaces of one endurance group.
    ///
    /// # Errors
    /// [`FdpError`], also if the namespaces are of several groups, or of none.
    pub fn read(devices: &[impl AsRef<Path>]) -> Result<Self, FdpError> {
        let mut group = None;
        let mut namespaces = Vec::new();
        let mut first = None;
        for device in devices {
            let namespace = Namespace::open(device.as_ref())?;
            let identity = namespace.identify()?;
            let of_this = endurance_group(&identity)?;
            if of_this == 0 {
                return Err(FdpError::Wrong {
                    what: "Identify Namespace",
                    problem: format!(
                        "{} is in no endurance group: it has no FDP",
                        namespace.path().display()
                    ),
                });
            }
            if *group.get_or_insert(of_this) != of_this {
                return Err(FdpError::Wrong {
                    what: "Identify Namespace",
                    problem: format!("endurance groups {group:?} and {of_this}: ask about one at a time"),
                });
            }
            namespaces.push(NamespaceState::read(&namespace, &identity)?);
            first.get_or_insert(namespace);
        }
        let (Some(group), Some(any)) = (group, first) else {
            return Err(FdpError::Wrong { what: "command", problem: "no device is named".into() });
        };
        let active = active_configuration(any.fdp_feature(group)?).ok_or_else(|| FdpError::Wrong {
            what: "feature FDP",
            problem: format!("it is off in endurance group {group}"),
        })?;
        Ok(Self {
            endurance_group: group,
            configuration: configuration(&any.log_page(LOG_CONFIGURATIONS, group, LOG_LEN_BYTES)?, active)?,
            handle_usage: handle_usage(&any.log_page(LOG_HANDLE_USAGE, group, LOG_LEN_BYTES)?)?,
            // Last, so that it includes everything that the handles' states include.
            statistics: statistics(&any.log_page(LOG_STATISTICS, group, STATISTICS_LEN_BYTES)?)?,
            namespaces,
        })
    }
}

impl NamespaceState {
    fn read(namespace: &Namespace, identity: &[u8]) -> Result<Self, FdpError> {
        let device = namespace.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let counters = Path::new("/sys/class/block").join(&device).join("stat");
        let wrong = |problem: String| FdpError::Wrong { what: "the kernel's counters", problem };
        let text = std::fs::read_to_string(&counters)
            .map_err(|error| wrong(format!("{}: {error}", counters.display())))?;
        let kernel_bytes_written = bytes_written(&text)
            .ok_or_else(|| wrong(format!("{} has no seventh number: {text}", counters.display())))?;
        Ok(Self {
            device,
            nsid: namespace.nsid,
            block_len_bytes: block_len_bytes(identity)?,
            kernel_bytes_written,
            placement_handles: placement_handles(&namespace.reclaim_unit_handle_status()?)?,
        })
    }
}

/// Bytes written, from a block device's counters (`stat` in sysfs: the seventh is sectors of 512 bytes).
pub fn bytes_written(counters: &str) -> Option<u64> {
    counters.split_whitespace().nth(6)?.parse::<u64>().ok()?.checked_mul(512)
}

/// The endurance group of a namespace; 0 if it is in none.
pub fn endurance_group(identity: &[u8]) -> Result<u16, FdpError> {
    Ok(u16::from_le_bytes(field("Identify Namespace", identity, 102)?))
}

/// The length of a logical block.
pub fn block_len_bytes(identity: &[u8]) -> Result<u64, FdpError> {
    const WHAT: &str = "Identify Namespace";
    let [format] = field(WHAT, identity, 26)?;
    // Four low bits, and two high ones for more than 16 formats.
    let format = usize::from(format & 0xf | (format >> 5 & 3) << 4);
    let [exponent] = field(WHAT, identity, 128 + 4 * format + 2)?;
    match exponent {
        9..=16 => Ok(1 << exponent),
        _ => Err(FdpError::Wrong {
            what: WHAT,
            problem: format!("LBA format {format} has blocks of 2^{exponent} bytes"),
        }),
    }
}

/// The placement handles in a handle status.
pub fn placement_handles(answer: &[u8]) -> Result<Vec<PlacementHandle>, FdpError> {
    const WHAT: &str = "reclaim unit handle status";
    let count = u16::from_le_bytes(field(WHAT, answer, 14)?);
    (0..usize::from(count))
        .map(|index| {
            let at = 16 + 32 * index;
            Ok(PlacementHandle {
                placement_id: u16::from_le_bytes(field(WHAT, answer, at)?),
                handle: u16::from_le_bytes(field(WHAT, answer, at + 2)?),
                available_blocks: u64::from_le_bytes(field(WHAT, answer, at + 8)?),
            })
        })
        .collect()
}

/// The statistics log.
pub fn statistics(answer: &[u8]) -> Result<Statistics, FdpError> {
    const WHAT: &str = "FDP statistics log";
    let bytes = |at| -> Result<u64, FdpError> {
        let bytes = u128::from_le_bytes(field(WHAT, answer, at)?);
        u64::try_from(bytes)
            .map_err(|_| FdpError::Wrong { what: WHAT, problem: format!("{bytes} bytes at byte {at}") })
    };
    Ok(Statistics {
        host_bytes_written: bytes(0)?,
        media_bytes_written: bytes(16)?,
        media_bytes_erased: bytes(32)?,
    })
}

/// The handle usage log.
pub fn handle_usage(answer: &[u8]) -> Result<Vec<HandleUsage>, FdpError> {
    const WHAT: &str = "reclaim unit handle usage log";
    let count = u16::from_le_bytes(field(WHAT, answer, 0)?);
    (0..usize::from(count))
        .map(|index| {
            let [attributes] = field(WHAT, answer, 8 + 8 * index)?;
            match attributes & 7 {
                0 => Ok(HandleUsage::Unused),
                1 => Ok(HandleUsage::HostSpecified),
                2 => Ok(HandleUsage::ControllerSpecified),
                other => Err(FdpError::Wrong {
                    what: WHAT,
                    problem: format!("handle {index} has the unknown usage {other}"),
                }),
            }
        })
        .collect()
}

/// A configuration in the configurations log.
pub fn configuration(answer: &[u8], index: usize) -> Result<Configuration, FdpError> {
    const WHAT: &str = "FDP configurations log";
    let last = u16::from_le_bytes(field(WHAT, answer, 0)?);
    if index > usize::from(last) {
        let problem = format!("configuration {index} is active, the last one is {last}");
        return Err(FdpError::Wrong { what: WHAT, problem });
    }
    let mut at = 16;
    for _ in 0..index {
        at += usize::from(u16::from_le_bytes(field(WHAT, answer, at)?));
    }
    Ok(Configuration {
        reclaim_groups: u32::from_le_bytes(field(WHAT, answer, at + 4)?),
        handles: u16::from_le_bytes(field(WHAT, answer, at + 8)?),
        reclaim_unit_len_bytes: u64::from_le_bytes(field(WHAT, answer, at + 16)?),
    })
}

/// The active configuration, from the feature Flexible Data Placement; `None` if it is off.
pub fn active_configuration(feature: u32) -> Option<usize> {
    (feature & 1 == 1).then_some((feature >> 8 & 0xff) as usize)
}

fn field<const N: usize>(what: &'static str, answer: &[u8], at: usize) -> Result<[u8; N], FdpError> {
    answer.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(FdpError::TooShort {
        what,
        len_bytes: answer.len(),
        at: at + N - 1,
    })
}

#[cfg(test)]
#[path = "fdp_tests.rs"]
mod tests;
