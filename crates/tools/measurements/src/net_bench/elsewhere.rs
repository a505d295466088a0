//! Clients in another network namespace, over a pair of veth: TCP in user space and the kernel's.

use redoubt_test_support::{NetworkPair, Side};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::server::Server;

use super::{Options, Way, compare, config, prepare, sysbench, with_library};

const PORT: u16 = 3306;
/// The server's, of [`NetworkPair`].
const ADDRESS: &str = "10.79.0.1";

fn server(pair: &NetworkPair, launcher: Launcher, options: &Options) -> Result<Server> {
    let mut config = config(launcher)
        .server_arg("--skip-networking=0")
        .server_arg("--skip-name-resolve")
        .server_arg(format!("--port={PORT}"));
    if options.pool_of_threads {
        config = config.server_arg("--thread-handling=pool-of-threads");
    }
    config.network = Some(pair.name(Side::Server));
    let server = Server::create(config)?;
    prepare(&server)?;
    Ok(server)
}

pub(super) fn measure(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let pair =
        || NetworkPair::create().ok_or_else(|| Error::Unavailable("network namespaces need root".to_owned()));
    let (plain_pair, own_pair) = (pair()?, pair()?);
    let plain = server(&plain_pair, Launcher::Stock, options)?;
    let library = with_library(&["--collapser", "off", "--user-tcp", NetworkPair::INTERFACE])?;
    let own = server(&own_pair, library, options)?;
    let address = [&format!("--mysql-host={ADDRESS}"), &format!("--mysql-port={PORT}"), "--mysql-user=bench"];
    let way = |name, server, pair: &NetworkPair, settings: &[[&'static str; 2]]| -> Result<Way<'_>> {
        let client = pair.command(Side::Client, sysbench()?.get_program());
        let address = address.map(str::to_owned).to_vec();
        Ok(Way { name, server, settings: settings.to_vec(), client, address })
    };
    let mut ways = [
        way("plain server", &plain, &plain_pair, &[])?,
        way("kernel's TCP beneath XDP", &own, &own_pair, &[["user-tcp", "off"], ["collapser", "off"]])?,
        way(
            "kernel's TCP beneath XDP, collapser on",
            &own,
            &own_pair,
            &[["user-tcp", "off"], ["collapser", "on"]],
        )?,
        way("TCP in user space", &own, &own_pair, &[["user-tcp", "on"], ["collapser", "off"]])?,
    ];
    compare("Clients elsewhere", &mut ways, options, progress)
}
