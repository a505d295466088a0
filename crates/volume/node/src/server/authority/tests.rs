use super::*;
use redoubt_wire::view::ViewRequest;

fn volume_requests(volume: &str) -> Vec<Request> {
    let (volume, path) = (volume.to_owned(), "x".to_owned());
    vec![
        Request::Attach { volume: volume.clone(), who: "me".to_owned(), server: None, seen_generation: None },
        Request::List { volume: volume.clone() },
        Request::Fetch { volume: volume.clone(), path: path.clone() },
        Request::FetchTail { volume: volume.clone(), path: path.clone(), from_bytes: 1 },
        Request::ExportBegin { volume: volume.clone() },
        Request::ExportFile { volume: volume.clone(), path, with_damaged: false },
        Request::ExportEnd { volume: volume.clone() },
        Request::VolumeCheck { volume: volume.clone() },
        Request::View { volume, about: ViewRequest::Names { view: 0 } },
    ]
}

fn administrator_requests() -> Vec<Request> {
    vec![
        Request::VolumeCreate { volume: "shop".to_owned(), encrypted: false },
        Request::VolumeDelete { volume: "shop".to_owned(), force: true },
        Request::ImportBegin {
            volume: "shop".to_owned(),
            family: "MariaDB".to_owned(),
            system_files: Vec::new(),
            encrypted: false,
        },
        Request::ImportDirectory { path: "d".to_owned(), mode: 0 },
        Request::ImportFile { path: "f".to_owned(), mode: 0, len_bytes: 0, tablespace: false },
        Request::ImportLog {
            file_size_bytes: 0,
            header: Vec::new(),
            checkpoints: [Vec::new(), Vec::new()],
            start_lsn: 0,
        },
        Request::ImportEnd,
    ]
}

#[test]
fn the_table_holds() {
    let shop = Identity::Volume("shop".to_owned());
    for request in volume_requests("shop") {
        assert!(check_request(&shop, &request).is_ok(), "{request:?}");
        assert!(check_request(&Identity::Administrator, &request).is_ok());
        assert!(check_request(&Identity::Unproven, &request).is_ok());
        assert!(check_request(&Identity::Node, &request).is_err());
        assert!(check_request(&Identity::Volume("shop2".to_owned()), &request).is_err());
        assert!(check_request(&Identity::Volume("sho".to_owned()), &request).is_err());
    }
    for request in administrator_requests() {
        assert!(check_request(&shop, &request).is_err(), "{request:?}");
        assert!(check_request(&Identity::Node, &request).is_err());
        assert!(check_request(&Identity::Administrator, &request).is_ok());
        assert!(check_request(&Identity::Unproven, &request).is_ok());
    }
    assert!(check_volume(&shop, "shop").is_ok() && check_volume(&shop, "").is_err());
}
