//! The consistency conditions of clause 3.3.2, and that the tables have grown by exactly what was acknowledged.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::process::check_interrupt;
use crate::sql::{one, query_text};
use mysql::Conn;

use super::{Scale, Tally};

/// A condition: its number in clause 3.3.2, what it says, and a query that has a row for each place where it does not
/// hold.
struct Condition {
    number: u32,
    says: &'static str,
    query: &'static str,
}

/// Delivered orders of a district are 7/10 of its customers at the beginning, and then what customers count
/// (condition 11 as specified holds only before the first delivery).
const CONDITIONS: [Condition; 12] = [
    Condition {
        number: 1,
        says: "W_YTD is the sum of D_YTD",
        query: "SELECT w_id, w_ytd, SUM(d_ytd) AS total FROM warehouse LEFT JOIN district ON d_w_id = w_id \
                GROUP BY w_id, w_ytd HAVING NOT w_ytd <=> total",
    },
    Condition {
        number: 2,
        says: "D_NEXT_O_ID follows the last order and the last new order",
        query: "SELECT d_w_id, d_id, d_next_o_id, \
                (SELECT MAX(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS last_order, \
                (SELECT MAX(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS last_new \
                FROM district \
                HAVING NOT last_order <=> d_next_o_id - 1 OR (last_new IS NOT NULL AND last_new <> d_next_o_id - 1)",
    },
    Condition {
        number: 3,
        says: "new orders of a district have no gap",
        query: "SELECT no_w_id, no_d_id FROM new_order GROUP BY no_w_id, no_d_id \
                HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)",
    },
    Condition {
        number: 4,
        says: "a district has as many lines as its orders say",
        query: "SELECT w, d, said, found FROM (SELECT o_w_id AS w, o_d_id AS d, SUM(o_ol_cnt) AS said FROM orders \
                GROUP BY o_w_id, o_d_id) AS o LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS found FROM order_line \
                GROUP BY ol_w_id, ol_d_id) AS l ON ol_w_id = w AND ol_d_id = d WHERE NOT said <=> found",
    },
    Condition {
        number: 5,
        says: "an order without a carrier is a new order, and no other",
        query: "SELECT o_w_id, o_d_id, o_id FROM orders LEFT JOIN new_order \
                ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
                WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    },
    Condition {
        number: 6,
        says: "an order has as many lines as it says",
        query: "SELECT o_w_id, o_d_id, o_id, o_ol_cnt, COUNT(ol_number) AS found FROM orders LEFT JOIN order_line \
                ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
                GROUP BY o_w_id, o_d_id, o_id HAVING o_ol_cnt <> found",
    },
    Condition {
        number: 7,
        says: "a line is delivered with its order",
        query: "SELECT o_w_id, o_d_id, o_id FROM orders JOIN order_line \
                ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
                WHERE (o_carrier_id IS NULL) <> (ol_delivery_d IS NULL)",
    },
    Condition {
        number: 8,
        says: "W_YTD is what the history says",
        query: "SELECT w_id, w_ytd, paid FROM warehouse LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS paid FROM history \
                GROUP BY h_w_id) AS h ON h_w_id = w_id WHERE NOT w_ytd <=> paid",
    },
    Condition {
        number: 9,
        says: "D_YTD is what the history says",
        query: "SELECT d_w_id, d_id, d_ytd, paid FROM district LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid \
                FROM history GROUP BY h_w_id, h_d_id) AS h ON h_w_id = d_w_id AND h_d_id = d_id \
                WHERE NOT d_ytd <=> paid",
    },
    Condition {
        number: 10,
        says: "C_BALANCE is what was delivered less what the history says",
        query: "SELECT c_w_id, c_d_id, c_id, c_balance, delivered, paid FROM customer LEFT JOIN \
                (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders JOIN order_line \
                ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_delivery_d IS NOT NULL \
                GROUP BY o_w_id, o_d_id, o_c_id) AS o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
                LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history \
                GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
                WHERE c_balance <> COALESCE(delivered, 0) - COALESCE(paid, 0)",
    },
    Condition {
        number: 11,
        says: "orders that are not new are those that were delivered",
        query: "SELECT d_w_id, d_id, orders_, new_, delivered FROM district \
                JOIN (SELECT o_w_id, o_d_id, COUNT(*) AS orders_ FROM orders GROUP BY o_w_id, o_d_id) AS o \
                ON o_w_id = d_w_id AND o_d_id = d_id \
                JOIN (SELECT c_w_id, c_d_id, COUNT(*) AS customers, SUM(c_delivery_cnt) AS delivered FROM customer \
                GROUP BY c_w_id, c_d_id) AS c ON c_w_id = d_w_id AND c_d_id = d_id \
                LEFT JOIN (SELECT no_w_id, no_d_id, COUNT(*) AS new_ FROM new_order GROUP BY no_w_id, no_d_id) AS n \
                ON no_w_id = d_w_id AND no_d_id = d_id \
                WHERE orders_ - COALESCE(new_, 0) <> customers - customers * 3 DIV 10 + delivered",
    },
    Condition {
        number: 12,
        says: "C_BALANCE and C_YTD_PAYMENT together are what was delivered",
        query: "SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, delivered FROM customer LEFT JOIN \
                (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders JOIN order_line \
                ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_delivery_d IS NOT NULL \
                GROUP BY o_w_id, o_d_id, o_c_id) AS o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
                WHERE c_balance + c_ytd_payment <> COALESCE(delivered, 0)",
    },
];

