//! Kinds of trouble, and the faults of each, drawn by seed. `docs/dev/faults.md` lists the properties that must hold.

use redoubt_redo::Family;

use crate::proxy::{Event, Weather};

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kind {
    /// Short and interrupted calls, delays: without an effect on clients.
    Benign,
    /// Cuts, stalls, resets, changed, lost and doubled bytes between server and node: commits wait, no more.
    Network,
    /// The node's disk is full: commits wait.
    NodeFull,
    /// The node's log cannot be written: the volume stops, and acknowledges nothing from then on.
    NodeLogError,
    /// The node's disk fails elsewhere: the volume stops in the same way, or there is no effect.
    NodeError,
    /// The server's own disk fails or is full: statements fail, or the server stops.
    ServerError,
    /// Node, server, or both are killed, and start again, under milder faults.
    Kills,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Benign,
        Self::Network,
        Self::NodeFull,
        Self::NodeLogError,
        Self::NodeError,
        Self::ServerError,
        Self::Kills,
    ];
}

/// A victim of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The server.
    Server,
    /// The node.
    Node,
    /// The data directory of the killed server.
    Directory,
}

/// The faults of a round.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// Kind.
    pub kind: Kind,
    /// Seed of the injectors.
    pub seed: u64,
    /// Rules of the injector below the server's library.
    pub server_rules: String,
    /// Rules of the injector in the node.
    pub node_rules: String,
    /// The network.
    pub weather: Option<Weather>,
    /// The victims of kills, in this order.
    pub victims: Vec<Victim>,
    /// How long the faults last at least, where that is not decided by commits.
    pub time_ms: u64,
}

