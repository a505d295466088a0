//! The five transactions, and what a client remembers of them.
//!
//! Invariant: a transaction counts only after the server has acknowledged its COMMIT. Rows of several warehouses or
//! items are locked in ascending order, which keeps deadlocks rare; Payment and Delivery can still meet one.

use std::time::{Duration, Instant};

use fastrand::Rng;
use mysql::Conn;
use mysql::prelude::Queryable;

use super::load::{last_name, last_names, text};
use super::{DISTRICTS, Report, Scale};
use crate::error::{Error, Result, is_retryable};

/// One of the five transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Enters an order of 5 to 15 lines.
    NewOrder,
    /// A customer pays.
    Payment,
    /// Reads a customer's last order.
    OrderStatus,
    /// Delivers the oldest new order of each district.
    Delivery,
    /// Counts items of the last orders that run short.
    StockLevel,
}

impl Kind {
    /// By the shares of the mix.
    fn random(random: &mut Rng) -> Self {
        match random.u32(0..100) {
            0..45 => Self::NewOrder,
            45..88 => Self::Payment,
            88..92 => Self::OrderStatus,
            92..96 => Self::Delivery,
            _ => Self::StockLevel,
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::NewOrder | Self::Payment | Self::Delivery)
    }
}

/// What a client did.
#[derive(Debug, Default)]
pub(super) struct Tally {
    by_kind: [u64; 5],
    rolled_back: u64,
    retries: u64,
    /// Orders taken out of `new_order`.
    pub(super) delivered_orders: u64,
    /// Cents paid.
    pub(super) paid: u64,
    latencies: Vec<Duration>,
    commit_time: Duration,
    commits: u32,
}

impl Tally {
    pub(super) fn committed(&self, kind: Kind) -> u64 {
        self.by_kind.get(kind as usize).copied().unwrap_or(0)
    }

    pub(super) fn join(&mut self, other: Self) {
        for (mine, its) in self.by_kind.iter_mut().zip(other.by_kind) {
            *mine += its;
        }
        self.rolled_back += other.rolled_back;
        self.retries += other.retries;
        self.delivered_orders += other.delivered_orders;
        self.paid += other.paid;
        self.latencies.extend(other.latencies);
        self.commit_time += other.commit_time;
        self.commits += other.commits;
    }

    pub(super) fn report(mut self, clients: u32, elapsed: Duration) -> Report {
        self.latencies.sort_unstable();
        let percentile = |percent: usize| {
            let at = self.latencies.len().saturating_sub(1) * percent / 100;
            self.latencies.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
        };
        let seconds = elapsed.as_secs_f64();
        let transactions = self.by_kind.iter().sum::<u64>();
        Report {
            clients,
            seconds,
            transactions,
            transactions_per_second: transactions as f64 / seconds,
            new_orders_per_minute: self.committed(Kind::NewOrder) as f64 * 60.0 / seconds,
            by_kind: self.by_kind,
            rolled_back: self.rolled_back,
            retries: self.retries,
            latency_p50_ms: percentile(50),
            latency_p95_ms: percentile(95),
            latency_p99_ms: percentile(99),
            commit_share: self.commit_time.as_secs_f64() / (seconds * f64::from(clients)),
            commit_mean_ms: self.commit_time.as_secs_f64() * 1000.0 / f64::from(self.commits.max(1)),
        }
    }
}

/// What a transaction leaves for the tally when it commits.
enum Effect {
    None,
    RolledBack,
    Paid(u64),
    Delivered(u64),
}

/// The client library's result: whether to try again is seen from its error.
type Sql<T> = std::result::Result<T, mysql::Error>;

/// One client.
pub(super) struct Client {
    conn: Conn,
    scale: Scale,
    /// Home of the present transaction.
    warehouse: u32,
    /// Homes to choose from: the first, and the distance from one to the next, if there are several.
    homes: (u32, Option<u32>),
    random: Rng,
    tally: Tally,
}

