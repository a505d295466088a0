//! Authentication of the other end of a connection.
//!
//! With certificates: a member of this group, by its name, that is one of the permitted members, and does not claim the
//! id of a member with another name. Without certificates: any process that reaches the port.

use redoubt_consensus::types::MemberId;
use redoubt_transport::connect::{connect_tcp, host};
use redoubt_transport::tls::Rejected;
use redoubt_transport::{Connection, Identity, MemberTls, SocketConnection};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// How long a refused peer may take to read the reason.
const SOFT_END: Duration = Duration::from_secs(1);

/// The members of the group, as far as this member has them.
pub trait Members: Send + Sync {
    /// Name of a member, if it was ever present.
    fn name_of(&self, member: MemberId) -> Option<String>;

    /// Whether it is a member now, by this member's state.
    fn is_member(&self, member: MemberId) -> bool;
}

/// Authentication of the other end of a connection.
pub struct Trust {
    tls: Option<MemberTls>,
    /// Names of permitted members; empty: all with a certificate.
    members: BTreeSet<String>,
    known: Box<dyn Members>,
}

impl Trust {
    /// With certificates, or without.
    pub fn new(tls: Option<MemberTls>, members: BTreeSet<String>, known: Box<dyn Members>) -> Self {
        Self { tls, members, known }
    }

    /// [`Members::is_member`].
    pub fn is_member(&self, member: MemberId) -> bool {
        self.known.is_member(member)
    }

    /// Performs the handshake of an accepted connection within the time, before anything of its protocol is read. The
    /// second value is the reason why changed certificates are not used.
    pub fn accept(
        &self,
        stream: TcpStream,
        within: Duration,
    ) -> (Result<Arc<dyn Connection>, String>, Option<String>) {
        let tcp = SocketConnection::new(stream);
        if let Err(error) = tcp.set_deadline(Some(within)) {
            return (Err(error.to_string()), None);
        }
        let Some(tls) = &self.tls else { return (Ok(Arc::new(tcp)), None) };
        let peer = tcp.peer().to_owned();
        let (accepted, not_loaded) = tls.accept(tcp);
        let accepted = accepted.map_err(|rejected| {
            let why = match *rejected {
                Rejected::PlainText(tcp) => {
                    tcp.end_softly(SOFT_END);
                    "does not encrypt, and this member does (redoubt.tls)".to_owned()
                }
                Rejected::Handshake(tcp, error) => {
                    tcp.end_softly(SOFT_END);
                    error.to_string()
                }
                Rejected::Denied(connection, why) => {
                    connection.end_softly(SOFT_END);
                    why
                }
            };
            format!("{peer}: {why}")
        });
        let accepted = accepted.map(|connection| Arc::new(connection) as Arc<dyn Connection>);
        (accepted, not_loaded.map(|error| error.to_string()))
    }

    /// Connects to an address.
    pub fn connect(
        &self,
        address: &str,
        connect_timeout: Duration,
        greeting_timeout: Duration,
    ) -> Result<Arc<dyn Connection>, String> {
        let text = |error: redoubt_transport::TransportError| error.to_string();
        let tcp = connect_tcp(address, connect_timeout, greeting_timeout).map_err(text)?;
        match &self.tls {
            None => Ok(Arc::new(tcp)),
            Some(tls) => Ok(Arc::new(tls.connect(tcp, host(address)).map_err(text)?)),
        }
    }

    /// Checks whether the peer may act as this member. The error is the reason why not.
    pub fn check(&self, identity: &Identity, member: MemberId) -> Result<(), String> {
        if self.tls.is_none() {
            return Ok(());
        }
        let Identity::Member { name, .. } = identity else {
            return Err(format!("its certificate is that of {identity}"));
        };
        if !self.members.is_empty() && !self.members.contains(name) {
            return Err(format!("{name} is not among the members that redoubt.members names"));
        }
        match self.known.name_of(member) {
            Some(known) if known != *name => Err(format!(
                "it says that it is member {member}, which is {known}; its certificate is that of {name}"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
