use super::*;
use crate::base::config::Config;
use crate::base::counters::Counters;
use crate::connections::{new_session, stream::Stream};
use crate::kinds::log_memory::BLOCK_BYTES;
use redoubt_redo::mariadb::log_file::DATA_OFFSET;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

#[test]
fn pieces_end_where_mini_transactions_end() {
    let bytes: Vec<u8> = (0..100).collect();
    let ends = [10, 35, 40, 80, 100];
    let split = pieces(&bytes, &ends, 40);
    assert_eq!(split.concat(), bytes);
    let mut at = 0;
    for piece in &split {
        at += piece.len();
        assert!(ends.contains(&at) && piece.len() <= 40, "{at}");
    }
    assert!(pieces(&[], &[], 40).is_empty());
}

/// One block of the server's memory, without references to it while the server owns it.
struct Block(Vec<u64>);

impl Block {
    fn of(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; BLOCK_BYTES / 8];
        for (word, part) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..part.len()].copy_from_slice(part);
            *word = u64::from_ne_bytes(whole);
        }
        Self(words)
    }

    fn bytes(&mut self) -> &[u8] {
        let start = self.0.as_mut_ptr().expose_provenance();
        // SAFETY: the vector's own memory, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), BLOCK_BYTES) }
    }
}

/// Mini-transactions (a WRITE each) that fill `len_bytes` exactly, from this LSN on.
fn redo(geometry: LogGeometry, mut lsn: u64, len_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < len_bytes {
        let left = len_bytes - out.len();
        let mtr_len = match left {
            32.. => 21,
            22.. => left / 2,
            _ => left,
        };
        let data_len = mtr_len - 9;
        let start = out.len();
        out.extend([0x30 | (3 + data_len) as u8, 1, 7, 40]);
        out.extend(std::iter::repeat_n(8, data_len));
        let crc = crc32c::crc32c(&out[start..]);
        lsn += mtr_len as u64;
        out.push(geometry.sequence_bit(Lsn(lsn)));
        out.extend(crc.to_be_bytes());
    }
    assert_eq!(out.len(), len_bytes);
    out
}

/// A data directory, and a library whose node has not answered yet: its frames stay in its queue.
struct Host {
    directory: tempfile::TempDir,
    content: Content,
    log: RedoLog,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let datadir = directory.path().to_str().unwrap().to_owned();
        let lookup = |name: &str| {
            let value = match name {
                "REDOUBT_NODE" => "127.0.0.1:1",
                "REDOUBT_VOLUME" => "v",
                "REDOUBT_SERVER_VERSION" => "MariaDB 10.11.19",
                "REDOUBT_GENERATION" => "1",
                "REDOUBT_DATADIR" => &datadir,
                "REDOUBT_SYSTEM_FILES" => "ibdata1:0",
                _ => return None,
            };
            Some(value.as_bytes().to_vec())
        };
        let config = Config::from_variables(&lookup).unwrap();
        let counters = Arc::<Counters>::default();
        let (wanted, _) = std::sync::mpsc::channel();
        let stream = Stream::new(new_session(&config, None), Arc::clone(&counters), wanted);
        stream.begin_alone();
        let content = Content::new(&config, stream, counters).unwrap();
        Self { directory, content, log: RedoLog::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn create(path: &Path, len_bytes: u64) -> std::fs::File {
        let file = std::fs::File::create(path).unwrap();
        file.set_len(len_bytes).unwrap();
        file
    }

    /// The server makes `ib_logfile101`, of this length, with a header.
    fn prepare(&self, len_bytes: u64, first_lsn: Lsn) -> (std::fs::File, Arc<LogFile>) {
        let local = Self::create(&self.path("ib_logfile101"), len_bytes);
        let file = self.log.open_prepared(true);
        file.opened();
        let header = LogHeader { first_lsn, creator: b"test".to_vec() }.build();
        self.write((&local, &file), &header, 0);
        (local, file)
    }

    fn write(&self, (local, file): (&std::fs::File, &Arc<LogFile>), bytes: &[u8], at: u64) {
        self.log.write(&self.content, file, local.as_raw_fd(), bytes, at).unwrap();
    }

    /// It becomes `ib_logfile0`.
    fn rename(&self) {
        std::fs::rename(self.path("ib_logfile101"), self.path("ib_logfile0")).unwrap();
        self.log.prepared_renamed(&self.content).unwrap();
    }
}

#[test]
fn a_resize_forgets_the_buffers_that_the_server_frees() {
    const FIRST_LSN: Lsn = Lsn(12_288);
    let host = Host::new();
    let (local, file) = host.prepare(DATA_OFFSET + (1 << 20), FIRST_LSN);
    host.rename();
    let geometry = LogGeometry::new(FIRST_LSN, DATA_OFFSET + (1 << 20)).unwrap();

    // The last write to the old log is one full block: whether its buffer was swapped is not known yet.
    let mut old_buffer = Block::of(&redo(geometry, FIRST_LSN.0, BLOCK_BYTES));
    host.write((&local, &file), old_buffer.bytes(), DATA_OFFSET);

    // The log is exchanged; the server has copied its redo into buffers of the new one, and frees the old ones.
    let next_lsn = FIRST_LSN.advance(BLOCK_BYTES as u64);
    let (new_local, new_file) = host.prepare(DATA_OFFSET + (2 << 20), next_lsn);
    host.rename();
    let next_owner = vec![0xab; BLOCK_BYTES];
    old_buffer = reuse(old_buffer, &next_owner);

    // The next write comes from one of the new buffers, and would show that the other one is at rest.
    let geometry = LogGeometry::new(next_lsn, DATA_OFFSET + (2 << 20)).unwrap();
    let mut new_buffer = Block::of(&redo(geometry, next_lsn.0, 100));
    host.write((&new_local, &new_file), new_buffer.bytes(), DATA_OFFSET);
    assert!(old_buffer.bytes() == next_owner, "memory that the server had freed was written to");
}

/// The same memory in other hands.
fn reuse(mut block: Block, bytes: &[u8]) -> Block {
    for (word, part) in block.0.iter_mut().zip(bytes.chunks(8)) {
        *word = u64::from_ne_bytes(part.try_into().unwrap());
    }
    block
}
