//! Names under which a request may ask for the page.
//!
//! A web site whose name is made to mean 127.0.0.1 could have a visitor's browser read the page as if it were the
//! site's own. The browser then sends the site's name as Host. An address is not a name that an attacker controls, so
//! addresses are accepted.

use std::net::{Ipv4Addr, Ipv6Addr};

/// May a request with this Host header be answered? `names` are the page's own, besides `localhost`.
pub fn is_allowed(host: &str, names: &[String]) -> bool {
    let Some(name) = without_port(host) else { return false };
    if let Some(address) = name.strip_prefix('[') {
        return address.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let is_own = |own: &str| name.eq_ignore_ascii_case(own);
    name.parse::<Ipv4Addr>().is_ok() || is_own("localhost") || names.iter().any(|own| is_own(own))
}

/// The host of `host` or `host:port`; `None` if the port is invalid.
fn without_port(host: &str) -> Option<&str> {
    let end_of_name = host.rfind(']').map_or(0, |bracket| bracket + 1);
    match host.get(end_of_name..)?.rfind(':') {
        None => Some(host),
        Some(colon) => {
            let (name, port) = host.split_at(end_of_name + colon);
            port.get(1..).filter(|port| port.parse::<u16>().is_ok()).map(|_| name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn addresses_and_own_names_only() {
        let names = ["node1.example".to_owned()];
        for host in
            ["127.0.0.1", "127.0.0.1:7071", "localhost:7071", "LOCALHOST", "[::1]:80", "[::1]", "10.0.0.7:1"]
        {
            assert!(is_allowed(host, &[]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7071",
            "node1.example",
            "127.0.0.1.evil.example",
            "",
            ":80",
            "[::1",
            "[x]:1",
        ] {
            assert!(!is_allowed(host, &[]), "{host}");
        }
        for host in ["localhost:99999", "localhost:", "127.0.0.1:7071:1", "[::1]]", "localhost@evil.example"]
        {
            assert!(!is_allowed(host, &[]), "{host}");
        }
        assert!(is_allowed("Node1.Example:7071", &names));
        assert!(!is_allowed("node1.example.evil", &names));
    }
}
