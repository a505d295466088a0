//! SYN cookies (RFC 4987, 3.6): an initial sequence number that carries the state of a half-open connection, so that
//! nothing has to be stored.
//!
//! Number: `hash of the four-tuple + (period (5 bits), maximum segment size (3 bits), check (24 bits))`, where the check
//! is a hash of the four-tuple, the peer's number, period, size and options. Window scale and selective acknowledgements
//! are in the lowest bits of our timestamp, if the peer sends timestamps; if not, they are not agreed to.
//!
//! Limitation of cookies (RFC 4987, 3.6): an acknowledgement that is repeated while its cookie is valid, after its
//! connection has ended, opens another connection. Its peer resets it once something is sent.

use crate::connection::{Agreed, clock};
use crate::demux::Key;
use crate::hash::Keyed;
use crate::segment::Options;
use crate::sequence::Seq;
use crate::time::Micros;

/// Maximum segment sizes that a cookie can hold: the largest that does not exceed the peer's.
const SIZES: [u16; 8] = [64, 536, 1220, 1300, 1400, 1440, 1460, 8940];
const PERIOD: Micros = Micros::from_secs(64);
/// Periods after its own during which a cookie is valid.
const GOOD_PERIODS: u64 = 1;
const CHECK_BITS: u32 = 24;
const CHECK: u32 = (1 << CHECK_BITS) - 1;

/// Options in the timestamp: the window scale, 15 for none; selective acknowledgements.
const SCALE: u32 = 15;
const SACK: u32 = 16;
const OPTIONS: u32 = 31;

fn said_options(agreed: &Agreed) -> u32 {
    u32::from(agreed.scale.unwrap_or(SCALE as u8)) | if agreed.has_sack { SACK } else { 0 }
}

/// Keys of the cookies.
#[derive(Debug)]
pub(crate) struct Cookies {
    place: Keyed,
    check: Keyed,
}

impl Cookies {
    pub(crate) fn new(place: Keyed, check: Keyed) -> Self {
        Self { place, check }
    }

    fn check(&self, key: &Key, theirs: Seq, period: u64, size: u32, options: u32) -> u32 {
        let said = u64::from(size) << 32 | u64::from(options);
        key.hash_with(&self.check, &[u64::from(theirs.0), period, said]) as u32 & CHECK
    }

    /// Initial sequence number for the answer to a SYN.
    pub(crate) fn number(&self, now: Micros, agreed: &Agreed) -> Seq {
        let period = now.0 / PERIOD.0;
        let size = SIZES.iter().rposition(|size| *size <= agreed.mss).unwrap_or(0) as u32;
        let check = self.check(&agreed.key, agreed.theirs, period, size, said_options(agreed));
        let said = (period as u32 & 31) << 27 | size << CHECK_BITS | check;
        Seq(said.wrapping_add(agreed.key.hash_with(&self.place, &[]) as u32))
    }

    /// Timestamp for the answer: the current one or a little less, with the options in it.
    pub(crate) fn timestamp(now: Micros, agreed: &Agreed) -> u32 {
        let clock = clock(now, agreed.clock_offset);
        let stamp = clock & !OPTIONS | said_options(agreed);
        if stamp.wrapping_sub(clock) as i32 > 0 { stamp.wrapping_sub(OPTIONS + 1) } else { stamp }
    }

    /// Decodes the result of the handshake from the ACK that answers a cookie. `ours` and `theirs` are the numbers
    /// before its own. `None`: the cookie is invalid or too old.
    pub(crate) fn open(
        &self,
        now: Micros,
        key: Key,
        ours: Seq,
        theirs: Seq,
        options: &Options,
    ) -> Option<Agreed> {
        let said = ours.0.wrapping_sub(key.hash_with(&self.place, &[]) as u32);
        let (size, check) = (said >> CHECK_BITS & 7, said & CHECK);
        let current = now.0 / PERIOD.0;
        let age = (current.wrapping_sub(u64::from(said >> 27))) & 31;
        let period = current.checked_sub(age).filter(|_| age <= GOOD_PERIODS)?;
        let echo = options.timestamps.map(|timestamps| timestamps.echo);
        if self.check(&key, theirs, period, size, echo.map_or(SCALE, |echo| echo & OPTIONS)) != check {
            return None;
        }
        Some(Agreed {
            key,
            ours,
            theirs,
            mss: SIZES[size as usize],
            scale: echo.map(|echo| echo & SCALE).filter(|scale| *scale != SCALE).map(|scale| scale as u8),
            has_sack: echo.is_some_and(|echo| echo & SACK != 0),
            timestamp: options.timestamps.map(|timestamps| timestamps.value),
            clock_offset: 0,
        })
    }
}

/// Whether a cookie sent at `sent_at` may still come back.
pub(crate) fn may_come_back(now: Micros, sent_at: Micros) -> bool {
    now.since(sent_at) <= PERIOD.0 * (GOOD_PERIODS + 1)
}
