//! A log writer that behaves like MySQL's: whole blocks, the last one again and again, zeros ahead of it, several
//! files.

#![allow(dead_code)]

/// One write system call.
#[derive(Clone, Debug)]
pub struct LogWrite {
    pub file: u64,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

const HEADER: u64 = 2048;

/// Log files and what was written to them.
pub struct ServerLog {
    /// Payload from the start of the first file on, of which the first `written` bytes were written.
    pub payload: Vec<u8>,
    /// Starts of mini-transactions in `payload`.
    pub groups: Vec<usize>,
    pub written: usize,
    /// LSN of the first block of the first file.
    pub start_lsn: u64,
    pub first_file: u64,
    pub file_size: u64,
    pub write_ahead: u64,
    ahead_end: (u64, u64),
}

impl ServerLog {
    pub fn new(start_lsn: u64, first_file: u64, file_size: u64, write_ahead: u64) -> Self {
        assert!(start_lsn.is_multiple_of(512) && file_size.is_multiple_of(512));
        Self {
            payload: Vec::new(),
            groups: Vec::new(),
            written: 0,
            start_lsn,
            first_file,
            file_size,
            write_ahead,
            ahead_end: (0, 0),
        }
    }

    pub fn start_position(&self) -> u64 {
        self.start_lsn / 512 * 496
    }

    pub fn file_start_lsn(&self, file: u64) -> u64 {
        self.start_lsn + (file - self.first_file) * (self.file_size - HEADER)
    }

    /// File and offset of a block, counted from the first.
    pub fn place(&self, block: usize) -> (u64, u64) {
        let per_file = (self.file_size - HEADER) / 512;
        let (file, in_file) = (block as u64 / per_file, block as u64 % per_file);
        (self.first_file + file, HEADER + in_file * 512)
    }

    pub fn append(&mut self, group: &[u8]) {
        self.groups.push(self.payload.len());
        self.payload.extend_from_slice(group);
    }

    /// The block as it is when the log ends at `end`.
    pub fn block(&self, block: usize, end: usize) -> Vec<u8> {
        let start = block * 496;
        let stop = end.min(start + 496);
        let lsn = self.start_lsn + block as u64 * 512;
        let len = if stop == start + 496 { 512 } else { 12 + stop - start };
        let ends = self.groups.iter().copied().chain([self.payload.len()]);
        let first = ends.into_iter().find(|&at| at >= start && at <= stop && at < start + 496);
        let first = first.map_or(0, |at| 12 + at - start);
        let mut out = Vec::new();
        out.extend((1 + (lsn / 512 % (1 << 30)) as u32).to_be_bytes());
        out.extend((len as u16).to_be_bytes());
        out.extend((first as u16).to_be_bytes());
        out.extend((1 + (lsn / 512 / (1 << 30)) as u32).to_be_bytes());
        out.extend_from_slice(&self.payload[start..stop]);
        out.resize(508, 0);
        out.extend(crc32c::crc32c(&out).to_be_bytes());
        out
    }

    /// Write on up to `end` of the payload. Returns the system calls.
    pub fn write_to(&mut self, end: usize) -> Vec<LogWrite> {
        let mut writes: Vec<LogWrite> = Vec::new();
        let first = self.written / 496;
        // A full block is followed by an empty one: only then is the end of the log visible.
        let last = end / 496 + 1;
        for block in first..last {
            let (file, offset) = self.place(block);
            let bytes = self.block(block, end);
            let is_full = end >= block * 496 + 496;
            match writes.last_mut() {
                // Full blocks are written together. A block that is not full joins them only when it is copied.
                Some(write)
                    if write.file == file
                        && write.offset + write.bytes.len() as u64 == offset
                        && (is_full || write.bytes.len() < 4096)
                        && !offset.is_multiple_of(self.write_ahead) =>
                {
                    write.bytes.extend(bytes);
                }
                _ => writes.push(LogWrite { file, offset, bytes }),
            }
        }
        for write in &mut writes {
            let write_end = write.offset + write.bytes.len() as u64;
            if (write.file, write_end) > self.ahead_end {
                let ahead = write_end.next_multiple_of(self.write_ahead).min(self.file_size);
                write.bytes.resize((ahead - write.offset) as usize, 0);
                self.ahead_end = (write.file, ahead);
            }
        }
        self.written = end;
        writes
    }
}
