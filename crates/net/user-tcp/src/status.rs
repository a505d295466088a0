//! Statistics of a stack for `redoubt net status`.

use crate::stack::Inner;
use redoubt_shm_control::net::{UserTcpLink, UserTcpMode};

fn mode(mode: crate::link::Mode) -> UserTcpMode {
    match mode {
        crate::link::Mode::ZeroCopy => UserTcpMode::ZeroCopy,
        crate::link::Mode::Native => UserTcpMode::Native,
        crate::link::Mode::Generic => UserTcpMode::Generic,
    }
}

/// Publishes the statistics of a stack.
pub fn publish(number: usize, name: &str, inner: &mut Inner) {
    let link = inner.link().counters();
    let mode = if inner.is_gone { UserTcpMode::Failed } else { mode(inner.link().mode()) };
    let counters = inner.engine.counters();
    let status = UserTcpLink {
        interface: name.to_owned(),
        mode,
        connections: inner.connections() as u64,
        opened: inner.opened(),
        frames_received: link.received,
        frames_sent: link.sent,
        frames_dropped: link.dropped,
        retransmitted: counters.retransmitted,
        resets_received: counters.reset_by_peer,
        timed_out: counters.timed_out,
        bad_checksums: counters.refused.tcp_checksum + counters.refused.ip_checksum,
    };
    crate::publish(number, status.to_words());
}

/// Publishes that the interface could not be used.
pub fn publish_failure(number: usize, name: &str) {
    let status =
        UserTcpLink { interface: name.to_owned(), mode: UserTcpMode::Failed, ..UserTcpLink::default() };
    crate::publish(number, status.to_words());
}
