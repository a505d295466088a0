//! The file `head`: the position of the last checkpoint in the log.
//!
//! Magic, version (4 bytes), group (16 bytes), member (8 bytes), position of the checkpoint (8 bytes), of its state (8
//! bytes), of the last index before it (8 bytes, all ones: there is none), CRC-32C. Version 2 has neither the state's
//! position nor the index.

use super::{Identity, StoreError, io_error};
use crate::bytes::{BytesError, Reader};
use crate::replica::GroupId;
use redoubt_consensus::types::MemberId;
use redoubt_logdev::Seq;
use redoubt_storage::StorageDir;

pub(super) const HEAD: &str = "head";
const NEW_HEAD: &str = "head-new";
const MAGIC: [u8; 8] = *b"RDTGSTOR";
const VERSION: u32 = 3;
const OLD_VERSION: u32 = 2;
const LEN_BYTES: usize = 8 + 4 + 16 + 8 + 3 * 8 + 4;
const OLD_LEN_BYTES: usize = LEN_BYTES - 2 * 8;
const NONE: u64 = u64::MAX;

/// Contents of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub identity: Identity,
    pub checkpoint: Seq,
    /// `None`: unknown, somewhere after the checkpoint.
    pub state: Option<Seq>,
    pub index: Option<Seq>,
}

impl Head {
    pub(super) fn write(&self, directory: &dyn StorageDir) -> Result<(), StoreError> {
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&self.identity.group.0);
        head.extend_from_slice(&self.identity.member.0.to_le_bytes());
        head.extend_from_slice(&self.checkpoint.0.to_le_bytes());
        for position in [self.state, self.index] {
            head.extend_from_slice(&position.map_or(NONE, |position| position.0).to_le_bytes());
        }
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        if directory.list().map_err(io_error("list the data directory"))?.iter().any(|name| name == NEW_HEAD)
        {
            directory.remove(NEW_HEAD).map_err(io_error("remove an unfinished head"))?;
        }
        let file = directory.create(NEW_HEAD).map_err(io_error("create the head"))?;
        file.write_at(0, &head).map_err(io_error("write the head"))?;
        file.sync_data().map_err(io_error("sync the head"))?;
        directory.rename(NEW_HEAD, HEAD).map_err(io_error("rename the head"))?;
        directory.sync().map_err(io_error("sync the data directory"))
    }

    pub(super) fn read(directory: &dyn StorageDir) -> Result<Self, StoreError> {
        let file = directory.open(HEAD).map_err(io_error("open the head"))?;
        let mut bytes = [0; LEN_BYTES];
        let len = file.read_at(0, &mut bytes).map_err(io_error("read the head"))?;
        if len < OLD_LEN_BYTES {
            return Err(StoreError::Head("is too short"));
        }
        let is_old = bytes[MAGIC.len()..].starts_with(&OLD_VERSION.to_le_bytes());
        let head = if is_old { &bytes[..OLD_LEN_BYTES] } else { &bytes[..] };
        if len < head.len() {
            return Err(StoreError::Head("is too short"));
        }
        let (body, crc) = head.split_at(head.len() - 4);
        let mut reader = Reader::new(body);
        let short = |_: BytesError| StoreError::Head("is too short");
        if reader.array().map_err(short)? != MAGIC {
            return Err(StoreError::Head("is none of a group"));
        }
        if crc32c::crc32c(body).to_le_bytes() != *crc {
            return Err(StoreError::Head("has another checksum"));
        }
        let version = reader.u32().map_err(short)?;
        if version != VERSION && version != OLD_VERSION {
            return Err(StoreError::Head("has a version that this library does not know"));
        }
        let group = GroupId(reader.array().map_err(short)?);
        let member = MemberId(reader.u64().map_err(short)?);
        let checkpoint = Seq(reader.u64().map_err(short)?);
        let mut position = || match is_old {
            true => Ok(None),
            false => reader.u64().map(|position| (position != NONE).then_some(Seq(position))).map_err(short),
        };
        let (state, index) = (position()?, position()?);
        Ok(Self { identity: Identity { group, member }, checkpoint, state, index })
    }
}
