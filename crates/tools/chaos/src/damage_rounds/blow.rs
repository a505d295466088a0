//! Damage to one file of a volume's directory.
//!
//! The file as it was is kept, so that it can be put back.

use super::VOLUME;
use super::load::TABLES;
use redoubt_workload::error::{Error, Result};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A part of a volume's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Place {
    /// Files of pages.
    Pages,
    /// The page journal.
    Journal,
    /// Segments of the log.
    Log,
    /// Plain files of the server.
    Plain,
    /// Small files of the node: identity, checkpoint, names, and others.
    State,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pages, Self::Journal, Self::Log, Self::Plain, Self::State];

    /// Of a path below the volume's directory.
    fn of(path: &Path) -> Self {
        let first = path.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        match first.as_deref() {
            Some("pages") if path.file_name().is_some_and(|name| name == "pages.journal") => Self::Journal,
            Some("pages") => Self::Pages,
            Some("journal") => Self::Journal,
            Some("log") => Self::Log,
            Some("plain") => Self::Plain,
            _ => Self::State,
        }
    }
}

/// Kind of damage to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Up to 16 bytes in a row are inverted.
    Flip,
    /// 4 KiB become zeros.
    Zero,
    /// 16 KiB become what they were earlier.
    Older,
    /// The end is cut off.
    Cut,
    /// The file is removed.
    Remove,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Flip, Self::Zero, Self::Older, Self::Cut, Self::Remove];
}

/// Damage that was done.
#[derive(Debug)]
pub struct Blow {
    place: Place,
    kind: Kind,
    /// The file, below the volume's directory.
    pub path: PathBuf,
    offset_bytes: u64,
    before: Vec<u8>,
}

const ZERO_LEN_BYTES: u64 = 4096;
const OLDER_LEN_BYTES: u64 = 16384;
const ATTEMPTS: usize = 200;

impl Blow {
    /// Damages one of the files below `directory`, in one of `places`. `old` is an earlier copy of the directory.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::State`] if no file can be damaged.
    pub fn strike(
        directory: &Path,
        old: &Path,
        places: &[Place],
        random: &mut fastrand::Rng,
    ) -> Result<Self> {
        let files = files(directory)?;
        for _ in 0..ATTEMPTS {
            let place = places[random.usize(..places.len())];
            let there: Vec<_> = files.iter().filter(|path| Place::of(path) == place).collect();
            if there.is_empty() {
                continue;
            }
            let path = there[random.usize(..there.len())].clone();
            let kind = Kind::ALL[random.usize(..Kind::ALL.len())];
            let Ok(before) = std::fs::read(directory.join(&path)) else { continue };
            if before.is_empty() && kind != Kind::Remove {
                continue;
            }
            let mut blow = Self { place, kind, path, offset_bytes: 0, before };
            if blow.apply(directory, old, random)? {
                return Ok(blow);
            }
        }
        Err(Error::State(format!("no file of {} can be damaged in {places:?}", directory.display())))
    }

