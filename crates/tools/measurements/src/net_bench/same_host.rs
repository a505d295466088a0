//! Clients on the server's host: TCP, the bypass of TCP, and the unix socket, with the collapser off and on.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::server::Server;

use super::{Options, Way, compare, config, prepare, sysbench, with_library};

/// A port that is free at the moment.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("find a free port"))?;
    Ok(listener.local_addr().map_err(Error::io("find a free port"))?.port())
}

fn server(launcher: Launcher, port: u16, options: &Options) -> Result<Server> {
    let mut config = config(launcher)
        .server_arg("--skip-networking=0")
        .server_arg("--bind-address=127.0.0.1")
        .server_arg(format!("--port={port}"));
    if options.pool_of_threads {
        config = config.server_arg("--thread-handling=pool-of-threads");
    }
    let server = Server::create(config)?;
    prepare(&server)?;
    Ok(server)
}

pub(super) fn measure(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let (plain_port, port) = (free_port()?, free_port()?);
    let plain = server(Launcher::Stock, plain_port, options)?;
    let own = server(with_library(&["--bypass", "--collapser", "off"])?, port, options)?;
    let tcp = |port: u16| {
        ["--mysql-host=127.0.0.1", &format!("--mysql-port={port}"), "--mysql-user=bench"]
            .map(str::to_owned)
            .to_vec()
    };
    let socket = |server: &Server| {
        [format!("--mysql-socket={}", server.socket().display()), "--mysql-user=root".to_owned()].to_vec()
    };
    let bypassed = || -> Result<Command> {
        let mut command = Command::new(find_redoubt()?);
        command.args(["net", "run", "--bypass", "--"]).arg(sysbench()?.get_program());
        Ok(command)
    };
    const OFF: [&str; 2] = ["collapser", "off"];
    const ON: [&str; 2] = ["collapser", "on"];
    let way = |name, server, settings: &[[&'static str; 2]], client, address| Way {
        name,
        server,
        settings: settings.to_vec(),
        client,
        address,
    };
    let mut ways = [
        way("plain server, TCP", &plain, &[], sysbench()?, tcp(plain_port)),
        way("plain server, unix socket", &plain, &[], sysbench()?, socket(&plain)),
        way("TCP, collapser off", &own, &[OFF], sysbench()?, tcp(port)),
        way("TCP, collapser on", &own, &[ON], sysbench()?, tcp(port)),
        way("unix socket, collapser on", &own, &[ON], sysbench()?, socket(&own)),
        way("bypass, collapser off", &own, &[OFF], bypassed()?, tcp(port)),
        way("bypass, collapser on", &own, &[ON], bypassed()?, tcp(port)),
    ];
    compare("Clients on the server's host", &mut ways, options, progress)
}
