//! Seeded histories, compared with a model of the trait's guarantees: power cuts at every changing call of the drive,
//! deaths of the process, failing calls, a full device.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::model::{ModelDrive, Op};
use super::tests::{formatted, open, read_all, try_read_all};
use super::*;
use crate::{StorageFile, WriteOptions};

const SECTOR: usize = 512;
const UNTORN_LEN: usize = 16 << 10;
const DIRS: [&str; 2] = ["log", "pages"];

/// A file's state, and the possible states after a crash.
#[derive(Clone, Default)]
struct File {
    content: Vec<u8>,
    /// Lengths since the last sync, including the durable one.
    lens: Vec<usize>,
    /// For each sector its contents since the last sync, including the durable one, padded with zeros.
    versions: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Ranges with only whole untorn writes since the last sync: start of each, with its versions.
    untorn: BTreeMap<usize, Vec<Vec<u8>>>,
}

fn padded(content: &[u8], at: usize, len: usize) -> Vec<u8> {
    let mut bytes = content.get(at..content.len().min(at + len)).unwrap_or_default().to_vec();
    bytes.resize(len, 0);
    bytes
}

impl File {
    fn with_content(content: Vec<u8>) -> Self {
        Self { lens: vec![content.len()], content, ..Self::default() }
    }

    /// Changes the content, and records the old one.
    fn change(&mut self, from: usize, to: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let sectors = from / SECTOR..to.div_ceil(SECTOR);
        for sector in sectors.clone() {
            let before = padded(&self.content, sector * SECTOR, SECTOR);
            self.versions.entry(sector).or_insert_with(|| vec![before]);
        }
        change(&mut self.content);
        for sector in sectors {
            let after = padded(&self.content, sector * SECTOR, SECTOR);
            self.versions.entry(sector).or_default().push(after);
        }
        self.lens.push(self.content.len());
        self.untorn.retain(|&at, _| at + UNTORN_LEN <= from || at >= to);
    }

    fn write(&mut self, at: usize, bytes: &[u8], untorn: bool) {
        let before = padded(&self.content, at, bytes.len());
        let was_untouched = (at / SECTOR..(at + bytes.len()).div_ceil(SECTOR))
            .all(|sector| !self.versions.contains_key(&sector));
        let known = self.untorn.remove(&at);
        self.change(at.min(self.content.len()), at + bytes.len(), |content| {
            let end = at + bytes.len();
            content.resize(content.len().max(end), 0);
            content[at..end].copy_from_slice(bytes);
        });
        if untorn && let Some(mut versions) = known.or(was_untouched.then(|| vec![before])) {
            versions.push(bytes.to_vec());
            self.untorn.insert(at, versions);
        }
    }

    fn set_len(&mut self, len: usize) {
        let old = self.content.len();
        self.change(old.min(len), old.max(len), |content| content.resize(len, 0));
    }

    fn sync(&mut self) {
        *self = Self::with_content(std::mem::take(&mut self.content));
    }

    /// Checks whether this is possible content after a crash. Returns the reason if it is not.
    fn check(&self, found: &[u8]) -> Result<(), String> {
        if !self.lens.contains(&found.len()) {
            return Err(format!("it has {} bytes, not one of {:?}", found.len(), self.lens));
        }
        for sector in 0..found.len().div_ceil(SECTOR) {
            let at = sector * SECTOR;
            let len = SECTOR.min(found.len() - at);
            let is = &found[at..at + len];
            let may_be = match self.versions.get(&sector) {
                Some(versions) => versions.iter().any(|version| version[..len] == *is),
                None => padded(&self.content, at, len) == is,
            };
            if !may_be {
                return Err(format!("sector {sector} holds {:?}.. ", &is[..8.min(len)]));
            }
        }
        for (&at, versions) in &self.untorn {
            let len = UNTORN_LEN.min(found.len().saturating_sub(at));
            if len > 0 && !versions.iter().any(|version| version[..len] == found[at..at + len]) {
                return Err(format!("the untorn write at {at} was torn"));
            }
        }
        Ok(())
    }
}

type Names = BTreeMap<String, usize>;

/// A directory: its names after each change since the last sync, the durable ones first.
#[derive(Clone)]
struct Dir {
    names: Vec<Names>,
}

impl Dir {
    fn now(&self) -> &Names {
        &self.names[self.names.len() - 1]
    }

