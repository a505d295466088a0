//! Two network namespaces, one for the server and one for its storage, joined by a pair of virtual interfaces.
//!
//! ```text
//!  compute namespace                      storage namespace
//!    mariadbd, its shim or mount            node, nbdkit or sftp-server
//!    veth0 10.77.0.1  ───────────────────▶  veth0 10.77.0.2
//!    tbf: what goes out                     tbf: what comes in
//! ```
//!
//! Each direction is limited where it leaves (`tc` tbf). Bytes are what the interface of the compute namespace
//! counts, with all headers. File systems are shared: clients reach the server through its unix socket from outside.
//!
//! Invariants: the namespaces' names carry this program's process id and a number, so no other program has them;
//! dropping removes them, and with them the interfaces. A thread that has entered a namespace never comes back: it
//! ends, at the latest with the process that it has started.

mod delay;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::{Process, find_program, run_to_end};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::args::Bandwidth;
use crate::processors::Share;
pub use delay::Delay;

const INTERFACE: &str = "veth0";
const COMPUTE_ADDRESS: &str = "10.77.0.1";
const STORAGE_ADDRESS: &str = "10.77.0.2";
/// Time for which a limited interface queues before it drops, in milliseconds.
const QUEUE_MS: u64 = 10;

/// Where a process runs: in this program's own network, or in a namespace; on all processors, or on some.
#[derive(Debug, Clone)]
pub struct Side {
    namespace: Option<Arc<File>>,
    share: Option<Share>,
}

impl Side {
    /// This program's own network.
    pub fn outside() -> Self {
        Self { namespace: None, share: None }
    }

    /// Calls `body` there, on a thread of its own if it is a namespace or has its own processors. Processes it starts
    /// and sockets it opens stay there.
    ///
    /// # Errors
    /// [`Error::Io`] if the namespace cannot be entered, or that of `body`.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        if self.namespace.is_none() && self.share.is_none() {
            return body();
        }
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.join()?;
                body()
            });
            thread.join().unwrap_or_else(|_| Err(panicked()))
        })
    }

    /// Moves the calling thread there for good.
    fn join(&self) -> Result<()> {
        if let Some(namespace) = &self.namespace {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|error| Error::io("enter a network namespace")(error.into()))?;
        }
        self.share.as_ref().map_or(Ok(()), Share::take)
    }

    /// Starts a process there and appends its output to the file `log`.
    ///
    /// The thread that starts the process lives as long as the process does. A program that requests a signal at its
    /// parent's end (`prctl(PR_SET_PDEATHSIG)`; nbdkit does) has that thread as its parent.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    pub fn spawn(&self, name: &str, mut command: Command, log: &Path) -> Result<Process> {
        let (side, name, log) = (self.clone(), name.to_owned(), log.to_owned());
        let (started, process) = std::sync::mpsc::sync_channel(1);
        let body = move || {
            let process = side.join().and_then(|()| Process::spawn_logged(&name, &mut command, &log));
            let id = process.as_ref().ok().and_then(|process| Pid::from_raw(process.id().cast_signed()));
            let is_wanted = started.send(process).is_ok();
            if let Some(id) = id.filter(|_| is_wanted) {
                // Nothing is collected: that is for its owner, after whom this fails.
                let _ = waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            }
        };
        std::thread::Builder::new().spawn(body).map_err(Error::io("start a thread"))?;
        process.recv().unwrap_or_else(|_| Err(panicked()))
    }
}

/// Bytes that went through the compute side's interface since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the server to its storage.
    pub sent_bytes: u64,
    /// From the storage to the server.
    pub received_bytes: u64,
}

/// The network between server and storage: two namespaces with a limited link, or loopback without namespaces.
#[derive(Debug)]
pub struct Network {
    /// Where the server runs.
    pub compute: Side,
    /// Where its storage runs.
    pub storage: Side,
    names: Option<[String; 2]>,
}

impl Network {
    /// No namespaces: everything over the loopback interface.
    pub fn loopback() -> Self {
        Self { compute: Side::outside(), storage: Side::outside(), names: None }
    }

