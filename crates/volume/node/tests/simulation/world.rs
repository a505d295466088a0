//! One simulated world: a node with one volume, servers, a disk, a network, and their faults.
//!
//! A seed determines everything: settings of the node, workload, faults, scheduling. The first half is *storm*: faults
//! of all kinds, and only safety is checked. Then comes *calm*: no more faults, and everything must heal. A server of
//! the newest generation gets all its frames made durable, A reaches W, and every page and file equals the model's,
//! also after a power cut.

mod attach;
mod held;

use crate::disk::{Life, SimHome, log_after_power_cut};
use crate::facts::{Counts, Facts};
use crate::network::{self, Closing, End};
use crate::server::{Dial, Server, VOLUME};
use held::{HeldError, check_held, may_fail};
use redoubt_logdev::DeviceKind;
use redoubt_node::server::serve_volume;
use redoubt_node::volume::Volume;
use redoubt_node::{NodeError, NodeOptions};
use redoubt_page::SpaceFlags;
use redoubt_pagestore::PageProtection;
use redoubt_storage::sim::{Fault, OpKind, SimDisk};
use redoubt_storage::{StorageDir, UntornLimits};
use redoubt_sync::simulation::{self, Failure, Options, Report};
use redoubt_sync::{Mutex, thread, time};
use redoubt_transport::Connection;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pages of 4 KiB with the newest checksum.
const FLAGS: SpaceFlags = SpaceFlags(0x13);
/// Longest virtual time that healing may take.
const HEALING: Duration = Duration::from_secs(600);

/// A volume of a node, once it is open, or why it could not be opened.
type Opened = Option<Result<Arc<Volume>, String>>;
/// A node that takes connections: its group, and its volume.
type Listener = Option<(u32, Arc<Volume>)>;

/// A life of the node: a process.
struct Node {
    group: u32,
    life: Arc<Life>,
    volume: Arc<Mutex<Opened>>,
}

struct World {
    facts: Arc<Facts>,
    options: NodeOptions,
    rng: fastrand::Rng,
    node: Option<Node>,
    /// Listener of the present node.
    listener: Arc<Mutex<Listener>>,
    disk: SimDisk,
    servers: Vec<(u32, Arc<Server>)>,
    next_group: u32,
    is_calm: bool,
}

/// Runs the world of a seed.
pub fn run(options: &Options, storm_steps: u64) -> Result<(Counts, Report), Failure> {
    simulation::run(options, move || World::new().live(storm_steps))
}

fn choose_options(rng: &mut fastrand::Rng) -> NodeOptions {
    let mut options = NodeOptions::new(PathBuf::from("simulated"), String::new());
    // Its long waits would only make a history longer.
    options.scrub.period = None;
    options.ring_len_bytes = 1 << rng.u32(15..20);
    options.batch_len_bytes = (options.ring_len_bytes >> rng.u32(1..5)).max(1024);
    options.apply_interval = Duration::from_millis([20, 200, 2000, 20_000][rng.usize(..4)]);
    options.apply_workers = rng.usize(1..4);
    options.names_log_len_bytes = 4096 * rng.u64(..4);
    options.log.device = Some(if rng.bool() { DeviceKind::File } else { DeviceKind::Block });
    options.log.segment_len_bytes = 8192 << rng.u32(0..4);
    options.log.max_in_flight = rng.usize(1..5);
    options.log.write_unit_bytes = Some(4096);
    let modes = [PageProtection::Journal, PageProtection::Doublewrite, PageProtection::Atomic];
    options.pages.protection = Some(modes[rng.usize(..3)]);
    options.pages.journal_len_bytes = 128 << (10 + rng.u32(0..2));
    options
}

