//! A simulated server with two log buffers, and appenders that run while a live block is written.

use super::*;
use redoubt_redo::mariadb::log_file::DATA_OFFSET;
use redoubt_redo::mariadb::observer::{LogObserver, Observed};
use redoubt_redo::{Lsn, Mtr};

const FIRST_LSN: u64 = 12_288;
const FILE_SIZE_BYTES: u64 = DATA_OFFSET + 256 * 1024;

struct Server {
    buffers: [Vec<u64>; 2],
    filling: usize,
    /// LSN of the first byte of the buffer being filled.
    base_lsn: u64,
    /// Bytes in it.
    used: usize,
    written_lsn: u64,
    stream: Vec<u8>,
}

impl Server {
    fn new() -> Self {
        // u64 elements keep the memory aligned and allocated as a whole.
        let buffer = || vec![0u64; 64 * BLOCK_BYTES / 8];
        Self {
            buffers: [buffer(), buffer()],
            filling: 0,
            base_lsn: FIRST_LSN,
            used: 0,
            written_lsn: FIRST_LSN,
            stream: Vec::new(),
        }
    }

    fn bytes(&mut self, buffer: usize) -> &mut [u8] {
        let words = &mut self.buffers[buffer];
        let (start, len) = (words.as_mut_ptr().expose_provenance(), words.len() * 8);
        // SAFETY: the vector's own memory, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(start), len) }
    }

    fn lsn(&self) -> u64 {
        self.base_lsn + self.used as u64
    }

    /// One mini-transaction: a WRITE of a few bytes from a small alphabet, so that equal ones are frequent.
    fn mtr(&self, random: &mut fastrand::Rng, at_lsn: u64) -> Vec<u8> {
        let data_len = random.usize(1..6);
        let mut mtr = vec![0x30 | (3 + data_len) as u8, 1, 7, 40];
        mtr.extend((0..data_len).map(|_| random.u8(..2) + 8));
        let crc = crc32c::crc32c(&mtr);
        let end_lsn = at_lsn + mtr.len() as u64;
        mtr.push(geometry().sequence_bit(Lsn(end_lsn)));
        mtr.extend(crc.to_be_bytes());
        mtr
    }

    fn append(&mut self, random: &mut fastrand::Rng) {
        let mtr = self.mtr(random, self.lsn());
        let (filling, used) = (self.filling, self.used);
        self.bytes(filling)[used..used + mtr.len()].copy_from_slice(&mtr);
        self.used += mtr.len();
        self.stream.extend_from_slice(&mtr);
    }

    /// The server's `write_buf`. `during` runs where other threads may append. Returns address, offset, length.
    fn start_write(&mut self) -> (usize, u64, usize) {
        let lsn = self.lsn();
        let offset = geometry().offset_of(Lsn(self.written_lsn)) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let (filling, used) = (self.filling, self.used);
        let start = self.buffers[filling].as_mut_ptr().expose_provenance();
        self.written_lsn = lsn;
        if used < BLOCK_BYTES {
            self.bytes(filling)[used] = 0;
            return (start, offset, BLOCK_BYTES);
        }
        let rest = used % BLOCK_BYTES;
        let whole = used - rest;
        let mut len = whole;
        self.filling = 1 - filling;
        if rest > 0 {
            self.bytes(filling)[used] = 0;
            let tail = self.bytes(filling)[whole..whole + rest].to_vec();
            let other = self.filling;
            self.bytes(other)[..rest].copy_from_slice(&tail);
            len += BLOCK_BYTES;
        }
        self.base_lsn += whole as u64;
        self.used = rest;
        (start, offset, len)
    }
}

fn geometry() -> LogGeometry {
    LogGeometry::new(Lsn(FIRST_LSN), FILE_SIZE_BYTES).unwrap()
}

struct Shim {
    observer: LogObserver,
    memory: LogMemory,
    sent: Vec<u8>,
}

impl Shim {
    fn known(&self, offset: u64, len: usize) -> usize {
        self.observer.known_in_write(offset, len)
    }

    fn write(&mut self, start: usize, offset: u64, len: usize) {
        // SAFETY: the simulated server's buffer, which outlives the call; nothing appends during it.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), len) };
        let known = self.known(offset, len);
        let write = self.memory.begin(bytes, offset, known).unwrap();
        let observed = self.observer.on_write(offset, &write.bytes, &mut |_: &Mtr<'_, '_>| {}).unwrap();
        let Observed::Redo(redo) = observed else { panic!("redo expected") };
        self.sent.extend_from_slice(redo.bytes);
        let known = self.known(offset, len);
        self.memory.end(&write, offset, known).unwrap();
    }
}

#[test]
fn what_is_sent_is_the_servers_redo_whatever_lies_after_it_in_its_buffers() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut server = Server::new();
        let mut shim = Shim {
            observer: LogObserver::new(geometry(), Lsn(FIRST_LSN)),
            memory: LogMemory::default(),
            sent: Vec::new(),
        };
        let mut doubts = 0;
        for _ in 0..3000 {
            let burst = if random.u8(..10) == 0 { 600 } else { 20 };
            for _ in 0..random.usize(1..burst) {
                server.append(&mut random);
            }
            let (start, offset, len) = server.start_write();
            // Appenders of other threads, before the bytes are observed.
            for _ in 0..random.usize(..12) {
                server.append(&mut random);
            }
            let until_end = (FILE_SIZE_BYTES - offset) as usize;
            if len <= until_end {
                shim.write(start, offset, len);
            } else {
                shim.write(start, offset, until_end);
                shim.write(start + until_end, DATA_OFFSET, len - until_end);
            }
            doubts += usize::from(shim.memory.is_doubtful());
            assert!(server.stream.starts_with(&shim.sent), "seed {seed}: old redo was taken for new");
            let written = (server.written_lsn - FIRST_LSN) as usize;
            assert!(
                shim.sent.len() >= written || shim.memory.is_doubtful(),
                "seed {seed}: redo was left out"
            );
        }
        assert!(doubts < 60, "{doubts} doubtful writes of 3000");
    }
}

#[test]
fn writes_that_are_not_whole_blocks_name_the_option() {
    let bytes = [0u8; 512];
    let error = LogMemory::default().begin(&bytes, DATA_OFFSET, 0).err().unwrap();
    assert!(error.contains("innodb_log_write_ahead_size"), "{error}");
}
