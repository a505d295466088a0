//! A log writer that behaves like the server's: blocks rewritten in place, two writes at the end of the file,
//! every write a second time into the new file while the log is being resized.

#![allow(dead_code)]

/// One write system call.
#[derive(Clone, Debug)]
pub struct LogWrite {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

const DATA_OFFSET: u64 = 12_288;

/// A log file and its mapping, counted independently of the code under test.
#[derive(Clone)]
pub struct ServerLog {
    pub first_lsn: u64,
    pub capacity: u64,
    pub write_size: u64,
    pub image: Vec<u8>,
    /// End of what was written.
    pub lsn: u64,
}

impl ServerLog {
    pub fn new(first_lsn: u64, capacity: u64, write_size: u64) -> Self {
        assert_eq!(capacity % write_size, 0);
        let image = vec![0xaa; (DATA_OFFSET + capacity) as usize];
        Self { first_lsn, capacity, write_size, image, lsn: first_lsn }
    }

    pub fn sequence_bit(&self, lsn: u64) -> u8 {
        u8::from(((lsn - self.first_lsn) / self.capacity).is_multiple_of(2))
    }

    /// Write whole mini-transactions that follow each other from `self.lsn` on, given as record bytes.
    /// Returns the system calls and the stream bytes.
    pub fn append(&mut self, mtrs: &[Vec<u8>]) -> (Vec<LogWrite>, Vec<u8>) {
        let mut stream = Vec::new();
        for records in mtrs {
            stream.extend_from_slice(records);
            stream.push(self.sequence_bit(self.lsn + stream.len() as u64));
            stream.extend_from_slice(&crc32c::crc32c(records).to_be_bytes());
        }
        (self.write_stream(&stream), stream)
    }

    fn write_stream(&mut self, stream: &[u8]) -> Vec<LogWrite> {
        let place = (self.lsn - self.first_lsn) % self.capacity;
        let block_start = place / self.write_size * self.write_size;
        // The block so far, the new bytes, a zero, left-overs up to the end of the block.
        let block_at = (DATA_OFFSET + block_start) as usize;
        let mut bytes = self.image[block_at..(DATA_OFFSET + place) as usize].to_vec();
        bytes.extend_from_slice(stream);
        let partial = bytes.len() as u64 % self.write_size;
        if partial != 0 {
            bytes.push(0);
            let left_over = self.write_size - partial - 1;
            bytes.extend((0..left_over).map(|index| (index * 7 + 11) as u8));
        }
        self.lsn += stream.len() as u64;
        assert!((bytes.len() as u64) < self.capacity);
        let to_end = (self.capacity - block_start) as usize;
        let mut writes = Vec::new();
        if bytes.len() > to_end {
            let second = bytes.split_off(to_end);
            writes.push(LogWrite { offset: DATA_OFFSET + block_start, bytes });
            writes.push(LogWrite { offset: DATA_OFFSET, bytes: second });
        } else {
            writes.push(LogWrite { offset: DATA_OFFSET + block_start, bytes });
        }
        for write in &writes {
            let at = write.offset as usize;
            self.image[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        writes
    }
}