    fn change(&mut self, change: impl FnOnce(&mut Names)) {
        let mut next = self.now().clone();
        change(&mut next);
        self.names.push(next);
    }

    fn pick(&self, rng: &mut Rng) -> Option<(String, usize)> {
        let names = self.now();
        let n = rng.usize(..names.len().max(1));
        names.iter().nth(n).map(|(name, id)| (name.clone(), *id))
    }
}

#[derive(Clone)]
struct Model {
    dirs: [Dir; 2],
    files: Vec<File>,
}

impl Model {
    fn new() -> Self {
        let dir = Dir { names: vec![Names::new()] };
        Self { dirs: [dir.clone(), dir], files: Vec::new() }
    }

    /// Compares the content of a device after a crash with the model, and continues with that content.
    fn check_and_take_over(&mut self, device: &Arc<RawDevice>, context: &str) {
        let mut next = Self::new();
        for (dir, (model, next_dir)) in DIRS.iter().zip(self.dirs.iter().zip(&mut next.dirs)) {
            let found: BTreeMap<String, Vec<u8>> = if device.dirs().contains(&(*dir).to_owned()) {
                let dir = device.dir(dir).unwrap();
                let content = |name: String| (name.clone(), read_all(&*dir.open(&name).unwrap()));
                dir.list().unwrap().into_iter().map(content).collect()
            } else {
                BTreeMap::new()
            };
            let check = |names: &Names| {
                if !names.keys().eq(found.keys()) {
                    return Err("other names".to_owned());
                }
                names.iter().zip(found.values()).try_for_each(|((name, id), found)| {
                    self.files[*id].check(found).map_err(|reason| format!("{name}: {reason}"))
                })
            };
            let reasons: Vec<String> = model.names.iter().filter_map(|names| check(names).err()).collect();
            assert!(
                reasons.len() < model.names.len(),
                "{context}: {dir} holds {:?}, and {:?}: {reasons:?}",
                found.keys(),
                model.names
            );
            for (name, content) in found {
                next_dir.names[0].insert(name, next.files.len());
                next.files.push(File::with_content(content));
            }
        }
        *self = next;
    }
}

/// An open device and its expected content.
struct Run<'a> {
    device: Arc<RawDevice>,
    dirs: [Arc<dyn StorageDir>; 2],
    model: &'a mut Model,
    /// Files without a name, and their content.
    nameless: Vec<(Arc<dyn StorageFile>, Vec<u8>)>,
    rng: Rng,
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StorageFull
}

