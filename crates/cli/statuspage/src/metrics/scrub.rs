//! Metrics of the scrub.

use super::{Metric, Values, one};
use crate::exposition::Kind;
use redoubt_wire::control::{ScrubStatus, VolumeStatus};

fn of_scrub(volume: &VolumeStatus, value: impl Fn(&ScrubStatus) -> Option<f64>) -> Values {
    volume.scrub.as_ref().and_then(value).map_or_else(Vec::new, one)
}

pub(super) const GAUGES: &[Metric] = &[
    Metric {
        name: "redoubt_scrub_age_seconds",
        kind: Kind::Gauge,
        help: "Time, while the node ran, since the end of the last complete scrub, or since there is one to be. No sample: the scrub is off.",
        values: |volume| of_scrub(volume, |scrub| scrub.period_s.map(|_| scrub.age_s as f64)),
    },
    Metric {
        name: "redoubt_scrub_period_seconds",
        kind: Kind::Gauge,
        help: "Time between the beginnings of two scrubs. No sample: the scrub is off.",
        values: |volume| of_scrub(volume, |scrub| scrub.period_s.map(|period_s| period_s as f64)),
    },
    Metric {
        name: "redoubt_scrub_unchecked_places",
        kind: Kind::Gauge,
        help: "Files and parts of the volume that the scrub under way, or the last one, did not check.",
        values: |volume| of_scrub(volume, |scrub| Some(scrub.unchecked as f64)),
    },
    Metric {
        name: "redoubt_log_damaged",
        kind: Kind::Gauge,
        help: "1 if the scrub has found damage in the log that the server or the node may need.",
        values: |volume| of_scrub(volume, |scrub| Some(f64::from(u8::from(scrub.log_damage.is_some())))),
    },
];
