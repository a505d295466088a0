//! Rules: which calls fail, how, and how often.
//!
//! One rule per line; `#` starts a comment:
//!
//! ```text
//! CALL[,CALL...] FAULT [kind=KIND] [path=GLOB] [not=GLOB] [p=PROBABILITY | every=N | nth=N] [max=COUNT] [us=A..B]
//! ```
//!
//! | word | values |
//! |---|---|
//! | CALL | `read write sync allocate truncate open rename unlink receive send connect accept` |
//! | FAULT | `short eintr eio enospc reset delay swallow` |
//! | KIND | `file directory tcp unix any` (default `any`; calls with a path are `file`) |
//! | GLOB | `*` stands for any bytes; matched against the whole path, at most once as `path` and once as `not` |
//! | `us` | microseconds of a delay, chosen between A and B |
//!
//! Pure: no system calls. A decision depends only on the seed, the number of the rule and how many calls it has
//! matched in this process, so a seed gives the same faults as long as the calls come in the same order. The first rule
//! that fires counts; `delay` rules fire in addition.

use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of calls, in the order of their counters.
pub const CALLS: [&str; 12] = [
    "read", "write", "sync", "allocate", "truncate", "open", "rename", "unlink", "receive", "send",
    "connect", "accept",
];

/// A kind of call, with all its variants in the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Call {
    Read,
    Write,
    Sync,
    Allocate,
    Truncate,
    Open,
    Rename,
    Unlink,
    Receive,
    Send,
    Connect,
    Accept,
}

/// Kinds of faults, in the order of their counters.
pub const FAULTS: [&str; 7] = ["short", "eintr", "eio", "enospc", "reset", "delay", "swallow"];

/// The outcome that a rule gives a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Fault {
    /// Only a part is read or written.
    Short,
    /// Interrupted before anything was done.
    Interrupted,
    /// Input/output error.
    InputOutput,
    /// No space left on device.
    NoSpace,
    /// Connection reset; of `connect`: refused.
    Reset,
    /// Later, but whole.
    Delay,
    /// Success is reported and nothing is done: a lie.
    Swallow,
}

const ALL_CALLS: [Call; 12] = [
    Call::Read,
    Call::Write,
    Call::Sync,
    Call::Allocate,
    Call::Truncate,
    Call::Open,
    Call::Rename,
    Call::Unlink,
    Call::Receive,
    Call::Send,
    Call::Connect,
    Call::Accept,
];
const ALL_FAULTS: [Fault; 7] = [
    Fault::Short,
    Fault::Interrupted,
    Fault::InputOutput,
    Fault::NoSpace,
    Fault::Reset,
    Fault::Delay,
    Fault::Swallow,
];
/// Longest delay of a rule: an hour, so that a disk can be as good as dead.
const MAX_DELAY_US: u64 = 3_600_000_000;

/// The kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Tcp,
    Unix,
    Other,
}

/// One line.
#[derive(Debug)]
pub struct Rule {
    calls: [bool; CALLS.len()],
    fault: Fault,
    kind: Option<Kind>,
    path: Option<String>,
    not: Option<String>,
    when: When,
    max: u64,
    delay_us: (u64, u64),
    matched: AtomicU64,
    fired: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// Of 2^32.
    Probability(u64),
    Every(u64),
    Nth(u64),
}

/// A fault that was decided on, with random bits for its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub fault: Fault,
    pub random: u64,
}

/// Properties of a call, evaluated only when a rule needs them.
pub trait Subject {
    /// The kind of its descriptor.
    fn kind(&self) -> Kind;
    /// Its path, or that of its descriptor.
    fn path(&self) -> &[u8];
}

/// All rules in force.
#[derive(Debug)]
pub struct Plan {
    seed: u64,
    rules: Vec<Rule>,
}

/// The decision on a call: a delay, then the fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub delay_us: u64,
    pub fault: Option<Decision>,
}

impl Plan {
    /// Reads rules.
    ///
    /// # Errors
    /// The syntax error, with its line number.
    pub fn parse(seed: u64, text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                rules
                    .push(Rule::parse(line).map_err(|error| format!("line {}: {error}: {line}", index + 1))?);
            }
        }
        Ok(Self { seed, rules })
    }

    /// Decides about one call.
    pub fn decide(&self, call: Call, subject: &impl Subject) -> Verdict {
        let mut verdict = Verdict::default();
        for (index, rule) in self.rules.iter().enumerate() {
            if verdict.fault.is_some() && rule.fault != Fault::Delay {
                continue;
            }
            let Some(random) = rule.fires(call, subject, self.seed, index) else { continue };
            if rule.fault == Fault::Delay {
                let (from, to) = rule.delay_us;
                verdict.delay_us += from + random % (to - from + 1);
            } else {
                verdict.fault = Some(Decision { fault: rule.fault, random });
            }
        }
        verdict
    }
}

