//! Bytes of one connection that were read before the server has asked for them.

/// Maximum length, unless more bytes are peeked at.
pub const LEN_BYTES: usize = 4096;

/// Bytes of one connection that were read before the server has asked for them.
#[derive(Default)]
pub struct Ahead {
    bytes: Vec<u8>,
    start: usize,
}

impl Ahead {
    /// Bytes that were not taken.
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// Appends at most `most` bytes; `read` returns how many it has read.
    pub fn fill(&mut self, most: usize, read: impl FnOnce(&mut [u8]) -> usize) {
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
        let had = self.bytes.len();
        self.bytes.resize(had + most, 0);
        let len = read(self.bytes.get_mut(had..).unwrap_or_default());
        self.bytes.truncate(had + len);
    }

    /// Copies the bytes without taking them.
    pub fn look(&self, target: &mut [u8]) -> usize {
        let rest = self.rest();
        let len = rest.len().min(target.len());
        let (Some(to), Some(from)) = (target.get_mut(..len), rest.get(..len)) else { return 0 };
        to.copy_from_slice(from);
        len
    }

    /// Takes the bytes.
    pub fn take(&mut self, target: &mut [u8]) -> usize {
        let len = self.look(target);
        self.start += len;
        if self.is_empty() && self.bytes.capacity() > LEN_BYTES {
            *self = Self::default();
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut ahead, mut model, mut next) = (Ahead::default(), Vec::new(), 0u8);
        for _ in 0..10_000 {
            if rng.bool() {
                let (most, len) = (rng.usize(..9000), rng.usize(..5000));
                ahead.fill(most, |space| {
                    let len = len.min(space.len());
                    space[..len].iter_mut().for_each(|byte| {
                        next = next.wrapping_add(1);
                        *byte = next;
                        model.push(next);
                    });
                    len
                });
            }
            let mut target = vec![0; rng.usize(..6000)];
            let len = model.len().min(target.len());
            assert_eq!(ahead.look(&mut target), len);
            assert_eq!(target[..len], model[..len]);
            target.fill(0);
            assert_eq!(ahead.take(&mut target), len);
            assert!(target[..len].iter().eq(model.drain(..len).collect::<Vec<_>>().iter()));
            assert_eq!((ahead.rest(), ahead.is_empty()), (&model[..], model.is_empty()));
        }
    }
}
