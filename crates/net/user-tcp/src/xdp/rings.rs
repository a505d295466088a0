//! The memory that an AF_XDP socket shares with the kernel: the frames, and the four rings of descriptors.
//!
//! Invariants: each ring has the kernel on one side and the owner of the value here, which has exclusive access
//! (`&mut`), on the other; a [`Watch`] only reads. Positions that the kernel writes are checked before they are used as
//! offsets into the frames.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory that is shared with the kernel.
struct Mapping {
    address: NonNull<u8>,
    len_bytes: usize,
}

impl Mapping {
    fn new(len_bytes: usize, flags: libc::c_int, fd: libc::c_int, offset: i64) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), len_bytes, protection, flags | libc::MAP_POPULATE, fd, offset)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, len_bytes })
    }
}

impl Mapping {
    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: within the mapping and aligned, as `Ring::new` has checked; the kernel uses it by atomic operations
        // too.
        unsafe { &*self.address.as_ptr().add(offset).cast::<AtomicU32>() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and all references into it were borrowed from its owner.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len_bytes) };
    }
}

/// The frames. Shared memory: a fork would copy private pages on the next write, and the kernel would use the old ones.
pub struct Frames {
    mapping: Mapping,
    frame_len_bytes: usize,
}

impl Frames {
    /// Allocates this many frames; the length of one is a power of two.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn new(count: usize, frame_len_bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        Ok(Self { mapping: Mapping::new(count * frame_len_bytes, flags, -1, 0)?, frame_len_bytes })
    }

    /// Registration of the memory with the kernel.
    pub fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.mapping.address.as_ptr().addr() as u64,
            len: self.mapping.len_bytes as u64,
            chunk_size: self.frame_len_bytes as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    /// Start of the frame that contains this position.
    pub fn start_of(&self, place: u64) -> u64 {
        place & !(self.frame_len_bytes as u64 - 1)
    }

    fn is_within(&self, place: u64, len_bytes: usize) -> bool {
        let end = place.checked_add(len_bytes as u64);
        end.is_some_and(|end| {
            end <= self.mapping.len_bytes as u64
                && end <= self.start_of(place).saturating_add(self.frame_len_bytes as u64)
        })
    }

    /// Content of a frame.
    pub fn get(&self, place: u64, len_bytes: usize) -> Option<&[u8]> {
        // SAFETY: within the mapping. A frame that the kernel has handed over is not written by it until it is given
        // back, for which the owner needs `&mut` of the rings that are kept with this value.
        self.is_within(place, len_bytes).then(|| unsafe {
            std::slice::from_raw_parts(self.mapping.address.as_ptr().add(place as usize), len_bytes)
        })
    }

    /// A whole frame to write to.
    pub fn get_mut(&mut self, place: u64) -> Option<&mut [u8]> {
        let len_bytes = self.frame_len_bytes;
        // SAFETY: as above, and no other reference to it exists.
        self.is_within(place, len_bytes).then(|| unsafe {
            std::slice::from_raw_parts_mut(self.mapping.address.as_ptr().add(place as usize), len_bytes)
        })
    }
}

// SAFETY: an address and a length; the owners govern the accesses to the memory.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Checks for entries without owning the ring.
pub struct Watch {
    mapping: Arc<Mapping>,
    producer: usize,
    consumer: usize,
}

impl Watch {
    /// There are entries that were not taken.
    pub fn has_entries(&self) -> bool {
        self.mapping.word(self.producer).load(Ordering::Acquire)
            != self.mapping.word(self.consumer).load(Ordering::Acquire)
    }
}

/// One ring of entries.
pub struct Ring<Entry: Copy> {
    mapping: Arc<Mapping>,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    count: u32,
    entry: std::marker::PhantomData<Entry>,
}

impl<Entry: Copy> Ring<Entry> {
    /// Maps a ring of the socket, whose count of entries is a power of two.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn new(
        socket: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
        count: u32,
        place: u64,
    ) -> io::Result<Self> {
        let entries = offsets.desc as usize;
        let len_bytes = entries + count as usize * size_of::<Entry>();
        let mapping = Mapping::new(len_bytes, libc::MAP_SHARED, socket.as_raw_fd(), place as i64)?;
        let words = [offsets.producer, offsets.consumer, offsets.flags].map(|offset| offset as usize);
        let is_sound = words.iter().all(|word| word % 4 == 0 && word + 4 <= len_bytes)
            && entries.is_multiple_of(align_of::<Entry>());
        if !is_sound {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let [producer, consumer, flags] = words;
        let (mapping, entry) = (Arc::new(mapping), std::marker::PhantomData);
        Ok(Self { mapping, producer, consumer, flags, entries, count, entry })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        self.mapping.word(offset)
    }

    /// A watch for threads that check for entries.
    pub fn watch(&self) -> Watch {
        Watch { mapping: Arc::clone(&self.mapping), producer: self.producer, consumer: self.consumer }
    }

    /// Entries that the consumer has not taken.
    pub fn len(&self) -> u32 {
        let consumed = self.word(self.consumer).load(Ordering::Acquire);
        self.word(self.producer).load(Ordering::Acquire).wrapping_sub(consumed)
    }

    fn entry(&self, position: u32) -> *mut Entry {
        let index = (position & (self.count - 1)) as usize;
        // SAFETY: within the mapping: an index below the count.
        unsafe { self.mapping.address.as_ptr().add(self.entries).cast::<Entry>().add(index) }
    }

    /// The kernel requires a system call to continue.
    pub fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Passes an entry to the kernel. `false`: the ring is full.
    pub fn push(&mut self, entry: Entry) -> bool {
        let position = self.word(self.producer).load(Ordering::Relaxed);
        let consumed = self.word(self.consumer).load(Ordering::Acquire);
        if position.wrapping_sub(consumed) >= self.count {
            return false;
        }
        // SAFETY: the entry is ours until the producer's word is moved past it.
        unsafe { self.entry(position).write(entry) };
        self.word(self.producer).store(position.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes an entry of the kernel.
    pub fn pop(&mut self) -> Option<Entry> {
        let position = self.word(self.consumer).load(Ordering::Relaxed);
        if position == self.word(self.producer).load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the kernel has written it, and does not again until the consumer's word is moved past it.
        let entry = unsafe { self.entry(position).read() };
        self.word(self.consumer).store(position.wrapping_add(1), Ordering::Release);
        Some(entry)
    }
}
