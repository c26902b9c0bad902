//! Trial connections between hosts. An agent listens at the addresses where rank 0 might be met, and the other agents
//! connect.
//!
//! The listener answers with a token of this run. The token is not secret. It distinguishes the right host from another
//! host that has the same address in a network of its own, such as a container bridge.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::channel::{Interest, wait_for};
use tonnage_units::{Error, Result};

/// Time for a connection and its answer. With a second trial of other addresses, the total stays below five seconds.
const TIME: Duration = Duration::from_secs(2);
/// Longest time until a listener notices the end of the trials.
const STEP: Duration = Duration::from_millis(10);

/// Listeners that answer trial connections, each on a thread of its own.
#[derive(Debug)]
pub(super) struct ReachabilityListeners {
    over: Arc<AtomicBool>,
    listeners: Vec<(SocketAddr, JoinHandle<Option<TcpListener>>)>,
}

impl ReachabilityListeners {
    /// Listens on each of these addresses on which listening is possible.
    pub(super) fn listen(addresses: &[IpAddr], port: u16, token: &str) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut listeners = Vec::new();
        let mut last = None;
        for &ip in addresses {
            let opened = TcpListener::bind((ip, port))
                .and_then(|listener| Ok((listener.local_addr()?, listener)));
            let (address, listener) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    let advice = match port {
                        0 => "",
                        _ => " (TONNAGE_PORT; choose another, or leave it out)",
                    };
                    let address = SocketAddr::new(ip, port);
                    let what = format!("rank 0 cannot listen on {address}{advice}");
                    last = Some(Error::io(what, error));
                    continue;
                }
            };
            let (over, token) = (Arc::clone(&over), token.to_owned());
            let thread = std::thread::Builder::new()
                .name("trial".into())
                .spawn(move || answer_attempts(listener, &token, &over))
                .map_err(|error| Error::start_error("a thread", &error))?;
            listeners.push((address, thread));
        }
        match (listeners.is_empty(), last) {
            (true, Some(error)) => Err(error),
            (true, None) => Err(Error::Failed(
                "this host has no address that others could reach".into(),
            )),
            _ => Ok(Self { over, listeners }),
        }
    }

    /// Returns the addresses on which it listens.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|(address, _)| *address).collect()
    }

    /// Ends all trials, and returns the listener on this address.
    pub(super) fn into_listener(self, wanted: SocketAddr) -> Option<TcpListener> {
        self.over.store(true, Ordering::Relaxed);
        let mut found = None;
        for (address, thread) in self.listeners {
            let listener = thread.join().ok().flatten();
            found = found.or(listener.filter(|_| address == wanted));
        }
        found
    }
}

/// Answers connections until `over` is set, and then returns the listener.
fn answer_attempts(listener: TcpListener, token: &str, over: &AtomicBool) -> Option<TcpListener> {
    listener.set_nonblocking(true).ok()?;
    while !over.load(Ordering::Relaxed) {
        wait_for(&[Interest::read(&listener)], STEP).ok()?;
        if let Ok((mut stream, _)) = listener.accept() {
            // The write does not wait, because a peer that cannot take a few bytes at once is not another agent.
            let _ = stream.set_nonblocking(true);
            let _ = stream.write_all(token.as_bytes());
        }
    }
    Some(listener)
}

/// Connects to all addresses at once. Returns, for each, why it was not reached; `None` if it was reached.
pub(super) fn try_to_reach(addresses: &[SocketAddr], token: &str) -> Vec<Option<String>> {
    std::thread::scope(|scope| {
        let start = |&address: &SocketAddr| {
            let tried = move || reach_one(address, token);
            let started = Builder::new().spawn_scoped(scope, tried);
            started.map_err(|error| Error::start_error("a thread", &error).to_string())
        };
        let tries: Vec<_> = addresses.iter().map(start).collect();
        let joined = tries.into_iter().map(|started| match started {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Some("the trial broke".to_owned())),
            Err(why) => Some(why),
        });
        joined.collect()
    })
}

fn reach_one(address: SocketAddr, token: &str) -> Option<String> {
    let until = Instant::now() + TIME;
    let mut stream = match TcpStream::connect_timeout(&address, TIME) {
        Ok(stream) => stream,
        Err(error) => return Some(error.to_string()),
    };
    let left = until.saturating_duration_since(Instant::now());
    let mut heard = vec![0; token.len()];
    let limited = stream.set_read_timeout(Some(left.max(STEP)));
    let read = limited.and_then(|()| stream.read_exact(&mut heard));
    match read {
        Ok(()) if heard == token.as_bytes() => None,
        Ok(()) => Some("another program answers there".to_owned()),
        Err(error) => Some(format!("no answer: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn only_the_right_token_counts_as_reached() {
        let trials =
            ReachabilityListeners::listen(&[Ipv4Addr::LOCALHOST.into()], 0, "word").unwrap();
        let [address] = trials.addresses()[..] else {
            panic!("one address")
        };
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let closed = closed.and_then(|listener| listener.local_addr()).unwrap();
        assert_eq!(try_to_reach(&[address], "word"), [None]);
        let failures = try_to_reach(&[address, closed], "else");
        let failures: Vec<String> = failures.into_iter().flatten().collect();
        assert!(failures[0].contains("another program"), "{failures:?}");
        assert!(failures[1].contains("refused"), "{failures:?}");
        let listener = trials.into_listener(address).unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
    }

    #[test]
    fn an_address_of_another_host_is_left_out() {
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        let trials =
            ReachabilityListeners::listen(&[other, Ipv4Addr::LOCALHOST.into()], 0, "word").unwrap();
        assert_eq!(trials.addresses().len(), 1);
        assert!(
            trials
                .into_listener("192.0.2.1:1".parse().unwrap())
                .is_none()
        );
        let error = ReachabilityListeners::listen(&[other], 0, "word").unwrap_err();
        assert!(error.to_string().contains("192.0.2.1"));
    }
}
