//! Health checks of a node for orchestrators and load balancers: `/healthz` and `/readyz`.
//!
//! `/healthz` fails if the node has not reported its state for [`STALE_AFTER`]: a lock is held, or the machine is far
//! too slow. A restart may help. `/readyz` also fails while volumes are being opened after the node's start: their servers
//! would wait. Not for longer than [`OPENING_LIMIT`]: one volume whose disk hangs would keep the others from their servers.
//!
//! A volume that is stopped, that waits for disk space, or that is opened later, fails neither check. A restart of the node does not help
//! that volume, and it would interrupt all others. Alerts on `/metrics` report such a volume.

use crate::SAMPLE_INTERVAL;
use crate::server::Health;
use redoubt_wire::control::NodeStatus;
use std::time::Duration;

/// Age of the newest sample from which the node counts as hung.
pub const STALE_AFTER: Duration = Duration::from_secs(15);
/// State of a volume that is not open yet (`redoubt_node`'s `server::opening`).
const OPENING: &str = "recovering";
/// Maximum number of volumes that one answer names.
const MAX_NAMES: usize = 10;

/// Time since the node's start in which volumes that are being opened make it unready.
pub const OPENING_LIMIT: Duration = Duration::from_secs(600);

const _: () = assert!(STALE_AFTER.as_secs() >= 10 * SAMPLE_INTERVAL.as_secs(), "a late sample is not a hang");

/// Result of `/healthz` for a newest sample of this age.
pub fn alive(age: Duration) -> Health {
    if age < STALE_AFTER {
        return Health::Passes;
    }
    Health::Fails(format!("the node has not reported its state for {} s", age.as_secs()))
}

/// Result of `/readyz` for a newest sample of this age and content.
pub fn ready(age: Duration, status: &NodeStatus) -> Health {
    let opening: Vec<&str> =
        status.volumes.iter().filter(|of| of.state == OPENING).map(|of| of.name.as_str()).collect();
    match alive(age) {
        Health::Passes if opening.is_empty() || status.uptime_seconds >= OPENING_LIMIT.as_secs() => {
            Health::Passes
        }
        Health::Passes => {
            let named = opening.get(..MAX_NAMES.min(opening.len())).unwrap_or_default().join(", ");
            let more = opening.len().saturating_sub(MAX_NAMES);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            Health::Fails(format!("{} volumes are being opened: {named}{rest}", opening.len()))
        }
        fails @ Health::Fails(_) => fails,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_wire::control::VolumeStatus;

    fn node(volumes: &[(&str, &str)]) -> NodeStatus {
        let volume = |&(name, state): &(&str, &str)| VolumeStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            ..VolumeStatus::default()
        };
        NodeStatus { volumes: volumes.iter().map(volume).collect(), ..NodeStatus::default() }
    }

    #[test]
    fn node_with_late_samples_is_hung_from_the_limit_on() {
        assert_eq!(alive(STALE_AFTER - Duration::from_nanos(1)), Health::Passes);
        let Health::Fails(why) = alive(STALE_AFTER) else { panic!("a hung node passes") };
        assert!(why.contains("15 s"), "{why}");
        assert_ne!(ready(STALE_AFTER, &node(&[])), Health::Passes);
    }

    #[test]
    fn opening_volume_makes_node_unready_and_is_named() {
        let status = node(&[("shop", "attached"), ("blog", OPENING)]);
        let Health::Fails(why) = ready(Duration::ZERO, &status) else { panic!("an opening node is ready") };
        assert!(why.contains("blog") && !why.contains("shop"), "{why}");
    }

    #[test]
    fn node_is_ready_although_opening_of_one_volume_hangs() {
        let status = |uptime_seconds| NodeStatus {
            uptime_seconds,
            ..node(&[("shop", "attached"), ("blog", OPENING)])
        };
        let limit = OPENING_LIMIT.as_secs();
        assert_ne!(ready(Duration::ZERO, &status(limit - 1)), Health::Passes);
        assert_eq!(ready(Duration::ZERO, &status(limit)), Health::Passes);
    }

    #[test]
    fn stopped_or_waiting_volume_leaves_node_ready() {
        let status = node(&[("a", "stopped"), ("b", "waiting"), ("c", "unusable"), ("d", "exporting")]);
        assert_eq!(ready(Duration::ZERO, &status), Health::Passes);
    }

    #[test]
    fn long_list_of_opening_volumes_is_cut() {
        let names: Vec<String> = (0..MAX_NAMES + 3).map(|number| format!("v{number}")).collect();
        let volumes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), OPENING)).collect();
        let Health::Fails(why) = ready(Duration::ZERO, &node(&volumes)) else { panic!("it is ready") };
        assert!(why.ends_with("v9 and 3 more"), "{why}");
    }
}
