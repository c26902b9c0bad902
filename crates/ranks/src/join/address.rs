//! Finds the addresses on which rank 0 and other parents listen. Connecting to these addresses is in
//! [`super::connection`].
//!
//! No rank listens on more interfaces than needed. Rank 0 listens on the address of `MASTER_ADDR`, which must be its
//! own, or on that of a chosen interface. Other parents listen on the address from which they reached rank 0.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::Joiner;
use crate::bootstrap::options::JoinOptions;
use crate::channel::Channel;
use crate::signals::Signals;
use tonnage_units::identity::{AddressSource, Identity, Meeting};
use tonnage_units::{Error, Result};

/// Why rank 0 cannot listen on its address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// This host does not have the address.
    #[error(
        "rank 0 should listen on {host} ({ip}), but this host ({}) has no such address: {}",
        tonnage_sys::host::name(),
        .source_of.suggest_other_host()
    )]
    NotHere {
        ip: IpAddr,
        /// The address as the user gave it.
        host: String,
        source_of: AddressSource,
    },
    /// Another process listens on the address.
    #[error(
        "rank 0 cannot listen on {address}: another process does (a launcher, or another run). {}",
        .source_of.suggest_other_port()
    )]
    PortBusy {
        address: SocketAddr,
        source_of: AddressSource,
    },
    /// On this host, its own name resolves to a loopback address, which other hosts cannot reach.
    #[error(
        "{} is {ip} on rank 0's own host, which other hosts cannot reach: give --control-interface NAME, or the address itself in \
         place of the name",
        .source_of.host(.host)
    )]
    Loopback {
        ip: IpAddr,
        host: String,
        source_of: AddressSource,
    },
    /// Any other system error.
    #[error(transparent)]
    System(Error),
}

impl From<ListenError> for Error {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::NotHere { .. } | ListenError::Loopback { .. } => {
                Self::Usage(error.to_string())
            }
            ListenError::PortBusy { .. } => Self::Failed(error.to_string()),
            ListenError::System(error) => error,
        }
    }
}

/// Pause between two attempts to reach a rank.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// Returns rank 0's listening socket. Some names, such as a pod's own, become known only after this process has
/// started. So resolving is retried until the join deadline.
pub(super) fn root_listener(joiner: Joiner<'_>, signals: &mut Signals) -> Result<TcpListener> {
    let Joiner {
        identity, options, ..
    } = joiner;
    let (host, port, source) = match &identity.meeting {
        Meeting::Alone | Meeting::Exchange(_) | Meeting::FirstHost { .. } => {
            return Err(Error::Usage(
                "there are several ranks, but no address where they meet".into(),
            ));
        }
        Meeting::Local { control } => return inherited_listener(*control),
        Meeting::Master { host, port, source } => (host, *port, *source),
    };
    let addresses = if let Some(name) = &options.interface {
        vec![SocketAddr::new(interface_address(name, None)?, port)]
    } else {
        let deadline = Instant::now() + options.join_timeout;
        retry_until_resolved(|| resolve(host, port, source), deadline, signals)?
    };
    let mut last = None;
    for address in addresses {
        match bind(address, identity, host, source) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    let none = || Error::Usage(format!("{} resolves to no address", source.host(host)));
    Err(last.map_or_else(none, Error::from))
}

/// Returns the listening socket that tonnage passed to its rank 0 as standard input.
fn inherited_listener(control: SocketAddr) -> Result<TcpListener> {
    let stdin = io::stdin();
    let is_listening = rustix::net::sockopt::socket_acceptconn(stdin.as_fd()).unwrap_or(false);
    if !is_listening {
        return Err(Error::Usage(format!(
            "TONNAGE_RANK=0 TONNAGE_CONTROL={control} are set, but standard input is not the listening socket: these \
             variables are for ranks that `tonnage --ranks` starts; unset them"
        )));
    }
    let copy = stdin
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Error::io("cannot take the listening socket", error))?;
    Ok(TcpListener::from(copy))
}

