//! Certificates: modes, owner, subject, expiry.

use super::limits::own_user;
use super::report::Check;
use crate::NodeAddress;
use redoubt_transport::certificate::{now, time_text};
use redoubt_transport::{CredentialFiles, Credentials, Identity};

const NAME: &str = "tls";
const DAY_S: i64 = 86_400;
const SOON_DAYS: i64 = 30;
const OTHERWISE: &str = "see docs/volume/how-to/tls.md; `redoubt certificates` makes and renews certificates";

/// Required subject of a certificate.
pub enum Wanted<'a> {
    /// A node.
    Node,
    /// A user of the volume, if that is known; `user` is set if the server changes its user.
    Volume {
        /// Its name.
        name: Option<&'a str>,
        /// Number of the user.
        user: Option<u32>,
    },
}

/// Checks the files that the options or the environment name; `None` without any.
pub fn check(address: &NodeAddress, wanted: &Wanted<'_>) -> Option<Check> {
    let files = match &address.files {
        Ok(files) => files.as_ref()?,
        Err(error) => return Some(Check::refused(NAME, error, OTHERWISE)),
    };
    let credentials = match Credentials::load(files) {
        Ok(credentials) => credentials,
        Err(error) => return Some(Check::refused(NAME, &error, OTHERWISE)),
    };
    let facts = Facts {
        identity: &credentials.identity,
        hosts: &credentials.facts.hosts,
        not_after: credentials.facts.not_after,
        now: now(),
        user: own_user(),
    };
    Some(judge(files, &facts, wanted))
}

struct Facts<'a> {
    identity: &'a Identity,
    hosts: &'a [String],
    not_after: i64,
    now: i64,
    /// User of this process.
    user: u32,
}

fn judge(files: &CredentialFiles, facts: &Facts<'_>, wanted: &Wanted<'_>) -> Check {
    let path = files.certificate.display();
    let days = (facts.not_after - facts.now).div_euclid(DAY_S);
    let hosts = match facts.identity {
        Identity::Node => format!(" ({})", facts.hosts.join(", ")),
        _ => String::new(),
    };
    let found = format!(
        "{path}: for {}{hosts}, valid until {} ({days} days)",
        facts.identity,
        time_text(facts.not_after)
    );
    let fits = match wanted {
        Wanted::Node => *facts.identity == Identity::Node,
        Wanted::Volume { name: Some(name), .. } => facts.identity.may_use(name),
        Wanted::Volume { name: None, .. } => *facts.identity != Identity::Node,
    };
    if !fits {
        let whose = match wanted {
            Wanted::Node => "a node's".to_owned(),
            Wanted::Volume { name: Some(name), .. } => format!("that of volume {name}"),
            Wanted::Volume { name: None, .. } => "that of a volume".to_owned(),
        };
        return Check::problem(NAME, found, format!("use {whose}: this one opens nothing here"));
    }
    if days < SOON_DAYS {
        let change =
            "renew it: `redoubt certificates add DIR --renew`, then copy it over; nothing is restarted";
        return Check::warning(NAME, found, change);
    }
    if let Wanted::Volume { user: Some(user), .. } = wanted
        && *user != facts.user
    {
        let change = format!(
            "let the bundle belong to user {user} and start the server as that user, or restart it after each renewal: \
             after it has changed its user it cannot read the key again"
        );
        return Check::note(NAME, found, change);
    }
    Check::ok(NAME, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;
    use std::path::Path;

    fn level(identity: &Identity, days: i64, wanted: &Wanted<'_>) -> Level {
        let hosts = ["node1".to_owned()];
        let facts = Facts { identity, hosts: &hosts, not_after: days * DAY_S, now: 0, user: 0 };
        judge(&CredentialFiles::in_directory(Path::new("/tls")), &facts, wanted).level
    }

    #[test]
    fn a_certificate_is_for_somebody_and_for_a_time() {
        let shop = Identity::Volume("shop".to_owned());
        let of = |name, user| Wanted::Volume { name, user };
        assert_eq!(level(&shop, 365, &of(Some("shop"), None)), Level::Ok);
        assert_eq!(level(&shop, 365, &of(None, Some(0))), Level::Ok);
        assert_eq!(level(&shop, 365, &of(Some("blog"), None)), Level::Problem);
        assert_eq!(level(&shop, 365, &Wanted::Node), Level::Problem);
        assert_eq!(level(&shop, 29, &of(Some("shop"), None)), Level::Warning);
        assert_eq!(level(&shop, 365, &of(Some("shop"), Some(105))), Level::Note);
        assert_eq!(level(&Identity::Node, 365, &Wanted::Node), Level::Ok);
        assert_eq!(level(&Identity::Node, 365, &of(None, None)), Level::Problem);
        assert_eq!(level(&Identity::Administrator, 365, &of(Some("shop"), None)), Level::Ok);
    }
}
