//! Unpacks and packs the files in `fuzz/corpus`; see `redoubt_fuzz::corpus`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match redoubt_fuzz::corpus::main(&arguments) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if matches!(error, redoubt_fuzz::corpus::CorpusError::Usage) { 2 } else { 1 })
        }
    }
}
