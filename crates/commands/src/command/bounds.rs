//! Upper bounds of this host: the fastest memory copy in a cache and in DRAM, one TCP stream over loopback, and the
//! transfer of a cache line between CPUs. The tour prints these bounds and compares its results with them.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use tonnage_bench::bound::memory_copy;
use tonnage_bench::bound::socket_stream::{
    Stream, StreamDirection, StreamInterval, WaitMethod, pump,
};
use tonnage_bench::canary;
use tonnage_bench::threads;
use tonnage_engine::memory::{CopyRange, CopyRepetitions, Request};
use tonnage_engines::memory::HOST;
use tonnage_loops::walk::SlotWalk;
use tonnage_machine::{Environment, Topology, pin_thread};
use tonnage_plan::transfer::Access;
use tonnage_record::Bound;
use tonnage_record::host_bounds::HostBounds;
use tonnage_sys::clock::Clock;
use tonnage_units::{Error, Result};

/// Size of source and destination together. Both fit the second-level cache of every server CPU of the last ten years.
const IN_CACHE_BYTES: u64 = 256 << 10;

/// The DRAM footprint as a multiple of the last-level cache. It is large, so that little of it stays in the cache.
const DRAM_CACHES: u64 = 4;

/// Range of the DRAM footprint. The lower limit is for hosts with unknown caches, the upper one for little memory.
const DRAM_BYTES: std::ops::RangeInclusive<u64> = (64 << 20)..=(512 << 20);

/// Measured time of the socket stream for each wait method. Before it, the stream runs unmeasured for a third of this
/// time, while the TCP window opens.
const SOCKET_TIME_NS: u64 = 300_000_000;

/// Delay of the start, so that both threads of the socket stream are running by then.
const SOCKET_DELAY_NS: u64 = 5_000_000;

/// Measures all bounds, which takes about two seconds.
pub fn measure(environment: &Environment, topology: &Topology) -> Result<HostBounds> {
    let last_level = environment
        .cpu
        .l3_bytes
        .or(environment.cpu.l2_bytes)
        .unwrap_or(0);
    let dram = (last_level * DRAM_CACHES).clamp(*DRAM_BYTES.start(), *DRAM_BYTES.end());
    Ok(HostBounds {
        copy_in_cache: (copy(IN_CACHE_BYTES, topology)?, IN_CACHE_BYTES),
        copy_in_dram: (copy(dram, topology)?, dram),
        socket_bytes_per_s: socket_stream(topology)?,
        cache_line_ns: cache_line(topology),
    })
}

/// Measures the fastest copy between two ranges of `bytes` bytes each, on a thread pinned to the first CPU.
fn copy(bytes: u64, topology: &Topology) -> Result<Bound> {
    let memory = (HOST.allocate)(&Request {
        bytes: 2 * bytes,
        shared: true,
        ..Request::default()
    })?;
    let rates = on_cpu(topology, 0, || {
        let piece = memory_copy::PIECE_BYTES_MIN;
        let stretch = CopyRange {
            from: 0,
            to: bytes,
            piece_bytes: piece,
            last_piece_bytes: piece,
            stride_bytes: piece,
            pieces: bytes / piece,
            slices: 1,
            slice_bytes: 0,
        };
        let mut walk = SlotWalk::new(Access::Sequential, stretch.slots(), 0);
        let mut slots = || {
            let slot = walk.next_slot();
            (slot, slot)
        };
        memory.copy_rates(
            &stretch,
            &mut slots,
            &Clock::new(),
            CopyRepetitions::default(),
        )
    })?;
    let none = || Error::Failed("host memory has no way to be copied".into());
    memory_copy::describe(&rates, 1, None).ok_or_else(none)
}

/// Runs `work` on a new thread, pinned to the `index`-th CPU of this process. The caller's own pinning does not change.
fn on_cpu<T: Send>(
    topology: &Topology,
    index: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = threads::start(scope, "bound", || {
            if let Some(&cpu) = topology.allowed.get(index) {
                pin_thread(cpu)?;
            }
            work()
        })?;
        thread
            .join()
            .map_err(|_| Error::Failed("a measuring thread died".into()))?
    })
}

/// Measures one stream with the faster wait method. The same loop also measures the bound of TCP engines.
fn socket_stream(topology: &Topology) -> Result<f64> {
    let mut best = 0.0;
    for waiting in WaitMethod::ALL {
        best = f64::max(best, socket_stream_in(waiting, topology)?);
    }
    Ok(best)
}

fn socket_stream_in(waiting: WaitMethod, topology: &Topology) -> Result<f64> {
    let refused = |error| Error::io("the socket stream over 127.0.0.1", error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(refused)?;
    let near = TcpStream::connect(listener.local_addr().map_err(refused)?).map_err(refused)?;
    let (far, _) = listener.accept().map_err(refused)?;
    let clock = Clock::new();
    let start_ns = clock.now_ns() + SOCKET_DELAY_NS;
    let window = StreamInterval::new(start_ns, SOCKET_TIME_NS / 3, SOCKET_TIME_NS, 0);
    let end = |cpu: usize, socket: TcpStream, direction: StreamDirection| {
        let peer = "127.0.0.1".to_owned();
        let stream = Stream {
            socket,
            direction,
            peer,
        };
        on_cpu(topology, cpu, || {
            pump(vec![stream], &window, &clock, waiting)
        })
    };
    std::thread::scope(|scope| {
        let sender = threads::start(scope, "sender", || end(1, near, StreamDirection::Out))?;
        let received = end(0, far, StreamDirection::In);
        let died = |_| Err(Error::Failed("the sending thread died".into()));
        sender.join().unwrap_or_else(died)?;
        received.map(|received| received.bytes_per_s)
    })
}

fn cache_line(topology: &Topology) -> std::result::Result<([u32; 2], f64), String> {
    match topology.allowed[..] {
        [first, second, ..] => {
            canary::one_way_ns([first, second], &Clock::new()).map(|ns| ([first, second], ns))
        }
        _ => Err("this process may use only one CPU".into()),
    }
}
