//! Configuration of a group's servers, as text. Nothing here touches a file.

use crate::error::{CliError, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

const DEFAULT_PORT: u16 = 4567;

/// A server of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedMember {
    /// `wsrep_node_name`.
    pub name: String,
    /// Host name or address for the other members.
    pub host: String,
    /// Port on which it listens for the members.
    pub port: u16,
}

/// A group, as stored in `group.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// `wsrep_cluster_name`.
    pub group: String,
    /// Members in the order of the command line.
    pub members: Vec<PlannedMember>,
    /// Directory of the group's files on a server.
    pub server_directory: PathBuf,
    /// The library on the servers.
    pub provider: PathBuf,
    /// They have certificates.
    pub has_certificates: bool,
}

impl PlannedMember {
    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl Plan {
    /// Adds servers.
    ///
    /// # Errors
    /// [`CliError::Usage`] if a name or an address is there already, or cannot be one.
    pub fn add(&mut self, members: &[PlannedMember]) -> Result<()> {
        check_name("the group", &self.group)?;
        for member in members {
            check_name("a server", &member.name)?;
            if let Some(same) = self.members.iter().find(|other| other.name == member.name) {
                return Err(CliError::Usage(format!(
                    "{} is in the group already, at {}; choose another name",
                    same.name,
                    same.address()
                )));
            }
            if let Some(same) = self.members.iter().find(|other| other.address() == member.address()) {
                let (address, name) = (member.address(), &same.name);
                return Err(CliError::Usage(format!("{address} is the address of {name} already")));
            }
            self.members.push(member.clone());
        }
        Ok(())
    }

    /// Name of the directory with what a server needs: as `redoubt certificates` calls it.
    pub fn part_of(&self, member: &PlannedMember) -> String {
        format!("member-{}-{}", self.group, member.name)
    }

    /// The configuration file of a server.
    pub fn configuration(&self, member: &PlannedMember) -> String {
        let everybody: Vec<String> = self.members.iter().map(PlannedMember::address).collect();
        let tls = self.server_directory.display();
        let tls = if self.has_certificates { format!(";redoubt.tls={tls}") } else { String::new() };
        format!(
            "# Server {name} of the group {group}. Written by `redoubt group`; see docs/group/tutorial.md.\n\
             [mariadb]\n\
             wsrep_on = ON\n\
             wsrep_provider = \"{provider}\"\n\
             wsrep_provider_options = \"base_port={port}{tls}\"\n\
             wsrep_cluster_name = \"{group}\"\n\
             wsrep_cluster_address = \"gcomm://{everybody}\"\n\
             wsrep_node_name = \"{name}\"\n\
             wsrep_node_address = \"{host}\"\n\
             wsrep_sst_method = rsync\n\
             wsrep_slave_threads = 4\n\
             # A server that cannot apply what the others have applied leaves the group and stops.\n\
             wsrep_ignore_apply_errors = 0\n\
             binlog_format = ROW\n\
             default_storage_engine = InnoDB\n\
             innodb_autoinc_lock_mode = 2\n\
             # Commits are durable in the logs of most of the members, so the server's own log need not be synced:\n\
             # innodb_flush_log_at_trx_commit = 2\n",
            name = member.name,
            group = self.group,
            provider = self.provider.display(),
            port = member.port,
            everybody = everybody.join(","),
            host = member.host,
        )
    }

    /// Advice for the operator, given the number of members.
    pub fn advice(&self) -> Option<String> {
        let count = self.members.len();
        let survives = count.saturating_sub(1) / 2;
        match count {
            1 => Some("a group of one has no copy of its data: add two more".to_owned()),
            2 => Some("a group of two needs both: add a third one".to_owned()),
            _ if count.is_multiple_of(2) => Some(format!(
                "a group of {count} survives the loss of {survives}, as one of {} does",
                count - 1
            )),
            _ => None,
        }
    }
}

/// Names go into file names, certificates and options.
fn check_name(what: &str, name: &str) -> Result<()> {
    const LONGEST: usize = 32;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.is_empty() || name.len() > LONGEST || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(CliError::Usage(format!(
            "{name:?} cannot be the name of {what}: 1 to {LONGEST} letters, digits, '-', '_' and '.', which is not the \
             first"
        )));
    }
    Ok(())
}

/// Parses `NAME=HOST[:PORT]`.
///
/// # Errors
/// A description of the defect, for people.
pub fn parse_member(text: &str) -> std::result::Result<PlannedMember, String> {
    let (name, address) = text.split_once('=').ok_or("it has to be NAME=HOST or NAME=HOST:PORT")?;
    let (host, port) = match address.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("IPv6 addresses cannot be written here; use a name that leads to one".to_owned());
        }
        Some((host, port)) => {
            let port = port.parse().ok().filter(|port| *port > 0);
            (host, port.ok_or("the port has to be a number from 1 to 65535")?)
        }
        None => (address, DEFAULT_PORT),
    };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if host.is_empty() || !host.chars().all(is_plain) {
        return Err(format!("{host:?} is no host name and no IPv4 address"));
    }
    Ok(PlannedMember { name: name.to_owned(), host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            group: "shop".to_owned(),
            members: Vec::new(),
            server_directory: "/etc/mysql/redoubt".into(),
            provider: "/lib/p.so".into(),
            has_certificates: true,
        }
    }

    fn add(plan: &mut Plan, member: &str) -> std::result::Result<(), String> {
        plan.add(&[parse_member(member)?]).map_err(|error| error.to_string())
    }

    #[test]
    fn each_server_knows_the_addresses_of_all() {
        let mut plan = plan();
        add(&mut plan, "db1=10.0.0.1").unwrap();
        add(&mut plan, "db2=db2.example.com:4600").unwrap();
        let text = plan.configuration(&plan.members[1]);
        for line in [
            "wsrep_cluster_address = \"gcomm://10.0.0.1:4567,db2.example.com:4600\"",
            "wsrep_provider_options = \"base_port=4600;redoubt.tls=/etc/mysql/redoubt\"",
            "wsrep_node_name = \"db2\"",
            "wsrep_node_address = \"db2.example.com\"",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        plan.has_certificates = false;
        assert!(!plan.configuration(&plan.members[0]).contains("tls"));
    }

    #[test]
    fn what_cannot_be_a_server_is_refused() {
        let mut plan = plan();
        add(&mut plan, "db1=10.0.0.1").unwrap();
        for (member, words) in [
            ("db1=10.0.0.2", "already"),
            ("db2=10.0.0.1:4567", "address of db1"),
            ("=10.0.0.2", "cannot be the name"),
            ("../x=10.0.0.2", "cannot be the name"),
            ("d\"b=10.0.0.2", "cannot be the name"),
            ("db2", "NAME=HOST"),
            ("db2=", "no host name"),
            ("db2=a b", "no host name"),
            ("db2=x:0", "1 to 65535"),
            ("db2=::1", "IPv6"),
        ] {
            let error = add(&mut plan, member).unwrap_err();
            assert!(error.contains(words), "{member}: {error}");
        }
        assert_eq!(plan.members.len(), 1);
    }

    #[test]
    fn even_numbers_are_pointed_out() {
        let mut plan = plan();
        let advised = (1..=5).map(|number| {
            add(&mut plan, &format!("db{number}=10.0.0.{number}")).unwrap();
            plan.advice().is_some()
        });
        assert_eq!(advised.collect::<Vec<_>>(), [true, true, false, true, false]);
    }
}
