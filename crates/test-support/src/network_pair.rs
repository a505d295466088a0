//! Two network namespaces with a cable between them. Needs root.
//!
//! Invariant: the names carry this program's process id and a number, so no other program has them; dropping removes
//! them, and with them the interfaces.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module. On both sides the interface is [`NetworkPair::INTERFACE`]; the server's has 10.79.0.1 and fd79::1,
/// the client's the addresses with a 2.
#[derive(Debug)]
pub struct NetworkPair {
    base: String,
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first.
    Server,
    /// The second.
    Client,
}

/// Runs `ip`, or another program with these arguments.
///
/// # Panics
/// If it fails.
#[expect(clippy::expect_used, reason = "it is called by tests")]
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("the program can be started");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
}

impl NetworkPair {
    /// The interface on either side.
    pub const INTERFACE: &str = "v0";

    /// Makes one. `None` without root.
    ///
    /// # Panics
    /// If `ip` fails.
    pub fn create() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let base = format!("rdp-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let pair = Self { base };
        let (server, client) = (pair.name(Side::Server), pair.name(Side::Client));
        run("ip", &["netns", "add", &server]);
        run("ip", &["netns", "add", &client]);
        let name = Self::INTERFACE;
        run(
            "ip",
            &["link", "add", name, "netns", &server, "type", "veth", "peer", "name", name, "netns", &client],
        );
        for (namespace, number) in [(&server, 1), (&client, 2)] {
            let (ipv4, ipv6) = (format!("10.79.0.{number}/24"), format!("fd79::{number}/64"));
            run("ip", &["-n", namespace, "address", "add", &ipv4, "dev", name]);
            run("ip", &["-n", namespace, "address", "add", &ipv6, "dev", name, "nodad"]);
            run("ip", &["-n", namespace, "link", "set", "lo", "up"]);
            run("ip", &["-n", namespace, "link", "set", name, "up"]);
        }
        Some(pair)
    }

    /// The namespace of a side.
    pub fn name(&self, side: Side) -> String {
        let side = if side == Side::Server { "s" } else { "c" };
        format!("{}{side}", self.base)
    }

    /// Does something in a namespace: what it opens stays there.
    ///
    /// # Panics
    /// If that panics, or there is no such namespace any more.
    #[expect(clippy::expect_used, reason = "it is called by tests")]
    pub fn within<Done: Send>(&self, side: Side, call: impl FnOnce() -> Done + Send) -> Done {
        let namespace =
            File::open(format!("/run/netns/{}", self.name(side))).expect("the namespace is there");
        std::thread::scope(|scope| {
            let inside = || {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).expect("root may enter");
                call()
            };
            scope.spawn(inside).join().expect("what was called does not panic")
        })
    }

    /// A command in a namespace.
    pub fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(side)]).arg(program);
        command
    }
}

impl Drop for NetworkPair {
    fn drop(&mut self) {
        for side in [Side::Server, Side::Client] {
            // It may not have been made, if making failed.
            let _ = Command::new("ip").args(["netns", "del", &self.name(side)]).output();
        }
    }
}