/// Retries `ask` until it succeeds. After the deadline, returns the error of the last attempt.
fn retry_until_resolved<T>(
    mut ask: impl FnMut() -> Result<T>,
    deadline: Instant,
    signals: &mut Signals,
) -> Result<T> {
    let mut told = false;
    loop {
        let error = match ask() {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        let now = Instant::now();
        if now >= deadline {
            return Err(error);
        }
        if !told {
            let left = deadline - now;
            log::warn!("{error}; rank 0 asks again for at most {left:.0?}");
            told = true;
        }
        pause_unless_interrupted(RETRY.min(deadline - now), signals)?;
    }
}

/// Waits for `time`; fails if a signal ends the run.
pub(crate) fn pause_unless_interrupted(time: Duration, signals: &mut Signals) -> Result<()> {
    signals.wait([], time).map(|_| ())
}

fn bind(
    address: SocketAddr,
    identity: &Identity,
    host: &str,
    source: AddressSource,
) -> Result<TcpListener, ListenError> {
    let local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if address.ip().is_loopback() && !local {
        // Debian lists a host's own name as 127.0.1.1 in /etc/hosts.
        let trap = ListenError::Loopback {
            ip: address.ip(),
            host: host.to_owned(),
            source_of: source,
        };
        let is_small = |local_size: u32| local_size < identity.size;
        if identity.local_size.is_some_and(is_small) {
            return Err(trap);
        }
        log::warn!("{trap}");
    }
    listen_on(address, host, source)
}

/// Listens on exactly this address. `host` is the user's name for it, for errors.
pub(crate) fn listen_on(
    address: SocketAddr,
    host: &str,
    source: AddressSource,
) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable => ListenError::NotHere {
            ip: address.ip(),
            host: host.to_owned(),
            source_of: source,
        },
        io::ErrorKind::AddrInUse => ListenError::PortBusy {
            address,
            source_of: source,
        },
        _ => {
            let attempt = format!("rank 0 cannot listen on {address}");
            ListenError::System(Error::io(attempt, error))
        }
    })
}

pub(super) fn resolve(host: &str, port: u16, source: AddressSource) -> Result<Vec<SocketAddr>> {
    let failed = |error| {
        let host = source.host(host);
        Error::io(format!("cannot find the address of {host}"), error)
    };
    Ok((host, port).to_socket_addrs().map_err(failed)?.collect())
}

/// Returns an address of an interface that needs no scope, preferably of the same family as `like`.
pub(crate) fn interface_address(name: &str, like: Option<IpAddr>) -> Result<IpAddr> {
    let mut own = interface_addresses(name)?;
    own.sort_by_key(|ip| ip.is_ipv4() != like.is_none_or(|like| like.is_ipv4()));
    // The list is not empty, because `interface_addresses` fails if there are no addresses.
    own.first()
        .copied()
        .ok_or_else(|| no_interface_error(name, &[]))
}

/// Returns all addresses of an interface that need no scope, IPv4 first.
pub(crate) fn interface_addresses(name: &str) -> Result<Vec<IpAddr>> {
    let all = tonnage_sys::interfaces::addresses()
        .map_err(|error| Error::io("cannot list the network interfaces", error))?;
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    let own = all.iter().filter(|entry| entry.name == name);
    let mut own: Vec<IpAddr> = own.map(|entry| entry.address).filter(usable).collect();
    own.sort_by_key(IpAddr::is_ipv6);
    if own.is_empty() {
        let with_one = all.iter().filter(|entry| usable(&entry.address));
        let mut names: Vec<&str> = with_one.map(|entry| entry.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        return Err(no_interface_error(name, &names));
    }
    Ok(own)
}

fn no_interface_error(name: &str, there_are: &[&str]) -> Error {
    let host = tonnage_sys::host::name();
    let why = match tonnage_sys::interfaces::index(name) {
        Some(_) => format!(
            "it is down on {host}, or has no address that other hosts can use (fe80::… are of its own link): run \
             `ip link set {name} up` and `ip addr add ADDRESS/BITS dev {name}`"
        ),
        None => format!("{host} has no such interface"),
    };
    Error::Usage(format!(
        "--control-interface {name}: {why}; interfaces with an address: {}",
        there_are.join(", ")
    ))
}

/// Listens on loopback, where all processes of this host can meet. Fails with advice if loopback is not usable.
pub(crate) fn loopback_listener() -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrNotAvailable => ": run `ip addr add 127.0.0.1/8 dev lo`",
            _ => "",
        };
        Error::io(format!("cannot listen on 127.0.0.1{advice}"), error)
    })?;
    // Connecting a UDP socket looks up the route without sending anything.
    let way = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        let address = listener.local_addr()?;
        socket.connect(address).map(|()| address)
    });
    let address = way.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NetworkUnreachable => ": run `ip link set lo up`",
            _ => "",
        };
        Error::io(format!("cannot reach 127.0.0.1{advice}"), error)
    })?;
    Ok((listener, address))
}

