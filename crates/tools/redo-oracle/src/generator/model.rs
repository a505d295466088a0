//! The generator's model of the existing tables.

/// Options of a table, with the class of its creation.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Table options.
    pub options: &'static str,
    /// KEY_BLOCK_SIZE in KiB; 0: not compressed by rows.
    pub key_block_kib: u32,
}

const fn format(options: &'static str, key_block_kib: u32) -> Format {
    Format { options, key_block_kib }
}

/// Every storage format that exists. Which of them a page size has is [`Format::exists`].
pub const FORMATS: [Format; 12] = [
    format("ROW_FORMAT=REDUNDANT", 0),
    format("ROW_FORMAT=COMPACT", 0),
    format("ROW_FORMAT=DYNAMIC", 0),
    format("ROW_FORMAT=DYNAMIC PAGE_COMPRESSED=1", 0),
    format("ROW_FORMAT=COMPACT PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=1", 0),
    format("ROW_FORMAT=DYNAMIC STATS_PERSISTENT=1 STATS_AUTO_RECALC=1", 0),
    format("ROW_FORMAT=REDUNDANT PAGE_COMPRESSED=1", 0),
    format("ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=1", 1),
    format("ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=2", 2),
    format("ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4", 4),
    format("ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8", 8),
    format("ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=16", 16),
];

impl Format {
    /// Whether servers with this page size have it.
    pub const fn exists(self, page_size_bytes: u32) -> bool {
        self.key_block_kib == 0 || page_size_bytes <= 16384 && self.key_block_kib * 1024 <= page_size_bytes
    }

    /// Longest indexed character column that fits its pages.
    pub const fn text_len(self) -> u32 {
        match self.key_block_kib {
            1 | 2 => 40,
            _ => 180,
        }
    }
}

/// A property that makes a table special.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Plain,
    /// Others refer to it.
    Parent,
    /// It refers to the parent of this name.
    Child,
    /// It has a column `body` with a full-text index.
    FullText,
    /// It has a column `p` with a spatial index.
    Spatial,
    /// Partitions by range of `id`.
    Ranged,
    /// Partitions by hash of `id`.
    Hashed,
    /// System-versioned.
    Versioned,
}

/// A table. All have columns `id`, `k`, `c` and `b`.
#[derive(Debug, Clone)]
pub struct Table {
    /// Qualified name.
    pub name: String,
    /// See [`Kind`].
    pub kind: Kind,
    /// Longest value of `c`.
    pub text_len: u32,
    /// Columns added later: name, and whether values can be assigned.
    pub extra: Vec<(String, bool)>,
    /// Secondary indexes that can be dropped.
    pub indexes: Vec<String>,
    /// Partitions that exist.
    pub partitions: Vec<String>,
    /// It has a foreign key that can be dropped.
    pub constraint: Option<String>,
    /// A full-text index was added.
    pub added_fulltext: Option<String>,
    /// In the system tablespace, where some statements are refused.
    pub in_system: bool,
    /// Row format COMPRESSED.
    pub compressed: bool,
    /// For a child: its parent.
    pub parent: Option<String>,
}

/// A connection's transaction.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// It is in a transaction.
    pub open: bool,
    /// Its savepoints.
    pub savepoints: Vec<String>,
    /// Its XA transaction, and how far it is.
    pub xa: Option<(String, Xa)>,
    /// Temporary tables.
    pub temporary: Vec<String>,
}

/// How far an XA transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Xa {
    /// Statements may come.
    Active,
    /// No more statements.
    Ended,
    /// Prepared.
    Prepared,
}