    /// False: it would change nothing.
    fn apply(&mut self, directory: &Path, old: &Path, random: &mut fastrand::Rng) -> Result<bool> {
        let path = directory.join(&self.path);
        let len = self.before.len() as u64;
        match self.kind {
            Kind::Flip => {
                self.offset_bytes = random.u64(..len);
                let end = (self.offset_bytes + random.u64(1..=16)).min(len);
                let bytes: Vec<u8> = self.range(self.offset_bytes, end).iter().map(|byte| !byte).collect();
                write(&path, &bytes, self.offset_bytes)?;
            }
            Kind::Zero => {
                self.offset_bytes = random.u64(..len.div_ceil(ZERO_LEN_BYTES)) * ZERO_LEN_BYTES;
                let end = (self.offset_bytes + ZERO_LEN_BYTES).min(len);
                let there = self.range(self.offset_bytes, end);
                if there.iter().all(|byte| *byte == 0) {
                    return Ok(false);
                }
                write(&path, &vec![0; there.len()], self.offset_bytes)?;
            }
            Kind::Older => {
                let Ok(earlier) = std::fs::read(old.join(&self.path)) else { return Ok(false) };
                let common = len.min(earlier.len() as u64);
                let differing: Vec<u64> = (0..common.div_ceil(OLDER_LEN_BYTES))
                    .map(|block| block * OLDER_LEN_BYTES)
                    .filter(|begin| {
                        let end = (begin + OLDER_LEN_BYTES).min(common);
                        self.range(*begin, end) != &earlier[*begin as usize..end as usize]
                    })
                    .collect();
                if differing.is_empty() {
                    return Ok(false);
                }
                self.offset_bytes = differing[random.usize(..differing.len())];
                let end = (self.offset_bytes + OLDER_LEN_BYTES).min(common);
                write(&path, &earlier[self.offset_bytes as usize..end as usize], self.offset_bytes)?;
            }
            Kind::Cut => {
                self.offset_bytes = random.u64(..len);
                let file = File::options().write(true).open(&path).map_err(Error::io_at("open", &path))?;
                file.set_len(self.offset_bytes).map_err(Error::io_at("cut", &path))?;
            }
            Kind::Remove => std::fs::remove_file(&path).map_err(Error::io_at("remove", &path))?,
        }
        Ok(true)
    }

    fn range(&self, from: u64, to: u64) -> &[u8] {
        self.before.get(from as usize..to as usize).unwrap_or_default()
    }

    /// Puts back the file as it was. The node must be down.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn undo(&self, directory: &Path) -> Result<()> {
        let path = directory.join(&self.path);
        std::fs::write(&path, &self.before).map_err(Error::io_at("write", &path))
    }

    /// Place and kind.
    pub fn kind(&self) -> String {
        format!("{:?} {:?}", self.place, self.kind).to_lowercase()
    }

    /// A text names the file, by its path below the directory of all volumes.
    pub fn is_named_in(&self, text: &str) -> bool {
        text.contains(&format!("{VOLUME}/{}", self.path.display()))
    }

    /// It is where the log, or its state, ends too early for commits that were acknowledged.
    pub fn is_in_log_or_state(&self) -> bool {
        matches!(self.place, Place::Log | Place::Journal | Place::State)
    }

    /// The table whose pages were replaced by an earlier version of themselves.
    pub fn older_page_of(&self) -> Option<u32> {
        if (self.place, self.kind) != (Place::Pages, Kind::Older) {
            return None;
        }
        let mut counts = [0_u64; TABLES as usize];
        for word in self.before.split(|byte| *byte == b';') {
            let text = std::str::from_utf8(word).unwrap_or_default();
            let mut numbers = text.split('-').map(str::parse::<u32>);
            let parsed = (numbers.next(), numbers.next(), numbers.next(), numbers.next());
            if let (Some(Ok(table)), Some(Ok(_)), Some(Ok(_)), None) = parsed
                && let Some(count) = counts.get_mut(table as usize)
            {
                *count += 1;
            }
        }
        // Undo pages have rows of all tables.
        let all: u64 = counts.iter().sum();
        (0..TABLES).zip(counts).find(|(_, count)| all > 0 && *count == all).map(|(table, _)| table)
    }
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} of {} at byte {} of {}",
            self.kind,
            self.path.display(),
            self.offset_bytes,
            self.before.len()
        )
    }
}

fn write(path: &Path, bytes: &[u8], at: u64) -> Result<()> {
    let file = File::options().write(true).open(path).map_err(Error::io_at("open", path))?;
    file.write_all_at(bytes, at).map_err(Error::io_at("write", path))
}

/// All files below a directory, in order, relative to it. A file that goes away meanwhile is left out.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut waiting) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(root.join(&directory)) else { continue };
        for entry in entries {
            let entry = entry.map_err(Error::io_at("list", root))?;
            let path = directory.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(kind) if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}
