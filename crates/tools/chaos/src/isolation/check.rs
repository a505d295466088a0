//! From a history to anomalies.
//!
//! **Versions.** The longest list read of a register, by a transaction that may have committed, is its order of
//! versions; every other list of it must be a beginning of that one. A transaction without an answer counts as
//! committed if one of its appends was seen by another.
//!
//! **Dependencies** between committed transactions: `ww` leads from the writer of a version to the writer of the next.
//! `wr` leads from the writer of a version to each transaction that read it as the newest. `rw` leads from a reader of
//! a version to the writer of the next.
//!
//! | anomaly | meaning |
//! |---|---|
//! | G0 | a cycle of ww |
//! | G1a | a value of an aborted transaction was read by, or built upon by, a committed one |
//! | G1b | a read saw a list that its writer appended to later |
//! | G1c | a cycle of ww and wr, with a wr |
//! | G-single | a cycle with exactly one rw |
//! | G2-item | a cycle with at least two rw |
//! | internal | a transaction's reads disagree with its own earlier reads and appends |
//! | incompatible order | two lists of a register, neither a beginning of the other |
//! | duplicate | a value twice in a list, or a value that no transaction appended |
//! | lost append | a committed append is not in the register's longest list, which was read after it |
//! | stale read | a transaction began after a commit was answered, and does not see it |
//! | early read | a read saw an append whose COMMIT was never answered, and which a later read does not find |
//!
//! InnoDB shows a commit to others before its redo is durable. When the server is killed in between, a read that was
//! answered has seen what never was: on the stock server at every level. Such a transaction counts as rolled back by
//! the kill, and its values are left out of what was read; only that they were seen is counted (early read).
//!
//! A stale read breaks no isolation level by Adya's definitions, but one server must not show it at any level here.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{History, Key, Operation, Status, Transaction, Value};

/// Classes; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[expect(missing_docs, reason = "see the table of the module")]
pub enum Anomaly {
    G0,
    G1a,
    G1b,
    G1c,
    GSingle,
    G2Item,
    Internal,
    IncompatibleOrder,
    Duplicate,
    LostAppend,
    StaleRead,
    EarlyRead,
}

impl Anomaly {
    /// All classes.
    pub const ALL: [Self; 12] = [
        Self::G0,
        Self::G1a,
        Self::G1b,
        Self::G1c,
        Self::GSingle,
        Self::G2Item,
        Self::Internal,
        Self::IncompatibleOrder,
        Self::Duplicate,
        Self::LostAppend,
        Self::StaleRead,
        Self::EarlyRead,
    ];

    /// As in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::G0 => "G0",
            Self::G1a => "G1a",
            Self::G1b => "G1b",
            Self::G1c => "G1c",
            Self::GSingle => "G-single",
            Self::G2Item => "G2-item",
            Self::Internal => "internal",
            Self::IncompatibleOrder => "incompatible order",
            Self::Duplicate => "duplicate",
            Self::LostAppend => "lost append",
            Self::StaleRead => "stale read",
            Self::EarlyRead => "early read",
        }
    }
}

/// Findings by class: how often, and the first in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Classes that were found.
    pub anomalies: BTreeMap<Anomaly, (u64, String)>,
    /// Committed transactions.
    pub committed: u64,
    /// Committed transactions whose answer was lost.
    pub recovered: u64,
    /// Aborted transactions.
    pub aborted: u64,
}

impl Findings {
    fn add(&mut self, anomaly: Anomaly, words: impl FnOnce() -> String) {
        let entry = self.anomalies.entry(anomaly).or_insert_with(|| (0, words()));
        entry.0 += 1;
    }

    /// How often a class was found.
    pub fn count(&self, anomaly: Anomaly) -> u64 {
        self.anomalies.get(&anomaly).map_or(0, |(count, _)| *count)
    }
}

/// Number of a transaction in the history.
type Index = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Ww,
    Wr,
    Rw,
}

struct Checker<'a> {
    transactions: &'a [Transaction],
    /// Transaction and register of each appended value.
    writers: BTreeMap<Value, (Index, Key)>,
    /// Committed, as far as that can be known.
    committed: Vec<bool>,
    /// Values that were seen, and later were not there.
    vanished: BTreeSet<Value>,
    /// Lists that committed transactions read, without vanished values.
    reads: Vec<(Index, Key, Vec<Value>)>,
    /// Order of versions by register.
    orders: BTreeMap<Key, Vec<Value>>,
    findings: Findings,
}

