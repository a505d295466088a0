//! `redoubt certificates create | add | show | remove`.

pub mod args;

use crate::error::{CliError, Result};
use crate::show::{Table, print_json};
use args::{
    CertificatesAddArguments, CertificatesArguments, CertificatesCommand, CertificatesCreateArguments,
    CertificatesNames, CertificatesRemoveArguments, CertificatesShowArguments,
};
use redoubt_certificates::{Bundle, CertificatesError, Wanted};
use redoubt_transport::Identity;
use redoubt_transport::certificate::{now, time_text};

const DAY_S: i64 = 86_400;
/// Certificates that end sooner are pointed out.
const SOON_DAYS: i64 = 30;

/// Does what was asked for.
///
/// # Errors
/// Errors of the sub-command.
pub fn run(arguments: &CertificatesArguments) -> Result<()> {
    match &arguments.command {
        CertificatesCommand::Create(arguments) => create(arguments),
        CertificatesCommand::Add(arguments) => add(arguments),
        CertificatesCommand::Show(arguments) => show(arguments),
        CertificatesCommand::Remove(arguments) => remove(arguments),
    }
}

/// Makes an authority and the first bundles.
///
/// # Errors
/// [`CliError::Usage`] if the files cannot be made.
fn create(arguments: &CertificatesCreateArguments) -> Result<()> {
    let mut wanted = wanted(&arguments.names);
    wanted.administrator = true;
    let made =
        redoubt_certificates::create(&arguments.directory, &wanted, arguments.days, arguments.authority_days);
    let made = made.map_err(|error| failed(&error))?;
    print_made(&made);
    say!(
        "Copy each bundle to the host that needs it, with its modes (scp -p), and keep {} offline: its key can \
         issue certificates.",
        arguments.directory.join("authority").display()
    );
    Ok(())
}

/// Makes further bundles, or renews some.
///
/// # Errors
/// [`CliError::Usage`] if the files cannot be made.
fn add(arguments: &CertificatesAddArguments) -> Result<()> {
    let mut wanted = wanted(&arguments.names);
    wanted.administrator = arguments.administrator;
    let made = redoubt_certificates::add(&arguments.directory, &wanted, arguments.days, arguments.renew);
    print_made(&made.map_err(|error| failed(&error))?);
    if arguments.renew {
        say!("Copy them over the old ones; nodes and servers use them for their next connections.");
    }
    Ok(())
}

/// Shows what there is and until when it is valid.
///
/// # Errors
/// [`CliError::Usage`] if the files cannot be read.
fn show(arguments: &CertificatesShowArguments) -> Result<()> {
    let bundles = redoubt_certificates::show(&arguments.directory).map_err(|error| failed(&error))?;
    if arguments.json {
        let rows: Vec<_> = bundles.iter().map(json).collect();
        return print_json(&rows);
    }
    let mut table = Table::new(&["BUNDLE", "FOR", "HOSTS", "VALID UNTIL", "DAYS LEFT", "SERIAL", "NOTE"]);
    for bundle in &bundles {
        table.row(&[
            name(bundle),
            owner(bundle),
            bundle.facts.hosts.join(","),
            time_text(bundle.facts.not_after),
            days_left(bundle).to_string(),
            bundle.facts.serial_text(),
            note(bundle).to_owned(),
        ]);
    }
    table.print();
    Ok(())
}

/// Makes nodes refuse some.
///
/// # Errors
/// [`CliError::Usage`] if the lists cannot be written.
fn remove(arguments: &CertificatesRemoveArguments) -> Result<()> {
    let lists = redoubt_certificates::remove(&arguments.directory, &arguments.bundles);
    let lists = lists.map_err(|error| failed(&error))?;
    say!("removed {}; nodes and members with the new list reject them. Copy:", arguments.bundles.join(", "));
    for list in lists {
        say!("  {}", list.display());
    }
    say!(
        "into the --tls directory of the node, or the certificate directory of the member. Then restart the \
         node or the server to end existing connections."
    );
    Ok(())
}

fn failed(error: &CertificatesError) -> CliError {
    CliError::Usage(error.to_string())
}

fn wanted(names: &CertificatesNames) -> Wanted {
    let split = |hosts: &String| hosts.split(',').map(|host| host.trim().to_owned()).collect();
    Wanted {
        nodes: names.node.iter().map(split).collect(),
        volumes: names.volume.clone(),
        members: names.member.clone(),
        administrator: false,
    }
}

fn print_made(made: &[Bundle]) {
    for bundle in made {
        let until = time_text(bundle.facts.not_after);
        say!("{}  for {}, valid until {until}", bundle.directory.display(), owner(bundle));
    }
}

fn owner(bundle: &Bundle) -> String {
    match bundle.facts.identity() {
        Some(Identity::Node) => "a node".to_owned(),
        Some(identity) => identity.to_string(),
        None => bundle.facts.subject.clone(),
    }
}

fn name(bundle: &Bundle) -> String {
    bundle.directory.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn days_left(bundle: &Bundle) -> i64 {
    (bundle.facts.not_after - now()).div_euclid(DAY_S)
}

fn note(bundle: &Bundle) -> &'static str {
    match days_left(bundle) {
        _ if bundle.removed => "removed",
        ..=-1 => "EXPIRED",
        0..SOON_DAYS => "renew soon",
        _ => "",
    }
}

fn json(bundle: &Bundle) -> serde_json::Value {
    serde_json::json!({
        "bundle": bundle.directory,
        "for": owner(bundle),
        "hosts": bundle.facts.hosts,
        "not_before": time_text(bundle.facts.not_before),
        "not_after": time_text(bundle.facts.not_after),
        "days_left": days_left(bundle),
        "serial": bundle.facts.serial_text(),
        "removed": bundle.removed,
    })
}