impl World {
    fn new() -> Self {
        let mut rng = simulation::random();
        let options = choose_options(&mut rng);
        simulation::note(|| format!("{options:?}"));
        let disk = SimDisk::new(rng.u64(..));
        disk.set_sector_len_bytes(if rng.bool() { 512 } else { 4096 });
        if options.pages.protection == Some(PageProtection::Atomic) {
            disk.set_untorn_limits(Some(UntornLimits { min_len_bytes: 4096, max_len_bytes: 65_536 }));
        }
        let facts = Facts::new(FLAGS, options.log.device == Some(DeviceKind::File));
        let watched = Arc::clone(&facts);
        simulation::set_step_hook(move || watched.check());
        Self {
            facts,
            options,
            rng,
            node: None,
            listener: Arc::default(),
            disk,
            servers: Vec::new(),
            next_group: 1,
            is_calm: false,
        }
    }

    fn group(&mut self) -> u32 {
        self.next_group += 1;
        self.next_group
    }

    fn live(mut self, storm_steps: u64) -> Counts {
        let home = SimHome { life: Life::new(self.disk.clone(), &self.facts) };
        Volume::create_on(&home).expect("a new disk");
        let until = simulation::steps() + storm_steps;
        while simulation::steps() < until {
            self.keep_going();
            let pause = [1, 20, 300][self.rng.usize(..3)];
            thread::sleep(Duration::from_millis(self.rng.u64(..pause) + 1));
            self.something_happens();
        }
        self.calm();
        self.heal();
        self.examine();
        // And once more from the remains of a power cut.
        self.stop_servers();
        self.power_cut();
        self.heal();
        self.meets_unknown_input();
        self.facts.counts()
    }

    /// A node that is there, and a server for it.
    fn keep_going(&mut self) {
        self.bury_node();
        if self.node.is_none() {
            self.start_node();
        }
        self.servers.retain(|(group, server)| {
            if server.is_dead() {
                server.orders.end.store(true, Ordering::Release);
            }
            !simulation::has_ended(*group)
        });
        let current = self.facts.generation();
        let has_current =
            self.servers.iter().any(|(_, server)| server.generation == current && !server.is_dead());
        if !has_current {
            self.attach();
        }
    }

    /// A node whose volume could not be opened, or has stopped, is restarted.
    fn bury_node(&mut self) {
        let Some(node) = &self.node else { return };
        let state = match &*node.volume.lock() {
            None => return,
            Some(Ok(volume)) => volume.stopped().map(|reason| (reason, false)),
            Some(Err(error)) => Some((error.clone(), true)),
        };
        if let Some(Ok(volume)) = &*node.volume.lock()
            && volume.quarantined() > 0
        {
            simulation::fail("a page cannot be built and was set aside, though no page was damaged");
        }
        let Some((reason, is_opening)) = state else { return };
        // A full disk keeps a volume from being opened, but does not stop one.
        let had_errors = node.life.had_errors.load(Ordering::Acquire)
            || (is_opening && node.life.was_full.load(Ordering::Acquire));
        simulation::note(|| format!("the volume does not run: {reason}"));
        if !had_errors {
            simulation::fail(&format!("the volume does not run though nothing failed: {reason}"));
        }
        self.kill_node();
    }

    fn start_node(&mut self) {
        let group = self.group();
        let life = Life::new(self.disk.clone(), &self.facts);
        if !self.is_calm && self.rng.u8(..4) == 0 {
            life.delay_micros.store(1 << self.rng.u32(6..18), Ordering::Relaxed);
        }
        let node = Node { group, life: Arc::clone(&life), volume: Arc::default() };
        let (slot, listener) = (Arc::clone(&node.volume), Arc::clone(&self.listener));
        let (facts, options) = (Arc::clone(&self.facts), self.options.clone());
        simulation::spawn_in_group(group, "node", move || {
            let opened = Volume::open_on(VOLUME, &SimHome { life }, &options);
            match opened {
                Ok(volume) => {
                    let recovered = volume.positions().durable.0;
                    simulation::note(|| format!("volume opened at {recovered}"));
                    let acknowledged = facts.acknowledged();
                    if recovered < acknowledged {
                        simulation::fail(&format!(
                            "the volume comes back with {recovered}, but {acknowledged} was acknowledged"
                        ));
                    }
                    facts.set_volume(Some(Arc::clone(&volume)));
                    *listener.lock() = Some((group, Arc::clone(&volume)));
                    *slot.lock() = Some(Ok(volume));
                }
                Err(error) => {
                    simulation::note(|| format!("volume not opened: {error}"));
                    *slot.lock() = Some(Err(error.to_string()));
                }
            }
        });
        self.node = Some(node);
    }

