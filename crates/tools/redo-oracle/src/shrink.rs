//! Scripts of histories: written, read, and made small by leaving statements out (delta debugging).

use std::path::Path;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::product::FetchedServer;

use super::check::check_whole;
use super::history::{Script, Setup, Workshop};
use super::replay::Defect;
use crate::generator::{Class, Statement};

/// Writes a script: a line for the setup, then a line for each statement, fields separated by tabs.
///
/// # Errors
/// [`Error::Io`].
pub fn write(script: &Script, path: &Path) -> Result<()> {
    let Setup { page_size_bytes, full_crc32, pool_mib, encrypted, server } = script.setup;
    let server = server.map_or("", FetchedServer::name);
    let mut text = format!("setup\t{page_size_bytes}\t{full_crc32}\t{pool_mib}\t{encrypted}\t{server}\n");
    for (part, statements) in [("before", &script.preparation), ("then", &script.statements)] {
        for statement in statements {
            text.push_str(&format!(
                "{part}\t{}\t{}\t{}\n",
                statement.connection,
                statement.class.name(),
                statement.sql
            ));
        }
    }
    std::fs::write(path, text).map_err(Error::io_at("write", path))
}

/// Reads a script.
///
/// # Errors
/// [`Error::Parse`] with the line that is not understood.
pub fn read(path: &Path) -> Result<Script> {
    let text = std::fs::read_to_string(path).map_err(Error::io_at("read", path))?;
    let bad = |line: &str| Error::Parse { what: format!("{}", path.display()), detail: line.to_owned() };
    let mut script = Script {
        setup: Setup {
            page_size_bytes: 16384,
            full_crc32: true,
            pool_mib: 64,
            encrypted: false,
            server: None,
        },
        preparation: Vec::new(),
        statements: Vec::new(),
    };
    for line in text.lines().filter(|line| !line.is_empty()) {
        let fields: Vec<_> = line.splitn(4, '\t').collect();
        match fields.as_slice() {
            ["setup", page_size, full_crc32, rest] => {
                // Older scripts end before the last two.
                let mut rest = rest.split('\t');
                let pool = rest.next().unwrap_or_default();
                let encrypted = rest.next().unwrap_or("false");
                let server = rest.next().filter(|server| !server.is_empty());
                let named = |name| FetchedServer::named(name).ok_or_else(|| bad(line));
                script.setup = Setup {
                    page_size_bytes: page_size.parse().map_err(|_| bad(line))?,
                    full_crc32: full_crc32.parse().map_err(|_| bad(line))?,
                    pool_mib: pool.parse().map_err(|_| bad(line))?,
                    encrypted: encrypted.parse().map_err(|_| bad(line))?,
                    server: server.map(named).transpose()?,
                };
            }
            [part @ ("before" | "then"), connection, class, sql] => {
                let statement = Statement {
                    connection: connection.parse().map_err(|_| bad(line))?,
                    class: Class::named(class).ok_or_else(|| bad(line))?,
                    sql: (*sql).to_owned(),
                };
                if *part == "before" { &mut script.preparation } else { &mut script.statements }
                    .push(statement);
            }
            _ => return Err(bad(line)),
        }
    }
    Ok(script)
}

/// Whether a script still shows the fault: the redo of its whole history differs, or is refused by our replay.
///
/// # Errors
/// Errors that are no finding: a server that does not start.
pub fn fails(workshop: &Workshop, script: &Script, defect: Option<Defect>) -> Result<bool> {
    let recorded = workshop.run(script)?;
    match check_whole(workshop, &recorded, defect) {
        Ok(checked) => Ok(checked.report.differing > 0),
        Err(Error::Violation(_) | Error::Parse { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Leaves out statements as long as the script fails without them, running it at most `runs` times.
///
/// # Errors
/// Those of [`fails`].
pub fn shrink(workshop: &Workshop, script: &Script, defect: Option<Defect>, runs: usize) -> Result<Script> {
    let mut left = runs;
    let mut test = |candidate: &Script| {
        // The first part may have used them all.
        let Some(after) = left.checked_sub(1) else { return Ok((false, 0)) };
        left = after;
        fails(workshop, candidate, defect).map(|failed| (failed, left))
    };
    let mut small = script.clone();
    reduce(&mut small, |script| &mut script.statements, &mut test)?;
    reduce(&mut small, |script| &mut script.preparation, &mut test)?;
    Ok(small)
}

/// Delta debugging of one part of the script: tries to leave out pieces, ever smaller ones.
fn reduce(
    script: &mut Script,
    part: impl Fn(&mut Script) -> &mut Vec<Statement>,
    test: &mut impl FnMut(&Script) -> Result<(bool, usize)>,
) -> Result<()> {
    let mut pieces = 2;
    loop {
        let len = part(script).len();
        if len == 0 {
            return Ok(());
        }
        let piece = len.div_ceil(pieces);
        let mut smaller = false;
        // The end first: most statements follow the fault.
        for start in (0..len).step_by(piece).rev() {
            let mut candidate = script.clone();
            part(&mut candidate).drain(start..(start + piece).min(len));
            let (failed, left) = test(&candidate)?;
            if failed {
                *script = candidate;
                smaller = true;
            }
            if left == 0 {
                return Ok(());
            }
            if smaller {
                break;
            }
        }
        if smaller {
            pieces = pieces.saturating_sub(1).max(2);
        } else if piece == 1 {
            return Ok(());
        } else {
            pieces = (pieces * 2).min(len);
        }
    }
}
