//! Tables and their first rows.
//!
//! Invariant: what is loaded satisfies the consistency conditions of [`super::check`].

use std::fmt::Write;
use std::path::Path;

use fastrand::Rng;
use mysql::Conn;

use super::{DATABASE, DISTRICTS, Scale, connection};
use crate::error::Result;
use crate::server::{connect, execute};

/// Rows of one INSERT.
const BATCH_ROWS: usize = 400;

/// Amounts are in cents: sums are exact.
const TABLES: [&str; 9] = [
    "CREATE TABLE warehouse (w_id INT PRIMARY KEY, w_name CHAR(10) NOT NULL, w_tax INT NOT NULL, \
     w_ytd BIGINT NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE district (d_w_id INT, d_id INT, d_name CHAR(10) NOT NULL, d_tax INT NOT NULL, \
     d_ytd BIGINT NOT NULL, d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id, d_id)) ENGINE=InnoDB",
    "CREATE TABLE customer (c_w_id INT, c_d_id INT, c_id INT, c_first VARCHAR(16) NOT NULL, \
     c_last VARCHAR(16) NOT NULL, c_credit CHAR(2) NOT NULL, c_discount INT NOT NULL, c_balance BIGINT NOT NULL, \
     c_ytd_payment BIGINT NOT NULL, c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL, \
     c_data VARCHAR(500) NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id), \
     KEY by_name (c_w_id, c_d_id, c_last, c_first)) ENGINE=InnoDB",
    "CREATE TABLE history (h_id BIGINT AUTO_INCREMENT PRIMARY KEY, h_c_id INT NOT NULL, h_c_d_id INT NOT NULL, \
     h_c_w_id INT NOT NULL, h_d_id INT NOT NULL, h_w_id INT NOT NULL, h_date DATETIME NOT NULL, \
     h_amount BIGINT NOT NULL, h_data VARCHAR(24) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE orders (o_w_id INT, o_d_id INT, o_id INT, o_c_id INT NOT NULL, o_entry_d DATETIME NOT NULL, \
     o_carrier_id INT, o_ol_cnt INT NOT NULL, o_all_local INT NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id), \
     KEY by_customer (o_w_id, o_d_id, o_c_id, o_id)) ENGINE=InnoDB",
    "CREATE TABLE new_order (no_w_id INT, no_d_id INT, no_o_id INT, \
     PRIMARY KEY (no_w_id, no_d_id, no_o_id)) ENGINE=InnoDB",
    "CREATE TABLE order_line (ol_w_id INT, ol_d_id INT, ol_o_id INT, ol_number INT, ol_i_id INT NOT NULL, \
     ol_supply_w_id INT NOT NULL, ol_delivery_d DATETIME, ol_quantity INT NOT NULL, ol_amount BIGINT NOT NULL, \
     ol_dist_info CHAR(24) NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)) ENGINE=InnoDB",
    "CREATE TABLE item (i_id INT PRIMARY KEY, i_name VARCHAR(24) NOT NULL, i_price INT NOT NULL, \
     i_data VARCHAR(50) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE stock (s_w_id INT, s_i_id INT, s_quantity INT NOT NULL, s_dist CHAR(24) NOT NULL, \
     s_ytd BIGINT NOT NULL, s_order_cnt INT NOT NULL, s_remote_cnt INT NOT NULL, s_data VARCHAR(50) NOT NULL, \
     PRIMARY KEY (s_w_id, s_i_id)) ENGINE=InnoDB",
];

/// A last name of three syllables, as TPC-C makes them.
pub(super) fn last_name(number: u32) -> String {
    const SYLLABLES: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let syllable = |digit: u32| SYLLABLES.get(digit as usize % 10).copied().unwrap_or_default();
    [number / 100, number / 10, number].map(syllable).concat()
}

/// How many different last names a district has.
pub(super) fn last_names(scale: Scale) -> u32 {
    (scale.customers / 3).clamp(1, 1000)
}

/// Gathers rows into INSERT statements.
struct Inserter<'a> {
    conn: &'a mut Conn,
    table: &'static str,
    statement: String,
    rows: usize,
}

impl<'a> Inserter<'a> {
    fn new(conn: &'a mut Conn, table: &'static str) -> Self {
        Self { conn, table, statement: String::new(), rows: 0 }
    }