    /// The process is gone; its disk stays as it is.
    fn kill_node(&mut self) {
        let Some(node) = self.node.take() else { return };
        self.end_node(&node);
        self.disk = node.life.disk.copy();
        if self.rng.u8(..3) == 0 {
            self.lose_page_journal();
        }
    }

    /// Removes the page journal, if the log has all that is only there. Not after a power cut: that may tear pages in their
    /// files.
    fn lose_page_journal(&mut self) {
        let read = |name: &str| -> std::io::Result<Vec<u8>> {
            let file = StorageDir::open(&self.disk, name)?;
            let mut bytes = vec![0; file.len_bytes()? as usize];
            file.read_at(0, &mut bytes)?;
            Ok(bytes)
        };
        let has_cover = |checkpoint: Vec<u8>| checkpoint.windows(8).any(|window| window == b"\"cover\":");
        if read("own/checkpoint").is_ok_and(has_cover) && self.disk.remove("pages/pages.journal").is_ok() {
            simulation::note(|| "the page journal is lost".to_owned());
            self.facts.count(|counts| counts.journals_lost += 1);
        }
    }

    fn power_cut(&mut self) {
        let Some(node) = self.node.take() else { return };
        self.end_node(&node);
        self.disk = node.life.disk.after_power_cut();
        self.facts.count(|counts| counts.power_cuts += 1);
    }

    fn end_node(&mut self, node: &Node) {
        simulation::note(|| "the node ends".to_owned());
        node.life.is_over.store(true, Ordering::Release);
        node.life.disk.clear_faults();
        let volume = self.facts.volume();
        if let Some(volume) = &volume {
            let applied = volume.counters().tables_applied.load(Ordering::Relaxed);
            self.facts.count(|counts| counts.tables_applied += applied);
        }
        *self.listener.lock() = None;
        simulation::kill(node.group);
        self.facts.set_volume(None);
        *node.volume.lock() = None;
        simulation::wait_for_end_of(node.group);
        // It may have opened its volume meanwhile.
        *self.listener.lock() = None;
        if let Some(volume) = volume {
            // Its destructors must not act for a killed process: the last owner must be dead as well.
            while Arc::strong_count(&volume) > 1 {
                thread::sleep(Duration::from_millis(1));
            }
            simulation::spawn_in_group(node.group, "undertaker", move || drop(volume));
            simulation::wait_for_end_of(node.group);
        }
    }

    fn volume(&self) -> Option<Arc<Volume>> {
        let node = self.node.as_ref()?;
        let opened = node.volume.lock();
        opened.as_ref().and_then(|opened| opened.as_ref().ok().cloned())
    }

    /// How a server finds the node: a connection thread of the node for each connection.
    fn dial(&self) -> Dial {
        let listener = Arc::clone(&self.listener);
        let weather = Arc::new(network::Weather::default());
        if !self.is_calm {
            weather.delay_micros.store(1 << fastrand::u32(1..16), Ordering::Relaxed);
        }
        Arc::new(move || {
            let (group, volume) = listener.lock().clone()?;
            let (ours, theirs): (Arc<End>, Arc<End>) = network::connect(&weather);
            simulation::spawn_in_group(group, "connection", move || {
                let connection: Arc<dyn Connection> = Arc::clone(&theirs) as Arc<dyn Connection>;
                let _closes = Closing::new(theirs);
                if let Err(error) = serve_volume(&volume, &connection) {
                    simulation::note(|| format!("connection ends: {error}"));
                }
            });
            Some(ours)
        })
    }

    fn start_server(&mut self, generation: u64, start: u64) {
        let group = self.group();
        let dial = self.dial();
        let server = Server::new(&self.facts, &dial, generation, start);
        server.start(group, self.rng.usize(1..3));
        self.servers.push((group, server));
    }

