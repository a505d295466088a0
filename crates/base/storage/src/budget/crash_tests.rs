//! Seeded histories of several owners on a simulated disk whose power is cut, and whose syncs fail.
//!
//! A sync that succeeds promises that the earlier writes of its file survive. The budget syncs files, too, at the same
//! time, and a failure is reported to one sync only.

use redoubt_sync::simulation::{self, Options};
use redoubt_sync::thread;

use super::*;
use crate::sim::{Fault, OpKind, SimDir, SimDisk};
use crate::{StorageDir, StorageFile};
use fastrand::Rng;

const FILES_PER_DIR: usize = 3;
const SECTOR: usize = 512;
/// Owners of each file, each with a sector.
const OWNERS: usize = 2;

/// A directory whose files give way to other threads before and after each sync.
struct PausingDir(SimDir);

struct PausingFile(Arc<dyn StorageFile>);

impl StorageDir for PausingDir {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(PausingFile(self.0.open(name)?)))
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(PausingFile(self.0.create(name)?)))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl StorageFile for PausingFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset_bytes, buf)
    }
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        thread::yield_now();
        self.0.write_at(offset_bytes, bytes)
    }
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.0.allocate(offset_bytes, len_bytes)
    }
    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)
    }
    fn len_bytes(&self) -> io::Result<u64> {
        self.0.len_bytes()
    }
    fn sync_data(&self) -> io::Result<()> {
        thread::yield_now();
        let synced = self.0.sync_data();
        thread::yield_now();
        synced
    }
    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }
    fn drop_cache(&self) -> io::Result<()> {
        self.0.drop_cache()
    }
}

/// Counts of a history, to see that the tests reach what they are about.
#[derive(Clone, Copy, Default, Debug)]
struct Reached {
    syncs_of_budget: u64,
    failed: u64,
    acknowledged: u64,
}

/// The last version of a sector that a sync has acknowledged.
struct Acknowledged {
    name: String,
    sector: usize,
    version: u8,
}

/// One of the owners of a file writes rising versions of its sector, and syncs at times.
fn run_owner(file: &dyn StorageFile, sector: usize, random: &mut Rng) -> (u8, u64) {
    let (mut acknowledged, mut failed) = (0, 0);
    for version in 1..=12 {
        if file.write_at((sector * SECTOR) as u64, &[version; SECTOR]).is_err() {
            failed += 1;
        } else if random.u8(..3) == 0 {
            match file.sync_data() {
                Ok(()) => acknowledged = version,
                Err(_) => failed += 1,
            }
        }
    }
    (acknowledged, failed)
}

/// Files of two directories, each with two owners. The power may be cut, and a sync may fail.
fn run_owners(seed: u64) -> (SimDisk, Vec<Acknowledged>, Reached) {
    let mut random = Rng::with_seed(seed);
    let (disk, budget) = (SimDisk::new(seed), FileBudget::new(random.usize(1..4)));
    let mut files = Vec::new();
    for place in ["a", "b"] {
        let dir = BudgetDir::new(Arc::new(PausingDir(disk.subdirectory(place))), &budget);
        for n in 0..FILES_PER_DIR {
            let file = dir.create(&n.to_string()).unwrap();
            file.write_at(0, &[0; OWNERS * SECTOR]).unwrap();
            file.sync_all().unwrap();
            files.push((format!("{place}/{n}"), file));
        }
        dir.sync().unwrap();
    }
    if random.bool() {
        let name = random.choice(&files).unwrap().0.clone();
        disk.inject(Fault { kind: OpKind::Sync, name, skip: random.u64(..6), error: io::ErrorKind::Other });
    }
    if random.bool() {
        disk.cut_power_at(disk.ops_done() + random.u64(..300));
    }
    let mut threads = Vec::new();
    for (name, file) in &files {
        for sector in 0..OWNERS {
            let (name, file, mut random) = (name.clone(), Arc::clone(file), random.fork());
            threads.push(thread::spawn(move || {
                let (version, failed) = run_owner(&*file, sector, &mut random);
                (Acknowledged { name, sector, version }, failed)
            }));
        }
    }
    let mut reached = Reached::default();
    let mut all = Vec::new();
    for owner in threads {
        let (acknowledged, failed) = owner.join().unwrap();
        reached.failed += failed;
        reached.acknowledged += u64::from(acknowledged.version > 0);
        all.push(acknowledged);
    }
    reached.syncs_of_budget = budget.syncs();
    (disk, all, reached)
}

#[test]
fn acknowledged_writes_survive_syncs_of_the_budget() {
    let mut all = Reached::default();
    for seed in 0..400 * redoubt_test_support::setting("REDOUBT_CRASH_ROUNDS", 1_u64) {
        let ((disk, acknowledged, reached), _) =
            simulation::run(&Options::new(seed), move || run_owners(seed)).unwrap();
        all.syncs_of_budget += reached.syncs_of_budget;
        all.failed += reached.failed;
        all.acknowledged += reached.acknowledged;
        let after = disk.after_power_cut();
        for Acknowledged { name, sector, version } in acknowledged {
            let found = after.content(&name)[sector * SECTOR];
            assert!(
                found >= version,
                "seed {seed}, {name}, {sector}: {version} was acknowledged, {found} is there"
            );
        }
    }
    println!("{all:?}");
    assert!(all.syncs_of_budget > 300 && all.failed > 300 && all.acknowledged > 300, "{all:?}");
}
