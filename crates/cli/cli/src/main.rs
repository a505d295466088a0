//! The `redoubt` command. Each sub-command is a module; this file only chooses one and reports errors.
//!
//! Exit codes: 0 done, 1 failed (one line on standard error describes the failure, its place and the remedy), 2
//! invalid options, or options that need another build, 3 `redoubt run --no-takeover` and the volume is another server's.

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use(say, complain)]
extern crate redoubt_console;

mod args;
mod certificates;
#[cfg_attr(not(feature = "experimental-devices"), path = "no_device.rs")]
mod device;
mod doctor;
mod error;
mod export;
mod group;
mod import;
mod logging;
mod manual;
mod net;
mod node;
mod notify;
mod reader;
#[cfg(test)]
mod reference;
mod run;
mod show;
mod signals;
mod status;
mod tls;
mod tool;
mod trace;
mod volume;
mod watch;

use args::{Arguments, CertificatesCommand, Command, LogFormat, VolumeCommand};
use clap::Parser;
use redoubt_console::output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The node has reported its error in its log then.
    let is_reported = matches!(&arguments.command, Command::Node(node) if node.log_format == LogFormat::Json);
    let result = match arguments.command {
        Command::Node(node) => node::run(&node),
        Command::Run(run) => run::run(&run),
        Command::Device { command } => device::run(&command),
        Command::Certificates { command } => match command {
            CertificatesCommand::Create(create) => certificates::create(&create),
            CertificatesCommand::Add(add) => certificates::add(&add),
            CertificatesCommand::Show(show) => certificates::show(&show),
            CertificatesCommand::Remove(remove) => certificates::remove(&remove),
        },
        Command::Status(status) => status::run(&status),
        Command::Group { command } => group::run(&command),
        Command::Net { command } => net::run(&command),
        Command::Bench(_) => tool::BENCH.start(),
        Command::Trace(trace) => trace::run(&trace),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Completions(completions) => {
            manual::completions(&completions);
            Ok(())
        }
        Command::Manual(arguments) => manual::run(&arguments),
        Command::Volume { command } => match command {
            VolumeCommand::Create(create) => volume::create(&create),
            VolumeCommand::List(list) => volume::list(&list),
            VolumeCommand::Show(show) => volume::show(&show),
            VolumeCommand::Delete(delete) => volume::delete(&delete),
            VolumeCommand::Import(import) => import::run(&import),
            VolumeCommand::Export(export) => export::run(&export),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !is_reported {
                complain!("redoubt: {error}");
            }
            ExitCode::from(error.exit_status())
        }
    }
}