    fn stop_servers(&mut self) {
        for (group, server) in std::mem::take(&mut self.servers) {
            server.orders.end.store(true, Ordering::Release);
            simulation::kill(group);
            simulation::wait_for_end_of(group);
        }
    }

    fn something_happens(&mut self) {
        match self.rng.u8(..100) {
            0..8 => {
                self.facts.count(|counts| counts.kills += 1);
                self.kill_node();
            }
            8..16 => self.power_cut(),
            16..18 => self.shut_down(),
            18..26 => self.inject(),
            26..30 => self.fill_disk(),
            30..45 => self.cut_a_connection(),
            45..49 => self.end_a_server(),
            49..57 => self.attach(),
            57..64 => self.hold(),
            64..74 => self.examine(),
            _ => {}
        }
    }

    fn shut_down(&mut self) {
        let Some(volume) = self.volume() else { return };
        self.facts.count(|counts| counts.shutdowns += 1);
        let done = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&done);
        let group = self.node.as_ref().map_or(0, |node| node.group);
        simulation::spawn_in_group(group, "shutdown", move || {
            volume.shut_down();
            told.store(true, Ordering::Release);
        });
        for _ in 0..1000 {
            thread::sleep(Duration::from_millis(20));
            if done.load(Ordering::Acquire) {
                return self.kill_node();
            }
        }
        simulation::fail("a node does not shut down");
    }

    fn inject(&mut self) {
        let Some(node) = &self.node else { return };
        let kinds = [
            OpKind::Read,
            OpKind::Write,
            OpKind::Sync,
            OpKind::Sync,
            OpKind::SyncNames,
            OpKind::Rename,
            OpKind::Create,
            OpKind::StartWrite,
            OpKind::FinishWrite,
        ];
        let kind = kinds[self.rng.usize(..kinds.len())];
        let name = ["", "own/", "plain/", "pages/"][self.rng.usize(..4)];
        let skip = self.rng.u64(..20);
        // A read that finds no bytes may be one that the drive has lost, but it is tried again.
        let is_lost = kind == OpKind::Read && name == "pages/" && skip.is_multiple_of(2);
        let error = if is_lost { ErrorKind::UnexpectedEof } else { ErrorKind::InvalidData };
        let fault = Fault { kind, name: name.to_owned(), skip, error };
        simulation::note(|| format!("will fail: {fault:?}"));
        node.life.disk.inject(fault);
    }

    /// The disk is full for a while.
    fn fill_disk(&mut self) {
        let Some(node) = &self.node else { return };
        let disk = node.life.disk.clone();
        disk.set_capacity_bytes(Some(disk.used_bytes() + self.rng.u64(..40_000)));
        simulation::note(|| "the disk is full".to_owned());
        thread::sleep(Duration::from_millis(self.rng.u64(..3000)));
        disk.set_capacity_bytes(None);
        self.facts.count_fault("full disk");
    }

    fn cut_a_connection(&mut self) {
        if self.servers.is_empty() {
            return;
        }
        let (_, server) = &self.servers[self.rng.usize(..self.servers.len())];
        let after = if self.rng.bool() { 0 } else { self.rng.usize(1..20_000) };
        server.cut(after, self.rng.u8(..4) == 0);
        self.facts.count_fault("connection cut");
    }

    fn end_a_server(&mut self) {
        if self.servers.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.servers.len());
        let (group, _) = self.servers.swap_remove(at);
        simulation::note(|| "a server ends".to_owned());
        simulation::kill(group);
        simulation::wait_for_end_of(group);
        self.facts.count_fault("server killed");
    }

    /// Checks that a power cut now would leave everything that was acknowledged.
    fn examine(&mut self) {
        let Some(node) = &self.node else { return };
        if self.volume().is_none() {
            return;
        }
        let acknowledged = self.facts.acknowledged();
        match log_after_power_cut(&node.life.disk, &self.options) {
            Ok((start, bytes)) => {
                let end = start.0 + bytes.len() as u64;
                if end < acknowledged {
                    simulation::fail(&format!(
                        "a power cut leaves {end} of the log, {acknowledged} is acknowledged"
                    ));
                }
                let history = self.facts.history();
                let sent = history.wire.get(start.0 as usize..end as usize);
                if sent.is_none_or(|sent| sent != bytes) {
                    let other = sent.and_then(|sent| sent.iter().zip(&bytes).position(|(a, b)| a != b));
                    let message = format!(
                        "the log from {start} to {end} is not what was sent (up to {}), from byte {other:?} of it on",
                        history.end
                    );
                    drop(history);
                    simulation::fail(&message);
                }
            }
            Err(error) => simulation::fail(&format!("the log cannot be opened after a power cut: {error}")),
        }
        self.facts.count(|counts| counts.examined += 1);
    }

    /// An export: the state held is exactly the stream up to a point.
    fn hold(&mut self) {
        let (Some(volume), Some(node)) = (self.volume(), &self.node) else { return };
        let (facts, life) = (Arc::clone(&self.facts), Arc::clone(&node.life));
        let pause = Duration::from_millis(self.rng.u64(..200));
        simulation::spawn_in_group(node.group, "export", move || {
            let held = match volume.begin_export() {
                Ok(held) => held,
                Err(error) => return simulation::note(|| format!("not held: {error}")),
            };
            thread::sleep(pause);
            match check_held(&volume, &held, &facts) {
                Ok(()) => facts.count(|counts| counts.holds += 1),
                Err(HeldError::NotRead(error)) if may_fail(&life, &error) => {}
                Err(error) => simulation::fail(&error.to_string()),
            }
            volume.end_export();
        });
    }

    fn calm(&mut self) {
        simulation::note(|| "calm".to_owned());
        simulation::set_calm(true);
        self.is_calm = true;
        if let Some(node) = &self.node {
            node.life.disk.clear_faults();
            node.life.delay_micros.store(0, Ordering::Relaxed);
        }
        // A server from the storm still has the storm's network.
        self.stop_servers();
        for _ in 0..100 {
            self.bury_node();
            if self.volume().is_some() {
                break;
            }
            if self.node.is_none() {
                self.start_node();
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Input that the node cannot parse stops the volume.
    fn meets_unknown_input(&mut self) {
        let current = self.facts.generation();
        let Some((_, server)) = self.servers.iter().find(|(_, server)| server.generation == current) else {
            return;
        };
        server.send_unknown();
        for _ in 0..600 {
            thread::sleep(Duration::from_millis(100));
            if self.volume().is_none_or(|volume| volume.stopped().is_some()) {
                return;
            }
        }
        simulation::fail("a mini-transaction with a wrong checksum does not stop the volume");
    }

    /// Everything becomes durable, applied and readable.
    fn heal(&mut self) {
        let until = time::now() + HEALING;
        loop {
            self.keep_going();
            for (_, server) in &self.servers {
                server.orders.stop_writing.store(true, Ordering::Release);
            }
            let is_settled = self.servers.iter().any(|(_, server)| {
                server.generation == self.facts.generation() && !server.is_dead() && server.is_settled()
            });
            let end = self.facts.history().end;
            let at = self.volume().map(|volume| volume.positions());
            if is_settled && end > 0 && at.is_some_and(|at| at.applied.0 == end && at.durable.0 == end) {
                break;
            }
            if time::now() >= until {
                simulation::fail(&format!("does not heal: {at:?}, the stream ends at {end}"));
            }
            thread::sleep(Duration::from_millis(200));
        }
        let Some(volume) = self.volume() else { return };
        let held = loop {
            match volume.begin_export() {
                Ok(held) => break held,
                // An export that began in the storm.
                Err(NodeError::NotNow(_)) if time::now() < until => thread::sleep(Duration::from_millis(100)),
                Err(error) => return simulation::fail(&format!("a healed volume is not held: {error}")),
            }
        };
        if let Err(error) = check_held(&volume, &held, &self.facts) {
            simulation::fail(&error.to_string());
        }
        if volume.quarantined() > 0 {
            simulation::fail("a healed volume has pages in quarantine");
        }
        volume.end_export();
    }
}
