//! Classification of paths.
//!
//! Pure: no file system access. Paths are made absolute and free of `.`, `..` and doubled slashes first
//! ([`normalise`]), then compared with the data directory ([`relative`]), then classified by name.

use redoubt_redo::Family;
use redoubt_redo::mysql::LogFileName;
use redoubt_redo::mysql::log_file::DIRECTORY;

/// Class of a path inside the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `ib_logfile0`.
    RedoLog,
    /// A file of MySQL's redo log: `#innodb_redo/#ib_redo7`, or a spare one, `#innodb_redo/#ib_redo7_tmp`.
    RedoFile,
    /// `ib_logfile101`: the redo log while it is created or resized.
    RedoLogResize,
    /// InnoDB pages that redo describes.
    Tablespace,
    /// Never sent to the node.
    Local,
    /// A real local file (or directory) whose changes are replicated.
    Plain,
}

/// The names that differ from server to server.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Family of the server.
    pub family: Family,
    /// Relative paths of the system tablespace's files.
    pub system_files: Vec<Vec<u8>>,
    /// Relative paths that stay local, each with at most one leading and one trailing `*`.
    pub local_files: Vec<Vec<u8>>,
}

/// Makes `path` absolute (against `base`, itself absolute) and removes `.`, `..` and empty parts.
pub fn normalise(base: &[u8], path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let prefix: &[u8] = if path.starts_with(b"/") { b"" } else { base };
    for part in prefix.split(is_slash).chain(path.split(is_slash)) {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    if parts.is_empty() {
        return b"/".to_vec();
    }
    let mut out = Vec::with_capacity(base.len() + path.len() + 1);
    for part in parts {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    out
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

/// The part of `absolute` below `datadir`; empty for the data directory itself.
pub fn relative<'a>(datadir: &[u8], absolute: &'a [u8]) -> Option<&'a [u8]> {
    let rest = absolute.strip_prefix(datadir)?;
    if rest.is_empty() {
        return Some(rest);
    }
    rest.strip_prefix(b"/")
}

/// Last part of a path.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(is_slash).next().unwrap_or(path)
}

/// Directory part of an absolute path (`/` for a path directly below it).
pub fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(is_slash) {
        Some(0) | None => b"/",
        Some(at) => path.split_at(at).0,
    }
}

/// Class of a normalised path relative to the data directory.
pub fn classify(rules: &Rules, path: &[u8]) -> Class {
    let name = file_name(path);
    let at_top = name.len() == path.len();
    // Not even in a directory of this host: redo would describe them.
    let is_table = name.ends_with(b".ibd") || (name.ends_with(b".frm") && !name.starts_with(b"#sql"));
    if !is_table && rules.local_files.iter().any(|pattern| matches(pattern, path)) {
        return Class::Local;
    }
    let own = match rules.family {
        Family::MariaDb if at_top => mariadb_class(name),
        Family::MariaDb => None,
        Family::MySql => mysql_class(path, name, at_top),
    };
    if let Some(class) = own {
        return class;
    }
    if at_top {
        // A member of a group of servers, its log above all, is of this host: another one must not become it.
        let local = [
            &b"ibtmp"[..],
            b"ib_buffer_pool",
            b".redoubt",
            b"redoubt_group.",
            b"grastate.dat",
            b"core.",
            b"galera.cache",
            b"gcache.page.",
        ];
        let probe = name.ends_with(b".lower-test") || name.ends_with(b".LOWER-TEST");
        if probe || name == b"core" || local.iter().any(|prefix| name.starts_with(prefix)) {
            return Class::Local;
        }
    }
    if is_undo(rules.family, path) || rules.system_files.iter().any(|file| file == path) {
        return Class::Tablespace;
    }
    if name.starts_with(b"#sql-temptable") {
        return Class::Local;
    }
    if name.ends_with(b".ibd") {
        return Class::Tablespace;
    }
    if at_top && [&b".pid"[..], b".sock", b".err", b".sock.lock"].iter().any(|end| name.ends_with(end)) {
        return Class::Local;
    }
    Class::Plain
}

/// Class of a name in the data directory itself.
fn mariadb_class(name: &[u8]) -> Option<Class> {
    match name {
        b"ib_logfile0" => Some(Class::RedoLog),
        b"ib_logfile101" => Some(Class::RedoLogResize),
        _ => name.starts_with(b"ib_logfile").then_some(Class::Local),
    }
}

