//! A client: which transaction it does next, and all of them but New-Order.
//!
//! Invariants: a transaction is tallied only after the server has acknowledged its COMMIT. A retry after a deadlock is
//! the same transaction with the same input, as a terminal would send it.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sql::{all, change, connect_to, execute, first, one};
use fastrand::Rng;
use mysql::Conn;

use super::order::NewOrder;
use super::random::{Deck, customer, decimal, last_name_run};
use super::{DATABASE, DISTRICTS, Shared};
use crate::load::Worker;

/// Names of the transactions, by kind.
pub const KINDS: [&str; 5] = ["New-Order", "Payment", "Order-Status", "Delivery", "Stock-Level"];
/// Keying time and mean think time of each kind, in seconds (clause 5.2.5.7).
const WAITS_S: [(u64, f64); 5] = [(18, 12.0), (3, 12.0), (2, 10.0), (2, 5.0), (2, 5.0)];

/// A client: which transaction it does next, and all of them but New-Order.
pub struct Client {
    conn: Conn,
    shared: Shared,
    random: Rng,
    deck: Deck,
    kind: u8,
    /// Warehouse and district of the terminal, when a client is one.
    terminal: Option<(u32, u32)>,
}

/// How a customer is named.
pub enum By {
    Number(u32),
    LastName(String),
}

/// Input of a transaction, drawn once.
enum Input {
    NewOrder(NewOrder),
    Payment { at: (u32, u32), of: (u32, u32), by: By, cents: u32 },
    OrderStatus { at: (u32, u32), by: By },
    Delivery { warehouse: u32, carrier: u32 },
    StockLevel { at: (u32, u32), threshold: u32 },
}

impl Client {
    pub(super) fn new(socket: &Path, shared: &Shared, number: u32, seed: u64) -> Result<Self> {
        let mut conn = connect_to(socket, DATABASE)?;
        execute(&mut conn, "SET autocommit = 0")?;
        let terminal = shared
            .think
            .then_some((number / DISTRICTS % shared.scale.warehouses + 1, number % DISTRICTS + 1));
        let random = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number));
        Ok(Self { conn, shared: shared.clone(), random, deck: Deck::default(), kind: 0, terminal })
    }

    fn input(&mut self) -> Input {
        let (scale, random) = (self.shared.scale, &mut self.random);
        let warehouse = self.terminal.map_or_else(|| random.u32(1..=scale.warehouses), |at| at.0);
        let district = random.u32(1..=DISTRICTS);
        let constants = &self.shared.constants;
        let by = |random: &mut Rng| match random.u32(0..100) {
            0..60 => By::LastName(last_name_run(random, constants, scale.customers)),
            _ => By::Number(customer(random, constants, scale.customers)),
        };
        match self.kind {
            0 => Input::NewOrder(NewOrder::draw(random, constants, scale, (warehouse, district))),
            1 => {
                let remote = scale.warehouses > 1 && random.u32(0..100) >= 85;
                let of = if remote {
                    (other_warehouse(random, warehouse, scale.warehouses), random.u32(1..=DISTRICTS))
                } else {
                    (warehouse, district)
                };
                Input::Payment {
                    at: (warehouse, district),
                    of,
                    by: by(random),
                    cents: random.u32(100..=500_000),
                }
            }
            2 => Input::OrderStatus { at: (warehouse, district), by: by(random) },
            3 => Input::Delivery { warehouse, carrier: random.u32(1..=10) },
            _ => {
                let district = self.terminal.map_or(district, |at| at.1);
                Input::StockLevel { at: (warehouse, district), threshold: random.u32(10..=20) }
            }
        }
    }

    /// One attempt, up to and with its end; the tally is written after the server has acknowledged it.
    fn attempt(&mut self, input: &Input) -> Result<()> {
        let (conn, tally) = (&mut self.conn, &self.shared.tally);
        let add =
            |counter: &std::sync::atomic::AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
        match input {
            Input::NewOrder(order) => {
                let complete = order.enter(conn)?;
                execute(conn, if complete { "COMMIT" } else { "ROLLBACK" })?;
                add(if complete { &tally.new_orders } else { &tally.rolled_back }, 1);
            }
            Input::Payment { at, of, by, cents } => {
                pay(conn, *at, *of, by, *cents)?;
                execute(conn, "COMMIT")?;
                add(&tally.payments, 1);
                add(&tally.paid_cents, u64::from(*cents));
            }
            Input::OrderStatus { at, by } => {
                order_status(conn, *at, by)?;
                execute(conn, "COMMIT")?;
            }
            Input::Delivery { warehouse, carrier } => {
                let delivered = deliver(conn, *warehouse, *carrier)?;
                execute(conn, "COMMIT")?;
                add(&tally.delivered, delivered);
                add(&tally.without_new_orders, u64::from(DISTRICTS).saturating_sub(delivered));
            }
            Input::StockLevel { at, threshold } => {
                stock_level(conn, *at, *threshold)?;
                execute(conn, "COMMIT")?;
            }
        }
        Ok(())
    }
}

impl Worker for Client {
    fn choose(&mut self) -> Duration {
        self.kind = self.deck.draw(&mut self.random);
        let seconds = WAITS_S.get(usize::from(self.kind)).map_or(0, |wait| wait.0);
        if self.shared.think { Duration::from_secs(seconds) } else { Duration::ZERO }
    }

