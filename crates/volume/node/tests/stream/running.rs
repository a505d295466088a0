//! Nodes under test: in this process, or as a process of its own that can be killed.

use redoubt_node::memory::MemoryBudget;
use redoubt_node::{LogOptions, Node, NodeError, NodeOptions, PageOptions};
use redoubt_test_support::child;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lengths with which every limit is reached often.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub ring: u64,
    pub batch: u64,
    pub interval_ms: u64,
}

pub const SMALL: Sizes = Sizes { ring: 256 << 10, batch: 32 << 10, interval_ms: 200 };

pub fn options(directory: &Path, sizes: Sizes) -> NodeOptions {
    NodeOptions {
        ring_len_bytes: sizes.ring,
        batch_len_bytes: sizes.batch,
        apply_interval: Duration::from_millis(sizes.interval_ms),
        apply_workers: 2,
        pages: PageOptions { journal_len_bytes: 1 << 20, ..PageOptions::default() },
        log: LogOptions { segment_len_bytes: 256 << 10, ..LogOptions::default() },
        ..NodeOptions::new(directory.to_owned(), "127.0.0.1:0".to_owned())
    }
}

/// A node in this process.
pub struct LocalNode {
    pub node: Arc<Node>,
    pub address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl LocalNode {
    /// Opens it and its volumes; a node that was stopped just before may need a moment to let go of the directory.
    pub fn open(options: &NodeOptions) -> Self {
        let node = Self::open_at_once(options);
        let deadline = Instant::now() + Duration::from_secs(60);
        while node.node.status().volumes.iter().any(|volume| volume.state == "recovering") {
            assert!(Instant::now() < deadline, "a volume is not opened");
            std::thread::yield_now();
        }
        node
    }

    /// Opens it; its volumes are perhaps still being opened.
    pub fn open_at_once(options: &NodeOptions) -> Self {
        let deadline = Instant::now() + Duration::from_secs(30);
        let node = loop {
            match Node::open(options.clone()) {
                Ok(node) => break node,
                Err(NodeError::Refused(reason)) => assert!(Instant::now() < deadline, "{reason}"),
                Err(error) => panic!("{error}"),
            }
            std::thread::yield_now();
        };
        let serving = Arc::clone(&node);
        let thread = std::thread::spawn(move || serving.serve());
        Self { address: node.address(), node, thread: Some(thread) }
    }

    /// Stops it without draining anything.
    pub fn stop(mut self) {
        self.node.stop();
        self.thread.take().unwrap().join().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while Arc::strong_count(&self.node) > 1 {
            assert!(Instant::now() < deadline, "connections do not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for LocalNode {
    fn drop(&mut self) {
        self.node.stop();
    }
}

redoubt_test_support::children!(node_process);

/// The child process that [`NodeProcess`] starts and kills.
fn node_process() {
    let number = |index: usize| child::argument(index);
    let sizes = Sizes { ring: number(0), batch: number(1), interval_ms: number(2) };
    let memory = Arc::new(MemoryBudget::new(number(3)));
    let directory: PathBuf = child::argument(4);
    if let Some(descriptors) = child::arguments().get(5) {
        limit_descriptors(rustix::process::getpid(), descriptors.parse().unwrap());
    }
    let node = Node::open(NodeOptions { memory, ..options(&directory, sizes) }).unwrap();
    println!("listens on {}", node.address());
    node.serve();
}

/// Sets how many descriptors a process may have open, from now on.
pub fn limit_descriptors(process: rustix::process::Pid, most: u64) {
    use rustix::process::{Resource, Rlimit, prlimit};
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    prlimit(Some(process), Resource::Nofile, limit).unwrap();
}

/// A node that can be killed.
pub struct NodeProcess {
    child: Child,
    pub address: SocketAddr,
}

impl NodeProcess {
    pub fn start(directory: &Path, sizes: Sizes) -> Self {
        Self::start_with_memory(directory, sizes, u64::MAX)
    }

    pub fn start_with_memory(directory: &Path, sizes: Sizes, memory_bytes: u64) -> Self {
        Self::start_with_arguments(directory, sizes, memory_bytes, &[])
    }

    /// A process that may have so many descriptors.
    pub fn start_with_descriptors(directory: &Path, sizes: Sizes, descriptors: u64) -> Self {
        Self::start_with_arguments(directory, sizes, u64::MAX, &[descriptors.to_string()])
    }

    fn start_with_arguments(directory: &Path, sizes: Sizes, memory_bytes: u64, more: &[String]) -> Self {
        let numbers = [sizes.ring, sizes.batch, sizes.interval_ms, memory_bytes];
        let mut child = child::command("node_process")
            .args(numbers.map(|number| number.to_string()))
            .arg(directory)
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("the node's process ended").unwrap();
            if let Some((_, address)) = line.split_once("listens on ") {
                break address.parse().unwrap();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
