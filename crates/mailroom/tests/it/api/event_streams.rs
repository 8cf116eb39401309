//! Event streams of a server that is told to stop.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::http::{create_key, serve};
use crate::installation::on_each_database;
use crate::processes::{WAIT_DEADLINE, wait_until};

#[test]
fn stopping_server_ends_its_event_streams() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let key = create_key(place, "acme", "read");
        let (mut server, address) = serve(place);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT_DEADLINE)).unwrap();
        let path = "/v1/events/stream?types=email.received";
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n")
            .unwrap();
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let first = lines.next().unwrap();
        assert!(first.contains("200"), "{first}");

        server.terminate();
        assert!(lines.all(|line| !line.starts_with("id: ")), "it ends without an event");
        wait_until("it has stopped", || server.has_ended());
    });
}
