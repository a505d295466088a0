//! Protocol state of one connection: whether the server waits for a command, whether a transaction is open then, and
//! whether locks may be held outside of a transaction.
//!
//! When the server asks for the header of a next command, the last packet it has sent is the end of its answer. So
//! results need not be parsed: the beginning of each sent packet is kept, and only that of the last one is examined.
//!
//! The packet numbers confirm the position in the protocol: they go up by one over both directions and begin at 0 with
//! each command. A mismatch makes the tracker [`Tracker::lost`] for good: the connection's state is unknown, and it
//! never waits.
//!
//! Invariants: it allocates no memory; no bytes make it panic; a connection waits only if it certainly holds no lock.

use super::packets::{Packets, Piece};
use super::text::{self, Text};

/// Length of the header that the server asks for.
const HEADER_LEN_BYTES: usize = 4;
/// Kept length of a sent packet: an OK with the longest numbers before its status.
const ANSWER_LEN_BYTES: usize = 24;
/// Maximum length of a user name, in bytes.
const USER_LEN_BYTES: usize = 80;
/// Offset of the user name in a client's first packet.
const USER_AT: usize = 32;
/// Parsed length of a statement's text.
const TEXT_LEN_BYTES: u32 = 64 << 10;

const IN_TRANSACTION: u16 = 0x1;
const AUTOCOMMIT: u16 = 0x2;
const MORE_RESULTS: u16 = 0x8;
/// Capability flag of a client: it continues with TLS.
const CLIENT_TLS: u32 = 0x800;
/// Capability flags of a client: it may compress, with zlib or with zstd.
const CLIENT_COMPRESSES: u32 = 0x20 | 1 << 26;
/// Maximum content length of a client's TLS request.
const TLS_REQUEST_LEN_BYTES: u32 = 32;
const NO_BACKSLASH_ESCAPES: u16 = 0x200;

/// Deadlock: the transaction is gone with it, in every engine.
const DEADLOCK: u16 = 1213;

/// Commands, by their first byte.
mod command {
    pub const QUIT: u8 = 1;
    pub const INIT_DB: u8 = 2;
    pub const QUERY: u8 = 3;
    pub const FIELD_LIST: u8 = 4;
    pub const STATISTICS: u8 = 9;
    pub const CHANGE_USER: u8 = 17;
    pub const PREPARE: u8 = 22;
    pub const EXECUTE: u8 = 23;
    pub const LONG_DATA: u8 = 24;
    pub const CLOSE_STATEMENT: u8 = 25;
    /// Behind RESET and SET_OPTION.
    pub const FETCH: u8 = 28;
    pub const RESET_CONNECTION: u8 = 31;
    pub const BULK_EXECUTE: u8 = 250;
    /// REFRESH, SHUTDOWN, STATISTICS, PROCESS_INFO, CONNECT, PROCESS_KILL, DEBUG, PING.
    pub const OLD: std::ops::RangeInclusive<u8> = 5..=14;
}

/// Phase of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The tracker joined in the middle; the next header after an answer is a command's.
    Joining,
    /// The client has not sent its first packet.
    Greeting,
    /// The client has asked for TLS, and no plaintext has passed yet.
    Upgrading,
    /// The client is logging in, possibly again.
    Login,
    /// Commands and answers.
    Commands,
    /// Replication and the like: a client that admission does not handle.
    Other,
    /// The protocol could not be followed.
    Lost,
}

/// The input that the server waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Something other than a command, or unknown.
    None,
    /// A command.
    Command {
        /// No transaction is open, and no lock is held: the command may wait.
        may_wait: bool,
        /// A transaction is open, or may be.
        keeps: bool,
    },
}

/// Tracker of one connection's protocol.
#[derive(Clone, Debug)]
pub struct Tracker {
    phase: Phase,
    input: Packets,
    output: Packets,
    /// The packet that is being read may be a command.
    expects_command: bool,
    /// Number of the last packet of either direction.
    number: u8,
    /// First byte of the last command.
    command: u8,
    /// Received content of the current packet, in bytes.
    content_len_bytes: u32,
    text: Text,
    /// The whole command is text.
    reads_text: bool,
    /// Packets were sent since the last one was read.
    answered: bool,
    answer: [u8; ANSWER_LEN_BYTES],
    answer_len_bytes: u8,
    answer_packet_len_bytes: u32,
    /// The tracker has joined and no packet has passed since.
    joined: bool,
    /// The last answer's end was examined.
    resolved: bool,
    status: Option<u16>,
    /// After an error it is unknown whether a transaction is open.
    doubtful: bool,
    holds: u8,
    all_prepared_simple: bool,
    user: [u8; USER_LEN_BYTES],
    user_len_bytes: u8,
    /// The client's capability flags.
    client: u32,
    /// The packets' numbers go up by one. Within frames they do not; those of the frames do.
    is_numbered: bool,
}

