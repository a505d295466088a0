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
#[derive(Clone, Copy, Default)]
struct Reached {
    syncs_of_budget: u64,
    failed: u64,
    acknowledged: u64,
}

/// Owners write rising versions and sync at times. Returns the disk, and the last version of each file that a sync has
/// acknowledged.
fn run_owners(seed: u64) -> (SimDisk, Vec<(String, u8)>, Reached) {
    let mut random = Rng::with_seed(seed);
    let (disk, budget) = (SimDisk::new(seed), FileBudget::new(random.usize(1..4)));
    let mut owners = Vec::new();
    for place in ["a", "b"] {
        let dir = BudgetDir::new(Arc::new(PausingDir(disk.subdirectory(place))), &budget);
        for n in 0..FILES_PER_DIR {
            let file = dir.create(&n.to_string()).unwrap();
            file.write_at(0, &[0; SECTOR]).unwrap();
            file.sync_all().unwrap();
            owners.push((format!("{place}/{n}"), file));
        }
        dir.sync().unwrap();
    }
    if random.bool() {
        let name = random.choice(&owners).unwrap().0.clone();
        disk.inject(Fault { kind: OpKind::Sync, name, skip: random.u64(..6), error: io::ErrorKind::Other });
    }
    if random.bool() {
        disk.cut_power_at(disk.ops_done() + random.u64(..150));
    }
    let threads: Vec<_> = owners
        .into_iter()
        .map(|(name, file)| {
            let mut random = random.fork();
            thread::spawn(move || {
                let (mut acknowledged, mut failed) = (0, 0);
                for version in 1..=12 {
                    if file.write_at(0, &[version; SECTOR]).is_err() {
                        failed += 1;
                    } else if random.u8(..3) == 0 {
                        match file.sync_data() {
                            Ok(()) => acknowledged = version,
                            Err(_) => failed += 1,
                        }
                    }
                }
                (name, acknowledged, failed)
            })
        })
        .collect();
    let mut reached = Reached::default();
    let mut versions = Vec::new();
    for owner in threads {
        let (name, acknowledged, failed) = owner.join().unwrap();
        reached.failed += failed;
        reached.acknowledged += u64::from(acknowledged > 0);
        versions.push((name, acknowledged));
    }
    reached.syncs_of_budget = budget.syncs();
    (disk, versions, reached)
}

#[test]
fn acknowledged_writes_survive_syncs_of_the_budget() {
    let mut all = Reached::default();
    for seed in 0..400 * redoubt_test_support::setting("REDOUBT_CRASH_ROUNDS", 1_u64) {
        let ((disk, versions, reached), _) =
            simulation::run(&Options::new(seed), move || run_owners(seed)).unwrap();
        all.syncs_of_budget += reached.syncs_of_budget;
        all.failed += reached.failed;
        all.acknowledged += reached.acknowledged;
        let after = disk.after_power_cut();
        for (name, acknowledged) in versions {
            let found = after.content(&name)[0];
            assert!(
                found >= acknowledged,
                "seed {seed}, {name}: {acknowledged} was acknowledged, {found} is there"
            );
        }
    }
    assert!(all.syncs_of_budget > 1000 && all.failed > 100 && all.acknowledged > 1000);
}
