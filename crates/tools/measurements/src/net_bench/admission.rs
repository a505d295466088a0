//! TPC-C without waits for terminals, on few and on thousands of connections: what a limit on the transactions at once
//! keeps of the best throughput, beside the plain server and the server's own pool of threads.
//!
//! Every server has tables of its own, loaded alike. All clients connect and do ten transactions each, 16 clients at a
//! time, so that their statements are prepared; then all go on at once, and when a quarter as many transactions as
//! clients are done, the window begins. Clients log in as root, who else never waits: for this there are no
//! administrators.

use std::time::Duration;

use indicatif::ProgressBar;
use redoubt_bench::statistics::Latency;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::load::{self, Until, Worker};
use redoubt_workload::product::Product;
use redoubt_workload::server::Server;
use redoubt_workload::tpcc::{self, Scale, Tpcc};

use super::{Options, config, set, with_library};

const SEED: u64 = 1;
/// Transactions of each client before all go on at once, and how many clients do these at a time.
const WARM_TRANSACTIONS: u32 = 10;
const WARM_AT_ONCE: usize = 16;

/// A way to serve many connections.
struct Way {
    name: String,
    server: Server,
    /// The load on this server's tables; it tracks their history.
    load: Tpcc,
    /// Limits to measure with; none: without the library.
    limits: Vec<Option<u32>>,
    runs: u32,
}

fn server(
    product: &Product,
    launcher: Launcher,
    arguments: &[String],
    options: &Options,
) -> Result<(Server, Tpcc)> {
    let mut config = config(launcher).product(product.clone());
    config.server_args.extend(arguments.iter().cloned());
    let server = Server::create(config)?;
    let scale = Scale::small(options.warehouses);
    tpcc::load(&server.socket(), scale, SEED, 2, &ProgressBar::hidden())?;
    let load = Tpcc::begin(&server.socket(), scale, SEED, false)?;
    Ok((server, load))
}

/// The option that makes this server use its pool of threads.
fn pool_arguments(product: &Product) -> Vec<String> {
    let argument = if product.is_mysql() {
        "--plugin-load-add=thread_pool.so"
    } else {
        "--thread-handling=pool-of-threads"
    };
    vec![argument.to_owned()]
}

pub(super) fn measure(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let product = options.server.as_deref().map_or(Ok(Product::MariaDb), Product::in_folder)?;
    let mut way = |name: &str, launcher, arguments: &[String], limits| -> Result<Way> {
        let (server, load) = server(&product, launcher, arguments, options)?;
        progress(&format!("{name}: {} warehouses are loaded", options.warehouses));
        Ok(Way { name: name.to_owned(), server, load, limits, runs: 0 })
    };
    let limits = std::iter::once(None).chain(options.limits.iter().copied().map(Some)).collect();
    let mut ways = [
        way("plain server", Launcher::Stock, &[], vec![None])?,
        way("its pool of threads", Launcher::Stock, &pool_arguments(&product), vec![None])?,
        way("with the library", with_library(&["--admission-administrator", ""])?, &[], limits)?,
    ];
    let mut text = format!(
        "TPC-C on {}, {} warehouses of 300 customers a district and 2,000 items\n\n\
         | connections | | transactions per second | 95th percentile, ms | 99th, ms | deadlocks per second |\n\
         |--:|---|--:|--:|--:|--:|\n",
        product.name(),
        options.warehouses,
    );
    for &connections in &options.many {
        for way in &mut ways {
            for at in 0..way.limits.len() {
                let limit = way.limits.get(at).copied().flatten();
                let line =
                    way.measure(connections, limit, Duration::from_secs(u64::from(options.seconds) * 5))?;
                progress(line.trim_end());
                text.push_str(&line);
            }
        }
    }
    for way in &ways {
        // All acknowledged transactions are present, and the conditions of TPC-C hold.
        way.load.check(&way.server.socket(), u32::MAX)?;
    }
    Ok(text)
}

/// Every client has its statements prepared before it counts: a few clients at a time, as no server is good at more.
fn warm_up(workers: &mut [Box<dyn Worker + '_>]) -> Result<()> {
    let share = workers.len().div_ceil(WARM_AT_ONCE).max(1);
    std::thread::scope(|scope| {
        let warm = |share: &mut [Box<dyn Worker + '_>]| -> Result<()> {
            for worker in share {
                for _ in 0..WARM_TRANSACTIONS {
                    worker.choose();
                    worker.run()?;
                }
            }
            Ok(())
        };
        let threads: Vec<_> =
            workers.chunks_mut(share).map(|share| scope.spawn(move || warm(share))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Error::State("a client panicked".to_owned()))?)
    })
}

impl Way {
    /// One measurement, as a line of the table.
    fn measure(&mut self, connections: u32, limit: Option<u32>, window: Duration) -> Result<String> {
        let name = match (limit, self.limits.len()) {
            (Some(limit), _) => {
                set(&self.server, &["admission", &limit.to_string()])?;
                format!("limit {limit}")
            }
            (None, 1) => self.name.clone(),
            (None, _) => {
                set(&self.server, &["admission", "off"])?;
                format!("{}, no limit", self.name)
            }
        };
        self.runs += 1;
        let socket = self.server.socket();
        let worker = |number| -> Result<Box<dyn Worker>> {
            Ok(Box::new(self.load.client(&socket, number, self.runs)?))
        };
        let mut workers = (0..connections).map(worker).collect::<Result<Vec<_>>>()?;
        warm_up(&mut workers)?;
        let retries = || Ok(self.load.tally().retries());
        let warm_up = u64::from(connections) / 4;
        let done = load::run(workers, warm_up, Until::Elapsed(window), retries, |_| {})?;
        let latency = Latency::of(&done.samples);
        let seconds = done.elapsed.as_secs_f64();
        let [before, after] = done.probes;
        if done.samples.is_empty() {
            return Err(Error::State(format!(
                "{name}, {connections} connections: no transaction in {seconds:.0} s"
            )));
        }
        Ok(format!(
            "| {connections} | {name} | {:.0} | {:.0} | {:.0} | {:.1} |\n",
            done.samples.len() as f64 / seconds,
            latency.p95_ms,
            latency.p99_ms,
            (after - before) as f64 / seconds,
        ))
    }
}
