//! Which processors are near a device, and keeping a thread on them.
//!
//! A store to persistent memory at another socket crosses the link between them, which costs latency and much of
//! the bandwidth. Everything here is read from sysfs below a root that tests can give. On a machine with one node,
//! and wherever sysfs does not tell, nothing is done.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The number of a NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NumaNode(pub u32);

impl std::fmt::Display for NumaNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A node and its processors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeCpus {
    /// The node.
    pub node: NumaNode,
    /// The numbers of its processors, in order. A node may have memory only.
    pub cpus: Vec<usize>,
}

/// What sysfs tells about nodes and devices.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::at("/sys")
    }
}

impl Sysfs {
    /// A sysfs tree at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The nodes of the machine, in order. None where the kernel knows no nodes.
    ///
    /// # Errors
    /// `InvalidData` for a list that is not understood, and failures to read.
    pub fn nodes(&self) -> io::Result<Vec<NodeCpus>> {
        let directory = self.root.join("devices/system/node");
        let online = match fs::read_to_string(directory.join("online")) {
            Ok(online) => online,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut nodes = Vec::new();
        for node in parse_list(&online)? {
            let cpus = parse_list(&fs::read_to_string(directory.join(format!("node{node}/cpulist")))?)?;
            let node = u32::try_from(node).map_err(|_| bad_list(&online))?;
            nodes.push(NodeCpus { node: NumaNode(node), cpus });
        }
        Ok(nodes)
    }

    /// The node of a block device, if it has one. Of a device made of others, the node that all of them share.
    pub fn block_device_node(&self, major: u32, minor: u32) -> Option<NumaNode> {
        self.device_node(&self.root.join(format!("dev/block/{major}:{minor}")))
    }

    fn device_node(&self, link: &Path) -> Option<NumaNode> {
        let device = fs::canonicalize(link).ok()?;
        let root = fs::canonicalize(&self.root).ok()?;
        // The partition, its disk, the namespace, the region, the bus: the nearest that says something.
        let above = device.ancestors().take_while(|path| path.starts_with(&root) && *path != root);
        let mut found = above.flat_map(|path| [path.join("numa_node"), path.join("device/numa_node")]);
        found.find_map(|path| parse_node(&fs::read_to_string(path).ok()?)).or_else(|| {
            let slaves = fs::read_dir(device.join("slaves")).ok()?;
            let mut nodes = slaves.map(|slave| self.device_node(&slave.ok()?.path()));
            let first = nodes.next()??;
            nodes.all(|node| node == Some(first)).then_some(first)
        })
    }

    /// The node of the device that holds `path`, if it is on one and that is known.
    ///
    /// # Errors
    /// If the path cannot be looked up.
    pub fn path_node(&self, path: &Path) -> io::Result<Option<NumaNode>> {
        let device = fs::metadata(path)?.dev();
        Ok(self.block_device_node(libc::major(device), libc::minor(device)))
    }
}

/// Numbers and ranges as sysfs writes them: `0-3,8`. Empty for none.
fn parse_list(text: &str) -> io::Result<Vec<usize>> {
    /// More than any kernel has, and few enough to count up to.
    const LIMIT: usize = 1 << 16;
    let mut numbers = Vec::new();
    for item in text.trim().split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < LIMIT => numbers.extend(first..=last),
            _ => return Err(bad_list(text)),
        }
    }
    Ok(numbers)
}

fn bad_list(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a list of numbers: {:?}", text.trim()))
}

/// The number in a `numa_node` file; -1 stands for none.
fn parse_node(text: &str) -> Option<NumaNode> {
    text.trim().parse().ok().map(NumaNode)
}

/// The processors that threads near a device should run on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NearCpus {
    node: NumaNode,
    cpus: Vec<usize>,
}

impl NearCpus {
    /// The processors of `node`. None if that makes no difference: with one node, for an unknown one, and for one
    /// without processors.
    pub fn of(node: NumaNode, nodes: &[NodeCpus]) -> Option<Self> {
        if nodes.len() < 2 {
            return None;
        }
        let cpus = nodes.iter().find(|known| known.node == node)?.cpus.clone();
        (!cpus.is_empty()).then_some(Self { node, cpus })
    }

    /// The node.
    pub fn node(&self) -> NumaNode {
        self.node
    }

    /// The processors of the node that are among `allowed`.
    fn among(&self, allowed: impl Fn(usize) -> bool) -> Vec<usize> {
        self.cpus.iter().copied().filter(|&cpu| allowed(cpu)).collect()
    }

    /// Keeps the calling thread on these processors, as far as it was allowed there. False if it was allowed on
    /// none of them: then nothing has changed.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn pin_current_thread(&self) -> io::Result<bool> {
        let limit = 8 * size_of::<libc::cpu_set_t>();
        // SAFETY: a set of processors is plain bits, for which zero is a value; the calls get its true size, and
        // the macros get numbers inside it.
        unsafe {
            let mut allowed: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed) != 0 {
                return Err(io::Error::last_os_error());
            }
            let cpus = self.among(|cpu| cpu < limit && libc::CPU_ISSET(cpu, &allowed));
            if cpus.is_empty() {
                return Ok(false);
            }
            let mut wanted: libc::cpu_set_t = std::mem::zeroed();
            for cpu in cpus {
                libc::CPU_SET(cpu, &mut wanted);
            }
            if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const wanted) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