impl Run<'_> {
    fn steps(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let dir = usize::from(self.rng.bool());
            match self.rng.u8(..20) {
                0..=2 => self.create(dir)?,
                3 => self.remove(dir)?,
                4 => self.rename(dir)?,
                5..=11 => self.write(dir)?,
                12 => self.set_len(dir)?,
                13 => self.allocate(dir)?,
                14..=16 => self.sync_file(dir)?,
                17 => {
                    self.dirs[dir].sync()?;
                    let names = self.model.dirs[dir].now().clone();
                    self.model.dirs[dir].names = vec![names];
                }
                _ => self.look(dir)?,
            }
        }
        Ok(())
    }

    fn pick(&mut self, dir: usize) -> io::Result<Option<(Arc<dyn StorageFile>, usize)>> {
        let Some((name, id)) = self.model.dirs[dir].pick(&mut self.rng) else { return Ok(None) };
        Ok(Some((self.dirs[dir].open(&name)?, id)))
    }

    fn create(&mut self, dir: usize) -> io::Result<()> {
        let name = format!("f{}", self.rng.u8(..6));
        if self.model.dirs[dir].now().contains_key(&name) {
            return Ok(());
        }
        let id = self.model.files.len();
        self.model.files.push(File::with_content(Vec::new()));
        self.model.dirs[dir].change(|names| {
            names.insert(name.clone(), id);
        });
        self.dirs[dir].create(&name).map(drop)
    }

    fn keep_nameless(&mut self, dir: usize, name: &str, id: usize) -> io::Result<()> {
        if self.rng.bool() {
            let content = self.model.files[id].content.clone();
            self.nameless.push((self.dirs[dir].open(name)?, content));
        }
        Ok(())
    }

    fn remove(&mut self, dir: usize) -> io::Result<()> {
        let Some((name, id)) = self.model.dirs[dir].pick(&mut self.rng) else { return Ok(()) };
        self.keep_nameless(dir, &name, id)?;
        self.model.dirs[dir].change(|names| {
            names.remove(&name);
        });
        self.dirs[dir].remove(&name)
    }

    fn rename(&mut self, dir: usize) -> io::Result<()> {
        let Some((from, id)) = self.model.dirs[dir].pick(&mut self.rng) else { return Ok(()) };
        let to = format!("f{}", self.rng.u8(..6));
        if from == to {
            return self.dirs[dir].rename(&from, &to);
        }
        if let Some(&replaced) = self.model.dirs[dir].now().get(&to) {
            self.keep_nameless(dir, &to, replaced)?;
        }
        self.model.dirs[dir].change(|names| {
            names.remove(&from);
            names.insert(to.clone(), id);
        });
        self.dirs[dir].rename(&from, &to)
    }

    fn write(&mut self, dir: usize) -> io::Result<()> {
        let Some((file, id)) = self.pick(dir)? else { return Ok(()) };
        let (rng, content) = (&mut self.rng, &self.model.files[id].content);
        let len = [1, 100, 512, 4096, 5000, UNTORN_LEN, 70_000][rng.usize(..7)];
        let near = [0, content.len(), rng.usize(..150_000)][rng.usize(..3)];
        let unit = [1, 512, 4096, UNTORN_LEN][rng.usize(..4)];
        let at = near / unit * unit;
        let untorn = len == UNTORN_LEN && unit == UNTORN_LEN;
        // Every write differs from the others, so that an old version is detected.
        let stamp = rng.u64(..).to_le_bytes();
        let bytes: Vec<u8> = stamp.into_iter().cycle().take(len).collect();
        let options = WriteOptions { stream: Stream::ColdPages, untorn };
        let mut after = self.model.files[id].clone();
        after.write(at, &bytes, untorn);
        self.finish(id, after, file.write_with(at as u64, &bytes, options))
    }

    fn set_len(&mut self, dir: usize) -> io::Result<()> {
        let Some((file, id)) = self.pick(dir)? else { return Ok(()) };
        let len = self.rng.usize(..200_000);
        let mut after = self.model.files[id].clone();
        after.set_len(len);
        self.finish(id, after, file.set_len(len as u64))
    }

    fn allocate(&mut self, dir: usize) -> io::Result<()> {
        let Some((file, id)) = self.pick(dir)? else { return Ok(()) };
        let (at, len) = (self.rng.usize(..100_000), self.rng.usize(1..100_000));
        let mut after = self.model.files[id].clone();
        if at + len > after.content.len() {
            after.set_len(at + len);
        }
        self.finish(id, after, file.allocate(at as u64, len as u64))
    }

    /// A full device leaves everything unchanged. Any other failure may have done all, or a part.
    fn finish(&mut self, id: usize, after: File, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if is_full(&error) => Ok(()),
            result => {
                self.model.files[id] = after;
                result
            }
        }
    }

    fn sync_file(&mut self, dir: usize) -> io::Result<()> {
        let Some((file, id)) = self.pick(dir)? else { return Ok(()) };
        file.sync_data()?;
        self.model.files[id].sync();
        Ok(())
    }

    fn look(&mut self, dir: usize) -> io::Result<()> {
        if let Some((file, id)) = self.pick(dir)? {
            assert!(try_read_all(&*file)? == self.model.files[id].content);
        }
        for (file, content) in &self.nameless {
            assert!(try_read_all(&**file)? == *content);
        }
        if self.nameless.len() > 2 {
            self.nameless.clear();
        }
        let names: Vec<String> = self.model.dirs[dir].now().keys().cloned().collect();
        assert_eq!(self.dirs[dir].list()?, names);
        assert!(self.device.info().used_bytes <= self.device.info().size_bytes);
        Ok(())
    }
}

fn run(drive: &ModelDrive, model: &mut Model, seed: u64, steps: usize, context: &str) -> io::Result<()> {
    let device = match open(drive) {
        Ok(device) => device,
        Err(StorageError::Io { source, .. }) => return Err(source),
        Err(error) => panic!("{context}: {error}"),
    };
    let dirs = [device.dir_in(DIRS[0], Stream::Redo)?, device.dir(DIRS[1])?];
    let mut run = Run { device, dirs, model, nameless: Vec::new(), rng: Rng::with_seed(seed) };
    run.steps(steps)
}

