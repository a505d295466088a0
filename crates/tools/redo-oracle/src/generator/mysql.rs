//! Statements of the generator as MySQL takes them.
//!
//! The generator writes MariaDB's dialect, and a seed means the same statements for ever. So MySQL's are made from them
//! one by one: sequence tables are ranges of a table of numbers, hash functions that MySQL 9.7 has dropped are taken
//! from SHA2, PAGE_COMPRESSED is COMPRESSION, system-versioned tables are plain ones. Statements without a counterpart
//! (sequences, DELETE HISTORY, columns that change places at once) are left out. A setting that MySQL does not have is
//! sent, and refused.

use super::{Class, DATABASES, Statement};

/// More numbers than any statement asks for.
const NUMBERS: u32 = 12_000;

/// Classes that MySQL has nothing for.
pub const MISSING: [Class; 9] = [
    Class::CreateVersioned,
    Class::VersionedDml,
    Class::DeleteHistory,
    Class::AddVersioning,
    Class::ReorderInstant,
    Class::CreateSequence,
    Class::NextValue,
    Class::AlterSequence,
    Class::DropSequence,
];

/// All of `statements`, as far as MySQL has them. If `is_preparation`, the table of numbers is made after the first,
/// which creates its database.
pub fn statements(statements: Vec<Statement>, is_preparation: bool) -> Vec<Statement> {
    let mut out = Vec::with_capacity(statements.len() + 2);
    for statement in statements {
        let connection = statement.connection;
        out.extend(self::statement(statement));
        if is_preparation && out.len() == 1 {
            let of = |class, sql| Statement { connection, class, sql };
            let database = DATABASES[0];
            out.push(of(
                Class::CreateDynamic,
                format!("CREATE TABLE {database}.numbers (n INT PRIMARY KEY) ENGINE=InnoDB"),
            ));
            out.push(of(
                Class::InsertSelect,
                format!(
                    "INSERT INTO {database}.numbers WITH RECURSIVE s (n) AS (SELECT \
                     /*+ SET_VAR(cte_max_recursion_depth = {NUMBERS}) */ 1 UNION ALL SELECT n + 1 FROM s WHERE n < {NUMBERS}) SELECT n FROM s"
                ),
            ));
        }
    }
    out
}

/// One statement; `None` if MySQL has nothing like it.
pub fn statement(statement: Statement) -> Option<Statement> {
    let Statement { connection, class, sql } = statement;
    let class = match class {
        Class::CreateVersioned => Class::CreateDynamic,
        Class::VersionedDml => Class::Update,
        class if MISSING.contains(&class) => return None,
        class => class,
    };
    Some(Statement { connection, class, sql: text(&sql) })
}

/// The text of a statement.
pub fn text(sql: &str) -> String {
    let mut sql = sql
        .replace(" WITH SYSTEM VERSIONING", "")
        .replace("PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=1", "COMPRESSION='zlib'")
        .replace("PAGE_COMPRESSED=1", "COMPRESSION='zlib'")
        .replace("PAGE_COMPRESSED=0", "COMPRESSION='none'")
        .replace("DEFAULT POINT(1, 1)", "DEFAULT (POINT(1, 1))");
    for (function, bits, digits) in [("MD5(", 256, 32), ("SHA1(", 256, 40)] {
        while let Some(at) = sql.find(function) {
            let Some(end) = closing(&sql, at + function.len()) else { break };
            let argument = sql.get(at + function.len()..end).unwrap_or_default();
            let hash = format!("LEFT(SHA2({argument}, {bits}), {digits})");
            sql.replace_range(at..=end, &hash);
        }
    }
    numbers(&sql)
}

/// Where the parenthesis is closed that was opened before `from`.
fn closing(sql: &str, from: usize) -> Option<usize> {
    let mut depth = 1;
    for (offset, byte) in sql.bytes().enumerate().skip(from) {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(offset);
        }
    }
    None
}

/// `seq_1_to_9` as a range of numbers.
fn numbers(sql: &str) -> String {
    let Some((before, rest)) = sql.split_once("seq_") else { return sql.to_owned() };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (from, rest) = rest.split_at(digits(rest));
    let Some(rest) = rest.strip_prefix("_to_") else { return sql.to_owned() };
    let (to, after) = rest.split_at(digits(rest));
    let database = DATABASES[0];
    format!(
        "{before}(SELECT n AS seq FROM {database}.numbers WHERE n BETWEEN {from} AND {to}) numbers{}",
        numbers(after)
    )
}

#[cfg(test)]
mod tests;
