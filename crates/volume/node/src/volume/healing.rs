//! Pages that differ from the server's, and how long reads of them are repeated.
//!
//! A server that gets an error for such a page may end, and the only sound copy of the page is in its memory. So a read is
//! repeated until the page is set aside, and then until the server's image has had time to arrive. While the volume waits
//! for room, the image cannot arrive: the time begins again when that wait ends.
//!
//! Pure.

use super::context::LastWait;
use crate::index::PageKey;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};

/// Time for the server's image to arrive.
const IMAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Waits of the volume after which that time begins again. A volume that waits again and again must not hold reads for ever.
const WAITS_MAX: u32 = 60;

enum Awaited {
    /// The comparison has just failed. The node's page must not be served any more.
    NotSetAside,
    /// The server was asked for the image.
    Asked { since: Instant, waits: u32 },
}

/// The pages that differ.
#[derive(Default)]
pub struct Healing(FxHashMap<PageKey, Awaited>);

impl Healing {
    /// A comparison has found that the page differs.
    pub fn found(&mut self, key: PageKey) {
        self.0.insert(key, Awaited::NotSetAside);
    }

    /// The page is in quarantine, and the server was asked for it.
    pub fn asked(&mut self, key: PageKey, now: Instant) {
        self.0.insert(key, Awaited::Asked { since: now, waits: 0 });
    }

    /// Forgets the pages that do not differ any more.
    pub fn retain(&mut self, differs: impl Fn(PageKey) -> bool) {
        self.0.retain(|key, awaited| matches!(awaited, Awaited::NotSetAside) || differs(*key));
    }

    /// The page differs, and is not in quarantine yet.
    pub fn is_to_be_set_aside(&self, key: PageKey) -> bool {
        matches!(self.0.get(&key), Some(Awaited::NotSetAside))
    }

    /// Some page differs, and is not in quarantine yet.
    pub fn has_to_set_aside(&self) -> bool {
        self.0.values().any(|awaited| matches!(awaited, Awaited::NotSetAside))
    }

    /// The server's image may still arrive.
    pub fn is_awaited(&mut self, key: PageKey, last_wait: LastWait, now: Instant) -> bool {
        let Some(awaited) = self.0.get_mut(&key) else { return false };
        let Awaited::Asked { since, waits } = awaited else { return true };
        match last_wait {
            LastWait::Lasts => return true,
            LastWait::Ended(end) if end > *since && *waits < WAITS_MAX => {
                (*since, *waits) = (end, *waits + 1);
            }
            LastWait::Ended(_) | LastWait::None => {}
        }
        now.saturating_duration_since(*since) < IMAGE_TIMEOUT
    }
}

#[cfg(test)]
#[path = "healing_tests.rs"]
mod tests;
