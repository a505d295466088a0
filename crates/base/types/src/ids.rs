//! Newtypes for numbers that must not be confused with each other: positions, pages, files; and the server family.

use std::fmt;

/// Byte position in a logical stream of payload bytes: of a log device, and of the frames that a server sends to its
/// node, which are the bytes of the node's log device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node's number for a file of a volume. It stays when the file is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FileId(pub u32);

/// Whose server: which redo format, which page formats, and which rules of writing pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// MariaDB 10.8 and later.
    MariaDb,
    /// MySQL 8.0.30 and later.
    MySql,
}

impl Family {
    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }

    /// The one with this [`Family::name`].
    pub fn named(name: &str) -> Option<Self> {
        [Self::MariaDb, Self::MySql].into_iter().find(|family| family.name() == name)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Log sequence number: byte position in the server's redo stream. Of MariaDB it is the server's own LSN, of MySQL the
/// position in the payload of its log blocks (`redoubt_redo::mysql::position`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

/// Tablespace id as the server assigns it. 0 is the system tablespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SpaceId(pub u32);

/// Page number inside a tablespace (counted through all files of the system tablespace).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageNo(pub u32);

/// Identity of a page: tablespace and page number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageId {
    /// The tablespace.
    pub space: SpaceId,
    /// The page inside it.
    pub page_no: PageNo,
}

impl PageId {
    /// Page `page_no` of tablespace `space`.
    pub const fn new(space: u32, page_no: u32) -> Self {
        Self { space: SpaceId(space), page_no: PageNo(page_no) }
    }
}

impl Lsn {
    /// The LSN `len_bytes` further in the stream.
    pub const fn advance(self, len_bytes: u64) -> Self {
        Self(self.0 + len_bytes)
    }
}

macro_rules! show_as_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{}", self.0) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    )*};
}
show_as_number!(Lsn, SpaceId, PageNo);

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space, self.page_no)
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageId({self})")
    }
}