    /// `values` without parentheses; texts in it are made of letters and digits.
    fn row(&mut self, values: std::fmt::Arguments<'_>) -> Result<()> {
        if self.rows == 0 {
            self.statement = format!("INSERT INTO {} VALUES ", self.table);
        }
        let comma = if self.rows == 0 { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(self.statement, "{comma}({values})");
        self.rows += 1;
        if self.rows == BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        execute(self.conn, &self.statement)
    }
}

pub(super) fn text(random: &mut Rng, len: usize) -> String {
    std::iter::repeat_with(|| random.alphanumeric()).take(len).collect()
}

pub(super) fn load(socket: &Path, scale: Scale, seed: u64) -> Result<()> {
    let mut conn = connect(socket)?;
    execute(&mut conn, &format!("DROP DATABASE IF EXISTS {DATABASE}"))?;
    execute(&mut conn, &format!("CREATE DATABASE {DATABASE}"))?;
    let mut conn = connection(socket)?;
    for table in TABLES {
        execute(&mut conn, table)?;
    }
    let mut random = Rng::with_seed(seed);
    let mut items = Inserter::new(&mut conn, "item");
    for item in 1..=scale.items {
        let (name, data) = (text(&mut random, 20), text(&mut random, 40));
        items.row(format_args!("{item},'{name}',{},'{data}'", random.u32(100..10_000)))?;
    }
    items.flush()?;
    for warehouse in 1..=scale.warehouses {
        load_warehouse(&mut conn, scale, warehouse, &mut random)?;
        for district in 1..=DISTRICTS {
            load_customers(&mut conn, scale, (warehouse, district), &mut random)?;
            load_orders(&mut conn, scale, (warehouse, district), &mut random)?;
        }
    }
    Ok(())
}

/// What a district has taken in at the beginning.
const DISTRICT_YTD: u64 = 3_000_000;

fn load_warehouse(conn: &mut Conn, scale: Scale, warehouse: u32, random: &mut Rng) -> Result<()> {
    let ytd = DISTRICT_YTD * u64::from(DISTRICTS);
    let name = text(random, 8);
    let tax = random.u32(0..2000);
    execute(conn, &format!("INSERT INTO warehouse VALUES ({warehouse},'{name}',{tax},{ytd})"))?;
    let mut districts = Inserter::new(conn, "district");
    for district in 1..=DISTRICTS {
        let (name, tax) = (text(random, 8), random.u32(0..2000));
        let next = scale.customers + 1;
        districts.row(format_args!("{warehouse},{district},'{name}',{tax},{DISTRICT_YTD},{next}"))?;
    }
    districts.flush()?;
    let mut stock = Inserter::new(conn, "stock");
    for item in 1..=scale.items {
        let (info, data, quantity) = (text(random, 24), text(random, 40), random.u32(10..=100));
        stock.row(format_args!("{warehouse},{item},{quantity},'{info}',0,0,0,'{data}'"))?;
    }
    stock.flush()
}

fn load_customers(
    conn: &mut Conn,
    scale: Scale,
    (warehouse, district): (u32, u32),
    random: &mut Rng,
) -> Result<()> {
    let mut customers = Inserter::new(conn, "customer");
    for customer in 1..=scale.customers {
        let last = last_name((customer - 1) % last_names(scale));
        let first = text(random, 12);
        let credit = if random.u32(0..10) == 0 { "BC" } else { "GC" };
        let (discount, data) = (random.u32(0..5000), text(random, 300));
        customers.row(format_args!(
            "{warehouse},{district},{customer},'{first}','{last}','{credit}',{discount},-1000,1000,1,0,'{data}'"
        ))?;
    }
    customers.flush()
}

/// One order per customer; the last three in ten are not delivered.
fn load_orders(
    conn: &mut Conn,
    scale: Scale,
    (warehouse, district): (u32, u32),
    random: &mut Rng,
) -> Result<()> {
    let mut customers: Vec<u32> = (1..=scale.customers).collect();
    random.shuffle(&mut customers);
    let first_new = scale.customers - scale.customers * 3 / 10 + 1;
    let lines: Vec<u32> = customers.iter().map(|_| random.u32(5..=15)).collect();
    let at = format!("{warehouse},{district}");
    let mut orders = Inserter::new(conn, "orders");
    for (order, (customer, count)) in (1..).zip(customers.iter().zip(&lines)) {
        let carrier = if order < first_new { random.u32(1..=10).to_string() } else { "NULL".to_owned() };
        orders.row(format_args!("{at},{order},{customer},NOW(),{carrier},{count},1"))?;
    }
    orders.flush()?;
    let mut new_orders = Inserter::new(conn, "new_order");
    for order in first_new..=scale.customers {
        new_orders.row(format_args!("{at},{order}"))?;
    }
    new_orders.flush()?;
    let mut order_lines = Inserter::new(conn, "order_line");
    for (order, count) in (1..).zip(&lines) {
        for line in 1..=*count {
            let (item, info) = (random.u32(1..=scale.items), text(random, 24));
            let is_new = order >= first_new;
            let delivered = if is_new { "NULL" } else { "NOW()" };
            let amount = if is_new { random.u32(1..1_000_000) } else { 0 };
            order_lines.row(format_args!(
                "{at},{order},{line},{item},{warehouse},{delivered},5,{amount},'{info}'"
            ))?;
        }
    }
    order_lines.flush()
}
