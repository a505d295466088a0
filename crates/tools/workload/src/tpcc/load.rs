//! Fills the tables (clause 4.3.3).
//!
//! Threads take warehouse after warehouse; each district is one transaction of each table. Foreign keys are added
//! when the rows are there. Checks of unique keys stay on: without them the server locks a whole table for the
//! transaction that fills it first, and loaders that begin with different tables deadlock.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};
use crate::process::check_interrupt;
use crate::sql::{Inserter, connect, connect_to, execute};
use fastrand::Rng;
use indicatif::ProgressBar;
use mysql::Conn;

use super::random::{Constants, data, decimal, digits, last_name_load, text, zip};
use super::schema::{FOREIGN_KEYS, NAMES, TABLES};
use super::{DATABASE, DISTRICTS, Scale};

/// Makes the database and fills it; the bar gets one step per district, and one for each foreign key.
///
/// # Errors
/// [`Error::Sql`], [`Error::Interrupted`].
pub fn load(socket: &Path, scale: Scale, seed: u64, threads: u32, bar: &ProgressBar) -> Result<()> {
    let scale = scale.check()?;
    let keys = if scale.foreign_keys { FOREIGN_KEYS.as_slice() } else { &[] };
    bar.set_length(u64::from(scale.warehouses * DISTRICTS) + keys.len() as u64 + 1);
    let mut conn = connect(socket)?;
    execute(&mut conn, &format!("CREATE DATABASE {DATABASE}"))?;
    let mut conn = connection(socket)?;
    for table in TABLES {
        execute(&mut conn, table)?;
    }
    let constants = Constants::new(seed);
    load_items(&mut conn, scale, seed)?;
    let next = AtomicU32::new(1);
    let work = || -> Result<()> {
        let mut conn = connection(socket)?;
        loop {
            let warehouse = next.fetch_add(1, Ordering::Relaxed);
            if warehouse > scale.warehouses {
                return Ok(());
            }
            // By warehouse, so that the data do not depend on the number of threads.
            let mut random = Rng::with_seed(seed ^ (u64::from(warehouse) << 20));
            let mut loader = Loader { conn: &mut conn, scale, constants, random: &mut random, warehouse };
            loader.warehouse(bar)?;
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.clamp(1, scale.warehouses)).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Error::State("a loader panicked".to_owned()))?)
    })?;
    for statement in keys {
        check_interrupt()?;
        execute(&mut conn, statement)?;
        bar.inc(1);
    }
    execute(&mut conn, &format!("ANALYZE TABLE {}", NAMES.join(",")))?;
    bar.inc(1);
    Ok(())
}

fn connection(socket: &Path) -> Result<Conn> {
    let mut conn = connect_to(socket, DATABASE)?;
    execute(&mut conn, "SET foreign_key_checks = 0, autocommit = 0")?;
    Ok(conn)
}

fn load_items(conn: &mut Conn, scale: Scale, seed: u64) -> Result<()> {
    let random = &mut Rng::with_seed(seed);
    let mut items = Inserter::new(conn, "item");
    for item in 1..=scale.items {
        let (image, name) = (random.u32(1..=10_000), text(random, 14, 24));
        let (price, data) = (decimal(random.i64(100..=10_000)), data(random));
        items.row(format_args!("{item},{image},'{name}',{price},'{data}'"))?;
    }
    items.flush()?;
    execute(conn, "COMMIT")
}

struct Loader<'a> {
    conn: &'a mut Conn,
    scale: Scale,
    constants: Constants,
    random: &'a mut Rng,
    warehouse: u32,
}

