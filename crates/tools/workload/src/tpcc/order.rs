//! New-Order (clause 2.4): 5 to 15 lines; one in a hundred ends with an item that does not exist and is rolled back.

use crate::error::{Error, Result};
use crate::sql::{change, first, one};
use fastrand::Rng;
use mysql::Conn;

use super::Scale;
use super::client::other_warehouse;
use super::random::{Constants, customer, decimal, item};

/// Input of the transaction.
pub(super) struct NewOrder {
    at: (u32, u32),
    customer: u32,
    /// In the order of their stock rows, which keeps deadlocks rare; the one that does not exist is the last.
    lines: Vec<Line>,
}

struct Line {
    item: u32,
    supply: u32,
    quantity: u32,
}

impl NewOrder {
    /// Draws the input.
    pub(super) fn draw(random: &mut Rng, constants: &Constants, scale: Scale, at: (u32, u32)) -> Self {
        let count = random.usize(5..=15);
        let draw_line = |random: &mut Rng| {
            let remote = scale.warehouses > 1 && random.u32(0..100) == 0;
            let supply = if remote { other_warehouse(random, at.0, scale.warehouses) } else { at.0 };
            Line { item: item(random, constants, scale.items), supply, quantity: random.u32(1..=10) }
        };
        let mut lines: Vec<_> = (0..count).map(|_| draw_line(random)).collect();
        let customer = customer(random, constants, scale.customers);
        lines.sort_by_key(|line| (line.supply, line.item));
        if random.u32(0..100) == 0
            && let Some(last) = lines.last_mut()
        {
            last.item = scale.items + 1;
        }
        Self { at, customer, lines }
    }

    /// Does all but the end; false when it is to be rolled back.
    pub(super) fn enter(&self, conn: &mut Conn) -> Result<bool> {
        const CUSTOMER: &str = "SELECT c_discount, c_last, c_credit, w_tax FROM customer \
            JOIN warehouse ON w_id = c_w_id WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
        const DISTRICT: &str =
            "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE";
        let (warehouse, district) = self.at;
        let _: mysql::Row = one(conn, CUSTOMER, (warehouse, district, self.customer))?;
        let (order, _): (u32, String) = one(conn, DISTRICT, (warehouse, district))?;
        let update = "UPDATE district SET d_next_o_id = ? WHERE d_w_id = ? AND d_id = ?";
        change(conn, update, (order + 1, warehouse, district))?;
        let all_local = u8::from(self.lines.iter().all(|line| line.supply == warehouse));
        let insert = "INSERT INTO orders VALUES (?, ?, ?, ?, NOW(), NULL, ?, ?)";
        change(conn, insert, (order, district, warehouse, self.customer, self.lines.len(), all_local))?;
        change(conn, "INSERT INTO new_order VALUES (?, ?, ?)", (order, district, warehouse))?;
        for (number, line) in (1_u32..).zip(&self.lines) {
            if !line.enter(conn, self.at, (order, number))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Line {
    /// False if there is no such item.
    fn enter(
        &self,
        conn: &mut Conn,
        (warehouse, district): (u32, u32),
        (order, number): (u32, u32),
    ) -> Result<bool> {
        let item: Option<(String, String, String)> =
            first(conn, "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?", (self.item,))?;
        let Some((price, _, _)) = item else {
            return Ok(false);
        };
        let query = format!(
            "SELECT s_quantity, s_dist_{district:02}, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE"
        );
        let (stock, info, _): (i32, String, String) = one(conn, &query, (self.supply, self.item))?;
        let left = restock(stock, self.quantity);
        let remote = u8::from(self.supply != warehouse);
        let update = "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, \
            s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?";
        change(conn, update, (left, self.quantity, remote, self.supply, self.item))?;
        let amount = decimal(cents(&price)? * i64::from(self.quantity));
        let insert = "INSERT INTO order_line VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)";
        let row = (order, district, warehouse, number, self.item, self.supply, self.quantity, amount, info);
        change(conn, insert, row)?;
        Ok(true)
    }
}

/// The stock after an order: 91 are added when fewer than ten would be left.
fn restock(stock: i32, quantity: u32) -> i32 {
    let left = stock - quantity.cast_signed();
    if left >= 10 { left } else { left + 91 }
}

/// `12.05` in cents.
fn cents(price: &str) -> Result<i64> {
    let digits = price.split_once('.').filter(|(_, fraction)| fraction.len() == 2);
    digits
        .and_then(|(whole, fraction)| format!("{whole}{fraction}").parse().ok())
        .ok_or_else(|| Error::Parse { what: "an item's price".to_owned(), detail: format!("{price:?}") })
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
