//! Programs that a server runs on its connections, by port.

use redoubt_tcp::{CallError, ConnectionId, Engine, ListenerId, Micros};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Sends back what comes, and the end after it.
pub const ECHO: u16 = 1;
/// Reads all, then sends how many bytes came (8, big-endian) and whether they were [`pattern`] (1), and ends.
pub const SINK: u16 = 2;
/// Reads a number (8 bytes, big-endian), sends so many bytes of [`pattern`], and ends.
pub const SOURCE: u16 = 3;
/// Resets once something has come.
pub const RESET: u16 = 4;
/// Ends at once, before the client, and reads on.
pub const FAREWELL: u16 = 5;
pub const PORTS: [u16; 5] = [ECHO, SINK, SOURCE, RESET, FAREWELL];

/// The byte at a place of what is sent: of a period that no buffer's size divides.
pub fn pattern(at: u64) -> u8 {
    (at % 251) as u8 ^ (at / 65_521) as u8
}

pub fn fill(at: u64, out: &mut [u8]) {
    out.iter_mut().zip(at..).for_each(|(byte, at)| *byte = pattern(at));
}

#[derive(Debug)]
struct Program {
    port: u16,
    /// Read and not sent yet.
    waiting: Vec<u8>,
    received: u64,
    is_right: bool,
    sent: u64,
    to_send: u64,
    has_ended: bool,
}

/// All programs of a server.
pub struct Server {
    listeners: Vec<(ListenerId, u16)>,
    programs: HashMap<ConnectionId, Program>,
    /// Connections that failed.
    pub failed: u64,
    pub accepted: u64,
}

impl Server {
    pub fn new(engine: &mut Engine, address: IpAddr, backlog: u32) -> Self {
        let listen = |port| (engine.listen(SocketAddr::new(address, port), backlog).unwrap(), port);
        Self { listeners: PORTS.map(listen).to_vec(), programs: HashMap::new(), failed: 0, accepted: 0 }
    }

    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Accepts, and continues with all that has changed.
    pub fn step(&mut self, engine: &mut Engine, now: Micros) {
        for (listener, port) in self.listeners.clone() {
            while let Some((id, _)) = engine.accept(listener) {
                engine.set_nodelay(now, id, true).unwrap();
                self.accepted += 1;
                let program = Program {
                    port,
                    waiting: Vec::new(),
                    received: 0,
                    is_right: true,
                    sent: 0,
                    to_send: 0,
                    has_ended: false,
                };
                self.programs.insert(id, program);
                if port == FAREWELL {
                    engine.shutdown_write(now, id).unwrap();
                }
                self.go_on(engine, now, id);
            }
        }
        while let Some(id) = engine.changed() {
            self.go_on(engine, now, id);
        }
    }

    fn go_on(&mut self, engine: &mut Engine, now: Micros, id: ConnectionId) {
        let Some(program) = self.programs.get_mut(&id) else { return };
        match program.go_on(engine, now, id) {
            Ok(false) => {}
            Ok(true) => {
                self.programs.remove(&id);
                engine.close(now, id).unwrap();
                assert_eq!(engine.state(id), Err(CallError::Stale));
            }
            // RESET's.
            Err(CallError::Ended) => {
                self.programs.remove(&id);
                engine.reset(now, id).unwrap();
            }
            Err(error) => {
                assert!(matches!(error, CallError::Failed(_)), "{error}");
                self.programs.remove(&id);
                self.failed += 1;
                engine.close(now, id).unwrap();
            }
        }
    }
}

fn unless_blocked<T>(result: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match result {
        Err(CallError::WouldBlock) => Ok(None),
        result => result.map(Some),
    }
}

impl Program {
    /// `true`: it is done.
    fn go_on(&mut self, engine: &mut Engine, now: Micros, id: ConnectionId) -> Result<bool, CallError> {
        let mut buffer = [0; 20_000];
        loop {
            // An echo does not read more than it can send.
            if self.port == ECHO && !self.waiting.is_empty() {
                let Some(count) = unless_blocked(engine.send(now, id, &self.waiting))? else {
                    return Ok(false);
                };
                self.waiting.drain(..count);
                continue;
            }
            if self.has_ended {
                break;
            }
            let Some(count) = unless_blocked(engine.read(now, id, &mut buffer))? else { break };
            let data = &buffer[..count];
            self.has_ended = count == 0;
            let right = data.iter().zip(self.received..).all(|(byte, at)| *byte == pattern(at));
            self.is_right &= right;
            self.received += count as u64;
            match self.port {
                ECHO => self.waiting.extend_from_slice(data),
                SOURCE => self.waiting.extend_from_slice(data),
                RESET if count > 0 => return Err(CallError::Ended),
                _ => {}
            }
        }
        self.answer(engine, now, id)
    }

    fn answer(&mut self, engine: &mut Engine, now: Micros, id: ConnectionId) -> Result<bool, CallError> {
        match self.port {
            SINK if self.has_ended => {
                let mut answer = self.received.to_be_bytes().to_vec();
                answer.push(u8::from(self.is_right));
                // All or nothing: there is place, or no memory.
                Ok(unless_blocked(engine.send(now, id, &answer))?.is_some())
            }
            SOURCE => {
                if self.to_send == 0
                    && let Some(count) = self.waiting.first_chunk::<8>()
                {
                    self.to_send = u64::from_be_bytes(*count);
                }
                let mut part = [0; 16_384];
                while self.sent < self.to_send {
                    let len = (self.to_send - self.sent).min(part.len() as u64) as usize;
                    fill(self.sent, &mut part[..len]);
                    let Some(count) = unless_blocked(engine.send(now, id, &part[..len]))? else {
                        return Ok(false);
                    };
                    self.sent += count as u64;
                }
                Ok(self.to_send > 0 || self.has_ended)
            }
            _ => Ok(self.has_ended),
        }
    }
}
