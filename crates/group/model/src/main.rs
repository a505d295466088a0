//! Runs the model at each of its bounds, and with each planted mistake. See README.md.

#![allow(clippy::disallowed_methods, reason = "the time that a run takes; no simulation drives this")]
#![allow(clippy::rc_clone_in_vec_init, reason = "states share what is the same in them")]

mod log;
mod model;
mod runs;
mod state;

fn main() {
    let names: Vec<_> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| name.starts_with(wanted));
    let all = runs::all();
    if !all.iter().any(|run| is_wanted(run.name)) {
        let known: Vec<_> = all.iter().map(|run| run.name).collect();
        eprintln!("no run begins with {}; there are {}", names.join(" or "), known.join(", "));
        std::process::exit(2);
    }
    let mut is_good = true;
    for run in all.into_iter().filter(|run| is_wanted(run.name)) {
        is_good &= run.check();
    }
    std::process::exit(i32::from(!is_good));
}
