//! A directory for logs, journals and pages: its file system, the features of that, and the latency of durable
//! writes.
//!
//! The trials use files without a name, which are gone whatever happens.

use super::report::Check;
use super::space::existing;
use redoubt_client::experimental;
use redoubt_logdev::choice::{choose, warnings};
use redoubt_storage::probe::{PathProbe, probe};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const NAME: &str = "place";
const ROUNDS: u64 = 15;
const WRITE_LEN: u64 = 4096;
/// Measuring ends here on a slow disk.
const ENOUGH: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_millis(10);
/// Pages of InnoDB are rarely longer.
const PAGE_LEN: u64 = 16 << 10;

/// Looks at the place, or at the nearest directory above it.
pub fn check(path: &Path) -> Vec<Check> {
    if redoubt_node::place::is_block_device(path) {
        let found = format!("{}: a block device", path.display());
        if !experimental::IS_BUILT_IN {
            let error = experimental::refused(&format!("the raw block device {}", path.display()));
            return vec![Check::refused(
                NAME,
                &error,
                "use a directory, or the package redoubt-experimental",
            )];
        }
        return vec![Check::note(
            NAME,
            found,
            format!("`redoubt device show {}` says what is on it", path.display()),
        )];
    }
    let directory = existing(path);
    let found = match probe(&directory) {
        Ok(found) => found,
        Err(error) => {
            return vec![Check::problem(
                NAME,
                error.to_string(),
                "a node must be able to write there: check owner, permissions and mount options",
            )];
        }
    };
    let mut checks = vec![judge_log(&directory, &found), judge_pages(&directory, &found)];
    checks.extend(warnings(&found).into_iter().map(|warning| split("log_warning", &warning)));
    match trial(&directory) {
        Ok((fallocate, times)) => {
            checks.extend((!fallocate).then(|| {
                Check::warning(
                    "fallocate",
                    format!("{} reserves no room for files", found.file_system),
                    "use ext4 or XFS: without it a full disk is noticed later, and files are torn into pieces",
                )
            }));
            checks.extend(judge_durable_write(&directory, times));
        }
        // Not every file system supports files without a name; the node does not need them.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
        Err(error) => checks.push(Check::problem(
            "durable_write",
            format!("a durable write in {} failed: {error}", directory.display()),
            "look at the disk and the kernel's log",
        )),
    }
    checks
}

fn split(name: &'static str, warning: &str) -> Check {
    let (found, change) =
        warning.split_once("; ").unwrap_or((warning, "see docs/volume/how-to/node.md, The log"));
    Check::warning(name, found, change)
}

fn judge_log(path: &Path, found: &PathProbe) -> Check {
    let choice = choose(found, false);
    Check::ok("log_device", format!("{}: {} ({})", path.display(), choice.kind.name(), choice.reason))
}

fn judge_pages(path: &Path, found: &PathProbe) -> Check {
    let shown = path.display();
    match found.untorn {
        Some(limits) if limits.min_len_bytes <= PAGE_LEN && PAGE_LEN <= limits.max_len_bytes => {
            Check::ok("page_protection", format!("{shown}: atomic, nothing is written twice"))
        }
        _ => Check::ok(
            "page_protection",
            format!("{shown}: journal, for {} offers no untorn writes of 16 KiB", found.file_system),
        ),
    }
}

/// Whether space can be reserved, and the durations of some durable writes.
fn trial(directory: &Path) -> Result<(bool, Vec<Duration>), Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?);
    let reserved = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, ROUNDS * WRITE_LEN).is_ok();
    let block = [1; WRITE_LEN as usize];
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    for round in 0..ROUNDS {
        file.write_all_at(&block, round * WRITE_LEN).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    let (start, mut times) = (Instant::now(), Vec::new());
    for round in 0..ROUNDS {
        let begun = Instant::now();
        file.write_all_at(&block, round * WRITE_LEN).and_then(|()| file.sync_data()).map_err(failed)?;
        times.push(begun.elapsed());
        if start.elapsed() > ENOUGH {
            break;
        }
    }
    Ok((reserved, times))
}

fn judge_durable_write(path: &Path, mut times: Vec<Duration>) -> Option<Check> {
    const NAME: &str = "durable_write";
    times.sort_unstable();
    let median = *times.get(times.len() / 2)?;
    let found = format!(
        "{}: {:.2} ms for 4 KiB (median of {})",
        path.display(),
        median.as_secs_f64() * 1000.0,
        times.len()
    );
    Some(if median > SLOW {
        Check::warning(
            NAME,
            found,
            "put the logs on a faster drive (--log-path): each commit waits for such a write",
        )
    } else {
        Check::ok(NAME, found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;

    #[test]
    fn a_slow_disk_is_pointed_out() {
        let level = |millis: &[u64]| {
            let times = millis.iter().map(|&millis| Duration::from_millis(millis)).collect();
            judge_durable_write(Path::new("/data"), times).map(|check| check.level)
        };
        assert_eq!(level(&[1, 90, 2]), Some(Level::Ok));
        assert_eq!(level(&[11, 12, 1]), Some(Level::Warning));
        assert_eq!(level(&[]), None);
    }

    #[test]
    fn a_real_place_is_tried_out_and_left_clean() {
        let directory = tempfile::tempdir().unwrap();
        let checks = check(&directory.path().join("to/be/made"));
        let names: Vec<_> = checks.iter().map(|check| check.name).collect();
        assert!(names.contains(&"log_device") && names.contains(&"page_protection"), "{checks:?}");
        assert!(checks.iter().all(|check| check.level < Level::Problem), "{checks:?}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_warning_is_taken_apart() {
        let check = split("log_warning", "the disk is slow; use another");
        assert_eq!(
            (check.found.as_str(), check.change.as_deref()),
            ("the disk is slow", Some("use another"))
        );
    }
}