/// How many conditions the specification requires to be shown.
pub const REQUIRED: u32 = 4;

/// Looks at the conditions up to number `last`, and returns how many hold. The connection is to the database.
///
/// # Errors
/// [`Error::Violation`] with the condition and the first row that breaks it.
pub fn conditions(conn: &mut Conn, last: u32) -> Result<u32> {
    let mut passed = 0;
    for condition in CONDITIONS.iter().filter(|condition| condition.number <= last) {
        check_interrupt()?;
        let broken = query_text(conn, condition.query)?;
        if let Some(row) = broken.first() {
            return Err(Error::Violation(format!(
                "condition {} of TPC-C clause 3.3.2, {}: {} rows break it, the first is {row:?}",
                condition.number,
                condition.says,
                broken.len()
            )));
        }
        passed += 1;
    }
    Ok(passed)
}

/// Work since the database was made, according to the small tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    orders: u64,
    paid_cents: u64,
}

impl Done {
    /// Reads it. Cheap at any size: one row per district.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn read(conn: &mut Conn) -> Result<Self> {
        const QUERY: &str =
            "SELECT CAST(SUM(d_next_o_id) AS UNSIGNED), CAST(SUM(d_ytd) * 100 AS UNSIGNED) FROM district";
        let (orders, paid_cents) = one(conn, QUERY, ())?;
        Ok(Self { orders, paid_cents })
    }

    /// Everything acknowledged must be there, and nothing else.
    ///
    /// # Errors
    /// [`Error::Violation`].
    pub fn require_growth(&self, before: &Self, tally: &Tally) -> Result<()> {
        let expected = Self {
            orders: before.orders + tally.new_orders.load(Ordering::Relaxed),
            paid_cents: before.paid_cents + tally.paid_cents.load(Ordering::Relaxed),
        };
        if *self == expected {
            return Ok(());
        }
        Err(Error::Violation(format!("acknowledged were {expected:?}, the tables have {self:?}")))
    }
}

/// Rows of the tables that only a load and acknowledged transactions fill: orders, history, new orders.
///
/// # Errors
/// [`Error::Violation`] if they are not as many as the load made and clients were acknowledged.
pub fn counts(conn: &mut Conn, scale: Scale, tally: &Tally) -> Result<()> {
    let districts = u64::from(scale.warehouses * super::DISTRICTS);
    let (loaded, new) = (u64::from(scale.customers), u64::from(scale.customers * 3 / 10));
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let orders = load(&tally.new_orders);
    let expected = [
        ("orders", districts * loaded + orders),
        ("history", districts * loaded + load(&tally.payments)),
        ("new_order", (districts * new + orders).saturating_sub(load(&tally.delivered))),
    ];
    for (table, count) in expected {
        let found: u64 = one(conn, &format!("SELECT COUNT(*) FROM {table}"), ())?;
        if found != count {
            return Err(Error::Violation(format!(
                "{table} has {found} rows, but {count} were loaded and acknowledged"
            )));
        }
    }
    Ok(())
}
