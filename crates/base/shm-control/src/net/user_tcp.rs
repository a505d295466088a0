//! TCP in user space: its settings and its state.

use super::{USER_TCP_LINK_WORDS, USER_TCP_LINKS};

/// A network interface whose TCP bypasses the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserTcp {
    /// Name of the interface.
    pub interface: String,
    /// Whether frames are passed without a copy, if the driver supports that.
    pub zero_copy: bool,
}

/// Suffix of the name of an interface.
const ZERO_COPY: &str = ":zero-copy";
/// Maximum length of an interface's name.
const NAME_LEN_BYTES: usize = 15;

impl UserTcp {
    /// Parses the name of an interface, with or without the suffix `:zero-copy`.
    pub fn parse(text: &str) -> Option<Self> {
        let (interface, zero_copy) = match text.strip_suffix(ZERO_COPY) {
            Some(interface) => (interface, true),
            None => (text, false),
        };
        let is_name = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'+' | b',' | b':');
        let is_good = (1..=NAME_LEN_BYTES).contains(&interface.len()) && interface.bytes().all(is_name);
        is_good.then(|| Self { interface: interface.to_owned(), zero_copy })
    }

    /// Parses names with + between them, at most [`USER_TCP_LINKS`], each once.
    pub(super) fn parse_all(text: &str) -> Option<Vec<Self>> {
        let all: Vec<Self> =
            text.split('+').filter(|name| !name.is_empty()).map(Self::parse).collect::<Option<_>>()?;
        let is_twice = all
            .iter()
            .enumerate()
            .any(|(at, one)| all.iter().skip(at + 1).any(|other| other.interface == one.interface));
        (all.len() <= USER_TCP_LINKS && !is_twice).then_some(all)
    }
}

impl std::fmt::Display for UserTcp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}{}", self.interface, if self.zero_copy { ZERO_COPY } else { "" })
    }
}

/// Way in which an interface's frames arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum UserTcpMode {
    /// Not at all: only the kernel receives them.
    #[default]
    Failed = 0,
    /// From the driver, without a copy.
    ZeroCopy = 1,
    /// From the driver, copied once.
    Native = 2,
    /// From a point after the driver.
    Generic = 3,
}

impl UserTcpMode {
    /// Name for people and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::ZeroCopy => "zero-copy",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }

    fn from_word(word: u64) -> Self {
        let all = [Self::ZeroCopy, Self::Native, Self::Generic];
        all.into_iter().find(|mode| *mode as u64 == word).unwrap_or(Self::Failed)
    }
}

/// State of TCP in user space on one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserTcpLink {
    /// Name of the interface.
    pub interface: String,
    /// Way in which frames arrive.
    pub mode: UserTcpMode,
    /// Number of current connections.
    pub connections: u64,
    /// Number of connections since the start.
    pub opened: u64,
    /// Number of received frames.
    pub frames_received: u64,
    /// Number of sent frames.
    pub frames_sent: u64,
    /// Number of received frames that were dropped for lack of space.
    pub frames_dropped: u64,
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Number of connections that clients have reset.
    pub resets_received: u64,
    /// Number of connections that were closed, because nothing arrived from the client.
    pub timed_out: u64,
    /// Number of packets with a wrong checksum.
    pub bad_checksums: u64,
}

impl UserTcpLink {
    /// Converts the state to words of the memory.
    pub fn to_words(&self) -> [u64; USER_TCP_LINK_WORDS] {
        let mut name = [0u8; 16];
        name.iter_mut().zip(self.interface.bytes().take(NAME_LEN_BYTES)).for_each(|(to, from)| *to = from);
        let name = u128::from_le_bytes(name);
        let mut words = [0; USER_TCP_LINK_WORDS];
        let values = [
            name as u64,
            (name >> 64) as u64,
            self.mode as u64,
            self.connections,
            self.opened,
            self.frames_received,
            self.frames_sent,
            self.frames_dropped,
            self.retransmitted,
            self.resets_received,
            self.timed_out,
            self.bad_checksums,
        ];
        words.iter_mut().zip(values).for_each(|(to, from)| *to = from);
        words
    }

    fn from_words(words: &[u64]) -> Option<Self> {
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        let name = (u128::from(word(1)) << 64 | u128::from(word(0))).to_le_bytes();
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let interface = String::from_utf8_lossy(name.get(..len)?).into_owned();
        (!interface.is_empty()).then(|| Self {
            interface,
            mode: UserTcpMode::from_word(word(2)),
            connections: word(3),
            opened: word(4),
            frames_received: word(5),
            frames_sent: word(6),
            frames_dropped: word(7),
            retransmitted: word(8),
            resets_received: word(9),
            timed_out: word(10),
            bad_checksums: word(11),
        })
    }

    /// Parses all interfaces in the memory, from their first word on.
    pub(super) fn parse_all(words: &[u64]) -> Vec<Self> {
        words.chunks_exact(USER_TCP_LINK_WORDS).take(USER_TCP_LINKS).filter_map(Self::from_words).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_written_and_read() {
        let all = UserTcp::parse_all("eth0+eth1.7:zero-copy").unwrap();
        assert_eq!(all.iter().map(ToString::to_string).collect::<Vec<_>>(), ["eth0", "eth1.7:zero-copy"]);
        assert_eq!((all[0].zero_copy, all[1].zero_copy), (false, true));
        assert_eq!(UserTcp::parse_all(""), Some(Vec::new()));
        for text in ["a b", "a/b", "eth0+eth0:zero-copy", "sixteen-letters-", ":zero-copy", "eth0:copy"] {
            assert_eq!(UserTcp::parse_all(text), None, "{text}");
        }
        assert!(UserTcp::parse_all("a+b+c+d+e+f+g+h").is_some());
        assert!(UserTcp::parse_all("a+b+c+d+e+f+g+h+i").is_none());
    }

    #[test]
    fn the_state_is_written_and_read() {
        let link = UserTcpLink {
            interface: "fifteen-letters".to_owned(),
            mode: UserTcpMode::Generic,
            connections: 1,
            opened: 2,
            frames_received: 3,
            frames_sent: 4,
            frames_dropped: 5,
            retransmitted: 6,
            resets_received: 7,
            timed_out: 8,
            bad_checksums: 9,
        };
        let words = [link.to_words(), [0; USER_TCP_LINK_WORDS], UserTcpLink::default().to_words()].concat();
        assert_eq!(UserTcpLink::parse_all(&words), [link]);
    }
}
