//! TPC-C: nine tables, five transactions, the specification's mix and random values (version 5.11).
//!
//! As specified: schema and row contents, cardinalities, NURand, the deck of transactions, and the consistency
//! conditions. One in a hundred New-Orders is rolled back; one in a hundred order lines and 15 in a hundred Payments
//! are remote; 60 in a hundred customers are found by last name.
//!
//! Different, unless requested (`--think`): keying and think times. Without them a client stands for many terminals, so
//! it takes another warehouse for each transaction; with them it is one terminal, ten to a warehouse. Delivery runs in
//! the client's transaction, not deferred. No result is audited: figures are not tpmC.

pub mod check;
mod client;
mod load;
mod order;
pub mod random;
mod schema;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::load::{Until, Window, Worker};
use crate::sql::connect_to;
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

    /// A tenth of the customers and a fiftieth of the items: tables of some tens of megabytes, loaded in seconds.
    pub fn small(warehouses: u32) -> Self {
        Self { customers: 300, items: 2000, ..Self::new(warehouses) }
    }

    fn check(self) -> Result<Self> {
        if self.warehouses == 0 || self.customers < 10 || self.items < 100 {
            return Err(Error::State(format!(
                "{self:?} is too small: at least 1 warehouse, 10 customers per district and 100 items"
            )));
        }
        Ok(self)
    }

    /// The first order of a district that is not delivered at the beginning: seven in ten are.
    fn first_new_order(self) -> u32 {
        self.customers - self.customers * 3 / 10 + 1
    }
}

/// Transactions of all clients together that were acknowledged since the clients were made.
#[derive(Debug, Default)]
pub struct Tally {
    new_orders: AtomicU64,
    payments: AtomicU64,
    paid_cents: AtomicU64,
    delivered: AtomicU64,
    without_new_orders: AtomicU64,
    rolled_back: AtomicU64,
    retries: AtomicU64,
}

impl Tally {
    /// New-Orders that rolled back because the benchmark wants it.
    pub fn rolled_back(&self) -> u64 {
        self.rolled_back.load(Ordering::Relaxed)
    }

    /// How often a Delivery found a district that had no new order left.
    pub fn without_new_orders(&self) -> u64 {
        self.without_new_orders.load(Ordering::Relaxed)
    }

    /// Deadlocks and lock wait timeouts, each tried again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }
}

/// State shared by clients.
#[derive(Debug, Clone)]
struct Shared {
    scale: Scale,
    constants: random::Constants,
    think: bool,
    tally: Arc<Tally>,
}

/// The clients' work on loaded tables, and the conditions that must hold after it.
#[derive(Debug)]
pub struct Tpcc {
    shared: Shared,
    seed: u64,
    before: check::Done,
    runs: AtomicU32,
}

impl Tpcc {
    /// Begins on tables as they were loaded with this scale and seed; with `think` clients wait as terminals do.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn begin(socket: &Path, scale: Scale, seed: u64, think: bool) -> Result<Self> {
        let before = check::Done::read(&mut connect_to(socket, DATABASE)?)?;
        let shared = Shared { scale, constants: random::Constants::new(seed), think, tally: Arc::default() };
        Ok(Self { shared, seed, before, runs: AtomicU32::new(0) })
    }

    /// The transactions acknowledged since [`Tpcc::begin`].
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }

    /// Client `number` of run `repetition`: the same ones do the same, another repetition has others.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn client(&self, socket: &Path, number: u32, repetition: u32) -> Result<Client> {
        Client::new(socket, &self.shared, number, self.seed ^ (u64::from(repetition) << 32))
    }

    /// Runs clients without a warm-up, then checks all that must hold. May be called again.
    ///
    /// # Errors
    /// [`Error::Violation`] when a condition does not hold, [`Error::Sql`] for a failed statement.
    pub fn run(&self, socket: &Path, clients: u32, until: Until) -> Result<Window<()>> {
        let repetition = self.runs.fetch_add(1, Ordering::Relaxed);
        let worker =
            |number| -> Result<Box<dyn Worker>> { Ok(Box::new(self.client(socket, number, repetition)?)) };
        let workers = (0..clients).map(worker).collect::<Result<_>>()?;
        let window = crate::load::run(workers, 0, until, || Ok(()), |_| {})?;
        self.check(socket, u32::MAX)?;
        Ok(window)
    }

    /// Checks that exactly the acknowledged transactions are present; cheap at any size.
    ///
    /// # Errors
    /// [`Error::Violation`], [`Error::Sql`].
    pub fn check_growth(&self, socket: &Path) -> Result<()> {
        let after = check::Done::read(&mut connect_to(socket, DATABASE)?)?;
        after.require_growth(&self.before, self.tally())
    }

    /// As many rows were added as were acknowledged; reads three tables.
    ///
    /// # Errors
    /// [`Error::Violation`], [`Error::Sql`].
    pub fn check_counts(&self, socket: &Path) -> Result<()> {
        check::counts(&mut connect_to(socket, DATABASE)?, self.shared.scale, self.tally())
    }

    /// Growth and the conditions up to number `last` of clause 3.3.2; with all of them the rows, too. Returns how many
    /// hold.
    ///
    /// # Errors
    /// [`Error::Violation`] with the first that does not, [`Error::Sql`].
    pub fn check(&self, socket: &Path, last: u32) -> Result<u32> {
        self.check_growth(socket)?;
        let mut passed = 1 + check::conditions(&mut connect_to(socket, DATABASE)?, last)?;
        if last == u32::MAX {
            self.check_counts(socket)?;
            passed += 1;
        }
        Ok(passed)
    }
}
