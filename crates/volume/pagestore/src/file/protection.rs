//! The modes of torn-page protection, and which one a store gets.

use std::fmt;
use std::str::FromStr;

use redoubt_storage::UntornLimits;

use crate::error::PageStoreError;

/// The page length that decides whether a place can do without a journal: what a server has unless told otherwise.
const USUAL_PAGE_LEN: u64 = 16 << 10;

/// How pages are kept from being torn by a crash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PageProtection {
    /// Every page goes to its place in one untorn write. Nothing is written twice.
    Atomic,
    /// Pages go to a ring of page images, and to their place when the ring needs room, in page order and without
    /// the versions that were replaced meanwhile.
    Journal,
    /// Pages go to the ring and then at once to their place.
    Doublewrite,
}

impl PageProtection {
    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Atomic => "atomic",
            Self::Journal => "journal",
            Self::Doublewrite => "doublewrite",
        }
    }

    pub(super) fn code(self) -> u32 {
        match self {
            Self::Atomic => 1,
            Self::Journal => 2,
            Self::Doublewrite => 3,
        }
    }

    pub(super) fn from_code(code: u32) -> Option<Self> {
        [Self::Atomic, Self::Journal, Self::Doublewrite].into_iter().find(|mode| mode.code() == code)
    }
}

impl fmt::Display for PageProtection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PageProtection {
    type Err = PageStoreError;

    fn from_str(name: &str) -> Result<Self, PageStoreError> {
        let known = [Self::Atomic, Self::Journal, Self::Doublewrite];
        known.into_iter().find(|mode| mode.name() == name).ok_or_else(|| PageStoreError::InvalidOption {
            option: "protection",
            reason: format!("\"{name}\" is not atomic, journal or doublewrite"),
        })
    }
}

/// The mode to use, and why.
pub(super) fn choose(
    asked: Option<PageProtection>,
    limits: Option<UntornLimits>,
) -> Result<(PageProtection, String), PageStoreError> {
    let offered = match limits {
        None => "the page directory offers no untorn writes".into(),
        Some(UntornLimits { min_len_bytes: min, max_len_bytes: max }) => {
            format!("the page directory offers untorn writes of {min} to {max} bytes")
        }
    };
    let covers = limits.is_some_and(|limits| limits.allow(0, USUAL_PAGE_LEN));
    match asked {
        Some(PageProtection::Atomic) if !covers => Err(PageStoreError::InvalidOption {
            option: "protection",
            reason: format!(
                "atomic needs untorn writes of {USUAL_PAGE_LEN} bytes, but {offered}: use a device with atomic \
                 writes, a recent kernel, and ext4 made with bigalloc and clusters of 16 KiB, or XFS, or the bare \
                 device; or choose journal"
            ),
        }),
        Some(mode) => Ok((mode, format!("chosen by option; {offered}"))),
        None if covers => Ok((PageProtection::Atomic, offered)),
        None => Ok((PageProtection::Journal, format!("{offered}, and pages need {USUAL_PAGE_LEN}"))),
    }
}