fn mysql_class(path: &[u8], name: &[u8], at_top: bool) -> Option<Class> {
    if path.strip_prefix(DIRECTORY.as_bytes()).and_then(|rest| rest.strip_prefix(b"/")) == Some(name) {
        return is_mysql_redo_file(name).then_some(Class::RedoFile);
    }
    // Temporary tablespaces of sessions, and the doublewrite files: they are not read after the server has ended.
    let is_doublewrite = at_top && name.starts_with(b"#ib_") && name.ends_with(b"dblwr");
    (is_doublewrite || path.starts_with(b"#innodb_temp/")).then_some(Class::Local)
}

/// `#ib_redo` and a number, or that of a spare file.
pub fn is_mysql_redo_file(name: &[u8]) -> bool {
    LogFileName::parse(name).is_some()
}

/// A directory of this host. The names of local files do not count: a database may be called `core`.
pub fn is_local_directory(rules: &Rules, path: &[u8]) -> bool {
    let is_temporary = rules.family == Family::MySql && path == b"#innodb_temp";
    is_temporary
        || path.starts_with(b".redoubt")
        || rules.local_files.iter().any(|pattern| matches(pattern, path))
}

/// Refusal of a clone: its redo log would replace the server's, without the library.
pub const CLONE_REFUSAL: &str = "a clone of a server cannot be made by a server on a volume, be it in its own place or \
     in another directory: have a stock server make it (CLONE INSTANCE ... DATA DIRECTORY), and import that (`redoubt \
     volume import`); this server can be cloned by others";

/// Directory that MySQL makes first when it is about to replace its files by those of a clone.
pub fn is_clone_directory(rules: &Rules, path: &[u8]) -> bool {
    rules.family == Family::MySql && path == b"#clone"
}

/// Why a file outside the data directory may not be opened, if it is an InnoDB file. `has_begun`: the server has opened
/// its redo log.
pub fn refusal_outside(rules: &Rules, absolute: &[u8], has_begun: impl Fn() -> bool) -> Option<&'static str> {
    let name = file_name(absolute);
    if name.ends_with(b".ibd") {
        return Some(
            "a tablespace outside the data directory is not supported: \
             drop DATA DIRECTORY from the table (ALTER TABLE without it, on a stock server)",
        );
    }
    if is_undo(rules.family, name) {
        return Some(
            "undo tablespaces outside the data directory are not supported: unset innodb_undo_directory",
        );
    }
    let is_log = match rules.family {
        Family::MariaDb => name == b"ib_logfile0" || name == b"ib_logfile101",
        Family::MySql => is_mysql_redo_file(name),
    };
    if is_log {
        return Some(
            "a redo log outside the data directory is not supported: unset innodb_log_group_home_dir",
        );
    }
    if rules.system_files.iter().any(|file| file_name(file) == name) {
        // A running server makes such files for a clone only.
        if rules.family == Family::MySql && has_begun() {
            return Some(CLONE_REFUSAL);
        }
        return Some(
            "a system tablespace outside the data directory is not supported: unset innodb_data_home_dir",
        );
    }
    None
}

/// A file of undo logs: MariaDB's have three digits after `undo`; MySQL's first two are `undo_001` and `undo_002`,
/// and undo tablespaces created by a user end in `.ibu`.
pub fn is_undo(family: Family, path: &[u8]) -> bool {
    let three_digits = |rest: &[u8]| rest.len() == 3 && rest.iter().all(u8::is_ascii_digit);
    match family {
        Family::MariaDb => path.strip_prefix(b"undo").is_some_and(three_digits),
        Family::MySql => path.ends_with(b".ibu") || path.strip_prefix(b"undo_").is_some_and(three_digits),
    }
}

fn matches(pattern: &[u8], path: &[u8]) -> bool {
    match (pattern.strip_prefix(b"*"), pattern.strip_suffix(b"*")) {
        (Some(b""), _) => true,
        (Some(end), Some(_)) => {
            let middle = end.strip_suffix(b"*").unwrap_or(end);
            middle.is_empty() || path.windows(middle.len()).any(|window| window == middle)
        }
        (Some(end), None) => path.ends_with(end),
        (None, Some(start)) => path.starts_with(start),
        (None, None) => path == pattern,
    }
}

#[cfg(test)]
#[path = "classify/tests.rs"]
mod tests;