fn drive(seed: u64) -> ModelDrive {
    formatted(seed).with_untorn(4096, UNTORN_LEN as u64).with_streams(8, true)
}

/// One history that is cut at call `cut`, then several restarts. Returns the number of its calls, if it was not cut.
fn run_lives(seed: u64, cut: u64) -> Option<u64> {
    let mut drive = drive(seed).after_process_death();
    drive.cut_power_at(cut);
    let mut model = Model::new();
    let context = format!("seed {seed}, cut at {cut}");
    let done = run(&drive, &mut model, seed, 100, &context);
    assert!(done.is_ok() || drive.is_off(), "{context}: {done:?}");
    let ops = (!drive.is_off()).then(|| drive.ops());
    let mut rng = Rng::with_seed(seed * 1000 + cut);
    for life in 0..3 {
        let context = format!("{context}, life {life}");
        let only_process = rng.u8(..4) == 0;
        drive = if only_process { drive.after_process_death() } else { drive.after_power_cut() };
        model.check_and_take_over(&open(&drive).unwrap(), &context);
        // An open writes to the device, but changes nothing relevant.
        drive = drive.after_power_cut();
        model.clone().check_and_take_over(&open(&drive).unwrap(), &context);
        drive = drive.after_process_death();
        drive.cut_power_at(rng.u64(..60));
        let done = run(&drive, &mut model, rng.u64(..), 15, &context);
        assert!(done.is_ok() || drive.is_off(), "{context}: {done:?}");
    }
    ops
}

#[test]
fn no_power_cut_breaks_a_promise() {
    let mut cuts = 0;
    for seed in 0..10 {
        let mut cut = 0;
        loop {
            let ops = run_lives(seed, cut);
            cut += 1;
            cuts += 1;
            if ops.is_some_and(|ops| cut >= ops) {
                break;
            }
        }
    }
    println!("{cuts} power cuts");
    assert!(cuts > 1000, "{cuts}");
}

/// A long history, with deaths of the process only, that fills the device repeatedly.
#[test]
fn long_histories_on_a_full_device() {
    for seed in 100..106 {
        let mut drive = drive(seed);
        let mut model = Model::new();
        for life in 0..5 {
            let context = format!("seed {seed}, life {life}");
            run(&drive, &mut model, seed * 10 + life, 300, &context).unwrap();
            drive = drive.after_process_death();
            model.check_and_take_over(&open(&drive).unwrap(), &context);
        }
    }
}

#[test]
fn failing_calls_break_no_promise() {
    for seed in 0..150 {
        let mut drive = drive(seed);
        let mut model = Model::new();
        let mut rng = Rng::with_seed(seed);
        for life in 0..3 {
            let context = format!("seed {seed}, life {life}");
            drive.fail([Op::Write, Op::Flush][rng.usize(..2)], rng.u64(..40));
            let done = run(&drive, &mut model, rng.u64(..), 60, &context);
            let is_expected = done.as_ref().err().is_none_or(|error| {
                error.kind() == io::ErrorKind::InvalidData || error.to_string().contains("failed before")
            });
            assert!(is_expected, "{context}: {done:?}");
            drive = if rng.bool() { drive.after_power_cut() } else { drive.after_process_death() };
            model.check_and_take_over(&open(&drive).unwrap(), &context);
            drive = drive.after_process_death();
        }
    }
}

/// An interrupted format leaves no device, or an empty one, but never one with the previous content.
#[test]
fn a_format_that_is_cut_off_leaves_nothing_old() {
    for seed in 0..5 {
        let full = formatted(seed);
        run(&full, &mut Model::new(), seed, 40, "").unwrap();
        let full = full.after_process_death();
        let mut cut = 0;
        loop {
            let drive = full.after_process_death();
            drive.cut_power_at(cut);
            let options = RawFormatOptions { force: true, chunk_len_bytes: 64 << 10 };
            let done = format_media(drive.boxed(), Path::new("/model"), options);
            match open(&drive.after_power_cut()) {
                // Interrupted before the old first block was gone.
                Ok(device) if cut < 2 => drop(device),
                Ok(device) => assert_eq!(device.dirs(), Vec::<String>::new()),
                Err(StorageError::NotFormatted { .. }) => assert!(done.is_err()),
                Err(error) => panic!("cut at {cut}: {error}"),
            }
            if done.is_ok() {
                break;
            }
            cut += 1;
        }
        assert!(cut > 5, "{cut}");
    }
}
