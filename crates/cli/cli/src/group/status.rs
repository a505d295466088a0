//! `redoubt group status`: a group on a terminal, for programs, or as a web page.

use super::args::GroupStatusArguments;
use super::look::{Look, MemberLook, Observer};
use super::page;
use crate::error::{CliError, Result};
use crate::show::{Table, print_json};
use crate::watch::{self, Watch};
use std::time::{Duration, Instant};

/// Interval between two looks of --wait.
const LOOK: Duration = Duration::from_millis(500);

/// Shows a group.
///
/// # Errors
/// [`CliError::Usage`] if no member answers, or with --check and --wait if not all is well.
pub fn run(arguments: &GroupStatusArguments) -> Result<()> {
    if let Some(listen) = &arguments.listen {
        return page::serve(&arguments.login, listen, arguments.allow_remote, &arguments.host_name);
    }
    let mut observer = Observer::new(&arguments.login)?;
    if arguments.watch {
        let interval = Duration::from_secs(arguments.interval);
        let watch = Watch { interval, limit: arguments.count, json: arguments.json };
        return watch::show(|| observer.look(), &watch, screen, lines);
    }
    let look = match arguments.wait {
        Some(seconds) => wait(&mut observer, Duration::from_secs(seconds))?,
        None => observer.look()?,
    };
    if arguments.json {
        print_json(&look)?;
    } else {
        crate::output::show(format_args!("{}", screen(&look, None)));
    }
    if (arguments.check || arguments.wait.is_some()) && !look.problems.is_empty() {
        return Err(CliError::Usage("not all is well".to_owned()));
    }
    Ok(())
}

/// Waits until all is well; returns the last look.
fn wait(observer: &mut Observer, timeout: Duration) -> Result<Look> {
    let until = Instant::now() + timeout;
    loop {
        let look = observer.look();
        if look.as_ref().is_ok_and(|look| look.problems.is_empty()) || Instant::now() >= until {
            return look;
        }
        std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    }
}

fn ago(member: &MemberLook) -> String {
    match member.heard_ms {
        Some(heard) if heard < 1000 => format!("{heard} ms ago"),
        Some(heard) => format!("{} s ago", heard / 1000),
        None => "-".to_owned(),
    }
}

fn number(value: Option<i64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

const fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// Write sets per second; without an earlier look, nothing.
fn rate(look: &Look, earlier: Option<(Duration, &Look)>) -> Option<f64> {
    let (time, before) = earlier?;
    let more = look.last_ordered.checked_sub(before.last_ordered).filter(|more| *more >= 0)?;
    Some(more as f64 / time.as_secs_f64().max(1e-3))
}

fn screen(look: &Look, earlier: Option<(Duration, &Look)>) -> String {
    let voters = look.members.iter().filter(|member| member.votes).count();
    let per_second = rate(look, earlier).map_or(String::new(), |rate| format!(" ({rate:.0}/s)"));
    let mut text = format!(
        "group {}  {}\n  members       {} of {voters} are there, {} are needed\n  epoch         {}\n  \
         last ordered  {}{per_second}\n\n",
        look.group, look.group_id, look.present, look.needed, look.epoch, look.last_ordered
    );
    let mut table =
        Table::new(&["NAME", "STATE", "VOTES", "SLOTS", "APPLIED", "LAG", "HEARD", "ADDRESS", "CLIENTS"]);
    for member in &look.members {
        table.row(&[
            member.name.clone(),
            member.state.clone(),
            yes(member.votes).to_owned(),
            yes(member.owns_slots).to_owned(),
            number(member.applied),
            number(member.lag),
            ago(member),
            member.address.clone(),
            member.client_address.clone(),
        ]);
    }
    text += &table.text();
    if !look.problems.is_empty() {
        text += "\n";
    }
    for problem in &look.problems {
        text += &format!("! {problem}\n");
    }
    text
}

/// A line for each member.
fn lines(look: &Look, earlier: Option<(Duration, &Look)>) -> String {
    let per_second = rate(look, earlier).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}/s"));
    let line = |member: &MemberLook| {
        format!(
            "{} epoch {} ordered {} {per_second}  {} {}  votes {} slots {} applied {} lag {} heard {}\n",
            look.group,
            look.epoch,
            look.last_ordered,
            member.name,
            member.state,
            yes(member.votes),
            yes(member.owns_slots),
            number(member.applied),
            number(member.lag),
            ago(member)
        )
    };
    look.members.iter().map(line).collect()
}
