//! A TPC-C-like mix: the nine tables and the five transactions of TPC-C, scaled down, without think times.
//!
//! It is *not* TPC-C and its figures are not tpmC: fewer customers, items and orders per warehouse, uniform random
//! keys, no terminals, no keying and thinking times, no response time limits. What is kept is what a log sees: the
//! statements of each transaction, their share in the mix (New-Order 45, Payment 43, Order-Status 4, Delivery 4,
//! Stock-Level 4), one in a hundred New-Orders rolled back, and the consistency conditions, which hold after
//! every run and are checked ([`check`]).
//!
//! It runs against any server that speaks the MySQL protocol on a socket. A client is a thread with a connection and a
//! home warehouse. A deadlock or lock wait time-out rolls back and tries the same kind again; it is counted.

pub mod check;
mod client;
mod load;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mysql::Conn;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::server::{connect, execute};
pub use client::Kind;
use client::{Client, Tally};

/// Database of the tables.
pub const DATABASE: &str = "tpcc_like";

/// Districts of a warehouse, as in TPC-C.
pub const DISTRICTS: u32 = 10;

/// Size of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Number of warehouses.
    pub warehouses: u32,
    /// Customers of a district, and its orders at the beginning (TPC-C: 3000). At least 10.
    pub customers: u32,
    /// Items, and stock rows of a warehouse (TPC-C: 100000). At least 100.
    pub items: u32,
}

impl Default for Scale {
    fn default() -> Self {
        Self { warehouses: 4, customers: 300, items: 2000 }
    }
}

impl Scale {
    fn check(self) -> Result<Self> {
        if self.warehouses == 0 || self.customers < 10 || self.items < 100 {
            return Err(Error::State(format!(
                "{self:?} is too small: at least 1 warehouse, 10 customers per district and 100 items"
            )));
        }
        Ok(self)
    }
}

/// Load and clients.
#[derive(Debug, Clone)]
pub struct Tpcc<'a> {
    /// Socket of the server.
    pub socket: &'a Path,
    /// Size of the database.
    pub scale: Scale,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// What a run did.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Client threads.
    pub clients: u32,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// Transactions committed, without the New-Orders that roll back by design.
    pub transactions: u64,
    /// The same per second.
    pub transactions_per_second: f64,
    /// New-Orders committed per minute. Not tpmC.
    pub new_orders_per_minute: f64,
    /// Committed by kind: New-Order, Payment, Order-Status, Delivery, Stock-Level.
    pub by_kind: [u64; 5],
    /// New-Orders rolled back by design.
    pub rolled_back: u64,
    /// Deadlocks and lock wait time-outs, each tried again.
    pub retries: u64,
    /// Median latency of a transaction in milliseconds.
    pub latency_p50_ms: f64,
    /// 95th percentile in milliseconds.
    pub latency_p95_ms: f64,
    /// 99th percentile in milliseconds.
    pub latency_p99_ms: f64,
    /// Share of the clients' time that went by in COMMIT of transactions that write.
    pub commit_share: f64,
    /// Mean time of such a COMMIT in milliseconds, as the client sees it.
    pub commit_mean_ms: f64,
}

impl Tpcc<'_> {
    /// Makes the database anew and fills it.
    ///
    /// # Errors
    /// [`Error::Sql`], or [`Error::State`] for a scale that is too small.
    pub fn prepare(&self) -> Result<()> {
        load::load(self.socket, self.scale.check()?, self.seed)
    }

    /// Runs the mix with `clients` threads, then checks the consistency conditions and that the tables have grown by
    /// exactly what was acknowledged.
    ///
    /// # Errors
    /// [`Error::Violation`] when a condition does not hold, [`Error::Sql`] for a failed statement.
    pub fn run(&self, clients: u32, duration: Duration) -> Result<Report> {
        self.scale.check()?;
        let before = check::Counts::read(&mut connection(self.socket)?)?;
        let began = Instant::now();
        let tally = self.all_clients(clients, None, |client| {
            if began.elapsed() >= duration {
                return Ok(false);
            }
            client.next().map(|_| true)
        })?;
        let elapsed = began.elapsed();
        let mut conn = connection(self.socket)?;
        check::consistency(&mut conn)?;
        check::Counts::read(&mut conn)?.require_growth(&before, &tally)?;
        Ok(tally.report(clients, elapsed))
    }

    /// Runs the mix until exactly `transactions` have committed, then checks that the tables have grown by exactly what
    /// was acknowledged. The consistency conditions are left out: on a database that is larger than the server's memory
    /// they take longer than the run.
    ///
    /// All warehouses are used: each belongs to one client, where there are fewer clients than warehouses.
    ///
    /// `committed` is called after each commit with their number up to then, by the client that committed.
    ///
    /// # Errors
    /// As for [`Tpcc::run`], and the first error of `committed`.
    pub fn run_transactions(
        &self,
        clients: u32,
        transactions: u64,
        committed: &(dyn Fn(u64) -> Result<()> + Sync),
    ) -> Result<Report> {
        self.scale.check()?;
        let before = check::Counts::read(&mut connection(self.socket)?)?;
        let (tickets, commits) = (AtomicU64::new(0), AtomicU64::new(0));
        let began = Instant::now();
        let tally = self.all_clients(clients, Some(clients), |client| {
            if tickets.fetch_add(1, Ordering::Relaxed) >= transactions {
                return Ok(false);
            }
            while !client.next()? {}
            committed(commits.fetch_add(1, Ordering::Relaxed) + 1)?;
            Ok(true)
        })?;
        let elapsed = began.elapsed();
        check::Counts::read(&mut connection(self.socket)?)?.require_growth(&before, &tally)?;
        Ok(tally.report(clients, elapsed))
    }

    /// Runs `step` on each client until it says false. A failure ends the others, too.
    fn all_clients(
        &self,
        clients: u32,
        stride: Option<u32>,
        step: impl Fn(&mut Client) -> Result<bool> + Sync,
    ) -> Result<Tally> {
        let (failed, step) = (&AtomicBool::new(false), &step);
        std::thread::scope(|scope| {
            let run = move |number| {
                let result = self.client((number, stride), || failed.load(Ordering::Relaxed), step);
                if result.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                result
            };
            let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || run(number))).collect();
            let mut all = Tally::default();
            for thread in threads {
                all.join(thread.join().map_err(|_| Error::State("a client panicked".into()))??);
            }
            Ok(all)
        })
    }

    fn client(
        &self,
        (number, stride): (u32, Option<u32>),
        failed: impl Fn() -> bool,
        step: &(impl Fn(&mut Client) -> Result<bool> + Sync),
    ) -> Result<Tally> {
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number);
        let mut client = Client::new(connection(self.socket)?, self.scale, number, stride, seed);
        while !failed() && step(&mut client)? {}
        Ok(client.into_tally())
    }
}

fn connection(socket: &Path) -> Result<Conn> {
    let mut conn = connect(socket)?;
    execute(&mut conn, &format!("USE {DATABASE}"))?;
    Ok(conn)
}
