//! A history of transactions, as the clients saw it.

/// A register.
pub type Key = u32;
/// An appended value; each occurs once in a history.
pub type Value = u64;

/// One step of a transaction that the server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// The list of a register, in its order.
    Read(Key, Vec<Value>),
    /// A value at the end of a list.
    Append(Key, Value),
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The COMMIT was answered.
    Committed,
    /// It was rolled back, or its COMMIT was never sent.
    Aborted,
    /// The COMMIT was sent and not answered.
    Unknown,
}

/// One transaction. Times are of one clock for all clients, in any unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Its steps, in order.
    pub operations: Vec<Operation>,
    /// How it ended.
    pub status: Status,
    /// Before its first statement was sent.
    pub began: u64,
    /// After its end was known, or that it will not be.
    pub ended: u64,
}

/// All transactions. When the last one reads every register after all others have ended, as the workload's does, lost
/// appends show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// In any order.
    pub transactions: Vec<Transaction>,
}