    /// Makes the namespaces and joins them, without a limit.
    ///
    /// # Errors
    /// [`Error::State`] without root, [`Error::ProgramMissing`] or [`Error::Command`] from `ip`.
    pub fn create() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err(Error::State(
                "network namespaces need root: run as root, or with --no-namespaces --bandwidth none"
                    .to_owned(),
            ));
        }
        find_program("tc", "iproute2")?;
        let base = format!("redoubt-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let names = ["compute", "storage"].map(|side| format!("{base}-{side}"));
        let mut network = Self::loopback();
        network.names = Some(names.clone());
        let [compute, storage] = &names;
        ip(&["netns", "add", compute])?;
        ip(&["netns", "add", storage])?;
        ip(&[
            "link", "add", INTERFACE, "netns", compute, "type", "veth", "peer", "name", INTERFACE, "netns",
            storage,
        ])?;
        for (name, address) in [(compute, COMPUTE_ADDRESS), (storage, STORAGE_ADDRESS)] {
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", INTERFACE])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            // Without an IPv6 address the kernel sends no packets of its own on the link, so all bytes are the
            // backend's.
            ip(&["-n", name, "link", "set", INTERFACE, "addrgenmode", "none"])?;
            ip(&["-n", name, "link", "set", INTERFACE, "up"])?;
        }
        let open = |name: &str| {
            let path = PathBuf::from("/run/netns").join(name);
            let file = File::open(&path).map_err(Error::io_at("open", &path))?;
            Ok(Side { namespace: Some(Arc::new(file)), share: None })
        };
        (network.compute, network.storage) = (open(compute)?, open(storage)?);
        Ok(network)
    }

    /// Gives each side a half of the processors from now on; the calling thread, which is to start the clients, joins
    /// the compute side.
    ///
    /// # Errors
    /// Those of [`Share::halves`] and [`Share::take`].
    pub fn separate_processors(&mut self) -> Result<()> {
        let [compute, storage] = Share::halves()?;
        compute.take()?;
        self.compute.share = Some(compute);
        self.storage.share = Some(storage);
        Ok(())
    }

    /// True when there are namespaces, so that bytes are counted and limits work.
    pub fn is_separate(&self) -> bool {
        self.names.is_some()
    }

    /// Address on which storage listens.
    pub fn storage_address(&self) -> &'static str {
        if self.is_separate() { STORAGE_ADDRESS } else { "127.0.0.1" }
    }

    /// Limits both directions from now on.
    ///
    /// # Errors
    /// [`Error::Command`] from `tc`.
    pub fn limit(&self, bandwidth: Bandwidth) -> Result<()> {
        for name in self.names.iter().flatten() {
            let mut command = Command::new(find_program("tc", "iproute2")?);
            command.args(["-n", name, "qdisc"]);
            match bandwidth.0 {
                None => {
                    // Fails if there is no limit, which is what is wanted.
                    let _ = run_to_end(command.args(["del", "dev", INTERFACE, "root"]));
                }
                Some(bits) => {
                    let rate = format!("{bits}bit");
                    let burst = burst_bytes(bits).to_string();
                    let queue = format!("{QUEUE_MS}ms");
                    command.args(["replace", "dev", INTERFACE, "root", "tbf"]);
                    run_to_end(command.args(["rate", &rate, "burst", &burst, "latency", &queue]))?;
                }
            }
        }
        Ok(())
    }

    /// Bytes transferred so far; `None` without namespaces.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Parse`].
    pub fn traffic(&self) -> Result<Option<Traffic>> {
        if !self.is_separate() {
            return Ok(None);
        }
        // Of the thread: another thread's network is another.
        let path = "/proc/thread-self/net/dev";
        let text = self
            .compute
            .enter(|| std::fs::read_to_string(path).map_err(Error::io(format!("read {path}"))))?;
        parse_traffic(&text).map(Some)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.names.iter().flatten() {
            // It may not have been made, if making failed.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn panicked() -> Error {
    Error::State("a thread panicked in a network namespace".to_owned())
}

fn ip(arguments: &[&str]) -> Result<()> {
    run_to_end(Command::new(find_program("ip", "iproute2")?).args(arguments)).map(drop)
}

/// Burst size of the limiter: a hundredth of a second, and at least one large segment.
fn burst_bytes(bits_per_second: u64) -> u64 {
    (bits_per_second / 8 / 100).clamp(128 << 10, 4 << 20)
}

/// Reads the interface's line of `/proc/net/dev`: received bytes are its first number, sent ones its ninth.
fn parse_traffic(text: &str) -> Result<Traffic> {
    let numbers = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(INTERFACE)?.strip_prefix(':'))
        .map(|line| line.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect::<Vec<u64>>());
    match numbers.as_deref() {
        Some(&[received_bytes, _, _, _, _, _, _, _, sent_bytes, ..]) => {
            Ok(Traffic { sent_bytes, received_bytes })
        }
        _ => Err(Error::Parse {
            what: "/proc/net/dev".to_owned(),
            detail: format!("no {INTERFACE} in {text:?}"),
        }),
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
