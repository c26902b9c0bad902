//! Posting and polling with a session neither allocates nor frees memory. Tests check this over real engines with a
//! counting allocator, for single operations, several in flight, batches, posts without room, and futures.

use std::time::Duration;

use tonnage_sys::counting_alloc::{Counting, Counts, counts};
use tonnage_transfer::{
    AsyncSession, EndpointConfig, Executor, Extent, LocalMemory, Session, Ticket, TransferEndpoint,
    TransferErrorKind, TransferResult, Transport, TransportOptions, Verb,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const OPERATIONS: u64 = 4000;
const TIMEOUT: Duration = Duration::from_secs(30);

const NOTHING: Counts = Counts {
    allocations: 0,
    allocated_bytes: 0,
    frees: 0,
};

/// Two connected endpoints of this thread, and their memories.
struct Pair {
    session: Session,
    other: TransferEndpoint,
    endpoint: TransferEndpoint,
    _memories: [LocalMemory; 2],
}

fn pair(engine: &str) -> TransferResult<Pair> {
    let transport = Transport::open(engine, &TransportOptions::default())?;
    let config = |id| EndpointConfig {
        operations_max: 80,
        ..EndpointConfig::new(id)
    };
    let (one, two) = (
        transport.endpoint(&config(1))?,
        transport.endpoint(&config(2))?,
    );
    let memories = [
        one.allocate("host", 1 << 16)?,
        two.allocate("host", 1 << 16)?,
    ];
    let (to_two, to_one) = (one.address_for(2)?, two.address_for(1)?);
    one.connect(&[to_one], TIMEOUT)?;
    two.connect(&[to_two], TIMEOUT)?;
    Ok(Pair {
        session: one.session(&memories[0], memories[1].remote())?,
        other: two,
        endpoint: one,
        _memories: memories,
    })
}

/// Posts and polls this many operations in some way.
type Work = fn(&Pair, u64) -> TransferResult<()>;

fn one_at_a_time(pair: &Pair, operations: u64) -> TransferResult<()> {
    for at in 0..operations {
        let verb = [Verb::Write, Verb::Read, Verb::WriteImm][at as usize % 3];
        let extent = Extent::new(at % 4096, at % 4096, 64);
        let ticket = pair.session.post(verb, &extent)?;
        while !ticket.poll()? {}
        for end in [&pair.other, &pair.endpoint] {
            while end.arrival()?.is_some() {}
        }
    }
    Ok(())
}

fn depth(pair: &Pair, operations: u64) -> TransferResult<()> {
    let mut tickets: [Option<Ticket>; 64] = [const { None }; 64];
    for at in 0..operations {
        let place = &mut tickets[at as usize % 64];
        if let Some(ticket) = place.take() {
            while !ticket.poll()? {}
        }
        *place = Some(pair.session.write(at % 4096, at % 4096, 64)?);
    }
    pair.endpoint.wait_all(TIMEOUT)
}

fn batches(pair: &Pair, operations: u64) -> TransferResult<()> {
    let extents = [Extent::new(0, 0, 8); 50];
    for _ in 0..operations / 50 {
        pair.session.batch(Verb::Write, &extents)?.wait(TIMEOUT)?;
    }
    Ok(())
}

fn without_room(pair: &Pair, operations: u64) -> TransferResult<()> {
    let held: [Option<Ticket>; 80] = std::array::from_fn(|_| pair.session.write(0, 0, 8).ok());
    for _ in 0..operations {
        let busy = pair.session.write(0, 0, 8).err().map(|error| error.kind());
        assert_eq!(busy, Some(TransferErrorKind::Busy));
    }
    pair.endpoint.wait_all(TIMEOUT)?;
    assert!(held.iter().all(Option::is_some));
    Ok(())
}

/// Allocates once per operation, which the counts must show.
fn allocating(_: &Pair, operations: u64) -> TransferResult<()> {
    (0..operations).for_each(|at| drop(std::hint::black_box(Box::new(at))));
    Ok(())
}

fn counted(engine: &str, work: Work) -> TransferResult<Counts> {
    let pair = pair(engine)?;
    // Run once before counting, because lists grow to the size of the first batch.
    work(&pair, 200)?;
    let before = counts();
    work(&pair, OPERATIONS)?;
    Ok(counts().since(before))
}

#[test]
fn tickets_allocate_nothing() {
    for engine in ["null", "shm"] {
        let works: [(&str, Work); 4] = [
            ("one", one_at_a_time),
            ("depth", depth),
            ("batches", batches),
            ("busy", without_room),
        ];
        for (what, work) in works {
            assert_eq!(counted(engine, work).unwrap(), NOTHING, "{engine} {what}");
        }
    }
}

#[test]
fn futures_allocate_nothing() {
    for engine in ["null", "shm"] {
        let Pair {
            session, endpoint, ..
        } = pair(engine).unwrap();
        let session = AsyncSession::new(session);
        let mut executor = Executor::new(&endpoint);
        let counted = executor.block_on(
            async {
                session.write(0, 0, 8).await?;
                let before = counts();
                for at in 0..OPERATIONS {
                    session.write(at % 4096, at % 4096, 64).await?;
                    session.read(at % 4096, at % 4096, 64).await?;
                }
                Ok::<_, tonnage_transfer::TransferError>(counts().since(before))
            },
            TIMEOUT,
        );
        assert_eq!(counted.unwrap().unwrap(), NOTHING, "{engine}");
    }
}

/// Shows that the counter counts. Otherwise the tests above would pass with a broken counter.
#[test]
fn an_allocation_is_counted() {
    let counts = counted("null", allocating).unwrap();
    assert_eq!((counts.allocations, counts.frees), (OPERATIONS, OPERATIONS));
}