/// Calls that go on when they are short or interrupted. The server reads its own small files in one piece and takes
/// less for the end of the file, so its reads of files are never short, and InnoDB's never interrupted.
const SERVER_BENIGN: &str = "\
send,receive short kind=tcp p=0.2
send,receive eintr kind=tcp p=0.05
send,receive delay kind=tcp p=0.01 us=10..3000
write short kind=file path=*/data/* p=0.2
read eintr kind=file path=*/data/*.frm p=0.1
write,read delay kind=file path=*/data/* p=0.01 us=10..3000
";
const NODE_BENIGN: &str = "\
read,write short kind=file path=*/node/* p=0.2
read,write,sync,truncate eintr kind=file path=*/node/* p=0.05
open eintr path=*/node/* p=0.02
send,receive short kind=tcp p=0.2
send,receive,accept eintr kind=tcp p=0.05
write,sync,read delay kind=file path=*/node/* p=0.01 us=10..20000
send,receive delay kind=tcp p=0.01 us=10..3000
";
const RESETS: &str = "\
send,receive reset kind=tcp p=0.002
connect reset kind=tcp p=0.3
";
/// Bytes of a connection that are greeting: no checksum guards them, and the product may refuse what they say.
const GREETING_BYTES: u64 = 512;

/// With interrupted writes. One of its temporary tablespaces or doublewrite files ends MySQL.
fn server_benign(family: Family) -> String {
    let not = match family {
        Family::MariaDb => "",
        Family::MySql => "not=*/data/*ib*",
    };
    format!("{SERVER_BENIGN}write,sync eintr kind=file path=*/data/* {not} p=0.05\n")
}

impl Trouble {
    /// The faults of one round.
    pub fn draw(kind: Kind, family: Family, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut trouble = Self {
            kind,
            seed,
            server_rules: String::new(),
            node_rules: String::new(),
            weather: None,
            victims: Vec::new(),
            time_ms: random.u64(800..2500),
        };
        match kind {
            Kind::Benign => {
                trouble.server_rules = server_benign(family);
                trouble.node_rules = NODE_BENIGN.to_owned();
                trouble.weather = Some(weather(&mut random, &[Event::Delay]));
            }
            Kind::Network => trouble.network(&mut random),
            Kind::NodeFull => trouble.node_full(&mut random),
            Kind::NodeLogError => trouble.node_log_error(&mut random),
            Kind::NodeError => trouble.node_error(&mut random),
            Kind::ServerError => trouble.server_error(family, &mut random),
            Kind::Kills => trouble.kills(family, &mut random),
        }
        trouble
    }

    fn network(&mut self, random: &mut fastrand::Rng) {
        let all =
            [Event::Delay, Event::Stall, Event::Cut, Event::HalfClose, Event::Corrupt, Event::Duplicate];
        // Sometimes all, sometimes few: a rare event shows little among many cuts.
        let mut events: Vec<Event> = all.into_iter().filter(|_| random.bool()).collect();
        if events.is_empty() {
            events.extend(all);
        }
        let mut weather = weather(random, &events);
        // TCP loses nothing without noticing. Here a lost end of a frame costs 30 s, until a side is taken for silent.
        if random.u32(..8) == 0 {
            weather.events.push(Event::Omit);
            weather.mean_bytes = 3_000_000;
        }
        self.weather = Some(weather);
        if random.bool() {
            self.server_rules = RESETS.to_owned();
        }
        if random.bool() {
            self.node_rules = "send,receive reset kind=tcp p=0.002\n".to_owned();
        }
    }

    fn node_full(&mut self, random: &mut fastrand::Rng) {
        let p = [0.02, 0.3, 1.0][random.usize(..3)];
        // A segment of the log has all its room before it is used: no space within it is an error of the disk. Spare
        // ones are seldom written, so something else has no room either, or it may be long until anything fails.
        let places = [
            &["path=*/node/* not=*/log/log-*"][..],
            &["path=*/spare-*", "path=*/pages/*"][..],
            &["path=*/pages/*"][..],
        ];
        for place in places[random.usize(..3)] {
            self.node_rules += &format!("write enospc kind=file {place} p={p}\n");
        }
    }

    fn node_log_error(&mut self, random: &mut fastrand::Rng) {
        let rules = [
            "sync eio kind=file path=*/log/*",
            "write eio kind=file path=*/log/*",
            "write enospc kind=file path=*/log/log-*",
        ];
        self.node_rules =
            format!("{} {}\n", rules[random.usize(..rules.len())], at_once_or_later(random, 40));
    }

    fn node_error(&mut self, random: &mut fastrand::Rng) {
        // A failing call somewhere; at once, or some calls later. The last two are made seldom.
        let rules = [
            ("write,sync eio kind=file path=*/node/*", 40),
            ("write,sync eio kind=file not=*/log/*", 40),
            ("open,rename eio path=*/node/*", 4),
            ("read eio kind=file path=*/node/*", 4),
        ];
        let (rule, calls) = rules[random.usize(..rules.len())];
        self.node_rules = format!("{rule} {}\n", at_once_or_later(random, calls));
        self.time_ms = 4000;
    }

    fn server_error(&mut self, family: Family, random: &mut fastrand::Rng) {
        let full = match family {
            Family::MariaDb => "write enospc kind=file path=*/data/*.MAD",
            Family::MySql => "write eio kind=file path=*/data/*bin.0*",
        };
        let rules = [
            "write eio kind=file path=*/data/*",
            full,
            "open,truncate,allocate eio path=*/data/*",
            "allocate,open enospc path=*/data/*",
            "rename,unlink eio path=*/data/*",
            "read,sync eio kind=file path=*/data/*",
        ];
        // MariaDB turns its binary log off when it cannot go on in the next file. If it is killed then, it refuses to
        // start ("Found 1 prepared transactions!"), on a local disk as well.
        let not = match family {
            Family::MariaDb => "not=*/data/s-bin*",
            Family::MySql => "",
        };
        let p = [0.005, 0.05, 0.5][random.usize(..3)];
        self.server_rules = format!("{} {not} p={p}\n", rules[random.usize(..rules.len())]);
    }

    fn kills(&mut self, family: Family, random: &mut fastrand::Rng) {
        let victims: [&[Victim]; 5] = [
            &[Victim::Node],
            &[Victim::Server],
            &[Victim::Server, Victim::Node],
            &[Victim::Node, Victim::Server],
            &[Victim::Node, Victim::Server, Victim::Directory],
        ];
        self.victims = victims[random.usize(..victims.len())].to_vec();
        if random.bool() {
            self.server_rules = server_benign(family);
        }
        if random.bool() {
            self.node_rules = NODE_BENIGN.to_owned();
        }
        let events = [Event::Delay, Event::Delay, Event::Stall, Event::Cut];
        self.weather = Some(Weather { mean_bytes: 400_000, ..weather(random, &events) });
    }
}

/// When a rule fires: at one of the next `calls`, or at one in `calls / 2`.
fn at_once_or_later(random: &mut fastrand::Rng, calls: u64) -> String {
    let when = [format!("nth={}", random.u64(1..calls)), format!("p={}", 2.0 / calls as f64)];
    when[random.usize(..2)].clone()
}

fn weather(random: &mut fastrand::Rng, events: &[Event]) -> Weather {
    Weather {
        events: events.to_vec(),
        mean_bytes: [50_000, 100_000, 300_000][random.usize(..3)],
        spared_bytes: GREETING_BYTES,
        delay_ms: 15,
        stall_ms: 1500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_every_kind_does_something() {
        for kind in Kind::ALL {
            for seed in 0..50 {
                let trouble = Trouble::draw(kind, Family::MariaDb, seed);
                assert_eq!(
                    format!("{trouble:?}"),
                    format!("{:?}", Trouble::draw(kind, Family::MariaDb, seed))
                );
                let quiet = trouble.server_rules.is_empty()
                    && trouble.node_rules.is_empty()
                    && trouble.weather.is_none();
                assert!(!quiet, "{kind:?} with seed {seed}");
            }
        }
    }
}
