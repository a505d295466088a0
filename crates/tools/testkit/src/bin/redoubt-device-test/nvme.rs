//! Commands to an NVMe drive that the kernel passes through: the few that say where a drive with Flexible Data
//! Placement (FDP) put what was written.
//!
//! A command is 64 bytes of numbers, and one buffer that the drive fills. The buffer is a page of its own, at a page's
//! boundary: the kernel describes a buffer by one entry per page, and QEMU refuses entries beyond those that its
//! answer needs ("data SGL length invalid", status 0x400f). A short answer into a buffer that crosses a page boundary
//! meets just that.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Longest answer that can be received, in bytes.
pub const MAX_ANSWER_LEN_BYTES: usize = 4096;

const ADMIN_GET_LOG_PAGE: u8 = 0x02;
const ADMIN_IDENTIFY: u8 = 0x06;
const ADMIN_GET_FEATURES: u8 = 0x0a;
const FEATURE_FDP: u32 = 0x1d;
const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
/// Management operation of [`IO_MANAGEMENT_RECEIVE`]: reclaim unit handle status.
const RECLAIM_UNIT_HANDLE_STATUS: u32 = 1;
const TIMEOUT_MS: u32 = 30_000;

/// Why a command gave no answer.
#[derive(thiserror::Error, Debug)]
pub enum NvmeError {
    /// The device could not be opened, or the kernel did not pass the command on.
    #[error("{device}: cannot {action}: {source}")]
    System {
        /// The device.
        device: String,
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The drive refused the command.
    #[error("{device}: the drive refuses to {action}: NVMe status {status:#06x}")]
    Refused {
        /// The device.
        device: String,
        /// The attempted action.
        action: &'static str,
        /// Status type, status and flags, as the NVMe specification has them.
        status: u16,
    },
}

/// A namespace of an NVMe drive, by its block device.
pub struct Namespace {
    path: PathBuf,
    file: File,
    /// The number of the namespace in its drive.
    pub nsid: u32,
}

/// The kernel's `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct PassthroughCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    dword_2: u32,
    dword_3: u32,
    metadata_address: u64,
    data_address: u64,
    metadata_len_bytes: u32,
    data_len_bytes: u32,
    /// Dwords 10 to 15.
    arguments: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const COMMAND_LEN_BYTES: usize = size_of::<PassthroughCommand>();
const _: () = assert!(COMMAND_LEN_BYTES == 72);

/// A page at a page's boundary.
#[repr(C, align(4096))]
struct AnswerPage([u8; MAX_ANSWER_LEN_BYTES]);

/// The answer to a command.
struct Answer {
    bytes: Vec<u8>,
    result: u32,
}

/// Requests of the kernel's NVMe driver.
#[derive(Clone, Copy)]
enum Queue {
    Admin,
    Io,
}

impl Queue {
    /// The number of the request, as `_IOWR('N', number, struct nvme_passthru_cmd)` gives it.
    fn request(self) -> libc::Ioctl {
        let number = match self {
            Self::Admin => 0x41,
            Self::Io => 0x43,
        };
        (3 << 30 | COMMAND_LEN_BYTES << 16 | usize::from(b'N') << 8 | number) as libc::Ioctl
    }
}

/// `_IO('N', 0x40)`: the number of the namespace.
const REQUEST_NAMESPACE_ID: libc::Ioctl = ((b'N' as usize) << 8 | 0x40) as libc::Ioctl;

impl Namespace {
    /// Opens a namespace's block device for reading.
    ///
    /// # Errors
    /// [`NvmeError::System`], also if it is no NVMe device.
    pub fn open(path: &Path) -> Result<Self, NvmeError> {
        let failed =
            |action| move |source| NvmeError::System { device: path.display().to_string(), action, source };
        let file = File::open(path).map_err(failed("open it"))?;
        // SAFETY: this request takes no argument and writes to no memory; a device that does not know it answers
        // with an error.
        let nsid = unsafe { libc::ioctl(file.as_raw_fd(), REQUEST_NAMESPACE_ID) };
        let nsid = u32::try_from(nsid).map_err(|_| {
            failed("ask for its namespace number (is it an NVMe device?)")(io::Error::last_os_error())
        })?;
        Ok(Self { path: path.to_owned(), file, nsid })
    }

