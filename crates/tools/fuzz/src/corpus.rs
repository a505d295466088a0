//! The corpus of a target as one file, `fuzz/corpus/TARGET.corpus`: thousands of inputs of a few hundred bytes each
//! make a clone and a checkout slow. libFuzzer wants a directory, so `scripts/fuzz` unpacks what it runs ([`main`]).
//!
//! Layout, numbers little-endian:
//!
//! | field | bytes |
//! |---|---|
//! | `RDTCORP1` | 8 |
//! | number of inputs | 4 |
//! | of each input: length of its name, length of its content | 2, 4 |
//! | name (UTF-8, no `/`), content | as said |
//! | CRC-32C of all before | 4 |
//!
//! Invariants: names ascend and none comes twice, so the same inputs make the same file; nothing lies after the
//! checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"RDTCORP1";
/// File extension of corpora.
pub const EXTENSION: &str = "corpus";

/// Inputs by name.
pub type Inputs = BTreeMap<String, Vec<u8>>;

/// Why a corpus cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// The operating system reports an error.
    #[error("{path}: {source}")]
    Io {
        /// Of the file or directory.
        path: PathBuf,
        /// Its words.
        source: std::io::Error,
    },
    /// It is no corpus, or a damaged one.
    #[error("{path} is no corpus: {what}; take it from the repository again")]
    Damaged {
        /// Of the file.
        path: PathBuf,
        /// The defect.
        what: &'static str,
    },
    /// An input cannot be kept under this name.
    #[error(
        "an input cannot be called {name:?}: letters, digits, '-', '_' and '.', at most 200, not beginning with '.'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The arguments of [`main`] make no sense.
    #[error(
        "use: corpus unpack FILE DIRECTORY, corpus pack DIRECTORY FILE, corpus add FILE INPUT NAME, or corpus list FILE"
    )]
    Usage,
}

fn io_at(path: &Path) -> impl FnOnce(std::io::Error) -> CorpusError {
    let path = path.to_owned();
    move |source| CorpusError::Io { path, source }
}

fn require_name(name: &str) -> Result<(), CorpusError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(CorpusError::Name { name: name.to_owned() });
    }
    Ok(())
}

/// Inputs as the bytes of a corpus.
///
/// # Errors
/// [`CorpusError::Name`].
pub fn encode(inputs: &Inputs) -> Result<Vec<u8>, CorpusError> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(inputs.len() as u32).to_le_bytes());
    for (name, content) in inputs {
        require_name(name)?;
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(content);
    }
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// The inputs in the bytes of a corpus, or what is wrong with them.
///
/// # Errors
/// In words, for [`CorpusError::Damaged`].
pub fn decode(bytes: &[u8]) -> Result<Inputs, &'static str> {
    let (body, checksum) = bytes.split_last_chunk::<4>().ok_or("it is too short")?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err("its checksum does not match");
    }
    let mut rest = body.strip_prefix(MAGIC).ok_or("it does not begin with RDTCORP1")?;
    let count = u32::from_le_bytes(*take(&mut rest)?);
    let mut inputs = Inputs::new();
    for _ in 0..count {
        let name_len = usize::from(u16::from_le_bytes(*take(&mut rest)?));
        let content_len = u32::from_le_bytes(*take(&mut rest)?) as usize;
        let (name, after) = rest.split_at_checked(name_len).ok_or("it ends within a name")?;
        let (content, after) = after.split_at_checked(content_len).ok_or("it ends within an input")?;
        rest = after;
        let name = std::str::from_utf8(name).map_err(|_| "a name is no text")?;
        require_name(name).map_err(|_| "a name is not allowed")?;
        if inputs.last_key_value().is_some_and(|(last, _)| last.as_str() >= name) {
            return Err("its names do not ascend");
        }
        inputs.insert(name.to_owned(), content.to_vec());
    }
    if rest.is_empty() { Ok(inputs) } else { Err("bytes lie after the last input") }
}

fn take<'b, const LEN: usize>(rest: &mut &'b [u8]) -> Result<&'b [u8; LEN], &'static str> {
    let (taken, after) = rest.split_first_chunk::<LEN>().ok_or("it ends within a length")?;
    *rest = after;
    Ok(taken)
}

/// Reads a corpus.
///
/// # Errors
/// [`CorpusError::Io`], [`CorpusError::Damaged`].
pub fn read(path: &Path) -> Result<Inputs, CorpusError> {
    let bytes = std::fs::read(path).map_err(io_at(path))?;
    decode(&bytes).map_err(|what| CorpusError::Damaged { path: path.to_owned(), what })
}

/// Writes a corpus and replaces the previous one as a whole.
///
/// # Errors
/// [`CorpusError::Io`], [`CorpusError::Name`].
pub fn write(path: &Path, inputs: &Inputs) -> Result<(), CorpusError> {
    let new = path.with_extension("new");
    std::fs::write(&new, encode(inputs)?).map_err(io_at(&new))?;
    std::fs::rename(&new, path).map_err(io_at(path))
}

/// The files of a directory as inputs.
///
/// # Errors
/// [`CorpusError::Io`]; [`CorpusError::Name`] for a name that is no text.
pub fn read_directory(directory: &Path) -> Result<Inputs, CorpusError> {
    let mut inputs = Inputs::new();
    for entry in std::fs::read_dir(directory).map_err(io_at(directory))? {
        let path = entry.map_err(io_at(directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        require_name(&name)?;
        inputs.insert(name, std::fs::read(&path).map_err(io_at(&path))?);
    }
    Ok(inputs)
}

/// Inputs that have a name of their own are not kept under libFuzzer's names as well.
fn leave_out_copies(inputs: &mut Inputs) {
    let is_named = |name: &str| name.starts_with("found-") || name.starts_with("real-");
    let named: BTreeSet<_> =
        inputs.iter().filter(|(name, _)| is_named(name)).map(|(_, content)| content.clone()).collect();
    inputs.retain(|name, content| is_named(name) || !named.contains(content));
}

/// The example `corpus`: what it prints.
///
/// # Errors
/// [`CorpusError`].
pub fn main(arguments: &[String]) -> Result<String, CorpusError> {
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["unpack", file, directory] => {
            let (inputs, directory) = (read(Path::new(file))?, Path::new(directory));
            std::fs::create_dir_all(directory).map_err(io_at(directory))?;
            for (name, content) in &inputs {
                let path = directory.join(name);
                std::fs::write(&path, content).map_err(io_at(&path))?;
            }
            Ok(format!("{} inputs\n", inputs.len()))
        }
        ["pack", directory, file] => {
            let mut inputs = read_directory(Path::new(directory))?;
            leave_out_copies(&mut inputs);
            write(Path::new(file), &inputs)?;
            Ok(format!("{} inputs\n", inputs.len()))
        }
        ["add", file, input, name] => {
            let (file, input) = (Path::new(file), Path::new(input));
            let mut inputs = if file.exists() { read(file)? } else { Inputs::new() };
            inputs.insert(name.to_owned(), std::fs::read(input).map_err(io_at(input))?);
            write(file, &inputs)?;
            Ok(format!("{} inputs\n", inputs.len()))
        }
        ["list", file] => {
            let inputs = read(Path::new(file))?;
            Ok(inputs.iter().map(|(name, content)| format!("{:>8} {name}\n", content.len())).collect())
        }
        _ => Err(CorpusError::Usage),
    }
}