/// Finds the anomalies of a history.
pub fn check(history: &History) -> Findings {
    let mut checker = Checker::new(&history.transactions);
    checker.find_orders();
    for index in 0..history.transactions.len() {
        checker.check_transaction(index);
    }
    checker.check_lost_and_stale();
    let edges = checker.edges();
    checker.find_cycles(&edges);
    checker.findings
}

impl<'a> Checker<'a> {
    fn new(transactions: &'a [Transaction]) -> Self {
        let mut writers = BTreeMap::new();
        for (index, transaction) in transactions.iter().enumerate() {
            for operation in &transaction.operations {
                if let Operation::Append(key, value) = operation {
                    writers.insert(*value, (index, *key));
                }
            }
        }
        let vanished = vanished(transactions, &writers);
        // A value that another transaction has seen was committed. Exceptions: it was gone later, or the read was wrong
        // (G1a covers the values that were certainly rolled back).
        let mut seen = vec![false; transactions.len()];
        for (reader, transaction) in transactions.iter().enumerate() {
            for value in reads(transaction).flat_map(|(_, list)| list) {
                let writer =
                    writers.get(value).filter(|(writer, _)| *writer != reader && !vanished.contains(value));
                if let Some(flag) = writer.and_then(|(writer, _)| seen.get_mut(*writer)) {
                    *flag = true;
                }
            }
        }
        let committed: Vec<bool> = transactions
            .iter()
            .zip(&seen)
            .map(|(transaction, seen)| match transaction.status {
                Status::Committed => true,
                Status::Aborted => false,
                Status::Unknown => *seen,
            })
            .collect();
        let mut kept = Vec::new();
        for (index, transaction) in transactions.iter().enumerate() {
            if committed.get(index).copied().unwrap_or(false) {
                kept.extend(reads(transaction).map(|(key, list)| {
                    let list = list.iter().copied().filter(|value| !vanished.contains(value));
                    (index, key, list.collect::<Vec<_>>())
                }));
            }
        }
        let mut findings = Findings::default();
        for (transaction, committed) in transactions.iter().zip(&committed) {
            match transaction.status {
                _ if !committed => findings.aborted += 1,
                Status::Unknown => {
                    findings.committed += 1;
                    findings.recovered += 1;
                }
                _ => findings.committed += 1,
            }
        }
        for value in &vanished {
            let Some((writer, key)) = writers.get(value).copied() else { continue };
            let is_early = !committed.get(writer).copied().unwrap_or(false);
            // Of a transaction that has otherwise survived, or was answered, it is lost.
            let anomaly = if is_early { Anomaly::EarlyRead } else { Anomaly::LostAppend };
            findings.add(anomaly, || {
                format!("{value} of transaction {writer} was in register {key}, and later was not")
            });
        }
        Self { transactions, writers, committed, vanished, reads: kept, orders: BTreeMap::new(), findings }
    }

    fn is_committed(&self, index: Index) -> bool {
        self.committed.get(index).copied().unwrap_or(false)
    }

