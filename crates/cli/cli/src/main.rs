//! The `redoubt` command. Each sub-command is a module; this file only chooses one and reports errors.
//!
//! Exit codes: 0 done, 1 failed (one line on standard error describes the failure, its place and the remedy), 2
//! invalid options, or options that need another build. Of `redoubt run`: 3 with `--no-takeover` if the volume is another
//! server's, 4 if the volume is an older copy.
//! An export that leaves out damaged files ends with 2 as well.

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use(say, complain)]
extern crate redoubt_console;

/// The module of a command in a build without its feature: it takes any arguments, and refuses them.
macro_rules! left_out {
    ($feature:tt, $module:ident, $($function:ident($arguments:ident) $command:literal),+) => {
        #[cfg(not(feature = $feature))]
        mod $module {
            use crate::error::Result;
            use redoubt_client::ClientError;

            pub mod args {
                $(pub use crate::tool::ToolArguments as $arguments;)+
            }

            $(pub fn $function(_: &args::$arguments) -> Result<()> {
                Err(ClientError::left_out(concat!("`redoubt ", $command, "`"), $feature).into())
            })+
        }
    };
}

mod args;
#[cfg(feature = "certificates")]
mod certificates;
mod check;
#[cfg_attr(not(feature = "experimental-devices"), path = "no_device.rs")]
mod device;
#[cfg(feature = "doctor")]
mod doctor;
mod error;
mod export;
#[cfg(feature = "group")]
mod group;
mod import;
mod logging;
#[cfg(feature = "manual")]
mod manual;
#[cfg(feature = "net")]
mod net;
mod node;
mod notify;
#[cfg_attr(not(feature = "readers"), path = "no_reader.rs")]
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

left_out!("certificates", certificates, run(CertificatesArguments) "certificates");
left_out!("doctor", doctor, run(DoctorArguments) "doctor");
left_out!("group", group, run(GroupArguments) "group");
left_out!("manual", manual, completions(CompletionsArguments) "completions", run(ManualArguments) "manual");
left_out!("net", net, run(NetArguments) "net");

use args::{Arguments, Command, LogFormat, VolumeCommand};
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
        Command::Certificates(certificates) => certificates::run(&certificates),
        Command::Status(status) => status::run(&status),
        Command::Group(group) => group::run(&group),
        Command::Net(net) => net::run(&net),
        Command::Bench(_) => tool::BENCH.start(),
        Command::Trace(trace) => trace::run(&trace),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Completions(completions) => manual::completions(&completions),
        Command::Manual(arguments) => manual::run(&arguments),
        Command::Volume { command } => match command {
            VolumeCommand::Create(create) => volume::create(&create),
            VolumeCommand::List(list) => volume::list(&list),
            VolumeCommand::Show(show) => volume::show(&show),
            VolumeCommand::Delete(delete) => volume::delete(&delete),
            VolumeCommand::Import(import) => import::run(&import),
            VolumeCommand::Export(export) => export::run(&export),
            VolumeCommand::Check(arguments) => check::run(&arguments),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !(is_reported && logging::has_started()) {
                complain!("redoubt: {error}");
            }
            ExitCode::from(error.exit_status())
        }
    }
}
