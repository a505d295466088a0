//! Tests on sysfs trees in a temporary directory, and of pinning on this machine.

use std::os::unix::fs::symlink;

use super::*;

fn put(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn link(root: &Path, from: &str, to: &str) {
    let from = root.join(from);
    fs::create_dir_all(from.parent().unwrap()).unwrap();
    symlink(root.join(to), from).unwrap();
}

#[test]
fn lists_are_parsed() {
    assert_eq!(parse_list("0-3,8,10-11\n").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
    assert_eq!(parse_list("0\n").unwrap(), [0]);
    assert!(parse_list("\n").unwrap().is_empty());
    for bad in ["a", "3-1", "1-", "-1", "0-99999999", "1 2"] {
        assert_eq!(parse_list(bad).unwrap_err().kind(), io::ErrorKind::InvalidData, "{bad}");
    }
    assert_eq!(parse_node("1\n"), Some(NumaNode(1)));
    assert_eq!(parse_node("-1\n"), None);
}

#[test]
fn nodes_and_their_processors_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let sysfs = Sysfs::at(dir.path());
    assert!(sysfs.nodes().unwrap().is_empty());
    put(dir.path(), "devices/system/node/online", "0,2-3\n");
    put(dir.path(), "devices/system/node/node0/cpulist", "0-1,4\n");
    put(dir.path(), "devices/system/node/node2/cpulist", "2-3\n");
    assert!(sysfs.nodes().is_err(), "a node without a list");
    put(dir.path(), "devices/system/node/node3/cpulist", "\n");
    let nodes = sysfs.nodes().unwrap();
    assert_eq!(nodes.len(), 3);
    assert_eq!(nodes[0], NodeCpus { node: NumaNode(0), cpus: vec![0, 1, 4] });
    let near = NearCpus::of(NumaNode(0), &nodes).unwrap();
    assert_eq!(near.among(|cpu| cpu != 1), [0, 4]);
    assert_eq!(NearCpus::of(NumaNode(3), &nodes), None, "memory only");
    assert_eq!(NearCpus::of(NumaNode(1), &nodes), None, "not there");
    assert_eq!(NearCpus::of(NumaNode(0), &nodes[..1]), None, "one node");
}

#[test]
fn the_node_of_a_device_is_the_nearest_that_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (root, sysfs) = (dir.path(), Sysfs::at(dir.path()));
    // Persistent memory: the namespace does not say, its region does.
    let region = "devices/platform/ndbus0/region1";
    put(root, &format!("{region}/numa_node"), "1\n");
    put(root, &format!("{region}/namespace1.0/numa_node"), "-1\n");
    put(root, &format!("{region}/namespace1.0/block/pmem1/pmem1p1/dev"), "259:3\n");
    link(root, "dev/block/259:2", &format!("{region}/namespace1.0/block/pmem1"));
    link(root, "dev/block/259:3", &format!("{region}/namespace1.0/block/pmem1/pmem1p1"));
    assert_eq!(sysfs.block_device_node(259, 2), Some(NumaNode(1)));
    assert_eq!(sysfs.block_device_node(259, 3), Some(NumaNode(1)));
    // An NVMe disk: the controller's PCI function says.
    let controller = "devices/pci0000:00/0000:00:04.0";
    put(root, &format!("{controller}/numa_node"), "0\n");
    put(root, &format!("{controller}/nvme/nvme0/nvme0n1/dev"), "259:0\n");
    link(root, "dev/block/259:0", &format!("{controller}/nvme/nvme0/nvme0n1"));
    assert_eq!(sysfs.block_device_node(259, 0), Some(NumaNode(0)));
    // A virtual disk without a node, and a device that is not there.
    put(root, "devices/virtual/block/loop0/dev", "7:0\n");
    link(root, "dev/block/7:0", "devices/virtual/block/loop0");
    assert_eq!(sysfs.block_device_node(7, 0), None);
    assert_eq!(sysfs.block_device_node(7, 1), None);
    // Mapped devices: the node that all below share.
    put(root, "devices/virtual/block/dm-0/dev", "253:0\n");
    link(root, "devices/virtual/block/dm-0/slaves/pmem1", &format!("{region}/namespace1.0/block/pmem1"));
    link(root, "dev/block/253:0", "devices/virtual/block/dm-0");
    assert_eq!(sysfs.block_device_node(253, 0), Some(NumaNode(1)));
    link(root, "devices/virtual/block/dm-0/slaves/nvme0n1", &format!("{controller}/nvme/nvme0/nvme0n1"));
    assert_eq!(sysfs.block_device_node(253, 0), None);
}

#[test]
fn a_thread_is_pinned_to_the_processors_it_is_allowed_on() {
    std::thread::spawn(|| {
        let nodes = [
            NodeCpus { node: NumaNode(0), cpus: (0..1024).collect() },
            NodeCpus { node: NumaNode(1), cpus: vec![1023, 5000] },
        ];
        let before = std::thread::available_parallelism().unwrap();
        assert!(NearCpus::of(NumaNode(0), &nodes).unwrap().pin_current_thread().unwrap());
        assert_eq!(std::thread::available_parallelism().unwrap(), before);
        // Nowhere near this thread: nothing changes.
        assert!(!NearCpus::of(NumaNode(1), &nodes).unwrap().pin_current_thread().unwrap());
        // SAFETY: takes nothing and returns a number.
        let here = unsafe { libc::sched_getcpu() } as usize;
        let one = [NodeCpus { node: NumaNode(7), cpus: vec![here] }, nodes[1].clone()];
        assert!(NearCpus::of(NumaNode(7), &one).unwrap().pin_current_thread().unwrap());
        assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
    })
    .join()
    .unwrap();
    let nodes = Sysfs::default().nodes().unwrap();
    if let [only] = nodes.as_slice() {
        let near = NearCpus::of(only.node, &nodes);
        assert!(!near.map_or(Ok(false), |near| near.pin_current_thread()).unwrap());
    }
    assert!(Sysfs::default().path_node(Path::new("/nowhere/at/all")).is_err());
}