    fn committed_reads(&self) -> impl Iterator<Item = (Index, Key, &[Value])> + '_ {
        self.reads.iter().map(|(index, key, list)| (*index, *key, list.as_slice()))
    }

    fn find_orders(&mut self) {
        let mut orders: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for (_, key, list) in self.committed_reads() {
            let order = orders.entry(key).or_default();
            if list.len() > order.len() {
                *order = list.to_vec();
            }
        }
        self.orders = orders;
        let all = std::mem::take(&mut self.reads);
        for (index, key, list) in &all {
            let (index, key) = (*index, *key);
            let order = self.orders.get(&key).map(Vec::as_slice).unwrap_or_default();
            if !order.starts_with(list) {
                let words =
                    || format!("register {key}: {list:?} is no beginning of {order:?} (transaction {index})");
                self.findings.add(Anomaly::IncompatibleOrder, words);
            }
            let distinct: BTreeSet<_> = list.iter().collect();
            let unknown = list.iter().find(|value| self.writers.get(value).is_none_or(|(_, of)| *of != key));
            if distinct.len() != list.len() || unknown.is_some() {
                let words =
                    || format!("register {key}: {list:?} (transaction {index}; nobody's: {unknown:?})");
                self.findings.add(Anomaly::Duplicate, words);
            }
        }
        self.reads = all;
    }

    /// G1a, G1b and internal consistency of one committed transaction.
    fn check_transaction(&mut self, index: Index) {
        if !self.is_committed(index) {
            return;
        }
        let Some(transaction) = self.transactions.get(index) else { return };
        let mut expected: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        let mut appended: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for operation in &transaction.operations {
            match operation {
                Operation::Append(key, value) => {
                    appended.entry(*key).or_default().push(*value);
                    if let Some(list) = expected.get_mut(key) {
                        list.push(*value);
                    }
                }
                Operation::Read(key, list) => {
                    let own = appended.get(key).map(Vec::as_slice).unwrap_or_default();
                    let agrees = match expected.get(key) {
                        Some(before) => before == list,
                        None => list.ends_with(own),
                    };
                    if !agrees {
                        let before = expected.get(key);
                        let words = || {
                            format!("transaction {index} read {list:?} of {key} after {before:?} and {own:?}")
                        };
                        self.findings.add(Anomaly::Internal, words);
                    }
                    expected.insert(*key, list.clone());
                    self.check_read(index, *key, list);
                }
            }
        }
    }

    fn check_read(&mut self, index: Index, key: Key, list: &[Value]) {
        let writer = |value: &Value| self.writers.get(value).map(|(writer, _)| *writer);
        // A value that another transaction built upon is in the list as well, so one look at each value is enough.
        let mut lasting = list.iter().filter(|value| !self.vanished.contains(value));
        let aborted = lasting.find(|value| writer(value).is_some_and(|writer| !self.is_committed(writer)));
        if let Some(value) = aborted {
            let words =
                format!("transaction {index} read {value} of {key}, whose transaction was rolled back");
            self.findings.add(Anomaly::G1a, || words);
        }
        let Some((last, writer)) = list.last().and_then(|last| Some((*last, writer(last)?))) else { return };
        if writer == index || !self.is_committed(writer) {
            return;
        }
        let appends = self.transactions.get(writer).map(|transaction| appends_to(transaction, key));
        if appends.is_some_and(|values| values.last() != Some(&last)) {
            let words =
                || format!("transaction {index} read up to {last} of {key}, in the middle of {writer}");
            self.findings.add(Anomaly::G1b, words);
        }
    }

    /// Appends that were answered and are not there for those who began later.
    fn check_lost_and_stale(&mut self) {
        let ends = self.known_ends();
        let answered: Vec<(Value, Key, Index, u64)> = self
            .writers
            .iter()
            .filter_map(|(value, (index, key))| Some((*value, *key, *index, ends.get(*index).copied()??)))
            .collect();
        let mut last_began: BTreeMap<Key, u64> = BTreeMap::new();
        for (index, key, _) in self.committed_reads() {
            let began = self.transactions.get(index).map_or(0, |transaction| transaction.began);
            let last = last_began.entry(key).or_default();
            *last = (*last).max(began);
        }
        for (value, key, index, ended) in &answered {
            let order = self.orders.get(key).map(Vec::as_slice).unwrap_or_default();
            if !order.contains(value)
                && !self.vanished.contains(value)
                && last_began.get(key).is_some_and(|began| began > ended)
            {
                let words = || format!("{value} of transaction {index} is not in register {key}");
                self.findings.add(Anomaly::LostAppend, words);
            }
        }
        // Of each register the latest position that was answered by a time; a reader that began later must see it.
        let mut positions: BTreeMap<Key, Vec<(u64, usize)>> = BTreeMap::new();
        for (value, key, _, ended) in &answered {
            let order = self.orders.get(key).map(Vec::as_slice).unwrap_or_default();
            if let Some(position) = order.iter().position(|other| other == value) {
                positions.entry(*key).or_default().push((*ended, position + 1));
            }
        }
        for list in positions.values_mut() {
            list.sort_unstable();
            let mut highest = 0;
            for (_, position) in list.iter_mut() {
                highest = highest.max(*position);
                *position = highest;
            }
        }
        for (index, key, list) in &self.reads {
            let (index, key) = (*index, *key);
            let began = self.transactions.get(index).map_or(0, |transaction| transaction.began);
            let Some(known) = positions.get(&key) else { continue };
            let before = known.partition_point(|(ended, _)| *ended < began);
            let needed =
                before.checked_sub(1).and_then(|at| known.get(at)).map_or(0, |(_, position)| *position);
            if list.len() < needed {
                let words =
                    || format!("transaction {index} read {} values of {key}, not {needed}", list.len());
                self.findings.add(Anomaly::StaleRead, words);
            }
        }
    }

    /// When each transaction was certainly committed: when its COMMIT was answered, or else when the first that saw
    /// one of its appends had ended.
    fn known_ends(&self) -> Vec<Option<u64>> {
        let answered = |transaction: &Transaction| {
            (transaction.status == Status::Committed).then_some(transaction.ended)
        };
        let mut ends: Vec<Option<u64>> = self.transactions.iter().map(answered).collect();
        for (reader, _, list) in self.committed_reads() {
            let Some(seen_at) = self.transactions.get(reader).and_then(answered) else { continue };
            for (writer, _) in list.iter().filter_map(|value| self.writers.get(value)) {
                let is_unknown =
                    self.transactions.get(*writer).is_some_and(|other| other.status == Status::Unknown);
                if let Some(end) = ends.get_mut(*writer).filter(|_| is_unknown) {
                    *end = Some(end.map_or(seen_at, |known| known.min(seen_at)));
                }
            }
        }
        ends
    }

    fn edges(&self) -> BTreeSet<(Index, Index, Edge)> {
        let mut edges = BTreeSet::new();
        let mut add = |from: Index, to: Index, edge| {
            if from != to && self.is_committed(from) && self.is_committed(to) {
                edges.insert((from, to, edge));
            }
        };
        let writer = |value: &Value| self.writers.get(value).map(|(writer, _)| *writer);
        for order in self.orders.values() {
            for pair in order.windows(2) {
                if let [before, after] = pair
                    && let (Some(before), Some(after)) = (writer(before), writer(after))
                {
                    add(before, after, Edge::Ww);
                }
            }
        }
        for (index, key, list) in self.committed_reads() {
            if let Some(last) = list.last().and_then(writer) {
                add(last, index, Edge::Wr);
            }
            let order = self.orders.get(&key).map(Vec::as_slice).unwrap_or_default();
            if let Some(next) =
                order.starts_with(list).then(|| order.get(list.len())).flatten().and_then(writer)
            {
                add(index, next, Edge::Rw);
            }
        }
        edges
    }

    fn find_cycles(&mut self, edges: &BTreeSet<(Index, Index, Edge)>) {
        let graph = |wanted: &[Edge]| {
            let mut graph: BTreeMap<Index, BTreeSet<Index>> = BTreeMap::new();
            for (from, to, edge) in edges {
                if wanted.contains(edge) {
                    graph.entry(*from).or_default().insert(*to);
                }
            }
            graph
        };
        let (ww, ww_wr, all) =
            (graph(&[Edge::Ww]), graph(&[Edge::Ww, Edge::Wr]), graph(&[Edge::Ww, Edge::Wr, Edge::Rw]));
        let component = components(&all, self.transactions.len());
        // Each class is counted by the edges that close such a cycle, once for each pair.
        let mut counted = BTreeSet::new();
        for (from, to, edge) in edges {
            // A cycle never leaves its strongly connected component.
            if component.get(*from) != component.get(*to) {
                continue;
            }
            let within = |graph| path(graph, *to, *from, &component);
            let found = match edge {
                Edge::Ww => within(&ww).map(|path| (Anomaly::G0, path)),
                Edge::Wr => within(&ww_wr).map(|path| (Anomaly::G1c, path)),
                Edge::Rw => within(&ww_wr)
                    .map(|path| (Anomaly::GSingle, path))
                    .or_else(|| within(&all).map(|path| (Anomaly::G2Item, path))),
            };
            if let Some((anomaly, path)) = found
                && counted.insert((anomaly, *from, *to))
            {
                self.findings
                    .add(anomaly, || format!("{edge:?} from {from} to {to}, and back over {path:?}"));
            }
        }
    }
}

