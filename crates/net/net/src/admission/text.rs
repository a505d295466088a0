//! Locks that outlive a statement, derived from its text, word by word as the text passes by.
//!
//! Not a parser. It recognises strings, comments and the beginning of a statement, and examines the first two words of
//! each statement. Names of locking functions count anywhere, even in a string. Its errors are meant to go in one
//! direction: it treats a statement as one that may hold locks.
//!
//! Invariant: it allocates no memory, and the same text in other pieces gives the same result.

/// The locks of LOCK TABLES and of FLUSH TABLES: UNLOCK TABLES lets go of them.
pub const TABLES: u8 = 1;
/// Locks whose end is not followed: they count until the session ends.
pub const SESSION: u8 = 2;

const WORD_LEN_BYTES: usize = 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Code,
    Quoted(u8),
    Escaped(u8),
    LineComment,
    BlockComment,
}

/// The words that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Word {
    #[default]
    None,
    Other,
    /// A statement that leaves no transaction open when it fails outside of one.
    Simple,
    /// A simple statement that locks no rows unless it names a table.
    Select,
    /// Keyword before a table's name.
    From,
    Show,
    Set,
    Statement,
    Kill,
    Use,
    Unlock,
    Table,
    Lock,
    Flush,
    Backup,
    Handler,
    Prepare,
    Execute,
    Immediate,
    Xa,
    Start,
    Commit,
}

/// Functions whose locks outlive the statement, in any statement that calls them.
const LOCKING_FUNCTIONS: [&[u8]; 3] = [b"GET_LOCK", b"SERVICE_GET_READ_LOCKS", b"SERVICE_GET_WRITE_LOCKS"];

impl Word {
    fn of(text: &[u8]) -> Self {
        match text {
            b"INSERT" | b"UPDATE" | b"DELETE" | b"REPLACE" | b"WITH" | b"CREATE" | b"DROP" | b"ALTER"
            | b"TRUNCATE" | b"LOAD" | b"DO" | b"ANALYZE" | b"OPTIMIZE" | b"EXPLAIN" | b"DESC"
            | b"DESCRIBE" | b"VALUES" => Self::Simple,
            b"SELECT" => Self::Select,
            b"FROM" | b"FOR" => Self::From,
            b"SHOW" => Self::Show,
            b"SET" => Self::Set,
            b"STATEMENT" => Self::Statement,
            b"KILL" | b"SHUTDOWN" => Self::Kill,
            b"USE" => Self::Use,
            b"UNLOCK" => Self::Unlock,
            b"TABLE" | b"TABLES" => Self::Table,
            b"LOCK" => Self::Lock,
            b"FLUSH" => Self::Flush,
            b"BACKUP" => Self::Backup,
            b"HANDLER" => Self::Handler,
            b"PREPARE" => Self::Prepare,
            b"EXECUTE" => Self::Execute,
            b"IMMEDIATE" => Self::Immediate,
            b"XA" => Self::Xa,
            b"START" | b"BEGIN" => Self::Start,
            b"COMMIT" | b"ROLLBACK" => Self::Commit,
            _ => Self::Other,
        }
    }
}

/// A statement's text during the scan.
#[derive(Clone, Debug, Default)]
pub struct Text {
    mode: Mode,
    no_backslash_escapes: bool,
    /// The last bytes of code, latest in the lowest byte.
    last: u32,
    word: [u8; WORD_LEN_BYTES],
    word_len: u8,
    first: Word,
    second: Word,
    statements: u8,
    /// It may read tables: its parentheses hold other statements, or the arguments of a function.
    may_have_tables: bool,
    /// The next word begins another statement.
    ended: bool,
    is_simple: bool,
    holds: u8,
    at_start: bool,
}

impl Text {
    /// A text of which no bytes were scanned yet.
    pub fn new(no_backslash_escapes: bool) -> Self {
        Self { no_backslash_escapes, is_simple: true, at_start: true, ..Self::default() }
    }