/// Opens the listening socket for the children of a rank other than 0, on the address from which the rank reached rank
/// 0.
pub(crate) fn listen_for_children(to_root: &Channel, options: &JoinOptions) -> Result<TcpListener> {
    let mine = to_root.local_addr()?.ip();
    let ip = match &options.interface {
        Some(name) => interface_address(name, Some(mine))?,
        None => mine,
    };
    TcpListener::bind((ip, 0)).map_err(|error| Error::io(format!("cannot listen on {ip}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(local_size: u32) -> Identity {
        Identity {
            local_size: Some(local_size),
            ..crate::testing::identity(0, 2, "127.0.0.1:1".parse().unwrap())
        }
    }

    const SAYERS: [AddressSource; 5] = [
        AddressSource::Option,
        AddressSource::Variable,
        AddressSource::TrainJob,
        AddressSource::Launcher,
        AddressSource::Step,
    ];

    /// Checks the advice for each source of an address. It must name the options that change the address, and no option
    /// without effect.
    fn advises(error: &ListenError, source: AddressSource, wanted: &str) {
        let text = error.to_string();
        assert!(text.contains(wanted), "{source:?}: {text}");
        let misleading = match source {
            AddressSource::Option => &["MASTER_ADDR", "MASTER_PORT", "TONNAGE_PORT"][..],
            AddressSource::Variable => &["--master"],
            AddressSource::TrainJob => &["MASTER_PORT", "--master"],
            _ => &["MASTER_ADDR", "MASTER_PORT", "--master"],
        };
        for part in misleading {
            assert!(!text.contains(part), "{source:?}: {text}");
        }
    }

    #[test]
    fn an_address_of_another_host_is_refused_with_its_reason() {
        let wanted =
            "--master must|MASTER_ADDR must|PET_MASTER_ADDR must|--control-interface|--mpi=pmix";
        let wanted = wanted.split('|');
        for (source, wanted) in SAYERS.into_iter().zip(wanted) {
            let error = listen_on("192.0.2.1:1".parse().unwrap(), "n1", source).unwrap_err();
            assert!(matches!(error, ListenError::NotHere { .. }), "{error}");
            advises(&error, source, wanted);
            assert_eq!(Error::from(error).exit_code(), 2);
        }
    }

    #[test]
    fn a_busy_port_error_names_how_to_choose_another() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        for source in SAYERS {
            let wanted = match source {
                AddressSource::Option => "--master HOST:PORT",
                AddressSource::Variable => "MASTER_PORT",
                _ => "TONNAGE_PORT",
            };
            let error = listen_on(address, "127.0.0.1", source).unwrap_err();
            assert!(
                matches!(error, ListenError::PortBusy { address: busy, .. } if busy == address),
                "{error}"
            );
            advises(&error, source, wanted);
        }
    }

    #[test]
    fn a_name_that_means_loopback_is_refused_between_hosts() {
        let bind = |local_size| {
            let address = "127.0.1.1:0".parse().unwrap();
            bind(
                address,
                &identity(local_size),
                "hosta",
                AddressSource::Option,
            )
        };
        let error = bind(1).unwrap_err();
        assert!(matches!(error, ListenError::Loopback { .. }), "{error}");
        assert!(error.to_string().contains("--control-interface"), "{error}");
        advises(&error, AddressSource::Option, "--master hosta");
        bind(2).unwrap();
    }

    #[test]
    fn resolving_is_retried_until_the_deadline() {
        let soon = Instant::now() + Duration::from_secs(20);
        let mut tries = 0;
        let found = retry_until_resolved(
            || {
                tries += 1;
                match tries {
                    3 => Ok(7),
                    _ => Err(Error::Failed("no such name".into())),
                }
            },
            soon,
            &mut Signals::none(),
        );
        assert_eq!((found.unwrap(), tries), (7, 3));
        let begun = Instant::now();
        let options = Duration::from_millis(250);
        let never = || Err::<u8, _>(Error::Failed("no such name".into()));
        let error = retry_until_resolved(never, begun + options, &mut Signals::none()).unwrap_err();
        assert!(begun.elapsed() >= options && error.to_string().contains("no such name"));
    }

    #[test]
    fn an_unknown_interface_error_lists_the_existing_ones() {
        let error = interface_address("nope0", None).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("no such interface"), "{error}");
        assert!(error.contains("interfaces with an address: "), "{error}");
    }
}