fn reads(transaction: &Transaction) -> impl Iterator<Item = (Key, &[Value])> {
    // A read after an own append to the register shows its earlier versions too, but its newest version is the
    // transaction's own.
    transaction.operations.iter().filter_map(|operation| match operation {
        Operation::Read(key, list) => Some((*key, list.as_slice())),
        Operation::Append(..) => None,
    })
}

/// Values of transactions that were not rolled back for certain, seen by another one or by their own committed one, and
/// missing in a read of a committed one that began after that one had ended. It does not matter how the one that saw
/// them ended: a kill that takes them back often ends it, too.
fn vanished(transactions: &[Transaction], writers: &BTreeMap<Value, (Index, Key)>) -> BTreeSet<Value> {
    let mut seen_at: BTreeMap<Value, u64> = BTreeMap::new();
    let mut lists: BTreeMap<Key, Vec<(u64, BTreeSet<Value>)>> = BTreeMap::new();
    for (reader, transaction) in transactions.iter().enumerate() {
        let is_answered = transaction.status == Status::Committed;
        for (key, list) in reads(transaction) {
            if is_answered {
                lists.entry(key).or_default().push((transaction.began, list.iter().copied().collect()));
            }
            let is_own = |value: &Value| writers.get(value).is_some_and(|(writer, _)| *writer == reader);
            for value in list.iter().filter(|value| is_answered || !is_own(value)) {
                let first = seen_at.entry(*value).or_insert(u64::MAX);
                *first = (*first).min(transaction.ended);
            }
        }
    }
    let is_gone = |value: &Value, seen: u64| {
        let Some((writer, key)) = writers.get(value) else { return false };
        let rolled_back = transactions.get(*writer).is_none_or(|writer| writer.status == Status::Aborted);
        let missing = |(began, list): &(u64, BTreeSet<Value>)| *began > seen && !list.contains(value);
        // Of a snapshot that is older than its transaction the last read knows better.
        !rolled_back
            && lists
                .get(key)
                .and_then(|lists| lists.iter().max_by_key(|(began, _)| *began))
                .is_some_and(missing)
    };
    seen_at.into_iter().filter(|(value, seen)| is_gone(value, *seen)).map(|(value, _)| value).collect()
}

