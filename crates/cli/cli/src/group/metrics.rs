//! A group in the text format of Prometheus.
//!
//! Labels: `group` is `wsrep_cluster_name`, `member` is `wsrep_node_name`, `address` tells members of the same name
//! apart, for example a server that lost its log and joined again. If no server answers, `redoubt_group_up` is 0
//! and nothing else has a sample: old figures would hide the failure.

use super::look::{Look, MemberLook};
use redoubt_statuspage::exposition::{Kind, head, sample, timestamp};

/// Metric of each member: name, help, value; no sample for a value that is not known.
type OfMember = (&'static str, &'static str, fn(&MemberLook) -> Option<f64>);

const fn predicate(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}

const MEMBERS: [OfMember; 6] = [
    ("redoubt_group_member_up", "1: the member is connected to the others.", |of| {
        Some(predicate(of.is_there))
    }),
    ("redoubt_group_member_votes", "1: the member counts for the quorum.", |of| Some(predicate(of.votes))),
    ("redoubt_group_member_owns_slots", "1: the member proposes write sets itself.", |of| {
        Some(predicate(of.owns_slots))
    }),
    ("redoubt_group_member_applied_seqno", "Last write set that the member's server has applied.", |of| {
        of.applied.map(|applied| applied as f64)
    }),
    ("redoubt_group_member_lag_write_sets", "Write sets that the member has not applied.", |of| {
        of.lag.map(|lag| lag as f64)
    }),
    ("redoubt_group_member_silence_seconds", "Time since the member was last heard by the others.", |of| {
        of.heard_ms.map(|heard| heard as f64 / 1e3)
    }),
];

/// Metric of the group: name, help, value.
type OfGroup = (&'static str, &'static str, fn(&Look) -> f64);

const GROUP: [OfGroup; 6] = [
    ("redoubt_group_quorum_members", "Voting members that commits need.", |look| look.needed as f64),
    ("redoubt_group_present_voters", "Voting members that are connected.", |look| look.present as f64),
    ("redoubt_group_has_quorum", "1: enough voting members are connected to commit.", |look| {
        predicate(look.present >= look.needed)
    }),
    ("redoubt_group_epoch", "Grows with each change of voters or slot owners.", |look| look.epoch as f64),
    ("redoubt_group_ordered_seqno", "Last number that was given to a write set.", |look| {
        look.last_ordered as f64
    }),
    (
        "redoubt_group_problems",
        "Findings that an operator should look at; `redoubt group status` names them.",
        |look| look.problems.len() as f64,
    ),
];

/// Metrics of a look at the group, or of the failure to get one.
pub fn render(seen: &Result<Look, String>) -> String {
    let mut out = String::new();
    head(&mut out, "redoubt_group_up", Kind::Gauge, "1: at least one server answered.");
    sample(&mut out, "redoubt_group_up", &[], predicate(seen.is_ok()));
    timestamp(&mut out, "redoubt_group_sampled_timestamp_seconds");
    let look = seen.as_ref().ok();
    for (name, help, value) in GROUP {
        head(&mut out, name, Kind::Gauge, help);
        if let Some(look) = look {
            sample(&mut out, name, &[("group", look.group.clone())], value(look));
        }
    }
    for (name, help, value) in MEMBERS {
        head(&mut out, name, Kind::Gauge, help);
        for (look, member) in
            look.iter().flat_map(|look| look.members.iter().map(move |member| (look, member)))
        {
            if let Some(value) = value(member) {
                let labels = [
                    ("group", look.group.clone()),
                    ("member", member.name.clone()),
                    ("address", member.address.clone()),
                ];
                sample(&mut out, name, &labels, value);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_test_support::listed::{check_alerts, metric_rows, rows};

    fn look() -> Look {
        let member = |name: &str, is_there: bool| MemberLook {
            name: name.to_owned(),
            address: format!("10.0.0.{}", name.len()),
            client_address: String::new(),
            state: String::new(),
            votes: true,
            owns_slots: is_there,
            is_there,
            applied: is_there.then_some(41),
            lag: is_there.then_some(1),
            heard_ms: Some(1500),
        };
        Look {
            group: "shop".to_owned(),
            group_id: String::new(),
            needed: 2,
            present: 1,
            epoch: 3,
            last_ordered: 42,
            members: vec![member("a", true), member("b\"", false)],
            servers: Vec::new(),
            problems: vec!["no quorum".to_owned()],
        }
    }

    #[test]
    fn group_without_quorum_is_visible_and_members_are_labelled() {
        let text = render(&Ok(look()));
        for line in [
            "redoubt_group_up 1",
            "redoubt_group_has_quorum{group=\"shop\"} 0",
            "redoubt_group_problems{group=\"shop\"} 1",
            "redoubt_group_member_up{group=\"shop\",member=\"a\",address=\"10.0.0.1\"} 1",
            "redoubt_group_member_up{group=\"shop\",member=\"b\\\"\",address=\"10.0.0.2\"} 0",
            "redoubt_group_member_lag_write_sets{group=\"shop\",member=\"a\",address=\"10.0.0.1\"} 1",
            "redoubt_group_member_silence_seconds{group=\"shop\",member=\"a\",address=\"10.0.0.1\"} 1.5",
        ] {
            assert!(text.lines().any(|of| of == line), "{line} in {text}");
        }
        assert!(!text.contains("redoubt_group_member_applied_seqno{group=\"shop\",member=\"b"), "{text}");
    }

    #[test]
    fn reference_page_and_alerts_match_the_metrics_of_a_group() {
        let wanted = metric_rows(&render(&Ok(look())));
        let listed = rows(include_str!("../../../../../docs/reference/metrics.md"), "Group");
        assert!(listed == wanted, "the table of docs/reference/metrics.md is to be:\n{}", wanted.join("\n"));
        check_alerts(
            include_str!("../../../../../packaging/prometheus/redoubt-group.rules.yml"),
            &wanted,
            "docs/group/runbooks.md",
            include_str!("../../../../../docs/group/runbooks.md"),
        );
    }

    #[test]
    fn unreachable_group_has_no_old_figures() {
        let text = render(&Err("no server answers".to_owned()));
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.len(), 2, "{samples:?}");
        assert_eq!(samples[0], "redoubt_group_up 0");
        assert!(samples[1].starts_with("redoubt_group_sampled_timestamp_seconds "), "{samples:?}");
    }
}
