//! Foreign connections to the control port. The run must continue unharmed, and report them once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tempfile::tempdir;

use super::support::{SECRET, Started, free_port, records, tonnage, wait_for_records, wait_until};

fn start(dir: &std::path::Path, rank: u32, port: u16) -> Started {
    let arguments = "transfer --engine shm --op write --sizes 8,64 --trials 2 --trial-time 100ms --bound none -o r.jsonl";
    tonnage(dir, arguments)
        .launched(rank, 2, port)
        .env("TONNAGE_SECRET", SECRET)
        .start()
}

/// Opens connections that send these bytes and stay open.
fn visit(port: u16) -> Vec<TcpStream> {
    let mut visitors = Vec::new();
    let garbage: Vec<u8> = (0..4096u32).map(|i| (i * 31 % 251) as u8).collect();
    for words in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &garbage,
        &[0xff; 64],
        &[0, 0, 0, 0],
        b"",
    ] {
        for _ in 0..8 {
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
                continue;
            };
            stream
                .set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            // tonnage may have closed the connection already.
            let _ = stream.write_all(words);
            let _ = stream.read(&mut [0; 16]);
            visitors.push(stream);
        }
    }
    visitors
}

#[test]
fn strangers_do_not_harm_a_run_and_are_told_of_once() {
    let dir = tempdir().unwrap();
    let port = free_port();
    let root = start(dir.path(), 0, port);
    wait_until("rank 0 listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let before = visit(port);
    assert!(before.len() > 30, "{}", before.len());
    let other = start(dir.path(), 1, port);
    wait_for_records(dir.path(), 1);
    let during = visit(port);
    let (root, other) = (root.end().with_code(0), other.end().with_code(0));
    drop((before, during));
    assert_eq!(records::read(&dir.path().join("r.jsonl")).len(), 2);
    assert_eq!(root.stderr.lines().count(), 1, "{root:#?}");
    let root = root.saying(&["warn: refused a connection from 127.0.0.1"]);
    assert_eq!(root.rows().len(), 2, "{root:#?}");
    assert!(other.stderr.is_empty(), "{other:#?}");
}