impl Loader<'_> {
    fn warehouse(&mut self, bar: &ProgressBar) -> Result<()> {
        let (id, place) = (self.warehouse, self.place());
        let ytd = decimal(i64::from(self.scale.customers) * i64::from(DISTRICTS) * 1000);
        let tax = self.random.u32(0..=2000);
        let statement = format!("INSERT INTO warehouse VALUES ({id},{place},0.{tax:04},{ytd})");
        execute(self.conn, &statement)?;
        self.stock()?;
        for district in 1..=DISTRICTS {
            check_interrupt()?;
            let (place, tax) = (self.place(), self.random.u32(0..=2000));
            let (ytd, next) = (decimal(i64::from(self.scale.customers) * 1000), self.scale.customers + 1);
            let values = format!("{district},{id},{place},0.{tax:04},{ytd},{next}");
            execute(self.conn, &format!("INSERT INTO district VALUES ({values})"))?;
            self.customers(district)?;
            self.orders(district)?;
            execute(self.conn, "COMMIT")?;
            bar.inc(1);
        }
        Ok(())
    }

    /// Name, two streets, city, state and zip code.
    fn place(&mut self) -> String {
        let random = &mut *self.random;
        let name = text(random, 6, 10);
        format!("'{name}',{}", address(random))
    }

    fn stock(&mut self) -> Result<()> {
        let (warehouse, random) = (self.warehouse, &mut *self.random);
        let mut stock = Inserter::new(self.conn, "stock");
        for item in 1..=self.scale.items {
            let quantity = random.u32(10..=100);
            let districts: Vec<_> = (0..DISTRICTS).map(|_| text(random, 24, 24)).collect();
            let (districts, data) = (districts.join("','"), data(random));
            stock.row(format_args!("{item},{warehouse},{quantity},'{districts}',0,0,0,'{data}'"))?;
        }
        stock.flush()
    }

    fn customers(&mut self, district: u32) -> Result<()> {
        let (warehouse, scale, constants) = (self.warehouse, self.scale, self.constants);
        let random = &mut *self.random;
        let mut customers = Inserter::new(self.conn, "customer");
        for customer in 1..=scale.customers {
            let last = last_name_load(random, &constants, scale.customers, customer);
            let (first, address, phone) = (text(random, 8, 16), address(random), digits(random, 16));
            let credit = if random.u32(0..10) == 0 { "BC" } else { "GC" };
            let (discount, data) = (random.u32(0..=5000), text(random, 300, 500));
            customers.row(format_args!(
                "{customer},{district},{warehouse},'{first}','OE','{last}',{address},'{phone}',NOW(),'{credit}',50000,\
                 0.{discount:04},-10,10,1,0,'{data}'"
            ))?;
        }
        customers.flush()?;
        let mut history = Inserter::new(self.conn, "history");
        for customer in 1..=scale.customers {
            let data = text(random, 12, 24);
            history.row(format_args!(
                "{customer},{district},{warehouse},{district},{warehouse},NOW(),10,'{data}'"
            ))?;
        }
        history.flush()
    }

    /// One order per customer, in random order; the last three in ten are not delivered.
    fn orders(&mut self, district: u32) -> Result<()> {
        let (warehouse, scale, random) = (self.warehouse, self.scale, &mut *self.random);
        let first_new = scale.first_new_order();
        let mut customers: Vec<u32> = (1..=scale.customers).collect();
        random.shuffle(&mut customers);
        let lines: Vec<u32> = customers.iter().map(|_| random.u32(5..=15)).collect();
        let mut orders = Inserter::new(self.conn, "orders");
        for (order, (customer, count)) in (1..).zip(customers.iter().zip(&lines)) {
            let carrier = if order < first_new { random.u32(1..=10).to_string() } else { "NULL".to_owned() };
            orders
                .row(format_args!("{order},{district},{warehouse},{customer},NOW(),{carrier},{count},1"))?;
        }
        orders.flush()?;
        let mut new_orders = Inserter::new(self.conn, "new_order");
        for order in first_new..=scale.customers {
            new_orders.row(format_args!("{order},{district},{warehouse}"))?;
        }
        new_orders.flush()?;
        let mut order_lines = Inserter::new(self.conn, "order_line");
        for (order, count) in (1..).zip(&lines) {
            for line in 1..=*count {
                let (item, info) = (random.u32(1..=scale.items), text(random, 24, 24));
                let (delivered, amount) =
                    if order < first_new { ("NOW()", 0) } else { ("NULL", random.i64(1..=999_999)) };
                order_lines.row(format_args!(
                    "{order},{district},{warehouse},{line},{item},{warehouse},{delivered},5,{},'{info}'",
                    decimal(amount)
                ))?;
            }
        }
        order_lines.flush()
    }
}

/// Two streets, city, state and zip code.
fn address(random: &mut Rng) -> String {
    let (first, second, city) = (text(random, 10, 20), text(random, 10, 20), text(random, 10, 20));
    format!("'{first}','{second}','{city}','{}','{}'", text(random, 2, 2), zip(random))
}
