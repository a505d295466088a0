//! Copies of data directories that take no room for blocks of zeros: a log or a tablespace may be long and mostly empty.
//!
//! Invariant: a copy has the length and the bytes of its original.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use redoubt_workload::error::{Error, Result};

/// Copies the files of a directory, leaving out blocks of zeros.
///
/// # Errors
/// [`Error::Io`].
pub fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::io_at("create", to))?;
    for entry in fs::read_dir(from).map_err(Error::io_at("list", from))? {
        let entry = entry.map_err(Error::io_at("list", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_directory(&source, &target)?;
        } else if source.is_file() {
            let bytes = fs::read(&source).map_err(Error::io_at("read", &source))?;
            write_sparse(&target, &bytes)?;
        }
    }
    Ok(())
}

/// Writes bytes as a file, leaving out blocks of zeros.
///
/// # Errors
/// [`Error::Io`].
pub fn write_sparse(path: &Path, bytes: &[u8]) -> Result<()> {
    const BLOCK_BYTES: usize = 4096;
    let file = File::create(path).map_err(Error::io_at("create", path))?;
    file.set_len(bytes.len() as u64).map_err(Error::io_at("set the length of", path))?;
    let mut run_start = None;
    let write = |from: usize, to: usize| {
        let part = bytes.get(from..to).unwrap_or_default();
        file.write_all_at(part, from as u64).map_err(Error::io_at("write", path))
    };
    for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        let at = number * BLOCK_BYTES;
        match (run_start, is_zero(block)) {
            (None, false) => run_start = Some(at),
            (Some(from), true) => {
                write(from, at)?;
                run_start = None;
            }
            _ => {}
        }
    }
    match run_start {
        Some(from) => write(from, bytes.len()),
        None => Ok(()),
    }
}

/// Whether there is nothing but zeros.
fn is_zero(bytes: &[u8]) -> bool {
    let (head, words, tail) = as_words(bytes);
    head.iter().all(|byte| *byte == 0)
        && words.iter().all(|word| *word == [0; 32])
        && tail.iter().all(|byte| *byte == 0)
}

fn as_words(bytes: &[u8]) -> (&[u8], &[[u8; 32]], &[u8]) {
    let (words, tail) = bytes.as_chunks::<32>();
    (&[], words, tail)
}
