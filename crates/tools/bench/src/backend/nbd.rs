//! A block device over the network: `nbdkit` with a disk image on the storage side, `nbdfuse`, a loop device and ext4
//! on the other.
//!
//! Works without a kernel that has an NBD client. The loop device uses direct I/O, so the only caches are the
//! server's buffer pool and the storage side's page cache. A flush reaches the image as `fdatasync`, so a commit is
//! answered when it is durable on the storage side.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::process::{find_program, poll_until, run_to_end};

use super::{Environment, Mount, Storage, System, create_directory, free_port};
use crate::dataset::{copy, directory_len_bytes};

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections of the client; more than the server has threads for reading.
const CONNECTIONS: &str = "8";

pub(super) fn start(
    environment: &Environment<'_>,
    directory: tempfile::TempDir,
    pool_bytes: u64,
) -> Result<System> {
    let (nbdkit, nbdfuse) = (find_program("nbdkit", "nbdkit")?, find_program("nbdfuse", "libnbd-bin")?);
    if !rustix::process::geteuid().is_root() {
        return Err(Error::State(
            "--peer nbd mounts a file system and needs root; try --peer sshfs".to_owned(),
        ));
    }
    let base = environment.data.derived("disk.img", |part| make_image(&environment.data.data(), part))?;
    let (work, network) = (directory.path().to_owned(), environment.network);
    let image = work.join("disk.img");
    copy(&base, &image)?;
    let port = free_port(&network.storage, network.storage_address())?;
    let ready = work.join("nbdkit.pid");
    let mut command = Command::new(nbdkit);
    command.args(["-f", "-i", network.storage_address(), "-p", &port.to_string(), "-P"]);
    command.arg(&ready).arg("file").arg(&image);
    let mut storage = network.storage.spawn("nbdkit", command, &work.join("nbdkit.log"))?;
    poll_until("the readiness of nbdkit", START_TIMEOUT, || {
        storage.require_running()?;
        Ok(ready.exists().then_some(()))
    })?;
    let (address, delay) = environment.reach(port)?;
    let fuse = create_directory(work.join("nbd"))?;
    let disk = fuse.join("disk");
    let mut command = Command::new(nbdfuse);
    command.args(["-C", CONNECTIONS]).arg(&disk).arg(format!("nbd://{address}"));
    let mut mounter = network.compute.spawn("nbdfuse", command, &work.join("nbdfuse.log"))?;
    poll_until("the readiness of nbdfuse", START_TIMEOUT, || {
        storage.require_running()?;
        mounter.require_running()?;
        Ok(disk.exists().then_some(()))
    })?;
    // In the order in which they are undone.
    let mut mounts = vec![Mount::Directory(fuse)];
    let mut losetup = Command::new(find_program("losetup", "mount")?);
    losetup.args(["--find", "--show", "--direct-io=on"]).arg(&disk);
    let device = run_to_end(&mut losetup)?.trim().to_owned();
    mounts.insert(0, Mount::Loop(device.clone()));
    let mounted = create_directory(work.join("disk"))?;
    let mut mount = Command::new(find_program("mount", "mount")?);
    run_to_end(mount.args(["-t", "ext4", "-o", "noatime", &device]).arg(&mounted))?;
    mounts.insert(0, Mount::Directory(mounted.clone()));
    let server = environment.server(Launcher::Stock, (&work, &mounted.join("data")), pool_bytes, &[])?;
    Ok(System {
        server,
        _mounts: mounts,
        mounters: vec![mounter],
        storage: Storage::Process(storage),
        _delay: delay,
        _directory: directory,
    })
}

/// A file system with the data directory in `data/`, and as much room again.
fn make_image(data: &Path, image: &Path) -> Result<()> {
    let source = tempfile::Builder::new()
        .prefix("image-")
        .tempdir_in(image.parent().unwrap_or(Path::new(".")))
        .map_err(Error::io("make a directory for an image"))?;
    copy(data, &source.path().join("data"))?;
    let len_mib = directory_len_bytes(data)? * 2 / (1 << 20) + 1024;
    let mut command = Command::new(find_program("mkfs.ext4", "e2fsprogs")?);
    command.args(["-q", "-F", "-d"]).arg(source.path()).arg(image).arg(format!("{len_mib}M"));
    run_to_end(&mut command).map(drop)
}
