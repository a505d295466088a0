//! Directories of a [`SimDisk`] and their files, as implementations of the storage interface.

use std::io;
use std::sync::Arc;

use super::file::File;
use super::{DiskState, NameChange, OpKind, Outcome, SimDisk, off};
use crate::{StorageDir, StorageFile, UntornLimits, WriteOptions};

impl StorageDir for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.check_on()?;
        // Names with a slash belong to other directories.
        Ok(state.names.keys().filter(|name| !name.contains('/')).cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.state.lock().find(name)?;
        Ok(Arc::new(SimFile { disk: self.clone(), file, name: name.into() }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.state.lock();
        state.begin(OpKind::Create, name)?.result()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        let sector_len = state.sector_len;
        state.files.push(File::new(sector_len));
        state.names.insert(name.into(), file);
        state.name_changes.push(NameChange::Create(name.into(), file));
        Ok(Arc::new(SimFile { disk: self.clone(), file, name: name.into() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let outcome = state.begin(OpKind::Rename, from)?;
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.into(), file);
        state.name_changes.push(NameChange::Rename(from.into(), to.into()));
        outcome.result()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let outcome = state.begin(OpKind::Remove, name)?;
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        state.name_changes.push(NameChange::Remove(name.into()));
        outcome.result()
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(OpKind::SyncNames, "")?.result()?;
        state.durable_names = state.names.clone();
        state.name_changes.clear();
        Ok(())
    }

    fn untorn_limits(&self) -> io::Result<Option<UntornLimits>> {
        let state = self.state.lock();
        state.check_on()?;
        Ok(state.untorn_limits)
    }
}

/// A directory beside the first one of a [`SimDisk`]. A sync of the names of one directory covers all of them.
pub struct SimDir {
    disk: SimDisk,
    prefix: String,
}

impl SimDir {
    pub(super) fn new(disk: &SimDisk, name: &str) -> Self {
        Self { disk: disk.clone(), prefix: format!("{name}/") }
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl StorageDir for SimDir {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.disk.state.lock();
        state.check_on()?;
        Ok(state.names.keys().filter_map(|name| name.strip_prefix(&self.prefix).map(String::from)).collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.open(&self.full(name))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.create(&self.full(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(&self.full(from), &self.full(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(&self.full(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn untorn_limits(&self) -> io::Result<Option<UntornLimits>> {
        self.disk.untorn_limits()
    }
}

pub(super) struct SimFile {
    disk: SimDisk,
    file: usize,
    name: String,
}

impl StorageFile for SimFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state.lock();
        state.check_on()?;
        if let Some(error) = state.take_fault(OpKind::Read, &self.name) {
            return Err(error.into());
        }
        let file = &state.files[self.file];
        let bytes = file.content().get(offset_bytes as usize..).unwrap_or_default();
        let n = bytes.len().min(buf.len());
        if n > 0 && file.has_lost(offset_bytes as usize..offset_bytes as usize + n) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        buf[..n].copy_from_slice(&bytes[..n]);
        state.bytes_read += n as u64;
        Ok(n)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_with(offset_bytes, bytes, WriteOptions::default())
    }

    fn write_with(&self, offset_bytes: u64, bytes: &[u8], options: WriteOptions) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.check_on()?;
        let at = offset_bytes as usize;
        if options.untorn {
            let limits = state.untorn_limits.ok_or(io::ErrorKind::Unsupported)?;
            if !limits.allow(offset_bytes, bytes.len() as u64) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        }
        let outcome = state.begin(OpKind::Write, &self.name)?;
        // A full disk accepts the part that fits.
        let full = state.check_capacity(self.file, at + bytes.len());
        let len = match (&outcome, &full) {
            (Outcome::Partly(io::ErrorKind::Other), _) | (Outcome::Done, Ok(())) => bytes.len(),
            _ if options.untorn => bytes.len() * usize::from(state.rng.bool()),
            _ => state.rng.usize(..bytes.len().max(1)),
        };
        let inside = state.files[self.file].len().saturating_sub(at);
        let len = match full {
            Err(_) if options.untorn && len > inside => 0,
            Err(_) => len.min(inside),
            Ok(()) => len,
        };
        state.files[self.file].write(at, &bytes[..len], options.untorn);
        outcome.result()?;
        full?;
        *state.bytes_written.entry(options.stream).or_default() += bytes.len() as u64;
        Ok(())
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let end = (offset_bytes + len_bytes) as usize;
        state.begin(OpKind::Allocate, &self.name)?.result()?;
        state.check_capacity(self.file, end)?;
        state.files[self.file].grow(end);
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.begin(OpKind::SetLen, &self.name)?.result()?;
        state.files[self.file].set_len(len_bytes as usize);
        Ok(())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        let state = self.disk.state.lock();
        state.check_on()?;
        Ok(state.files[self.file].len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        match state.begin(OpKind::Sync, &self.name)? {
            Outcome::Done => {
                state.files[self.file].sync();
                Ok(())
            }
            // Power cuts leave the dirty sectors to `after_power_cut`.
            Outcome::Partly(io::ErrorKind::Other) => Err(off()),
            outcome => {
                let DiskState { files, rng, .. } = &mut *state;
                files[self.file].fail_sync(rng);
                outcome.result()
            }
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn drop_cache(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.check_on()?;
        state.files[self.file].drop_cache();
        Ok(())
    }

    fn drop_cache_of(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.check_on()?;
        let start = offset_bytes as usize;
        state.files[self.file].drop_cache_of(start..start + len_bytes as usize);
        Ok(())
    }
}
