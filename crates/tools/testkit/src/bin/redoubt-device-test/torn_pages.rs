//! Whether a file system tears pages that are overwritten in place while the machine is reset.
//!
//! Each of [`WRITERS`] threads overwrites the pages of a file of its own, one system call per page; every word of a
//! page is the same number, another one each time. Another thread syncs a file of its own without pause, so that the
//! file system's journal commits all the time. After the reset a page whose words differ is a torn one.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Threads that write pages.
const WRITERS: u64 = 8;
const PAGES_PER_FILE: u64 = 64;
const PAGE_LEN_BYTES: usize = 16 << 10;
const WORD_LEN_BYTES: usize = 8;

/// Pages found after the reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Pages looked at.
    pub pages: u64,
    /// Pages whose words are not all the same.
    pub torn: u64,
    /// Pages that were overwritten at least once.
    pub overwritten: u64,
}

/// Makes the files in `dir` and overwrites their pages until the machine ends. Prints `ACK NAME N .` after the Nth
/// sync.
///
/// # Errors
/// The first failure of any thread, with the file's name.
pub fn write(dir: &Path, name: &str) -> io::Result<()> {
    let file_of = |writer: u64| {
        File::options().read(true).write(true).create(true).truncate(false).open(path(dir, writer))
    };
    for writer in 0..WRITERS {
        let file = file_of(writer)?;
        for page in 0..PAGES_PER_FILE {
            file.write_all_at(&[0; PAGE_LEN_BYTES], page * PAGE_LEN_BYTES as u64)?;
        }
        file.sync_all()?;
    }
    File::open(dir)?.sync_all()?;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || overwrite(&file_of(writer)?)))
            .chain([scope.spawn(|| sync_without_pause(dir, name))])
            .collect();
        let mut outcome = Ok(());
        for writer in writers {
            let ended = writer.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    })
}

fn path(dir: &Path, writer: u64) -> std::path::PathBuf {
    dir.join(format!("pages-{writer}"))
}

fn overwrite(file: &File) -> io::Result<()> {
    for number in 1_u64.. {
        let page: Vec<u8> = number.to_le_bytes().repeat(PAGE_LEN_BYTES / WORD_LEN_BYTES);
        let written = file.write_at(&page, (number % PAGES_PER_FILE) * PAGE_LEN_BYTES as u64)?;
        // A second call for the rest would be a reason to be torn that the file system is not to blame for.
        if written != PAGE_LEN_BYTES {
            return Err(io::Error::other(format!("{written} of {PAGE_LEN_BYTES} bytes were written")));
        }
    }
    Ok(())
}

fn sync_without_pause(dir: &Path, name: &str) -> io::Result<()> {
    let file = File::create(dir.join("synced"))?;
    for number in 1_u64.. {
        file.write_all_at(&number.to_le_bytes(), 0)?;
        file.sync_data()?;
        io::stdout().lock().write_all(format!("ACK {name} {number} .\n").as_bytes())?;
    }
    Ok(())
}

/// Looks at all pages.
///
/// # Errors
/// If a file is missing or short.
pub fn find(dir: &Path) -> io::Result<Found> {
    let mut found = Found { pages: 0, torn: 0, overwritten: 0 };
    for writer in 0..WRITERS {
        let file = File::open(path(dir, writer))?;
        for page in 0..PAGES_PER_FILE {
            let mut bytes = vec![0; PAGE_LEN_BYTES];
            file.read_exact_at(&mut bytes, page * PAGE_LEN_BYTES as u64)?;
            found.pages += 1;
            found.torn += u64::from(is_torn(&bytes));
            found.overwritten += u64::from(bytes.iter().any(|byte| *byte != 0));
        }
    }
    Ok(found)
}

fn is_torn(page: &[u8]) -> bool {
    let mut words = page.chunks(WORD_LEN_BYTES);
    let first = words.next();
    words.any(|word| Some(word) != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_page_is_found_whatever_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        for writer in 0..WRITERS {
            let bytes = vec![u8::from(writer == 3); PAGE_LEN_BYTES * PAGES_PER_FILE as usize];
            std::fs::write(path(dir.path(), writer), bytes).unwrap();
        }
        let pages = WRITERS * PAGES_PER_FILE;
        let whole = Found { pages, torn: 0, overwritten: PAGES_PER_FILE };
        assert_eq!(find(dir.path()).unwrap(), whole);
        let file = File::options().write(true).open(path(dir.path(), 1)).unwrap();
        for (number, at) in
            [0, PAGE_LEN_BYTES as u64 * 5 + 4096, PAGE_LEN_BYTES as u64 * 64 - 1].into_iter().enumerate()
        {
            file.write_all_at(&[7], at).unwrap();
            let torn = number as u64 + 1;
            assert_eq!(
                find(dir.path()).unwrap(),
                Found { torn, overwritten: PAGES_PER_FILE + torn, ..whole }
            );
        }
        file.set_len(5).unwrap();
        assert!(find(dir.path()).is_err(), "a short file");
    }
}