impl Client {
    /// Its home is one warehouse; with `stride` it is one of those warehouses, each time another, that lie so far
    /// apart.
    pub(super) fn new(conn: Conn, scale: Scale, number: u32, stride: Option<u32>, seed: u64) -> Self {
        let warehouse = number % scale.warehouses + 1;
        let homes = (warehouse, stride.filter(|stride| *stride > 0 && *stride < scale.warehouses));
        Self { conn, scale, warehouse, homes, random: Rng::with_seed(seed), tally: Tally::default() }
    }

    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }

    /// Runs one transaction of a random kind to its end; false when it rolled back by design.
    pub(super) fn next(&mut self) -> Result<bool> {
        let kind = Kind::random(&mut self.random);
        if let (first, Some(stride)) = self.homes {
            let count = (self.scale.warehouses - first) / stride + 1;
            self.warehouse = first + self.random.u32(0..count) * stride;
        }
        let began = Instant::now();
        loop {
            let effect = match self.attempt(kind) {
                Ok(effect) => effect,
                Err(error) if is_retryable(&error) => {
                    self.conn.query_drop("ROLLBACK").map_err(Error::sql("ROLLBACK"))?;
                    self.tally.retries += 1;
                    continue;
                }
                Err(error) => return Err(Error::sql(&format!("{kind:?}"))(error)),
            };
            match effect {
                Effect::RolledBack => {
                    self.tally.rolled_back += 1;
                    return Ok(false);
                }
                Effect::None => {}
                Effect::Paid(amount) => self.tally.paid += amount,
                Effect::Delivered(orders) => self.tally.delivered_orders += orders,
            }
            if let Some(count) = self.tally.by_kind.get_mut(kind as usize) {
                *count += 1;
            }
            self.tally.latencies.push(began.elapsed());
            return Ok(true);
        }
    }

    fn attempt(&mut self, kind: Kind) -> Sql<Effect> {
        self.conn.query_drop("START TRANSACTION")?;
        let effect = match kind {
            Kind::NewOrder => self.new_order()?,
            Kind::Payment => self.payment()?,
            Kind::OrderStatus => self.order_status()?,
            Kind::Delivery => self.delivery()?,
            Kind::StockLevel => self.stock_level()?,
        };
        if matches!(effect, Effect::RolledBack) {
            self.conn.query_drop("ROLLBACK")?;
            return Ok(effect);
        }
        let began = Instant::now();
        self.conn.query_drop("COMMIT")?;
        if kind.writes() {
            self.tally.commit_time += began.elapsed();
            self.tally.commits += 1;
        }
        Ok(effect)
    }

    fn district(&mut self) -> u32 {
        self.random.u32(1..=DISTRICTS)
    }

    /// Another warehouse, if there is one.
    fn other_warehouse(&mut self) -> u32 {
        if self.scale.warehouses == 1 {
            return self.warehouse;
        }
        (self.warehouse + self.random.u32(0..self.scale.warehouses - 1)) % self.scale.warehouses + 1
    }

    /// Supplying warehouse, item and quantity of each line, in the order in which stock rows are locked.
    fn order_lines(&mut self) -> Vec<(u32, u32, u32)> {
        let count = self.random.u32(5..=15);
        let mut lines: Vec<_> = (0..count)
            .map(|_| {
                let is_remote = self.random.u32(0..100) == 0;
                let supplier = if is_remote { self.other_warehouse() } else { self.warehouse };
                (supplier, self.random.u32(1..=self.scale.items), self.random.u32(1..=10))
            })
            .collect();
        lines.sort_unstable();
        lines
    }

    fn new_order(&mut self) -> Sql<Effect> {
        let (w, d) = (self.warehouse, self.district());
        let customer = self.random.u32(1..=self.scale.customers);
        let lines = self.order_lines();
        // One in a hundred names an item that does not exist, which is noticed at its last line.
        let is_wrong = self.random.u32(0..100) == 0;
        let conn = &mut self.conn;
        let w_tax: u32 = first(conn.exec_first("SELECT w_tax FROM warehouse WHERE w_id = ?", (w,))?)?;
        let (d_tax, order): (u32, u32) = first(conn.exec_first(
            "SELECT d_tax, d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE",
            (w, d),
        )?)?;
        conn.exec_drop(
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?",
            (w, d),
        )?;
        let discount: u32 = first(conn.exec_first(
            "SELECT c_discount FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            (w, d, customer),
        )?)?;
        let is_local = lines.iter().all(|line| line.0 == w);
        conn.exec_drop(
            "INSERT INTO orders VALUES (?, ?, ?, ?, NOW(), NULL, ?, ?)",
            (w, d, order, customer, lines.len(), u32::from(is_local)),
        )?;
        conn.exec_drop("INSERT INTO new_order VALUES (?, ?, ?)", (w, d, order))?;
        for (number, (supplier, item, quantity)) in (1_u32..).zip(&lines) {
            let is_last = number as usize == lines.len();
            let item = if is_wrong && is_last { 0 } else { *item };
            let price: Option<u64> = conn.exec_first("SELECT i_price FROM item WHERE i_id = ?", (item,))?;
            let Some(price) = price else { return Ok(Effect::RolledBack) };
            let (stock, info): (u32, String) = first(conn.exec_first(
                "SELECT s_quantity, s_dist FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
                (supplier, item),
            )?)?;
            let left = if stock >= quantity + 10 { stock - quantity } else { stock + 91 - quantity };
            conn.exec_drop(
                "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, \
                 s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
                (left, quantity, u32::from(*supplier != w), supplier, item),
            )?;
            let amount = price * u64::from(*quantity) * u64::from(10_000 + w_tax + d_tax) / 10_000
                * u64::from(10_000 - discount)
                / 10_000;
            conn.exec_drop(
                "INSERT INTO order_line VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)",
                (w, d, order, number, item, supplier, quantity, amount, info),
            )?;
        }
        Ok(Effect::None)
    }

    /// Six in ten name the customer by last name: of those the one in the middle.
    fn customer(&mut self, w: u32, d: u32) -> Sql<u32> {
        if self.random.u32(0..10) >= 6 {
            return Ok(self.random.u32(1..=self.scale.customers));
        }
        let name = last_name(self.random.u32(0..last_names(self.scale)));
        let ids: Vec<u32> = self.conn.exec(
            "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first",
            (w, d, name),
        )?;
        first(ids.get(ids.len() / 2).copied())
    }

    fn payment(&mut self) -> Sql<Effect> {
        let (w, d) = (self.warehouse, self.district());
        // 15 in a hundred pay for an order of another warehouse.
        let is_remote = self.random.u32(0..100) < 15;
        let (c_w, c_d) = if is_remote { (self.other_warehouse(), self.district()) } else { (w, d) };
        // Signed: the server computes with the sign of a parameter, and balances go below zero.
        let amount = self.random.i64(100..=500_000);
        let note = text(&mut self.random, 20);
        self.conn.exec_drop("UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?", (amount, w))?;
        self.conn.exec_drop(
            "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?",
            (amount, w, d),
        )?;
        let customer = self.customer(c_w, c_d)?;
        let conn = &mut self.conn;
        let (credit, data): (String, String) = first(conn.exec_first(
            "SELECT c_credit, c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE",
            (c_w, c_d, customer),
        )?)?;
        conn.exec_drop(
            "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, \
             c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            (amount, amount, c_w, c_d, customer),
        )?;
        if credit == "BC" {
            let mut data = format!("{customer} {c_d} {c_w} {d} {w} {amount}|{data}");
            data.truncate(500);
            conn.exec_drop(
                "UPDATE customer SET c_data = ? WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
                (data, c_w, c_d, customer),
            )?;
        }
        conn.exec_drop(
            "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
             VALUES (?, ?, ?, ?, ?, NOW(), ?, ?)",
            (customer, c_d, c_w, d, w, amount, note),
        )?;
        Ok(Effect::Paid(amount.unsigned_abs()))
    }

    fn order_status(&mut self) -> Sql<Effect> {
        let (w, d) = (self.warehouse, self.district());
        let customer = self.customer(w, d)?;
        let conn = &mut self.conn;
        let order: Option<u32> = conn.exec_first(
            "SELECT o_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1",
            (w, d, customer),
        )?;
        conn.exec_drop(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
             WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            (w, d, order.unwrap_or(0)),
        )?;
        Ok(Effect::None)
    }

    fn delivery(&mut self) -> Sql<Effect> {
        let (w, carrier) = (self.warehouse, self.random.u32(1..=10));
        let mut delivered = 0;
        for d in 1..=DISTRICTS {
            delivered += u64::from(self.deliver(w, d, carrier)?);
        }
        Ok(Effect::Delivered(delivered))
    }

    /// False: the district has no new order.
    fn deliver(&mut self, w: u32, d: u32, carrier: u32) -> Sql<bool> {
        let conn = &mut self.conn;
        let order: Option<u32> = conn.exec_first(
            "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id LIMIT 1 FOR UPDATE",
            (w, d),
        )?;
        let Some(order) = order else { return Ok(false) };
        let key = (w, d, order);
        conn.exec_drop("DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?", key)?;
        let customer: u32 = first(conn.exec_first(
            "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ? FOR UPDATE",
            key,
        )?)?;
        conn.exec_drop(
            "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
            (carrier, w, d, order),
        )?;
        conn.exec_drop(
            "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            key,
        )?;
        let amount: i64 = first(conn.exec_first(
            "SELECT CAST(SUM(ol_amount) AS SIGNED) FROM order_line \
             WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            key,
        )?)?;
        conn.exec_drop(
            "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 \
             WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            (amount, w, d, customer),
        )?;
        Ok(true)
    }

    fn stock_level(&mut self) -> Sql<Effect> {
        let (w, d, threshold) = (self.warehouse, self.district(), self.random.u32(10..=20));
        let conn = &mut self.conn;
        let next: u32 = first(
            conn.exec_first("SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?", (w, d))?,
        )?;
        conn.exec_drop(
            "SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id \
             WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id >= ? AND ol_o_id < ? AND s_quantity < ?",
            (w, d, next.saturating_sub(20), next, threshold),
        )?;
        Ok(Effect::None)
    }
}

/// A row that must be there.
fn first<T>(row: Option<T>) -> Sql<T> {
    row.ok_or_else(|| mysql::Error::IoError(std::io::Error::other("a row of the loaded tables is missing")))
}
