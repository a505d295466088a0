//! A server that was fenced by a newer one, and that ignores it. It continues sending on the connection it has, comes
//! back with new ones, and requests pages. None of this may be let through.

use super::{Server, ask};
use crate::history::PAGES;
use crate::network::End;
use redoubt_sync::{simulation, thread, time};
use redoubt_transport::Connection;
use redoubt_wire::Seq;
use redoubt_wire::frame::append_frame;
use redoubt_wire::hello::{Status, Welcome};
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::{StreamFrame, Verify};
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Number of attempts before it gives up.
const PATIENCE: u64 = 60;

impl Server {
    pub(super) fn is_stubborn(&self) -> bool {
        self.orders.is_stubborn.load(Ordering::Acquire)
    }

    /// The volume was given to a newer server.
    pub(super) fn is_overtaken(&self) -> bool {
        self.facts.generation() > self.generation
    }

    /// True: it is dead now.
    pub(super) fn is_told_that_it_is_fenced(&self) -> bool {
        if self.is_stubborn() {
            simulation::note(|| format!("server of generation {} does not care", self.generation));
            return false;
        }
        self.die("fenced");
        true
    }

    /// The node ends the notices of a server that it fences. A stubborn server keeps its log connection all the same,
    /// until that is closed as well.
    pub(super) fn goes_on_without_notices(&self) {
        let until = time::now() + Duration::from_secs(10);
        while self.is_stubborn() && !self.is_done() && time::now() < until && self.link.lock().end.is_some() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn check_fenced_by(&self, generation: u64) {
        if generation <= self.generation {
            simulation::fail(&format!(
                "the server of generation {} is told that {generation} has fenced it",
                self.generation
            ));
        }
    }

    /// Checks the node's answer to a Hello. `was_overtaken`: a newer server was there already when it was sent.
    pub(super) fn check_welcome(&self, was_overtaken: bool, welcome: &Welcome) {
        if was_overtaken && welcome.status == Status::Accepted {
            simulation::fail(&format!(
                "the server of generation {} is let in, after generation {} was given out",
                self.generation,
                self.facts.generation()
            ));
        }
        if welcome.status == Status::Refused && welcome.message.contains("never given out") {
            simulation::fail(&welcome.message);
        }
    }

    fn tries_again(&self) -> bool {
        if self.strays.fetch_add(1, Ordering::AcqRel) < PATIENCE {
            return true;
        }
        self.die("gives up");
        false
    }

    /// Sends a frame that is not in the model, at the end of the stream as this server sees it, or at the real end.
    pub(super) fn send_stray(&self, rng: &mut fastrand::Rng) {
        if !self.tries_again() {
            return;
        }
        let mut link = self.link.lock();
        let Some(end) = link.end.clone() else { return };
        let (at, digest_of) = {
            let history = self.facts.history();
            let path = history.names.spaces.iter().find_map(|(path, space)| Some((path.clone(), (*space)?)));
            let page = path.and_then(|(path, space)| Some((path, history.newest(space, 1)?.lsn)));
            (history.end, page)
        };
        let mut payload = Vec::new();
        let kind = match (rng.u8(..4), &digest_of) {
            // Says that a page differs.
            (0, Some((path, lsn))) => {
                let verify = Verify { path: path.as_bytes(), page_no: 1, lsn: *lsn, digest: rng.u32(..) };
                StreamFrame::Verify(verify).encode_payload(&mut payload);
                StreamFrame::Verify(verify).kind()
            }
            _ => {
                let frame = StreamFrame::Mkdir { path: b"d/stray", mode: 0o700 };
                frame.encode_payload(&mut payload);
                frame.kind()
            }
        };
        let wire = if kind == (StreamFrame::Mkdir { path: b"", mode: 0 }).kind() && rng.bool() {
            link.queue.push(kind, |out| out.extend_from_slice(&payload)).expect("a frame").to_vec()
        } else {
            let mut wire = Vec::new();
            append_frame(&mut wire, kind, at, &payload).expect("a frame");
            wire
        };
        self.facts.count(|counts| counts.strays += 1);
        if end.write_all(&link.pack(&wire)).is_err() {
            link.end = None;
        }
    }

    /// Asks for something on a page connection that was let in before the newer server came.
    pub(super) fn read_in_vain(
        &self,
        end: &Arc<End>,
        position: &mut u64,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        if !self.tries_again() {
            return Ok(());
        }
        let need = Seq(rng.u64(..=self.durable.load(Ordering::Acquire)));
        let path = self.any_space(rng).map_or_else(|| "d/t5.ibd".to_owned(), |(path, _)| path);
        let page_len = self.facts.history().page_len();
        let request = match rng.u8(..3) {
            0 => PageRequest::Open { need, path: path.as_bytes() },
            1 => PageRequest::LogState,
            _ => PageRequest::Read {
                need,
                file: redoubt_wire::page::FileId(rng.u32(..6)),
                offset_bytes: u64::from(rng.u32(..PAGES)) * page_len as u64,
                len_bytes: page_len as u32,
            },
        };
        self.facts.count(|counts| counts.stray_reads += 1);
        let answered: Result<Option<()>> = ask(end, position, &request, |reply| {
            Err(format!(
                "the server of generation {} gets {} after generation {} was given out",
                self.generation,
                name_of(&reply),
                self.facts.generation()
            ))
        });
        answered.map(|_| ())
    }
}

fn name_of(reply: &PageReply<'_>) -> &'static str {
    match reply {
        PageReply::Opened { .. } | PageReply::NotFound => "a file",
        PageReply::LogState { .. } => "the state of the log",
        PageReply::Failed { .. } => "an error",
        _ => "a page",
    }
}