    fn run(&mut self) -> Result<u8> {
        let input = self.input();
        loop {
            match self.attempt(&input) {
                Ok(()) => return Ok(self.kind),
                Err(error) if error.is_retryable() => {
                    self.shared.tally.retries.fetch_add(1, Ordering::Relaxed);
                    execute(&mut self.conn, "ROLLBACK")?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn think(&mut self) -> Duration {
        if !self.shared.think {
            return Duration::ZERO;
        }
        // Exponentially distributed, at most ten times the mean (clause 5.2.5.4).
        let mean_s = WAITS_S.get(usize::from(self.kind)).map_or(0.0, |wait| wait.1);
        Duration::from_secs_f64((-(1.0 - self.random.f64()).ln() * mean_s).min(10.0 * mean_s))
    }
}

/// Any warehouse but this one.
pub(super) fn other_warehouse(random: &mut Rng, warehouse: u32, warehouses: u32) -> u32 {
    let other = random.u32(1..warehouses);
    if other >= warehouse { other + 1 } else { other }
}

/// The customer's number; by last name it is the middle one of all that have it, ordered by first name.
fn find_customer(conn: &mut Conn, (warehouse, district): (u32, u32), by: &By) -> Result<u32> {
    match by {
        By::Number(number) => Ok(*number),
        By::LastName(name) => {
            const QUERY: &str =
                "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first";
            let numbers: Vec<u32> = all(conn, QUERY, (warehouse, district, name))?;
            let middle = numbers.len().div_ceil(2).saturating_sub(1);
            numbers.get(middle).copied().ok_or_else(|| {
                Error::Violation(format!("no customer is called {name} in {warehouse}/{district}"))
            })
        }
    }
}

fn pay(conn: &mut Conn, at: (u32, u32), of: (u32, u32), by: &By, cents: u32) -> Result<()> {
    const PLACE: &str =
        "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?";
    const DISTRICT: &str = "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district \
        WHERE d_w_id = ? AND d_id = ?";
    const CUSTOMER: &str = "SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_city, c_state, c_zip, c_phone, \
        c_since, c_credit_lim, c_discount FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE";
    type Address = (String, String, String, String, String, String);
    let (warehouse, district) = at;
    let amount = decimal(i64::from(cents));
    change(conn, "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?", (&amount, warehouse))?;
    let from: Address = one(conn, PLACE, (warehouse,))?;
    let update = "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?";
    change(conn, update, (&amount, warehouse, district))?;
    let at_district: Address = one(conn, DISTRICT, (warehouse, district))?;
    let number = find_customer(conn, of, by)?;
    let row: mysql::Row = one(conn, CUSTOMER, (of.0, of.1, number))?;
    let credit: Option<String> = row.get(0);
    if credit.as_deref() == Some("BC") {
        let update = "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, \
            c_payment_cnt = c_payment_cnt + 1, c_data = LEFT(CONCAT(?, c_data), 500) \
            WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
        let entry = format!("{number} {} {} {district} {warehouse} {amount}", of.1, of.0);
        change(conn, update, (&amount, &amount, entry, of.0, of.1, number))?;
    } else {
        let update = "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, \
            c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
        change(conn, update, (&amount, &amount, of.0, of.1, number))?;
    }
    let data = format!("{}    {}", from.0, at_district.0);
    let insert = "INSERT INTO history VALUES (?, ?, ?, ?, ?, NOW(), ?, ?)";
    change(conn, insert, (number, of.1, of.0, district, warehouse, amount, data))
}

fn order_status(conn: &mut Conn, at: (u32, u32), by: &By) -> Result<()> {
    const CUSTOMER: &str = "SELECT c_balance, c_first, c_middle, c_last FROM customer \
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    const LAST: &str = "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = ? AND o_d_id = ? \
        AND o_c_id = ? ORDER BY o_id DESC LIMIT 1";
    const LINES: &str = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
        WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
    let number = find_customer(conn, at, by)?;
    let _: mysql::Row = one(conn, CUSTOMER, (at.0, at.1, number))?;
    let order: mysql::Row = one(conn, LAST, (at.0, at.1, number))?;
    let order: Option<u32> = order.get(0);
    let lines: Vec<mysql::Row> = all(conn, LINES, (at.0, at.1, order))?;
    if (5..=15).contains(&lines.len()) {
        return Ok(());
    }
    Err(Error::Violation(format!("order {order:?} of {at:?} has {} lines", lines.len())))
}

/// Delivers the oldest new order of each district, if there is one; returns how many.
fn deliver(conn: &mut Conn, warehouse: u32, carrier: u32) -> Result<u64> {
    const OLDEST: &str =
        "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id LIMIT 1 FOR UPDATE";
    // With a lock: the order may be newer than the transaction's snapshot, which the districts before have fixed.
    const OF: &str = "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ? FOR UPDATE";
    const AMOUNT: &str =
        "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
    let mut delivered = 0;
    for district in 1..=DISTRICTS {
        let at = (warehouse, district);
        let Some(order) = first::<u32>(conn, OLDEST, at)? else { continue };
        let of_order = (warehouse, district, order);
        change(conn, "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?", of_order)?;
        let customer: u32 = one(conn, OF, of_order)?;
        let update = "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?";
        change(conn, update, (carrier, warehouse, district, order))?;
        let update =
            "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
        change(conn, update, of_order)?;
        let amount: String = one(conn, AMOUNT, of_order)?;
        let update = "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 \
            WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
        change(conn, update, (amount, warehouse, district, customer))?;
        delivered += 1;
    }
    Ok(delivered)
}

fn stock_level(conn: &mut Conn, at: (u32, u32), threshold: u32) -> Result<()> {
    const NEXT: &str = "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?";
    const LOW: &str = "SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ? AND s_i_id = ol_i_id \
        WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id >= ? AND ol_o_id < ? AND s_quantity < ?";
    let next: u32 = one(conn, NEXT, at)?;
    let parameters = (at.0, at.0, at.1, next.saturating_sub(20), next, threshold);
    let _: u64 = one(conn, LOW, parameters)?;
    Ok(())
}