    /// The device's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The Identify data of this namespace: 4096 bytes.
    ///
    /// # Errors
    /// [`NvmeError`].
    pub fn identify(&self) -> Result<Vec<u8>, NvmeError> {
        let command = PassthroughCommand { opcode: ADMIN_IDENTIFY, nsid: self.nsid, ..Default::default() };
        Ok(self.receive(Queue::Admin, "identify the namespace", command, MAX_ANSWER_LEN_BYTES)?.bytes)
    }

    /// The first bytes of a log page of an endurance group.
    ///
    /// # Errors
    /// [`NvmeError`].
    pub fn log_page(&self, page: u8, endurance_group: u16, len_bytes: usize) -> Result<Vec<u8>, NvmeError> {
        let mut command = PassthroughCommand { opcode: ADMIN_GET_LOG_PAGE, ..Default::default() };
        command.arguments[0] = u32::from(page) | dwords_less_one(len_bytes) << 16;
        command.arguments[1] = u32::from(endurance_group) << 16;
        let action = "send a log page of an endurance group (has it no FDP?)";
        Ok(self.receive(Queue::Admin, action, command, len_bytes)?.bytes)
    }

    /// The feature Flexible Data Placement of an endurance group: bit 0 says whether it is on, bits 8 to 15 which
    /// configuration is active.
    ///
    /// # Errors
    /// [`NvmeError`].
    pub fn fdp_feature(&self, endurance_group: u16) -> Result<u32, NvmeError> {
        let mut command = PassthroughCommand { opcode: ADMIN_GET_FEATURES, ..Default::default() };
        command.arguments = [FEATURE_FDP, u32::from(endurance_group), 0, 0, 0, 0];
        Ok(self.receive(Queue::Admin, "say whether FDP is on (does it not know FDP?)", command, 0)?.result)
    }

    /// The status of this namespace's reclaim unit handles.
    ///
    /// # Errors
    /// [`NvmeError`].
    pub fn reclaim_unit_handle_status(&self) -> Result<Vec<u8>, NvmeError> {
        let mut command =
            PassthroughCommand { opcode: IO_MANAGEMENT_RECEIVE, nsid: self.nsid, ..Default::default() };
        command.arguments[0] = RECLAIM_UNIT_HANDLE_STATUS;
        command.arguments[1] = dwords_less_one(MAX_ANSWER_LEN_BYTES);
        let action = "send the status of its reclaim unit handles (has it no FDP?)";
        Ok(self.receive(Queue::Io, action, command, MAX_ANSWER_LEN_BYTES)?.bytes)
    }

    fn receive(
        &self,
        queue: Queue,
        action: &'static str,
        mut command: PassthroughCommand,
        len_bytes: usize,
    ) -> Result<Answer, NvmeError> {
        let device = self.path.display().to_string();
        let mut page = Box::new(AnswerPage([0; MAX_ANSWER_LEN_BYTES]));
        let len_bytes = len_bytes.min(MAX_ANSWER_LEN_BYTES);
        if len_bytes > 0 {
            command.data_address = page.0.as_mut_ptr().expose_provenance() as u64;
            command.data_len_bytes = len_bytes as u32;
        }
        command.timeout_ms = TIMEOUT_MS;
        // SAFETY: the kernel reads and writes exactly `COMMAND_LEN_BYTES` at the pointer, the length that is part of
        // the request's number. The command's data address is that of `page`, of at least `data_len_bytes`; the
        // kernel returns only when the drive is done with it. No command made here writes to the drive.
        let status = unsafe { libc::ioctl(self.file.as_raw_fd(), queue.request(), &raw mut command) };
        match status {
            0 => {
                Ok(Answer { bytes: page.0.iter().take(len_bytes).copied().collect(), result: command.result })
            }
            1.. => Err(NvmeError::Refused { device, action, status: status as u16 }),
            _ => Err(NvmeError::System { device, action, source: io::Error::last_os_error() }),
        }
    }
}

/// The number of dwords in a transfer, as NVMe counts them.
fn dwords_less_one(len_bytes: usize) -> u32 {
    (len_bytes / 4).saturating_sub(1) as u32
}