impl Tracker {
    fn new(phase: Phase) -> Self {
        Self {
            phase,
            input: Packets::default(),
            output: Packets::default(),
            expects_command: false,
            number: u8::MAX,
            command: 0,
            content_len_bytes: 0,
            text: Text::default(),
            reads_text: false,
            answered: false,
            answer: [0; ANSWER_LEN_BYTES],
            answer_len_bytes: 0,
            answer_packet_len_bytes: 0,
            joined: false,
            resolved: true,
            status: None,
            doubtful: false,
            holds: 0,
            all_prepared_simple: phase != Phase::Joining,
            user: [0; USER_LEN_BYTES],
            user_len_bytes: 0,
            client: 0,
            is_numbered: true,
        }
    }

    /// The tracker of a new connection.
    pub fn accepted() -> Self {
        Self::new(Phase::Greeting)
    }

    /// The tracker of an existing connection: it may hold locks of any kind until its status is known.
    pub fn joining() -> Self {
        Self::new(Phase::Joining)
    }

    /// The protocol could not be followed; this never changes back.
    pub fn lost(&self) -> bool {
        self.phase == Phase::Lost
    }

    /// Marks the connection as lost.
    pub fn lose(&mut self) {
        self.phase = Phase::Lost;
    }

    /// The following bytes are plaintext inside TLS.
    pub fn encrypt(&mut self) {
        match self.phase {
            Phase::Upgrading => self.phase = Phase::Greeting,
            // The bytes sent so far were not an answer's.
            Phase::Joining => self.answered = false,
            Phase::Other | Phase::Lost => {}
            _ => self.lose(),
        }
    }

    /// Name of the user that has logged in or tries to. Empty: not known.
    pub fn user(&self) -> &[u8] {
        self.user.get(..usize::from(self.user_len_bytes)).unwrap_or_default()
    }

    /// Locks that may be held outside of a transaction.
    pub fn holds(&self) -> u8 {
        self.holds
    }

    fn follows(&self, number: u8) -> bool {
        !self.is_numbered || number == self.number.wrapping_add(1)
    }

    fn is_followed(&self) -> bool {
        !matches!(self.phase, Phase::Joining | Phase::Upgrading | Phase::Other | Phase::Lost)
    }

    /// The server has sent this.
    pub fn sent(&mut self, mut bytes: &[u8]) {
        if !self.is_followed() {
            self.answered = true;
            self.lose_unless_told();
            return;
        }
        while let Some(piece) = self.output.next(&mut bytes) {
            match piece {
                Piece::Begin { number, len_bytes, continues } => {
                    if !self.follows(number) || !self.input.is_at_start() {
                        return self.lose();
                    }
                    self.number = number;
                    (self.answered, self.resolved) = (true, false);
                    // A packet that continues another is the end of a row, never the end of an answer.
                    (self.answer_len_bytes, self.answer_packet_len_bytes) =
                        (0, if continues { 0 } else { len_bytes });
                }
                Piece::Content(content) => self.keep(content),
            }
        }
    }

    /// TLS has begun, and its plaintext is not available.
    fn lose_unless_told(&mut self) {
        if self.phase == Phase::Upgrading {
            self.lose();
        }
    }

    fn keep(&mut self, content: &[u8]) {
        let done = usize::from(self.answer_len_bytes);
        let wanted = ANSWER_LEN_BYTES.min(self.answer_packet_len_bytes as usize);
        if done < wanted {
            let len = content.len().min(wanted - done);
            if let (Some(place), Some(bytes)) = (self.answer.get_mut(done..done + len), content.get(..len)) {
                place.copy_from_slice(bytes);
            }
            self.answer_len_bytes += len as u8;
        }
    }

    /// The server has read this.
    pub fn received(&mut self, mut bytes: &[u8]) {
        if !self.is_followed() {
            self.answered = false;
            self.lose_unless_told();
            return;
        }
        // The tracker may stop following the connection within the loop.
        while self.is_followed() {
            if !bytes.is_empty() && self.input.is_at_start() {
                self.expects_command = self.boundary() != Boundary::None;
            }
            let Some(piece) = self.input.next(&mut bytes) else { break };
            match piece {
                Piece::Begin { number, len_bytes, continues } => self.begin(number, len_bytes, continues),
                Piece::Content(content) => self.content(content),
            }
            if self.input.is_at_start() && self.is_followed() {
                self.end();
            }
        }
    }

