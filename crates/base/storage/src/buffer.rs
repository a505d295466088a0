//! Memory for direct I/O.

/// Alignment of an [`AlignedBuffer`]'s address and capacity, in bytes. No device requires more.
const BUFFER_ALIGN: usize = 4096;

#[derive(Clone)]
#[repr(C, align(4096))]
struct Block([u8; BUFFER_ALIGN]);

/// A byte buffer of fixed capacity at an address that is suitable for direct I/O.
pub struct AlignedBuffer {
    blocks: Box<[Block]>,
    len: usize,
}

impl AlignedBuffer {
    /// Creates an empty buffer for at least `capacity_bytes`.
    pub fn with_capacity(capacity_bytes: usize) -> Self {
        let blocks = vec![Block([0; BUFFER_ALIGN]); capacity_bytes.div_ceil(BUFFER_ALIGN)];
        Self { blocks: blocks.into_boxed_slice(), len: 0 }
    }

    /// Creates a buffer of `len_bytes` zeros.
    pub fn zeroed(len_bytes: usize) -> Self {
        Self { len: len_bytes, ..Self::with_capacity(len_bytes) }
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BUFFER_ALIGN
    }

    /// Number of bytes in the buffer.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes in the buffer.
    pub fn bytes(&self) -> &[u8] {
        self.all().get(..self.len).unwrap_or_default()
    }

    /// Mutable access to the bytes in the buffer.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.all_mut().get_mut(..len).unwrap_or_default()
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends `bytes` if they fit, or nothing. Returns whether they did.
    #[must_use]
    pub fn extend(&mut self, bytes: &[u8]) -> bool {
        let len = self.len;
        let Some(end) = len.checked_add(bytes.len()) else { return false };
        let Some(place) = self.all_mut().get_mut(len..end) else { return false };
        place.copy_from_slice(bytes);
        self.len = end;
        true
    }

    /// Appends zeros up to a multiple of `unit_bytes`, a divisor of 4096.
    pub fn pad_to(&mut self, unit_bytes: usize) {
        let len = self.len;
        let end = len.next_multiple_of(unit_bytes);
        if let Some(padding) = self.all_mut().get_mut(len..end) {
            padding.fill(0);
            self.len = end;
        }
    }

    fn all(&self) -> &[u8] {
        // SAFETY: the blocks are one allocation of `capacity` initialised bytes without padding between them.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.capacity()) }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `all`; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.capacity()) }
    }
}
