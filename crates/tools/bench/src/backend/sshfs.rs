//! A file system over the network: `sftp-server` on the storage side, `sshfs` on the other, joined by a plain TCP
//! connection.
//!
//! No ssh and no encryption: the other backends have none either. sshfs keeps direct writes in a buffer until
//! `fsync`, which reaches the storage side's file, so a commit is answered when it is durable there.

use redoubt_locks::IgnorePoison;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::process::{Process, find_program, poll_until};

use super::{Environment, Mount, Storage, System, create_directory};
use crate::dataset::copy;
use crate::network::Side;

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts an `sftp-server` for each connection.
pub(super) struct SftpServer {
    address: std::net::SocketAddr,
    side: Side,
    stopped: Arc<AtomicBool>,
    children: Arc<Mutex<Vec<Process>>>,
}

impl SftpServer {
    fn start(side: &Side, address: &str, work: &Path) -> Result<Self> {
        let program = find_program("sftp-server", "openssh-sftp-server")?;
        let listener = side.enter(|| TcpListener::bind((address, 0)).map_err(Error::io("listen")))?;
        let address = listener.local_addr().map_err(Error::io("ask for an address"))?;
        let server = Self { address, side: side.clone(), stopped: Arc::default(), children: Arc::default() };
        let (stopped, children) = (Arc::clone(&server.stopped), Arc::clone(&server.children));
        let (inside, log) = (side.clone(), work.join("sftp-server.log"));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // A failure closes the connection, which sshfs reports.
                if let Ok(child) = serve(&program, stream, &inside, &log) {
                    children.lock().ignore_poison().push(child);
                }
            }
        });
        Ok(server)
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        self.children.lock().ignore_poison().iter().map(Process::id).collect()
    }
}

impl Drop for SftpServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts; if that fails it is gone.
        let _ = self.side.enter(|| TcpStream::connect(self.address).map_err(Error::io("connect")));
    }
}

/// The connection is the child's standard input and output.
fn serve(program: &Path, stream: TcpStream, side: &Side, log: &Path) -> Result<Process> {
    stream.set_nodelay(true).map_err(Error::io("set up a connection"))?;
    let input: OwnedFd = stream.try_clone().map_err(Error::io("duplicate a connection"))?.into();
    let output: OwnedFd = stream.into();
    let errors = std::fs::File::create(log).map_err(Error::io_at("create", log))?;
    let mut command = Command::new(program);
    command.stdin(input).stdout(output).stderr(errors);
    side.enter(|| Process::spawn("sftp-server", &mut command))
}

pub(super) fn start(
    environment: &Environment<'_>,
    directory: tempfile::TempDir,
    pool_bytes: u64,
) -> Result<System> {
    let sshfs = find_program("sshfs", "sshfs")?;
    let (work, network) = (directory.path().to_owned(), environment.network);
    copy(&environment.data.data(), &work.join("data"))?;
    let storage = SftpServer::start(&network.storage, network.storage_address(), &work)?;
    let (address, delay) = environment.reach(storage.address.port())?;
    let mounted = create_directory(work.join("mount"))?;
    let mut command = Command::new(sshfs);
    command.arg("-f").arg(format!("{}:{}", address.ip(), work.join("data").display())).arg(&mounted);
    command.args(["-o", &format!("directport={}", address.port())]);
    let mut mounter = network.compute.spawn("sshfs", command, &work.join("sshfs.log"))?;
    poll_until("the readiness of sshfs", START_TIMEOUT, || {
        mounter.require_running()?;
        Ok(mounted.join("ibdata1").exists().then_some(()))
    })?;
    let mounts = vec![Mount::Directory(mounted.clone())];
    let server = environment.server(Launcher::Stock, (&work, &mounted), pool_bytes, &[])?;
    Ok(System {
        server,
        _mounts: mounts,
        mounters: vec![mounter],
        storage: Storage::Sftp(storage),
        _delay: delay,
        _directory: directory,
    })
}
