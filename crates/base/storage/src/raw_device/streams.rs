//! Mapping of data lifetimes to a drive's write streams.
//!
//! | streams of the drive | `Metadata` | `Redo` | `Journal` | `HotPages` | `ColdPages` |
//! |---|---|---|---|---|---|
//! | 0: none is named | 0 | 0 | 0 | 0 | 0 |
//! | 1 | 1 | 1 | 1 | 1 | 1 |
//! | 2 | 1 | 2 | 2 | 1 | 1 |
//! | 3 | 1 | 2 | 3 | 1 | 1 |
//! | 4 | 1 | 2 | 3 | 4 | 1 |
//! | 5 or more | 1 | 2 | 3 | 4 | 5 |
//!
//! The most important separations come first. The two rings, which are overwritten in order, are separated from the
//! pages. Then the rings are separated from each other, because the journal is larger than the log. Then frequently
//! written pages are separated from other pages.

use crate::Stream;

/// Maximum number of separate streams.
const MAX: u8 = 5;

/// Number of the stream on a drive with `count` of them; 0: name none.
pub(super) fn number(stream: Stream, count: u32) -> u8 {
    let wanted = match stream {
        Stream::Metadata => 1,
        Stream::Redo => 2,
        Stream::Journal => 3,
        Stream::HotPages => 4,
        Stream::ColdPages => 5,
    };
    let count = u8::try_from(count).unwrap_or(MAX).min(MAX);
    if wanted <= count {
        return wanted;
    }
    match (count, stream) {
        (0, _) => 0,
        (2, Stream::Journal) => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_module_holds() {
        let of = |count| {
            use Stream::{ColdPages, HotPages, Journal, Metadata, Redo};
            [Metadata, Redo, Journal, HotPages, ColdPages].map(|stream| number(stream, count))
        };
        assert_eq!(of(0), [0, 0, 0, 0, 0]);
        assert_eq!(of(1), [1, 1, 1, 1, 1]);
        assert_eq!(of(2), [1, 2, 2, 1, 1]);
        assert_eq!(of(3), [1, 2, 3, 1, 1]);
        assert_eq!(of(4), [1, 2, 3, 4, 1]);
        for count in [5, 8, 255, 256, 1 << 16] {
            assert_eq!(of(count), [1, 2, 3, 4, 5]);
        }
    }
}
