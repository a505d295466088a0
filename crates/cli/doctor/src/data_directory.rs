//! The server's local data directory, and the directory of its page cache.

use super::report::Check;
use super::space::FileSystem;
use super::{locks, space};
use redoubt_client::attach::datadir;
use redoubt_client::events::bytes;
use std::path::Path;

const NAME: &str = "data_directory";
/// Free space for plain files, logs and the temporary tablespace, in bytes.
const LEAST_BYTES: u64 = 256 << 20;

/// Whether `redoubt run` would take it, and whether there is room.
pub fn check(path: &Path, volume: Option<&str>) -> Vec<Check> {
    let shown = path.display();
    let state = match datadir::volume_of(path) {
        Err(error) => Check::refused(NAME, &error, "use an empty directory"),
        Ok(None) => Check::ok(NAME, format!("{shown}: empty or still to be made")),
        Ok(Some(of)) => judge(&shown.to_string(), &of, volume, locks::holder(&datadir::lock_file(path))),
    };
    vec![state, space::check("free_space", path, LEAST_BYTES, "a server's plain files")]
}

fn judge(path: &str, of: &str, wanted: Option<&str>, process: Option<u32>) -> Check {
    let found = format!("{path}: a cache of volume {of}");
    match (wanted, process) {
        (Some(wanted), _) if wanted != of => {
            Check::problem(NAME, found, format!("use another directory for volume {wanted}"))
        }
        (_, Some(process)) => Check::note(
            NAME,
            format!("{found}, in use by process {process}"),
            "stop that server before you start another",
        ),
        _ => Check::ok(NAME, found),
    }
}

/// Whether the page cache fits where it is to be, and is of use.
pub fn page_cache(len: u64, directory: Option<&Path>, pool: u64) -> Check {
    let place = directory.map(|directory| {
        (
            directory.display().to_string(),
            directory.is_dir().then(|| FileSystem::of(directory).ok()).flatten(),
        )
    });
    judge_page_cache(len, place, pool)
}

fn judge_page_cache(len: u64, place: Option<(String, Option<FileSystem>)>, pool: u64) -> Check {
    const NAME: &str = "page_cache";
    let found = format!("{}, buffer pool {}", bytes(len), bytes(pool));
    match place {
        Some((path, None)) => Check::problem(
            NAME,
            format!("there is no directory {path}"),
            "make it, owned by the server's user",
        ),
        Some((path, Some(space))) if space.is_memory => Check::warning(
            NAME,
            format!("{found}, in {path}, which is memory"),
            "leave --page-cache-directory out, or name one on a local disk",
        ),
        Some((path, Some(space))) if space.free < len => Check::problem(
            NAME,
            format!("{found}, in {path} with {} free", bytes(space.free)),
            "make it smaller, or use another disk: its room is reserved at the start",
        ),
        _ if len < pool => Check::warning(
            NAME,
            found,
            "make it larger than the buffer pool: most of what a smaller one holds is in the pool too",
        ),
        place => Check::ok(
            NAME,
            place.map_or_else(|| format!("{found}, in memory"), |(path, _)| format!("{found}, in {path}")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;

    #[test]
    fn a_directory_is_one_volumes() {
        let level = |wanted, process| judge("/data", "shop", wanted, process).level;
        assert_eq!(level(Some("shop"), None), Level::Ok);
        assert_eq!(level(None, None), Level::Ok);
        assert_eq!(level(Some("shop"), Some(7)), Level::Note);
        assert_eq!(level(Some("blog"), None), Level::Problem);
    }

    #[test]
    fn a_directory_with_other_files_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let level = || check(directory.path(), Some("shop"))[0].level;
        assert_eq!(level(), Level::Ok);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        std::fs::write(directory.path().join("ibdata1"), "").unwrap();
        assert_eq!(level(), Level::Problem);
        std::fs::write(directory.path().join(".redoubt"), "{").unwrap();
        assert_eq!(level(), Level::Problem);
        std::fs::write(directory.path().join(".redoubt"), r#"{"format":1,"volume_id":"i","volume":"shop"}"#)
            .unwrap();
        assert_eq!(level(), Level::Ok);
    }

    #[test]
    fn a_page_cache_needs_room_and_a_reason() {
        const GIB: u64 = 1 << 30;
        let space = |free, is_memory| Some(FileSystem { total: 100 * GIB, free, is_memory });
        let level = |len, place: Option<Option<FileSystem>>| {
            judge_page_cache(len, place.map(|space| ("/ssd".to_owned(), space)), GIB).level
        };
        assert_eq!(level(8 * GIB, None), Level::Ok);
        assert_eq!(level(8 * GIB, Some(space(50 * GIB, false))), Level::Ok);
        assert_eq!(level(8 * GIB, Some(space(7 * GIB, false))), Level::Problem);
        assert_eq!(level(8 * GIB, Some(space(50 * GIB, true))), Level::Warning);
        assert_eq!(level(8 * GIB, Some(None)), Level::Problem);
        assert_eq!(level(GIB / 2, None), Level::Warning);
    }
}
