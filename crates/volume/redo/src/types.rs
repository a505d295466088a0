//! Numbers that must not be confused with each other.
//!
//! Owns the newtypes every other crate uses for positions in the redo stream and for pages.
//! An [`Lsn`] always means a byte position in the server's redo stream: of MariaDB the server's own LSN, of MySQL the
//! position in the payload of its log blocks ([`crate::mysql::position`]).

use std::fmt;

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

/// Log sequence number: byte position in the server's redo stream.
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
