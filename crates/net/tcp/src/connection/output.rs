//! Writing the next segment of a connection.

use super::receiver::Acknowledge;
use super::sender::Outgoing;
use super::{Connection, Context, clock};
use crate::config::Config;
use crate::planted::Bug;
use crate::segment::{self, Flags, Header, Options, Timestamps};
use crate::sequence::Seq;
use crate::time::Micros;

impl Connection {
    /// Whether [`Connection::transmit`] would write something.
    pub(crate) fn wants_to_send(&self) -> bool {
        !self.is_over() && (self.receiver.acknowledge == Acknowledge::Now || self.sender.outgoing().is_some())
    }

    /// Writes a segment into `out` and returns its length, if there is one to send and it fits.
    pub(crate) fn transmit(
        &mut self,
        context: &mut Context<'_>,
        out: &mut [u8],
        ip_id: u16,
    ) -> Option<usize> {
        if self.is_over() {
            return None;
        }
        let outgoing = self.sender.outgoing();
        if outgoing.is_none() && self.receiver.acknowledge != Acknowledge::Now {
            return None;
        }
        let (seq, data_len, has_fin) = match outgoing {
            Some(Outgoing::Again(sent)) => {
                // FIN has the last sequence number of the last segment.
                let data_end = self.sender.first.plus(self.sender.buffer.len());
                let has_fin = sent.start.plus(sent.len).is_after(data_end);
                (sent.start, sent.len - u32::from(has_fin), has_fin)
            }
            Some(Outgoing::New { len, has_fin }) => (self.sender.next, len, has_fin),
            Some(Outgoing::Empty) => (self.sender.first.minus(1), 0, false),
            None => (self.sender.next, 0, false),
        };
        let mut offset = seq.since(self.sender.first);
        let mut header = self.header(context.now, seq);
        if data_len > 0 && offset + data_len == self.sender.buffer.len() {
            header.flags = header.flags.with(Flags::PSH);
        }
        if has_fin {
            header.flags = header.flags.with(Flags::FIN);
        }
        if data_len == 0 {
            self.receiver.blocks(&mut header.options);
            if context.config.is_planted(Bug::BlockReportedEarly) {
                let told = header.options.sack;
                header.options.sack = segment::SackBlocks::default();
                for (start, end) in told.as_slice() {
                    let start = start.minus(self.receiver.mss).later(self.receiver.next);
                    header.options.sack.push(start.earlier(*end), *end);
                }
            }
        }
        if header.packet_len_bytes(data_len as usize) > out.len() {
            return None;
        }
        header.window = self.receiver.acknowledged();
        if context.config.is_planted(Bug::WindowShrunk) {
            header.window /= 2;
        }
        if matches!(outgoing, Some(Outgoing::Again(_)))
            && context.config.is_planted(Bug::WrongBytesRetransmitted)
        {
            offset = 0;
        }
        let buffer = &self.sender.buffer;
        let len = header.write(out, ip_id, data_len as usize, |place| buffer.copy(offset, place))?;
        if has_fin && !self.receiver.has_ended {
            self.closed_first = true;
        }
        if let Some(outgoing) = outgoing {
            self.sender.sent(context, outgoing);
        }
        Some(len)
    }

    fn header(&self, now: Micros, seq: Seq) -> Header {
        let timestamps = self
            .receiver
            .has_timestamps
            .then(|| Timestamps { value: clock(now, self.clock_offset), echo: self.receiver.recent });
        Header {
            source: self.key.local,
            destination: self.key.remote,
            seq,
            ack: self.receiver.next,
            flags: Flags::ACK,
            window: 0,
            options: Options { timestamps, ..Options::default() },
        }
    }

    /// Header that acknowledges all received data.
    pub(crate) fn last_acknowledgement(&mut self, now: Micros) -> Header {
        let mut header = self.header(now, self.sender.next);
        header.window = self.receiver.acknowledged();
        header
    }

    /// Header that resets the connection.
    pub(crate) fn reset_header(&self, now: Micros) -> Header {
        let mut header = self.header(now, self.sender.next);
        header.flags = Flags::RST.with(Flags::ACK);
        header
    }
}

impl super::Sender {
    /// Start of the time during which the peer has not acknowledged data.
    pub(super) fn timed_out_from(&self) -> Micros {
        self.waiting_from
    }

    /// New data that may not be sent waits for the peer's window.
    pub(super) fn arm_if_held(&mut self, now: Micros, config: &Config) {
        if self.board.is_empty() {
            self.arm(now, config);
        }
    }
}