    fn begin(&mut self, number: u8, len_bytes: u32, continues: bool) {
        let is_command = number == 0 && !continues && self.expects_command;
        let is_expected =
            if self.is_numbered { self.follows(number) } else { !self.expects_command || continues };
        if is_command && len_bytes == 0 || !is_command && !is_expected {
            return self.lose();
        }
        self.number = number;
        (self.answered, self.joined) = (false, false);
        if !continues {
            self.content_len_bytes = 0;
        }
        self.reads_text = is_command || continues && self.reads_text;
    }

    fn content(&mut self, content: &[u8]) {
        let before = self.content_len_bytes;
        self.content_len_bytes = before.saturating_add(content.len() as u32);
        match self.phase {
            Phase::Greeting | Phase::Login => self.log_in(before, content),
            Phase::Commands if self.reads_text => self.read_command(before, content),
            _ => {}
        }
    }

    /// Parses a client's answer to the greeting; only its capability flags and the user's name count.
    fn log_in(&mut self, before: u32, content: &[u8]) {
        if self.phase != Phase::Greeting {
            return;
        }
        for (at, byte) in (before as usize..).zip(content) {
            let Some(done) = at.checked_sub(USER_AT) else {
                self.client |= u32::from(*byte).checked_shl(at as u32 * 8).unwrap_or(0);
                continue;
            };
            if *byte == 0 {
                (self.phase, self.user_len_bytes) = (Phase::Login, done as u8);
                return;
            }
            match self.user.get_mut(done) {
                Some(place) => *place = *byte,
                None => return self.lose(),
            }
        }
    }

    fn read_command(&mut self, before: u32, content: &[u8]) {
        let mut rest = content;
        if before == 0 {
            let Some((first, after)) = content.split_first() else { return };
            rest = after;
            self.begin_command(*first);
        }
        if matches!(self.command, command::QUERY | command::PREPARE) {
            let left = TEXT_LEN_BYTES.saturating_sub(before) as usize;
            self.text.feed(rest.get(..left).unwrap_or(rest));
        }
    }

    fn begin_command(&mut self, first: u8) {
        self.command = first;
        self.text = Text::new(self.status.is_none_or(|status| status & NO_BACKSLASH_ESCAPES != 0));
        match first {
            command::QUIT..=command::FIELD_LIST
            | command::PREPARE..=command::FETCH
            | command::RESET_CONNECTION
            | command::BULK_EXECUTE => {}
            first if command::OLD.contains(&first) => {}
            command::CHANGE_USER => (self.phase, self.user_len_bytes) = (Phase::Login, 0),
            _ => self.phase = Phase::Other,
        }
    }

    /// A packet of the client is complete.
    fn end(&mut self) {
        if self.phase == Phase::Greeting {
            let is_request = self.client & CLIENT_TLS != 0 && self.content_len_bytes <= TLS_REQUEST_LEN_BYTES;
            // Otherwise the packet has no user name.
            self.phase = if is_request { Phase::Upgrading } else { Phase::Lost };
            self.client = 0;
        }
        if self.phase == Phase::Commands
            && self.reads_text
            && !self.input.goes_on()
            && matches!(self.command, command::QUERY | command::PREPARE)
        {
            self.text.end();
            self.holds |= self.text.holds();
            self.all_prepared_simple &= self.command != command::PREPARE || self.text.is_simple();
        }
    }

    fn join(&mut self) {
        *self = Self::new(Phase::Commands);
        self.all_prepared_simple = false;
        (self.doubtful, self.joined) = (true, true);
    }

    /// The server asks for bytes as it does for compressed frames. `true`: they are compressed from here on.
    pub fn begins_compressed(&mut self) -> bool {
        if self.phase == Phase::Joining && self.answered {
            self.join();
        } else if self.client & CLIENT_COMPRESSES == 0 || self.boundary() == Boundary::None {
            return false;
        }
        self.is_numbered = false;
        true
    }

    /// The server asks for bytes of this length, at most.
    pub fn asks(&mut self, len_bytes: usize) -> Boundary {
        if self.phase == Phase::Joining && self.answered && len_bytes == HEADER_LEN_BYTES {
            // After an answer a server reads a header, and nothing else has four bytes.
            self.join();
        }
        let boundary = self.boundary();
        if boundary != Boundary::None && len_bytes != HEADER_LEN_BYTES {
            // The server reads in an unknown way.
            self.lose();
            return Boundary::None;
        }
        boundary
    }

