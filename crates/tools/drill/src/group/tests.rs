use super::*;

#[test]
fn options_have_the_ports_of_the_member() {
    let addresses = Addresses::reserve().unwrap();
    let cluster =
        Cluster { name: "shop".to_owned(), everybody: String::new(), authority: Some("/ca".into()) };
    let (port, ist_port) = (addresses.group.number(), addresses.ist.number());
    assert_eq!(
        Provider::galera("/galera.so").options_of(&cluster, 0, &addresses),
        format!(
            "base_port={port};redoubt.tls=/ca/member-shop-m0;gmcast.listen_addr=tcp://127.0.0.1:{port};ist.recv_addr=127.0.0.1:{ist_port}"
        )
    );
}

#[test]
fn a_provider_that_is_not_there_is_named() {
    let provider = Provider { library: "/nowhere/provider.so".into(), ..Provider::default() };
    let error = Group::create(&provider, 3, |_| ()).unwrap_err();
    assert!(error.to_string().contains("/nowhere/provider.so"), "{error}");
}
