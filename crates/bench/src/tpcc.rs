//! TPC-C: nine tables, five transactions, the specification's mix and random values (version 5.11).
//!
//! What is as specified: schema and row contents, cardinalities, NURand, the deck of transactions, one in a hundred
//! New-Orders rolled back, one in a hundred order lines and 15 in a hundred Payments remote, 60 in a hundred
//! customers by last name, the consistency conditions.
//!
//! What is not, unless asked for (`--think`): keying and think times. Without them a client stands for many
//! terminals, so it takes another warehouse for each transaction; with them it is one terminal, ten to a warehouse.
//! Delivery runs in the client's transaction, not deferred. Nothing is audited: figures are not tpmC.

pub mod check;
mod client;
mod load;
mod order;
pub mod random;
mod schema;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use client::{Client, KINDS};
pub use load::load;

/// Database of the tables.
pub const DATABASE: &str = "tpcc";
/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;

/// Size of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u32,
    /// Customers of a district, and its orders at the beginning. The specification says 3000.
    pub customers: u32,
    /// Items, and stock rows of a warehouse. The specification says 100000.
    pub items: u32,
    /// Foreign keys, and the indexes they need.
    pub foreign_keys: bool,
}

impl Scale {
    /// As specified.
    pub fn new(warehouses: u32) -> Self {
        Self { warehouses, customers: 3000, items: 100_000, foreign_keys: true }
    }

    /// The first order of a district that is not delivered at the beginning: seven in ten are.
    fn first_new_order(self) -> u32 {
        self.customers - self.customers * 3 / 10 + 1
    }
}

/// What all clients together have had acknowledged since they were made.
#[derive(Debug, Default)]
pub struct Tally {
    new_orders: AtomicU64,
    payments: AtomicU64,
    paid_cents: AtomicU64,
    delivered: AtomicU64,
    rolled_back: AtomicU64,
    retries: AtomicU64,
}

impl Tally {
    /// New-Orders that rolled back because the benchmark wants it.
    pub fn rolled_back(&self) -> u64 {
        self.rolled_back.load(Ordering::Relaxed)
    }

    /// Deadlocks and lock wait time-outs, each tried again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }
}

/// What clients share.
#[derive(Debug, Clone)]
pub struct Run {
    /// Size of the database.
    pub scale: Scale,
    /// Constants of the random values.
    pub constants: random::Constants,
    /// Keying and think times.
    pub think: bool,
    /// What was acknowledged.
    pub tally: Arc<Tally>,
}