    /// The input that a wait of the server at this point is for.
    pub fn boundary(&mut self) -> Boundary {
        if !self.is_followed() || !self.input.is_at_start() || !self.output.is_at_start() {
            return Boundary::None;
        }
        if !self.resolved {
            if !self.resolve() {
                return Boundary::None;
            }
            self.resolved = true;
        }
        let has_no_answer = matches!(self.command, command::LONG_DATA | command::CLOSE_STATEMENT);
        if self.phase != Phase::Commands || !self.answered && !has_no_answer && !self.joined {
            return Boundary::None;
        }
        let in_transaction = self.status.is_none_or(|status| status & IN_TRANSACTION != 0);
        let keeps = in_transaction || self.doubtful;
        Boundary::Command { may_wait: !keeps && self.holds == 0, keeps }
    }

    /// Examines the last packet sent. `false`: it does not end an answer.
    fn resolve(&mut self) -> bool {
        let answer = self.answer;
        let answer = answer.get(..usize::from(self.answer_len_bytes)).unwrap_or_default();
        let len_bytes = self.answer_packet_len_bytes as usize;
        match (answer.first(), self.phase) {
            (Some(0), Phase::Login) => {
                // A client that has just logged in holds no lock.
                (self.phase, self.holds, self.all_prepared_simple) = (Phase::Commands, 0, true);
                // A command that has an answer.
                self.command = command::CHANGE_USER;
                self.take_status(status_of_ok(answer))
            }
            (_, Phase::Greeting | Phase::Login) => false,
            (Some(0xff), _) => {
                self.take_error(answer);
                true
            }
            // Their answers have no status, or end with other packets.
            _ if matches!(self.command, command::PREPARE | command::STATISTICS | command::FIELD_LIST) => true,
            (Some(0), _) if len_bytes >= 7 => self.take_status(status_of_ok(answer)),
            (Some(0xfe), _) if len_bytes == 5 => self.take_status(word_at(answer, 3)),
            (Some(0xfe), _) if len_bytes >= 7 => self.take_status(status_of_ok(answer)),
            // The server asks for a file.
            (Some(0xfb), _) => false,
            _ => {
                self.lose();
                false
            }
        }
    }

    fn take_status(&mut self, status: Option<u16>) -> bool {
        let Some(status) = status else {
            self.lose();
            return false;
        };
        if status & MORE_RESULTS != 0 {
            return false;
        }
        self.status = Some(status);
        self.doubtful = false;
        if self.command == command::RESET_CONNECTION {
            (self.holds, self.all_prepared_simple) = (0, true);
        }
        if self.command == command::QUERY && self.text.is_unlock() {
            self.holds &= !text::TABLES;
        }
        true
    }

    /// An error has no status.
    fn take_error(&mut self, answer: &[u8]) {
        let ends = word_at(answer, 1) == Some(DEADLOCK);
        let Some(status) = self.status.as_mut() else { return };
        if ends {
            *status &= !IN_TRANSACTION;
            self.doubtful = false;
            return;
        }
        let leaves_nothing = match self.command {
            command::QUERY => self.text.is_simple(),
            command::EXECUTE | command::BULK_EXECUTE => self.all_prepared_simple,
            _ => true,
        };
        let was_outside = *status & (IN_TRANSACTION | AUTOCOMMIT) == AUTOCOMMIT && !self.doubtful;
        if *status & IN_TRANSACTION == 0 && !(was_outside && leaves_nothing) {
            self.doubtful = true;
        }
    }

    /// Bytes that the client has sent begin with a command that takes no row locks, or that unblocks other connections.
    pub fn is_free(&self, bytes: &[u8]) -> bool {
        let Some((header, content)) = bytes.split_at_checked(HEADER_LEN_BYTES) else { return false };
        let len = header.iter().take(3).rev().fold(0, |len, byte| len << 8 | usize::from(*byte));
        match content.split_first() {
            Some((&command::QUERY, text)) if text.len() + 1 >= len => {
                let mut look = Text::new(self.status.is_none_or(|status| status & NO_BACKSLASH_ESCAPES != 0));
                look.feed(text.get(..len.saturating_sub(1)).unwrap_or_default());
                look.end();
                look.is_free()
            }
            Some((command, _)) => {
                matches!(
                    *command,
                    command::QUIT
                        | command::INIT_DB
                        | command::FIELD_LIST
                        | command::CHANGE_USER
                        | command::PREPARE
                        | command::LONG_DATA..=command::FETCH | command::RESET_CONNECTION
                ) || command::OLD.contains(command)
            }
            None => false,
        }
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_le_bytes(*word))
}

/// After its first byte an OK packet has two length-encoded numbers.
fn status_of_ok(answer: &[u8]) -> Option<u16> {
    let mut at = 1;
    for _ in 0..2 {
        at += match answer.get(at)? {
            0..=0xfa => 1,
            0xfc => 3,
            0xfd => 4,
            0xfe => 9,
            _ => return None,
        };
    }
    word_at(answer, at)
}

#[cfg(test)]
mod tests;
