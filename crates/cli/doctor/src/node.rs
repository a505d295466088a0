//! The node from a server's point of view: reachability, version, and state of the volume.

use super::report::Check;
use crate::NodeAddress;
use redoubt_client::control::Client;
use redoubt_client::{ClientError, Result};
use redoubt_wire::ServerVersion;
use redoubt_wire::control::{NodeStatus, VolumeStatus};
use std::time::{Duration, Instant};

const NAME: &str = "node";
const VOLUME: &str = "volume";
/// The fastest of some answers is the least that a commit waits.
const ROUNDS: u32 = 5;
const SLOW: Duration = Duration::from_millis(5);

/// Asks the node that options or environment name.
pub fn check(address: &NodeAddress, volume: Option<&str>, server: Option<ServerVersion>) -> Vec<Check> {
    let Ok(connector) = &address.connector else {
        // The check of the certificates has reported the reason.
        return vec![Check::note(NAME, "not asked", "put the certificates right first")];
    };
    let asked = Client::connect(connector).and_then(ask);
    let (status, answered_after) = match asked {
        Ok(answer) => answer,
        Err(error) => return vec![unreachable(&error, &connector.address, address.is_given)],
    };
    let mut checks = vec![judge(&status, &connector.address, answered_after, connector.tls.is_some())];
    if let Some(name) = volume {
        let volume = status.volumes.iter().find(|volume| volume.name == name);
        checks.push(judge_volume(volume, name));
        checks.extend(volume.and_then(|volume| judge_server(volume, server?)));
    }
    checks
}

fn ask(mut client: Client) -> Result<(NodeStatus, Duration)> {
    let mut fastest = Duration::MAX;
    let mut last = None;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        last = Some(client.status()?);
        fastest = fastest.min(start.elapsed());
    }
    last.map(|status| (status, fastest)).ok_or_else(|| ClientError::Usage("nothing was asked".to_owned()))
}

fn unreachable(error: &ClientError, address: &str, is_given: bool) -> Check {
    if !is_given && matches!(error, ClientError::Connect { .. }) {
        return Check::note(
            NAME,
            format!("none at {address}, which is the default"),
            "say where it is with --node, or start one there: `redoubt node`",
        );
    }
    Check::refused(NAME, error, "check address, versions on both sides, and the node's log")
}

fn judge(status: &NodeStatus, address: &str, answered_after: Duration, tls: bool) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    let found = format!(
        "{address}, version {}, {}, answers in {:.2} ms",
        status.version,
        if tls { "TLS" } else { "plain text" },
        answered_after.as_secs_f64() * 1000.0
    );
    if status.version != own {
        let change =
            format!("this command has version {own}: they understand each other, but bring both to the same");
        return Check::note(NAME, found, change);
    }
    if answered_after > SLOW {
        return Check::warning(
            NAME,
            found,
            "put the node nearer, or expect each commit to wait at least that long",
        );
    }
    Check::ok(NAME, found)
}

/// Rejects a server that is older than one that has run on the volume.
fn judge_server(volume: &VolumeStatus, server: ServerVersion) -> Option<Check> {
    let why = server.refused_after(volume.newest_server?)?;
    let (found, change) = why.rsplit_once(". ").unwrap_or((&why, "take a newer server"));
    Some(Check::problem(VOLUME, format!("{}: {found}", volume.name), change))
}

fn judge_volume(volume: Option<&VolumeStatus>, name: &str) -> Check {
    let Some(volume) = volume else {
        return Check::problem(
            VOLUME,
            format!("the node shows no volume {name}"),
            format!(
                "`redoubt volume create {name}` or `redoubt volume import {name}`, or the certificate of that volume"
            ),
        );
    };
    let found = format!("{name}: {}, generation {}", volume.state, volume.generation);
    let reason = &volume.reason;
    match volume.state.as_str() {
        "ready" => Check::ok(VOLUME, found),
        "attached" => Check::note(
            VOLUME,
            format!("{found}, by {}", volume.attached_by),
            "starting a server on it ends that one, unless `redoubt run --no-takeover`",
        ),
        "waiting" => {
            Check::warning(VOLUME, format!("{found}: {reason}"), "commits wait until the node has room")
        }
        "exporting" => Check::note(VOLUME, found, "wait for the end of the export"),
        "recovering" => {
            Check::note(VOLUME, found, "the node has just started; wait until it has read the log")
        }
        _ => Check::problem(
            VOLUME,
            format!("{found}: {reason}"),
            "see the node's log, and docs/volume/how-to/failures.md",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;

    fn status(version: &str) -> NodeStatus {
        NodeStatus {
            version: version.to_owned(),
            listen: "127.0.0.1:7070".to_owned(),
            data_directory: "/data".to_owned(),
            uptime_seconds: 1,
            memory_used_bytes: 3 << 20,
            memory_limit_bytes: 1 << 30,
            volumes: Vec::new(),
            ..NodeStatus::default()
        }
    }

    #[test]
    fn a_node_is_of_this_version_and_near() {
        let own = env!("CARGO_PKG_VERSION");
        let level =
            |version, millis| judge(&status(version), "a:1", Duration::from_millis(millis), false).level;
        assert_eq!(level(own, 1), Level::Ok);
        assert_eq!(level("9.9.9", 1), Level::Note);
        assert_eq!(level(own, 40), Level::Warning);
    }

    #[test]
    fn a_volume_says_whether_it_can_be_used() {
        let level = |state: &str| {
            let volume = VolumeStatus { state: state.to_owned(), ..VolumeStatus::default() };
            judge_volume(Some(&volume), "shop").level
        };
        assert_eq!(level("ready"), Level::Ok);
        assert_eq!(level("attached"), Level::Note);
        assert_eq!(level("waiting"), Level::Warning);
        assert_eq!(level("recovering"), Level::Note);
        for state in ["stopped", "unusable", "a state of the future"] {
            assert_eq!(level(state), Level::Problem);
        }
        assert_eq!(judge_volume(None, "shop").level, Level::Problem);
    }

    #[test]
    fn only_a_node_that_was_named_must_be_there() {
        let refused = || ClientError::Connect {
            address: "h:1".to_owned(),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        };
        assert_eq!(unreachable(&refused(), "h:1", false).level, Level::Note);
        let check = unreachable(&refused(), "h:1", true);
        assert_eq!(check.level, Level::Problem);
        assert!(check.change.is_some_and(|change| change.contains("redoubt node")));
        let silent = ClientError::Silent { address: "h:1".to_owned(), after: Duration::from_secs(10) };
        assert_eq!(unreachable(&silent, "h:1", false).level, Level::Problem);
    }
}
