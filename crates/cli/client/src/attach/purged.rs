//! Binary logs that an administrator removed by hand: a full disk, `rm` of the oldest, and the index without them.
//!
//! The node still has such a file, and a fill would bring it back, for ever, since no index names it. It stays away if the
//! directory shows what happened: it held the whole volume when its server was started last, on this boot of the host, and
//! the index names only later files. (After a power cut, files of the cache may be missing without anybody's doing.) The
//! library then removes the file from the volume; [`REMOVED_NAME`] lists the files for it. Other files that are missing come
//! back, and are named; `--accept-removed` removes them from the volume instead.

use std::collections::{BTreeMap, BTreeSet};

/// File of the data directory with the paths of removed files, each ended by a zero byte.
pub const REMOVED_NAME: &str = ".redoubt-removed";
/// Fewer digits are another file's.
const DIGITS_MIN: usize = 6;

/// The name without its number, and the number, of a file like `db1-bin.000042`.
fn numbered(path: &str) -> Option<(&str, u64)> {
    let (base, digits) = path.rsplit_once('.')?;
    let is_number = digits.len() >= DIGITS_MIN && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((base, digits.parse().ok().filter(|_| is_number)?))
}

/// The numbers of the files that an index names; `None` if it names none, or not only files of `base`.
fn numbers_of_index(base: &str, text: &str) -> Option<BTreeSet<u64>> {
    let mut numbers = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (found, number) = numbered(line)?;
        if name(found) != name(base) {
            return None;
        }
        numbers.insert(number);
    }
    Some(numbers).filter(|numbers| !numbers.is_empty())
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Those of `missing` that come before all files which their index names. `index_of`: text of the index of a base name.
pub fn purged<'e>(
    missing: &BTreeSet<&'e str>,
    index_of: impl Fn(&str) -> Option<String>,
) -> BTreeSet<&'e str> {
    let mut firsts: BTreeMap<&str, Option<u64>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for path in missing {
        let Some((base, number)) = numbered(path) else { continue };
        let first_of = || numbers_of_index(base, &index_of(base)?)?.first().copied();
        let first = *firsts.entry(base).or_insert_with(first_of);
        if first.is_some_and(|first| number < first) {
            found.insert(*path);
        }
    }
    found
}

#[cfg(test)]
#[path = "purged_tests.rs"]
mod tests;