    /// Scans the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) {
        if std::mem::take(&mut self.at_start) && (1..9).contains(&byte) {
            // Query attributes, which may contain anything, precede the text.
            self.holds |= SESSION;
        }
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80 {
            if let Some(place) = self.word.get_mut(usize::from(self.word_len)) {
                *place = byte.to_ascii_uppercase();
            }
            self.word_len = self.word_len.saturating_add(1);
        } else if self.word_len > 0 {
            self.end_word();
        }
        self.mode = match self.mode {
            Mode::Code => self.in_code(byte),
            Mode::Escaped(quote) => Mode::Quoted(quote),
            Mode::Quoted(quote) if byte == quote => Mode::Code,
            Mode::Quoted(quote) if byte == b'\\' && quote != b'`' && !self.no_backslash_escapes => {
                Mode::Escaped(quote)
            }
            Mode::LineComment if byte == b'\n' => Mode::Code,
            Mode::BlockComment if byte == b'!' && self.last & 0xff_ffff == 0x2f_2a_4d => Mode::Code,
            Mode::BlockComment if byte == b'/' && self.last & 0xff == u32::from(b'*') => {
                self.last = 0;
                self.mode = Mode::Code;
                return;
            }
            other => other,
        };
        self.last = self.last << 8 | u32::from(byte);
    }

    fn in_code(&mut self, byte: u8) -> Mode {
        let [_, _, second, first] = self.last.to_be_bytes();
        // Comments that some servers execute count as code.
        if (second, first) == (b'/', b'*') && byte != b'!' {
            return Mode::BlockComment;
        }
        if (second, first) == (b'-', b'-') && byte <= b' ' && byte != b'\n' {
            return Mode::LineComment;
        }
        match byte {
            b'\'' | b'"' | b'`' => return Mode::Quoted(byte),
            b'#' => return Mode::LineComment,
            b';' => self.end_statement(),
            b'(' => self.may_have_tables = true,
            // The statement's text is in a variable.
            b'@' if self.is_indirect() => self.holds |= SESSION,
            _ => {}
        }
        Mode::Code
    }

    /// The statement prepares or executes a text as another statement.
    fn is_indirect(&self) -> bool {
        self.first == Word::Prepare || self.first == Word::Execute && self.second == Word::Immediate
    }

    fn end_word(&mut self) {
        let len = usize::from(std::mem::take(&mut self.word_len));
        let Some(text) = self.word.get(..len) else {
            return self.take_word(Word::Other);
        };
        if LOCKING_FUNCTIONS.contains(&text) {
            self.holds |= SESSION;
        }
        let word = Word::of(text);
        // Versions in comments are not words.
        if !text.first().is_some_and(u8::is_ascii_digit) {
            self.take_word(word);
        }
    }

    fn take_word(&mut self, word: Word) {
        if self.mode == Mode::Code && std::mem::take(&mut self.ended) {
            (self.first, self.second) = (Word::None, Word::None);
        }
        if self.is_indirect() && matches!(word, Word::Lock | Word::Flush | Word::Backup | Word::Handler) {
            self.holds |= SESSION;
        }
        if self.mode != Mode::Code {
            return;
        }
        if matches!(word, Word::From | Word::Table) {
            self.may_have_tables = true;
        }
        if self.first == Word::Flush && word == Word::Table {
            self.holds |= TABLES;
        }
        if self.first == Word::None {
            self.first = word;
            self.statements = self.statements.saturating_add(1);
            self.take_first(word);
        } else if self.second == Word::None {
            self.second = word;
            match self.first {
                Word::Lock => self.holds |= if word == Word::Table { TABLES } else { SESSION },
                Word::Set if word == Word::Statement => self.is_simple = false,
                _ => {}
            }
        }
    }

    fn take_first(&mut self, word: Word) {
        match word {
            Word::Backup | Word::Handler => self.holds |= SESSION,
            Word::Simple
            | Word::Select
            | Word::Show
            | Word::Set
            | Word::Kill
            | Word::Use
            | Word::Table
            | Word::Unlock => {}
            _ => self.is_simple = false,
        }
    }

    fn end_statement(&mut self) {
        if self.first == Word::Lock && self.second == Word::None {
            self.holds |= SESSION;
        }
        self.ended = true;
    }

    /// Locks that may outlive the text's statements.
    pub fn holds(&self) -> u8 {
        self.holds
    }

    /// Ends the text: its last bytes may be a word.
    pub fn end(&mut self) {
        if self.word_len > 0 {
            self.end_word();
        }
        if self.first == Word::Lock && self.second == Word::None {
            self.holds |= SESSION;
        }
    }

    /// If it fails outside of a transaction, with autocommit, none is open afterwards.
    pub fn is_simple(&self) -> bool {
        self.is_simple && self.statements <= 1
    }

    /// UNLOCK TABLES, and nothing else.
    pub fn is_unlock(&self) -> bool {
        self.statements == 1 && (self.first, self.second) == (Word::Unlock, Word::Table)
    }

    /// A statement that takes no row locks, or that others may need to make progress. Only after [`Text::end`].
    pub fn is_free(&self) -> bool {
        let is_known = match self.first {
            Word::Kill | Word::Show | Word::Unlock | Word::Use | Word::Commit => true,
            // Ends what another connection has prepared.
            Word::Xa => self.second != Word::Start,
            // Queries of drivers and connection pools, above all at the login.
            Word::Select => !self.may_have_tables,
            Word::Set => self.second != Word::Statement && !self.may_have_tables,
            _ => false,
        };
        is_known && self.statements == 1 && self.mode == Mode::Code
    }
}

#[cfg(test)]
mod tests;
