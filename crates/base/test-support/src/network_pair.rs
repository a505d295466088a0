//! Two network namespaces with a cable between them, or with cables to a third namespace. Needs root.
//!
//! Invariant: the names contain this program's process id and a number, so no other program uses them. The drop
//! removes the namespaces with their interfaces.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Two connected network namespaces. On both sides the interface is [`NetworkPair::INTERFACE`]. The server has the
/// addresses 10.79.0.1 and fd79::1, the client has those that end in 2.
#[derive(Debug)]
pub struct NetworkPair {
    base: String,
}

/// A namespace of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first namespace.
    Server,
    /// The second namespace.
    Client,
    /// The third namespace, with the ends of both cables, if the pair has one.
    Middle,
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

/// Creates a cable between two interfaces, each given by a namespace and a name.
fn cable([first, name]: [&str; 2], [second, other]: [&str; 2]) {
    let begin = ["link", "add", name, "netns", first, "type", "veth", "peer", "name", other, "netns", second];
    run("ip", &begin);
}

impl NetworkPair {
    /// Name of the interface on either side.
    pub const INTERFACE: &str = "v0";

    /// Ends of the cables in the middle: the server's, and the client's.
    pub const ENDS: [&str; 2] = ["to-server", "to-client"];

    /// Creates a pair. `None` without root.
    ///
    /// # Panics
    /// If `ip` fails.
    pub fn create() -> Option<Self> {
        let pair = Self::of_namespaces(&[Side::Server, Side::Client])?;
        let [server, client] = [Side::Server, Side::Client].map(|side| pair.name(side));
        cable([&server, Self::INTERFACE], [&client, Self::INTERFACE]);
        pair.begin();
        Some(pair)
    }

    /// Creates a pair with a third namespace ([`Side::Middle`]), where the cables end: a program there has to forward
    /// all packets. `None` without root.
    ///
    /// # Panics
    /// If `ip` fails.
    pub fn create_with_middle() -> Option<Self> {
        let pair = Self::of_namespaces(&[Side::Server, Side::Client, Side::Middle])?;
        let middle = pair.name(Side::Middle);
        for (side, end) in [Side::Server, Side::Client].into_iter().zip(Self::ENDS) {
            cable([&pair.name(side), Self::INTERFACE], [&middle, end]);
            // The interface sends nothing by itself.
            run("ip", &["-n", &middle, "link", "set", end, "addrgenmode", "none", "up"]);
        }
        pair.begin();
        Some(pair)
    }

    fn of_namespaces(sides: &[Side]) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let base = format!("rdp-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let pair = Self { base };
        for side in sides {
            run("ip", &["netns", "add", &pair.name(*side)]);
        }
        Some(pair)
    }

    fn begin(&self) {
        let name = Self::INTERFACE;
        for (side, number) in [(Side::Server, 1), (Side::Client, 2)] {
            let namespace = &self.name(side);
            let (ipv4, ipv6) = (format!("10.79.0.{number}/24"), format!("fd79::{number}/64"));
            run("ip", &["-n", namespace, "address", "add", &ipv4, "dev", name]);
            run("ip", &["-n", namespace, "address", "add", &ipv6, "dev", name, "nodad"]);
            run("ip", &["-n", namespace, "link", "set", "lo", "up"]);
            run("ip", &["-n", namespace, "link", "set", name, "up"]);
        }
    }

    /// Name of a side's namespace.
    pub fn name(&self, side: Side) -> String {
        let side = match side {
            Side::Server => "s",
            Side::Client => "c",
            Side::Middle => "m",
        };
        format!("{}{side}", self.base)
    }

    /// Calls a function in a namespace. Its sockets stay in that namespace.
    ///
    /// # Panics
    /// If the call panics, or the namespace is gone.
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

    /// Returns a command that runs in a namespace.
    pub fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(side)]).arg(program);
        command
    }
}

impl Drop for NetworkPair {
    fn drop(&mut self) {
        for side in [Side::Server, Side::Client, Side::Middle] {
            // The namespace may not exist, if its creation failed.
            let _ = Command::new("ip").args(["netns", "del", &self.name(side)]).output();
        }
    }
}