fn appends_to(transaction: &Transaction, key: Key) -> Vec<Value> {
    let appends = transaction.operations.iter().filter_map(|operation| match operation {
        Operation::Append(to, value) if *to == key => Some(*value),
        _ => None,
    });
    appends.collect()
}

/// A shortest way from `from` to `to` within one component, both included.
fn path(
    graph: &BTreeMap<Index, BTreeSet<Index>>,
    from: Index,
    to: Index,
    component: &[usize],
) -> Option<Vec<Index>> {
    let mut came_from: BTreeMap<Index, Index> = BTreeMap::new();
    let mut queue = std::collections::VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        if at == to {
            let mut path = vec![at];
            let mut at = at;
            while let Some(before) = came_from.get(&at).filter(|_| at != from) {
                path.push(*before);
                at = *before;
            }
            path.reverse();
            return Some(path);
        }
        for next in graph.get(&at).into_iter().flatten() {
            let inside = component.get(*next) == component.get(from);
            if inside && *next != from && !came_from.contains_key(next) {
                came_from.insert(*next, at);
                queue.push_back(*next);
            }
        }
    }
    None
}

/// Number of the strongly connected component of each vertex (Kosaraju, without recursion).
fn components(graph: &BTreeMap<Index, BTreeSet<Index>>, count: usize) -> Vec<usize> {
    let mut reversed: BTreeMap<Index, BTreeSet<Index>> = BTreeMap::new();
    for (from, targets) in graph {
        for to in targets {
            reversed.entry(*to).or_default().insert(*from);
        }
    }
    let mut finished = Vec::with_capacity(count);
    let mut visited = vec![false; count];
    for start in 0..count {
        visit(graph, start, &mut visited, &mut finished);
    }
    let mut component = vec![0; count];
    let mut visited = vec![false; count];
    for (number, start) in finished.iter().rev().enumerate() {
        let mut members = Vec::new();
        visit(&reversed, *start, &mut visited, &mut members);
        for member in members {
            if let Some(slot) = component.get_mut(member) {
                *slot = number;
            }
        }
    }
    component
}

/// Depth first from `start`; vertices are put out when all that follow from them are done.
fn visit(
    graph: &BTreeMap<Index, BTreeSet<Index>>,
    start: Index,
    visited: &mut [bool],
    finished: &mut Vec<Index>,
) {
    let mut first_visit = |vertex: Index| match visited.get_mut(vertex) {
        Some(flag) => !std::mem::replace(flag, true),
        None => false,
    };
    if !first_visit(start) {
        return;
    }
    let none = BTreeSet::new();
    let targets = |vertex: &Index| graph.get(vertex).unwrap_or(&none).iter();
    let mut stack = vec![(start, targets(&start))];
    while let Some((vertex, next)) = stack.last_mut() {
        match next.find(|to| first_visit(**to)) {
            Some(to) => stack.push((*to, targets(to))),
            None => {
                finished.push(*vertex);
                stack.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests;
