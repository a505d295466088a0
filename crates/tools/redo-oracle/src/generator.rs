//! Random histories: statements of every class, from a seed.
//!
//! The generator never asks the server: the same seed and configuration give the same statements, so that a history is
//! its seed, and a part of one can be run again. It keeps a model of the tables it believes to exist ([`model`]);
//! where the server refused a statement the model is wrong for a while, and the statements built on it fail. That
//! costs statements, not soundness, and how many succeeded is counted by class ([`class::Class`]).
//!
//! Several connections take turns, one statement at a time, with lock waits of zero: an interleaving without a race.
//! The statements on rows are in [`rows`], those that begin and end transactions in [`transactions`]. Module [`tables`]
//! creates and removes tables, [`alterations`] changes them, and [`knobs`] has the server settings that change the
//! logged redo. Each history begins with a tour of the statements that chance brings up too seldom. Module [`mysql`]
//! translates the statements for MySQL.

pub mod alterations;
pub mod class;
pub mod knobs;
pub mod model;
pub mod mysql;
pub mod rows;
pub mod tables;
mod tour;
pub mod transactions;

pub use class::Class;
use model::{Session, Table};

/// Connections of a history.
pub const CONNECTIONS: u8 = 4;

/// Databases; the second comes and goes.
pub const DATABASES: [&str; 2] = ["d0", "d1"];

/// Fixed settings of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Seed of the statements.
    pub seed: u64,
    /// Page size of the server in bytes.
    pub page_size_bytes: u32,
    /// Bring undo tablespaces over their limit now and then; costs tens of megabytes of redo each time.
    pub large_undo: bool,
}

/// One statement of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The connection that issues it.
    pub connection: u8,
    /// Its kind.
    pub class: Class,
    /// Its text, on one line. `$FILES` is the directory of [`load_files`].
    pub sql: String,
}

/// Random histories: statements of every class, from a seed.
#[derive(Debug)]
pub struct Generator {
    random: fastrand::Rng,
    config: Config,
    tables: Vec<Table>,
    sessions: Vec<Session>,
    queue: std::collections::VecDeque<Statement>,
    next_name: u32,
    second_database: bool,
    turn: u8,
}

impl Generator {
    /// A generator at its start: there are no tables yet; [`Generator::preparation`] comes first.
    pub fn new(config: Config) -> Self {
        Self {
            random: fastrand::Rng::with_seed(config.seed),
            config,
            tables: Vec::new(),
            sessions: (0..CONNECTIONS).map(|_| Session::default()).collect(),
            queue: std::collections::VecDeque::new(),
            next_name: 0,
            second_database: false,
            turn: 0,
        }
    }

    /// The statements before the base is taken. They create databases, and a table of every storage format, so that
    /// recovery meets tablespaces that are in the base as well as those that only redo contains.
    pub fn preparation(&mut self) -> Vec<Statement> {
        self.emit(Class::CreateDatabase, format!("CREATE DATABASE {}", DATABASES[0]));
        for number in 0..model::FORMATS.len() {
            self.create_table_of_format(number);
            let table = self.tables.len().wrapping_sub(1);
            self.fill(table, 200);
        }
        self.create_special_tables();
        let preparation = self.queue.drain(..).collect();
        self.tour();
        preparation
    }

    fn emit(&mut self, class: Class, sql: String) {
        let connection = self.turn;
        self.queue.push_back(Statement { connection, class, sql });
    }

    fn emit_on(&mut self, connection: u8, class: Class, sql: String) {
        self.queue.push_back(Statement { connection, class, sql });
    }

    /// `prefix` and a number that was not used before.
    fn fresh(&mut self, prefix: &str) -> String {
        self.next_name += 1;
        format!("{prefix}{}", self.next_name)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(..100) < percent
    }

    fn pick<'c, T: ?Sized>(&mut self, choices: &[&'c T]) -> &'c T {
        choices[self.random.usize(..choices.len())]
    }

    /// Number of a table that `fits`.
    fn any_table(&mut self, fits: impl Fn(&Table) -> bool) -> Option<usize> {
        let fitting: Vec<_> =
            self.tables.iter().enumerate().filter(|(_, table)| fits(table)).map(|(at, _)| at).collect();
        (!fitting.is_empty()).then(|| fitting[self.random.usize(..fitting.len())])
    }

    fn step(&mut self) {
        self.turn = self.random.u8(..CONNECTIONS);
        if self.continue_xa() {
            return;
        }
        match self.random.u32(..1000) {
            0..700 => self.row_statement(),
            700..850 => self.transaction_statement(),
            850..885 => self.table_statement(),
            885..975 => self.alteration(),
            975..995 => self.knob(),
            _ => self.rare(),
        }
    }

    fn rare(&mut self) {
        match self.random.u32(..4) {
            0 => self.second_database(),
            1 if self.config.large_undo => self.large_undo(),
            2 => self.sequence_statement(),
            _ => self.temporary_statement(),
        }
    }
}

impl Iterator for Generator {
    type Item = Statement;

    fn next(&mut self) -> Option<Statement> {
        loop {
            if let Some(statement) = self.queue.pop_front() {
                return Some(statement);
            }
            self.step();
        }
    }
}

/// Files for LOAD DATA: name and contents, the same for every history.
pub fn load_files() -> Vec<(String, String)> {
    (0..4u32)
        .map(|number| {
            let mut random = fastrand::Rng::with_seed(u64::from(number));
            let mut text = String::new();
            for _ in 0..60 {
                let id = random.u32(1..4000);
                let length = random.usize(1..60);
                let word: String = (0..length).map(|_| random.lowercase()).collect();
                text.push_str(&format!("{id}\t{}\t{word}\n", random.u32(..1000)));
            }
            (format!("load{number}.txt"), text)
        })
        .collect()
}

#[cfg(test)]
mod tests;