impl Rule {
    fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let calls = words.next().unwrap_or_default();
        let fault = words.next().ok_or("the fault is missing")?;
        let fault = ALL_FAULTS
            .into_iter()
            .find(|known| FAULTS.get(*known as usize) == Some(&fault))
            .ok_or_else(|| format!("unknown fault {fault:?}, known are {FAULTS:?}"))?;
        let mut rule = Self {
            calls: parse_calls(calls, fault)?,
            fault,
            kind: None,
            path: None,
            not: None,
            when: When::Every(1),
            max: u64::MAX,
            delay_us: (1_000, 1_000),
            matched: AtomicU64::new(0),
            fired: AtomicU64::new(0),
        };
        for word in words {
            rule.option(word)?;
        }
        if matches!(fault, Fault::Interrupted) && rule.when == When::Every(1) && rule.max == u64::MAX {
            return Err("a call that is always interrupted never ends; give p, every, nth or max".into());
        }
        Ok(rule)
    }

    fn option(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not NAME=VALUE"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word:?} is not a number"));
        let at_least_one =
            || number().and_then(|n| if n == 0 { Err(format!("{word:?}: at least 1")) } else { Ok(n) });
        match name {
            "kind" => {
                self.kind = match value {
                    "file" => Some(Kind::File),
                    "directory" => Some(Kind::Directory),
                    "tcp" => Some(Kind::Tcp),
                    "unix" => Some(Kind::Unix),
                    "any" => None,
                    _ => return Err(format!("unknown kind {value:?}")),
                }
            }
            "path" => self.path = Some(value.to_owned()),
            "not" => self.not = Some(value.to_owned()),
            "p" => {
                let p = value.parse::<f64>().ok().filter(|p| (0.0..=1.0).contains(p));
                let p = p.ok_or_else(|| format!("{word:?} is not a probability"))?;
                // 2^32 and the range of p keep this exact enough and in range.
                self.when = When::Probability((p * 4_294_967_296.0) as u64);
            }
            "every" => self.when = When::Every(at_least_one()?),
            "nth" => self.when = When::Nth(at_least_one()?),
            "max" => self.max = at_least_one()?,
            "us" => {
                let (from, to) = value.split_once("..").unwrap_or((value, value));
                let bounds = (from.parse::<u64>(), to.parse::<u64>());
                let (Ok(from), Ok(to)) = bounds else { return Err(format!("{word:?} is not A..B")) };
                if from > to || to > MAX_DELAY_US {
                    return Err(format!("{word:?}: A must not be above B, nor B above {MAX_DELAY_US}"));
                }
                self.delay_us = (from, to);
            }
            _ => return Err(format!("unknown option {name:?}")),
        }
        Ok(())
    }

    fn fires(&self, call: Call, subject: &impl Subject, seed: u64, index: usize) -> Option<u64> {
        if !self.calls.get(call as usize).copied().unwrap_or(false) || !self.covers(subject) {
            return None;
        }
        let number = self.matched.fetch_add(1, Ordering::Relaxed) + 1;
        let random = mix(seed ^ mix(number ^ ((index as u64) << 48)));
        let fires = match self.when {
            When::Probability(bound) => random >> 32 < bound,
            When::Every(n) => number.is_multiple_of(n),
            When::Nth(n) => number == n,
        };
        if !fires || self.fired.fetch_add(1, Ordering::Relaxed) >= self.max {
            return None;
        }
        Some(mix(random))
    }

    fn covers(&self, subject: &impl Subject) -> bool {
        self.kind.is_none_or(|kind| kind == subject.kind())
            && self.path.as_ref().is_none_or(|glob| matches(glob.as_bytes(), subject.path()))
            && self.not.as_ref().is_none_or(|glob| !matches(glob.as_bytes(), subject.path()))
    }
}

fn parse_calls(text: &str, fault: Fault) -> Result<[bool; CALLS.len()], String> {
    let mut calls = [false; CALLS.len()];
    for name in text.split(',') {
        let call = ALL_CALLS.into_iter().find(|call| CALLS.get(*call as usize) == Some(&name));
        let call = call.ok_or_else(|| format!("unknown call {name:?}, known are {CALLS:?}"))?;
        if !is_legal(call, fault) {
            return Err(format!(
                "no system answers {name} with {}",
                FAULTS.get(fault as usize).unwrap_or(&"")
            ));
        }
        if let Some(flag) = calls.get_mut(call as usize) {
            *flag = true;
        }
    }
    Ok(calls)
}

/// POSIX lets this call answer so.
fn is_legal(call: Call, fault: Fault) -> bool {
    use Call::{Accept, Allocate, Connect, Open, Read, Receive, Rename, Send, Sync, Unlink, Write};
    match fault {
        Fault::Delay => true,
        Fault::Short => matches!(call, Read | Write | Receive | Send),
        // An interrupted connect continues in the background, which is another matter; rename and unlink never are.
        Fault::Interrupted => !matches!(call, Rename | Unlink | Connect),
        Fault::InputOutput => !matches!(call, Receive | Send | Connect | Accept),
        Fault::NoSpace => matches!(call, Write | Allocate | Open | Rename),
        Fault::Reset => matches!(call, Receive | Send | Connect),
        Fault::Swallow => matches!(call, Write | Sync),
    }
}

/// `*` stands for any bytes, also `/` and none.
fn matches(glob: &[u8], path: &[u8]) -> bool {
    let mut parts = glob.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        if part.is_empty() {
            continue;
        }
        let Some(at) = rest.windows(part.len()).position(|window| window == part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    true
}

/// A well-mixing function of 64 bits (the finaliser of splitmix64).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
