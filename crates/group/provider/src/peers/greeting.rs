//! The first frames of a connection between two members: identity, group, versions and features.

use super::{CONNECT_TIMEOUT, GREETING_TIMEOUT, MAX_ADDRESSES, Place, Shared, lock};
use crate::frame::{Answer, Frame, FrameError, Hello, LEGACY_VERSION, MAX_HELLO_LEN_BYTES};
use crate::replica::GroupId;
use redoubt_consensus::types::{Incarnation, MemberId};
use redoubt_negotiation::{Announcement, Disagreement};
use redoubt_transport::{Connection, Reader};
use std::io::ErrorKind;
use std::sync::Arc;

pub(super) type Greeted = (Arc<dyn Connection>, MemberId, Vec<String>);

/// Reason why a greeting failed.
enum NotGreeted {
    /// The reaction of a legacy member to an announcement.
    NoAnswer,
    Because(String),
}

impl From<String> for NotGreeted {
    fn from(reason: String) -> Self {
        Self::Because(reason)
    }
}

/// Greets as a negotiating member, then as a legacy one, unless a member has negotiated at this address before.
pub(super) fn greet_either_way(shared: &Shared, address: &str) -> Result<Greeted, String> {
    let greeted = match greet(shared, address, false) {
        Err(NotGreeted::NoAnswer)
            if shared.announced.versions().oldest() <= LEGACY_VERSION
                && !lock(&shared.negotiated).has_address(address) =>
        {
            greet(shared, address, true)
        }
        greeted => greeted,
    };
    greeted.map_err(|error| match error {
        NotGreeted::NoAnswer => "ended the connection without an answer".to_owned(),
        NotGreeted::Because(reason) => reason,
    })
}

fn greet(shared: &Shared, address: &str, is_legacy: bool) -> Result<Greeted, NotGreeted> {
    let connection = shared.trust.connect(address, CONNECT_TIMEOUT, GREETING_TIMEOUT)?;
    shared.keep(&connection);
    let Place { group, incarnation, history } = lock(&shared.place).clone();
    let hello = Hello {
        announced: if is_legacy { Announcement::of_legacy_peer(LEGACY_VERSION) } else { shared.announced },
        is_legacy,
        cluster_name: shared.local.cluster_name.clone(),
        group,
        member: shared.local.member,
        incarnation,
        listen_address: shared.local.listen_address.clone(),
        history: history.clone(),
    };
    connection.write_all(&Frame::Hello(hello).encode()).map_err(|error| error.to_string())?;
    match Frame::read(&mut Reader(Arc::clone(&connection)), MAX_HELLO_LEN_BYTES) {
        Ok(Some(Frame::Answer(Answer::Welcome {
            announced,
            member,
            addresses,
            group: other,
            history: others,
        }))) => {
            shared.trust.check(connection.identity(), member)?;
            let theirs = announced.unwrap_or(Announcement::of_legacy_peer(LEGACY_VERSION));
            let agreement = shared.announced.agree(theirs).map_err(|error| disagreement(&error))?;
            if announced.is_some() {
                lock(&shared.negotiated).note(member, Incarnation::default(), address);
            } else {
                note_legacy(shared, member, address)?;
            }
            lock(&shared.features).insert(member, agreement.features);
            if other == group && !history.fits(&others) {
                return Err(two_histories().into());
            }
            connection.set_deadline(None).map_err(|error| error.to_string())?;
            Ok((connection, member, addresses))
        }
        Ok(Some(Frame::Answer(Answer::Refused { reason }))) => Err(format!("refused: {reason}").into()),
        Ok(Some(_)) => Err("answered with something else".to_owned().into()),
        Ok(None) => Err(NotGreeted::NoAnswer),
        // The other side has closed the connection with unread bytes.
        Err(FrameError::Io(error))
            if [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof].contains(&error.kind()) =>
        {
            Err(NotGreeted::NoAnswer)
        }
        Err(error) => Err(error.to_string().into()),
    }
}

/// Logs the first answer of a legacy member.
fn note_legacy(shared: &Shared, member: MemberId, address: &str) -> Result<(), String> {
    if member != shared.local.member && lock(&shared.negotiated).note_legacy_answer(member)? {
        shared.say(format!(
            "member_does_not_negotiate: {address} has protocol version {LEGACY_VERSION} without features, and is sent \
             only what that has; if its version of Redoubt is later than 0.1.0, the network has cut a greeting: \
             restart it"
        ));
    }
    Ok(())
}

/// Message with both versions, and advice.
pub(super) fn disagreement(error: &Disagreement) -> String {
    format!("{error}; install the same version of Redoubt on all servers of the group, one after the other")
}

/// The answer to a member that connects.
pub(super) fn answer(shared: &Shared, hello: &Hello) -> Answer {
    if shared.is_isolated() {
        return Answer::Refused { reason: "it is isolated (gmcast.isolate)".into() };
    }
    let Place { group, history, .. } = lock(&shared.place).clone();
    let nobody = GroupId::default();
    // From the point of view of the other side, which receives the answer.
    if let Err(error) = hello.announced.agree(shared.announced) {
        return Answer::Refused { reason: disagreement(&error) };
    }
    if hello.cluster_name != shared.local.cluster_name {
        let reason = format!(
            "its wsrep_cluster_name is {:?}, yours {:?}",
            shared.local.cluster_name, hello.cluster_name
        );
        return Answer::Refused { reason };
    }
    if hello.group != group && hello.group != nobody && group != nobody {
        let reason =
            "it is in another group of the same name: its data has another history than yours".into();
        return Answer::Refused { reason };
    }
    if hello.group == group && group != nobody && !shared.trust.is_member(hello.member) {
        // This member may receive the new member's membership later than the new member itself, which then tries again.
        let reason = "it does not know this member any more: if it was removed or replaced, shut this server down, remove \
                      redoubt_group.*.log from its data directory, and start it; it joins as a new member";
        return Answer::Refused { reason: reason.into() };
    }
    if hello.group == group && !history.fits(&hello.history) {
        return Answer::Refused { reason: two_histories() };
    }
    let addresses = lock(&shared.dials).iter().take(MAX_ADDRESSES).cloned().collect();
    let announced = (!hello.is_legacy).then_some(shared.announced);
    Answer::Welcome { announced, member: shared.local.member, group, addresses, history }
}

/// The same text on both sides.
fn two_histories() -> String {
    "split brain: each of the two servers continued alone, and their histories cannot be merged. Choose the \
     server whose data is to stay, shut the other one down, and remove redoubt_group.*.log from its data \
     directory. Then start it; it receives the state of the other server"
        .into()
}
