//! The `redoubt` command. Each sub-command is a module; this file only chooses one and reports errors.
//!
//! Exit codes: 0 done, 1 failed (one line on standard error says what, where and what to do), 2 options that are not understood.

mod args;
mod bench;
mod beneath;
mod certificates;
mod client;
mod device;
mod error;
mod export;
mod import;
mod node;
mod run;
mod show;
mod status;
mod tls;
mod trace;
mod volume;
mod watch;

use args::{Arguments, CertificatesCommand, Command, VolumeCommand};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
        Command::Bench(bench) => bench::run(&bench),
        Command::Trace(trace) => trace::run(&trace),
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
            eprintln!("redoubt: {error}");
            ExitCode::FAILURE
        }
    }
}
