//! The consistency conditions of TPC-C (clause 3.3.2) and what a run must have added.

use mysql::Conn;
use mysql::prelude::Queryable;

use super::client::{Kind, Tally};
use crate::error::{Error, Result};
use crate::server::query_text;

/// Each query must have no rows.
const CONDITIONS: [(&str, &str); 8] = [
    (
        "W_YTD is the sum of D_YTD",
        "SELECT w_id, w_ytd, SUM(d_ytd) AS total FROM warehouse JOIN district ON d_w_id = w_id \
         GROUP BY w_id, w_ytd HAVING w_ytd <> total",
    ),
    (
        "D_NEXT_O_ID follows the last order",
        "SELECT d_w_id, d_id, d_next_o_id, MAX(o_id) AS last FROM district \
         JOIN orders ON o_w_id = d_w_id AND o_d_id = d_id \
         GROUP BY d_w_id, d_id, d_next_o_id HAVING d_next_o_id <> last + 1",
    ),
    (
        "D_NEXT_O_ID follows the last new order",
        "SELECT d_w_id, d_id, d_next_o_id, MAX(no_o_id) AS last FROM district \
         JOIN new_order ON no_w_id = d_w_id AND no_d_id = d_id \
         GROUP BY d_w_id, d_id, d_next_o_id HAVING d_next_o_id <> last + 1",
    ),
    (
        "new orders of a district have no gap",
        "SELECT no_w_id, no_d_id FROM new_order GROUP BY no_w_id, no_d_id \
         HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)",
    ),
    (
        "an order has as many lines as it says",
        "SELECT o_w_id, o_d_id, o_id, o_ol_cnt, COUNT(ol_number) AS found FROM orders \
         LEFT JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         GROUP BY o_w_id, o_d_id, o_id, o_ol_cnt HAVING o_ol_cnt <> found",
    ),
    (
        "an order without a carrier is a new order, and no other",
        "SELECT o_w_id, o_d_id, o_id FROM orders \
         LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
         WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    ),
    (
        "a line is delivered with its order",
        "SELECT o_w_id, o_d_id, o_id FROM orders \
         JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         WHERE (o_carrier_id IS NULL) <> (ol_delivery_d IS NULL)",
    ),
    (
        "C_BALANCE is what was delivered less what was paid",
        "SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, c_delivered FROM \
         (SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, \
          (SELECT COALESCE(SUM(ol_amount), 0) FROM orders \
           JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
           WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL) \
          AS c_delivered FROM customer) AS customers \
         WHERE c_balance <> CAST(c_delivered AS SIGNED) - c_ytd_payment",
    ),
];

/// Checks all conditions.
///
/// # Errors
/// [`Error::Violation`] with the condition and the first row that breaks it.
pub fn consistency(conn: &mut Conn) -> Result<()> {
    for (condition, query) in CONDITIONS {
        let rows = query_text(conn, query)?;
        if let Some(row) = rows.first() {
            return Err(Error::Violation(format!(
                "{condition}: {} rows break it, the first is {row:?}",
                rows.len()
            )));
        }
    }
    Ok(())
}

/// Sizes of the tables that a run adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    orders: u64,
    new_orders: u64,
    history: u64,
    paid: u64,
}

impl Counts {
    /// Counts.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn read(conn: &mut Conn) -> Result<Self> {
        let mut one = |query: &str| -> Result<u64> {
            let value: Option<u64> = conn.query_first(query).map_err(Error::sql(query))?;
            value.ok_or_else(|| Error::Parse { what: query.to_owned(), detail: "no row".into() })
        };
        Ok(Self {
            orders: one("SELECT COUNT(*) FROM orders")?,
            new_orders: one("SELECT COUNT(*) FROM new_order")?,
            history: one("SELECT COUNT(*) FROM history")?,
            paid: one("SELECT CAST(SUM(w_ytd) AS UNSIGNED) FROM warehouse")?,
        })
    }

    /// The tables must have grown by what was acknowledged, no more and no less.
    pub(super) fn require_growth(&self, before: &Self, tally: &Tally) -> Result<()> {
        let expected = Self {
            orders: before.orders + tally.committed(Kind::NewOrder),
            new_orders: before.new_orders + tally.committed(Kind::NewOrder) - tally.delivered_orders,
            history: before.history + tally.committed(Kind::Payment),
            paid: before.paid + tally.paid,
        };
        if *self == expected {
            return Ok(());
        }
        Err(Error::Violation(format!("acknowledged were {expected:?}, the tables have {self:?}")))
    }
}
