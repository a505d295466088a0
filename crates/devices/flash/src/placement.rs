//! Which origin goes to which write stream.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::trace::Origin;

/// A stream policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Policy {
    /// Everything in one stream.
    One,
    /// The page journal apart.
    Journal,
    /// The page journal apart, and the redo log apart.
    JournalRedo,
    /// The doublewrite area apart.
    Doublewrite,
    /// Redo log, page journal, doublewrite area, pages and hot pages each apart.
    All,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Policy; 5] =
        [Policy::One, Policy::Journal, Policy::JournalRedo, Policy::Doublewrite, Policy::All];

    /// Its name on the command line and in trace descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Policy::One => "one",
            Policy::Journal => "journal",
            Policy::JournalRedo => "journal+redo",
            Policy::Doublewrite => "doublewrite",
            Policy::All => "all",
        }
    }

    /// The origins that have a stream each; stream 0 is for all others.
    fn apart(self) -> &'static [Origin] {
        match self {
            Policy::One => &[],
            Policy::Journal => &[Origin::Journal],
            Policy::JournalRedo => &[Origin::Journal, Origin::Redo],
            Policy::Doublewrite => &[Origin::Doublewrite],
            Policy::All => {
                &[Origin::Redo, Origin::Journal, Origin::Doublewrite, Origin::Data, Origin::DataHot]
            }
        }
    }

    /// Streams by the code of an origin, without gaps, for a load that has only some origins: an origin that never
    /// occurs takes no stream, so it takes no open superblock either. Second: the number of streams, at least 1.
    pub fn streams(self, occurs: &[bool; Origin::ALL.len()]) -> ([u8; Origin::ALL.len()], u8) {
        let mut streams = [0; Origin::ALL.len()];
        let apart = self.apart();
        let common = Origin::ALL.iter().any(|origin| occurs[*origin as usize] && !apart.contains(origin));
        let mut next = u8::from(common);
        for origin in apart.iter().filter(|origin| occurs[**origin as usize]) {
            streams[*origin as usize] = next;
            next += 1;
        }
        (streams, next.max(1))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Policy, String> {
        let found = Policy::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| {
            format!(
                "no stream policy is named {name:?}; there are {}",
                Policy::ALL.map(Policy::name).join(", ")
            )
        })
    }
}

impl Serialize for Policy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert!("stream".parse::<Policy>().unwrap_err().contains("journal+redo"));
    }

    #[test]
    fn origins_that_occur_get_streams_without_gaps() {
        let mut occurs = [true; 7];
        assert_eq!(Policy::One.streams(&occurs), ([0; 7], 1));
        assert_eq!(Policy::Journal.streams(&occurs), ([0, 0, 0, 1, 0, 0, 0], 2));
        assert_eq!(Policy::JournalRedo.streams(&occurs), ([0, 2, 0, 1, 0, 0, 0], 3));
        assert_eq!(Policy::Doublewrite.streams(&occurs), ([0, 0, 1, 0, 0, 0, 0], 2));
        assert_eq!(Policy::All.streams(&occurs), ([0, 1, 3, 2, 4, 0, 5], 6));
        occurs[Origin::Doublewrite as usize] = false;
        occurs[Origin::DataHot as usize] = false;
        assert_eq!(Policy::All.streams(&occurs), ([0, 1, 0, 2, 3, 0, 0], 4));
        assert_eq!(Policy::Doublewrite.streams(&occurs).1, 1);
        occurs[Origin::Metadata as usize] = false;
        occurs[Origin::Other as usize] = false;
        assert_eq!(Policy::All.streams(&occurs), ([0, 0, 0, 1, 2, 0, 0], 3));
        assert_eq!(Policy::One.streams(&[false; 7]), ([0; 7], 1));
    }
}
