//! Command lines that are refused before a rank starts. Each message must name the fault and a valid alternative.
//!
//! The command lines go through the parser, the plan with all engines, and the additional checks, all in this process.
//! `crates/tonnage/tests/end_to_end/bad_input.rs` tests that the program prints the message once and exits with code 2.

use crate::habits::check;

/// A line after `#` is the beginning of all command lines below it. Each of these has its own options and, after `=>`,
/// parts of the message.
const REFUSED: &str = r#"
# transfer --ranks 2
--op write --sizes 8 => --engine
--engine shmm --op write --sizes 8 => unknown engine "shmm" | did you mean "shm"?
--engine sockets --op write --sizes 8 => unknown engine "sockets" | null, shm
--engine null --op write --sizes 8 --verify => moves no bytes | or use --engine shm
--engine shm --op wirte --sizes 8 => did you mean "write"?
--engine shm --op write => --sizes is required

# transfer --ranks 2 --engine shm --op write
--sizes 0 => the smallest is --sizes 1
--sizes 8G => the largest is --sizes 1G
--sizes 8..99999999999T => 8..99999999999T
--sizes 1..1G+1 => 1..1G+1
--sizes 8..64+0 => never ends | use 8..64+8
--sizes 8..64*1 => never ends
--sizes 64..8 => use 8..64
--sizes eight => eight
--sizes 8,8 => 8,8
--sizes 8 --sizes 8 => --sizes: the sweep "8,8" has 8 twice
--op wirte --sizes 8 => did you mean "write"?
--sizes 64 --stride 8 => use --stride 64 or more
--sizes 64 --stride 128 --gap 64 => --gap 64 and --stride 128 are mutually exclusive
--sizes 64 --gap 2T => gap 2T is too large
--sizes 64 --local-access fixd => did you mean "fixed"?
--sizes 64 --traffic fan-in --target-footprint shared => --target-footprint shared and --op write are mutually exclusive
--sizes 64 --target-memory smal => did you mean
--sizes 64 --target-memory gpu => gpu
--sizes 64 --target-memory small --traffic all-to-all => every rank is initiator and target: leave --target-memory out, or use --traffic pair
--sizes 4k --chunk 4k => use a smaller chunk, or leave --chunk out
--traffic file --sizes 8 => add --traffic-file FILE
--traffic-file missing.txt => missing.txt | name a file with a row of sizes

# transfer --ranks 2 --engine shm --op write --sizes 8
--place nere => unknown place of pairs "nere" | did you mean "near"?
--place near,near => the same point is asked for twice
--place far --cpus 0 => --cpus 0 and --place far are mutually exclusive
--place near --cpus none => --cpus none and --place near are mutually exclusive
--place far --numa 0 => --numa 0 and --place far are mutually exclusive | on node 0
--depth 0 => the smallest is 1
--depth 8..64+0 => never ends, because its step is 0: use 8..64+8
--batch 0 => the smallest is 1
--batch 2M => the largest is
--batch -1 => "-1" is not a number of bytes
--rate 0 => rate 0 | above 0
--rate 0.1 => less than one operation | trial-time
--rate -5 => "-5" is not a rate
--ping-pong --depth 8 => --ping-pong and --depth 8 are mutually exclusive
--batch 8 --depth 8 => --depth 8 and --batch 8 are mutually exclusive
--batch 8 --rate 9 => --batch 8 and --rate 9 are mutually exclusive
--iters 5 --duration 1s => --iters 5 and --duration 1s are mutually exclusive
--duration 1s --until-ci 2% => --duration 1s and --until-ci 2% are mutually exclusive
--max-duration 1s => add --until-ci 2%
--until-ci 2 => e.g. 2%
--duration 5 => has no unit: e.g. 10ns
--footprint 4 => use --footprint 8 or more
--footprint 9999G => the largest is 1T
--threads 0 => the fewest is --threads 1
--latency maybe => use on or off
--bound fast => use auto, none or a bandwidth
--scale 0 => write a number above 0
--format tabel => table
--traffic fanout => did you mean "fan-out"?
--traffic all-to-all --ping-pong => or --op read
--control-interface lo => leave --control-interface out
--interval -1s => --interval: "-1s" is not a number
--stress => has no option --stress | 'tonnage stress --engine NAME
--cpus 1-0 => write 0-1
--cpus 3-1 => goes down
--numa x => write auto, none or a number
--deph 8 => --depth
--memory hots --optional => did you mean "host"?
--memory vram => memories: host
--devices lo => --devices lo has no effect | leave it out
--libfabric embedded => --library libfabric=embedded has no effect
--gpus 0 => no memory of this run leaves that open
--rails stripe => leave it out
--rail-shift 1 => leave it out
--link-speed 1Gb/s => leave it out
--devices-of 0=lo => leave it out
-o a.jsonl --resume b.jsonl => name different files

# transfer --engine shm --op write --sizes 8
--ranks 0 => use --ranks 2
--ranks 1 => needs two ranks | use --ranks 2
 => needs two ranks | use --ranks 2
--ranks 3 => --ranks 4 | --traffic fan-out
--ranks 99999999 => the most is --ranks 65536
--ranks 4 --initiators 4 => use --initiators 3 or less
--ranks 4 --traffic fan-out --initiators 2 => rank 0 alone initiates
--ranks 4 --traffic fan-in --target-shift 1 => leave --target-shift out
--ranks 5 => use --ranks 6, --initiators 2
--ranks 4 --traffic shift --shift 4 => such as --shift 1
--ranks 4 --traffic shift --shift 7 => such as --shift 3
--ranks 4 --shift 1 => leave --shift out, or use --traffic shift
--ranks 4 --traffic all-to-all --matrix disjoint => leave --matrix out, or use --traffic matrix
--ranks 1 --traffic matrix => needs two ranks
--ranks 1025 --traffic matrix => use --matrix disjoint
--ranks 4 --traffic matrix --ping-pong => every rank would both begin and answer
--hosts h0:2 --per-host 3 => --per-host 3 | 2 slots of h0
--hosts h0:2,h1:2 --ranks 3 => --ranks 3 does not fit the 4 ranks | h0 2, h1 2
--hosts h0 => use 2 ranks; the hosts make 1: | --per-host N
--hostfile nosuchfile => --hostfile nosuchfile cannot be read | a host in each line
--ssh ssh => --ssh is about ranks on other hosts | --hosts
--rank 2 --world-size 2 --master a:7 => --rank | rank 2 of 2
--rank 1 --size 2 --master a:7 => --world-size
--ranks 2 --size 8 => 8,8

# transfer --ranks 2 --engine shm --sizes 64
--op read --target-footprint shared => use --traffic fan-in
--op read --access random --local-access fixed --depth 12 --verify => landings overlap | use --depth 1, or leave --verify out

# transfer --engine shm --op write --ranks 4 --sizes 8
--background op=write => add --ping-pong, or a rate such as --rate 1k
--ping-pong --background op=write --threads 1 => use --threads 2 or more
--ping-pong --background op=read,threads=3 --threads 3 => use --threads 4 or more
--ping-pong --background op=write --iters 5 => use --trial-time 200ms in place of --iters
--ping-pong --background op=write --traffic matrix => traffic matrix has rounds
--ping-pong --background pair=other --traffic fan-in => use --traffic pair, or --traffic shift
--ping-pong --background op=write --interval 10ms => are mutually exclusive
--ping-pong --background-rate 1k => --background-rate 1000 needs --background
--ping-pong --background op=write --background-rate 0 => background-rate 0 would move nothing
--ping-pong --background op=write --background-rate 1 => use --trial-time 1s or more
--ping-pong --background size=0 => it is from 1 to 1G
--ping-pong --background size=99T => size=99T of a background is out of range: it is from 1 to 1G
--ping-pong --background size=1G,depth=64 --trial-time 50ms => no path moves 64G in a trial of 50ms: use a smaller depth
    or size, or --trial-time 688ms or more
--ping-pong --background depth=x => is not a number
--ping-pong --background colour=red => is not a key of a background
--ping-pong --background op=write,op=read => is given twice
--ping-pong --background fast => is not a setting of a background
--ping-pong --background op=fly => fly

# transfer --engine shm --op write --ranks 2 --sizes 8
--ping-pong --background pair=other => use more ranks

# transfer --engine shm --ranks 2 --sizes 4k
--op write --depth 4 --batches-in-flight 2 => --batches-in-flight applies to batches, and there are none: leave it out, or use --batch 64
--op write --ping-pong --merge on => merge applies to batches
--op write --batch-call many => batch-call applies to batches, and there are none
--op write --batch 1M --batches-in-flight 4 => use --batches-in-flight 1 or less, or a smaller batch
--op write-imm --batch 8 --merge on => --merge on and --op write-imm are mutually exclusive
--op send --batch 8 --merge on => --merge on and --op send are mutually exclusive
--op write --batch 8 --merge on --gap 8 => use --gap 0, or leave --merge out
--op write --batch 8 --merge on --stride 8k => lie between slots of 4096
--op read --batch 8 --merge on --access random => use sequential for both
--op write --batch 8 --merge on --local-access fixed => use sequential for both
--op write --batch 1 --merge on => a thread's part of a batch or its footprint has one operation
--op write --batch 8 --merge on --footprint 4k => a thread's part of a batch or its footprint has one operation
--op write --batch 4 --batches-in-flight 2 --local-access permuted --verify => use --batches-in-flight 1
--op write --batch 8 --merge o => did you mean
--op write --depth 8 --batch-of rank => batch-of applies to batches, and there are none
--op write --batch 4 --threads 4 --batch-of rank --merge on => a thread's part of a batch or its footprint has one operation
--op send --session on => --api poll has no --op send, because its sessions name the memory at both ends: use --op write-imm, or --api engine
--op write --api engine --session on => leave --api out, or use --api poll
--op write --api async --session fresh => use --api poll, or --session on
--op write --api pol => did you mean "poll"?
--op write --session frsh => did you mean "fresh"?
--op send --chunk 1k => a send needs a receive for each: leave --chunk out, or use --op write-imm
--op write --ping-pong --queue-pairs 2 => leave --queue-pairs out, or use --op write-imm
--op write --ping-pong --chunk 8 => leave --chunk out, or use --op write-imm
--op write --max-chunks 4 => leave --max-chunks out, or use --chunk 64k
--op write --queue-pairs 0 => the fewest is --queue-pairs 1

# transfer --engine shm --op write --ranks 3 --sizes 8
--traffic fan-in --interval 1s => --interval 1s is longer than a trial of 200ms: use --duration 10s
--traffic fan-in --interval 1s --duration 900ms => longer than a trial of 900ms
--traffic fan-in --interval 1ms => the shortest is --interval 10ms
--traffic matrix --interval 100ms => are mutually exclusive
--traffic fan-in --interval soon => soon
--traffic fan-in --checkpoint 1s => --checkpoint 1s needs --interval: add --interval 1s
--traffic fan-in --duration 2s --interval 100ms --checkpoint 10ms => use --checkpoint 100ms or more
--traffic fan-in --duration 2s --interval 100ms --checkpoint 1s => add -o FILE

# transfer --engine fabric:tcp --op write-imm --bidirectional --sizes 64
--ranks 2 --ping-pong => use --depth 1 in place of --ping-pong
--ranks 2 --ping-pong --cq event => use --depth 1 in place of --ping-pong
--ranks 2 --traffic all-to-all => leave --bidirectional out, or use --traffic pair
--ranks 2 --traffic fan-in => --traffic fan-in has none: use --traffic pair
--ranks 2 --traffic in-turn => traffic in-turn has none
--ranks 3 => --traffic pair needs an even number of ranks

# transfer --engine fabric:tcp --ranks 2 --sizes 64
--cq event --op write --rate 100 => --cq event and --rate 100 are mutually exclusive
--cq event --op write --ping-pong => use --op write-imm, or --cq busy
--op write --rails stripe --devices lo => only lo is named: name another
--op write --rail-shift 1 --devices lo => --rail-shift is about several devices
--op send --rails stripe --devices lo,lo => --rails cuts operations
--op write --ping-pong --rails stripe --devices lo,lo => with --rails any part may be the last
--op write --rails striped --devices lo,lo => did you mean "stripe"?
--op write --devices-of 2=lo => --devices-of names rank 2, and there are 2 ranks: the last is rank 1
--op write --devices-of 1=lo --devices-of 1=lo => names the devices of rank 1 twice
--op write --devices-of lo => write RANK=NAMES
--op write --devices all,lo => write all alone
--op write --link-speed fast => is not the speed of a link
--op write --link-speed 1Gb/s --bound none => has no effect on --bound none: leave it out, or use --bound auto
--op write,write-imm --link-speed 1Gb/s --ping-pong => no effect on --ping-pong, which has one operation in flight: leave it out, or use --depth in place of --ping-pong
--op write --traffic all-to-all --rail-shift 1 --devices lo,lo => all initiate
--op write --traffic in-turn --initiators 1 => rank 0 alone initiates

# transfer --op write --sizes 8 --ranks 2
--engine fabric => needs a provider | fabric:shm or fabric:tcp
--engine fabric: => needs a provider
--engine fabric:tcp --engine-option inyect=off => no option "inyect" | did you mean inject
--engine fabric:tcp --engine-option completion=soon => completion=auto|delivery|transmit
--engine fabric:tcp --engine-option shm-writes=cma => shm-writes | fabric:shm | leave it out
--engine fabric:tcp --memory cuda-pinned --engine-option registration=hmem => registration=hmem is about memory of a GPU, and
    with --memory cuda-pinned neither end has any: leave it out, or use --memory cuda
--engine cuda-ipc --ping-pong --memory cuda => use --op write-imm

# transfer --sizes 64
--engine cuda --op write --memory cuda:0 --gpus 0 => no memory of this run leaves that open
--engine cuda --op write --memory cuda --gpus 3-1 => goes down
--engine cuda --op write --memory cuda --engine-option by=dma => by
--engine cuda --op write --memory host --target-memory cuda-pinned --memory-option alloc=vmm => memory host or cuda-pinned has
    no option "alloc"
--engine cuda --op write --memory cuda --memory-option alloc=pool => memory cuda takes alloc=malloc|vmm
--engine cuda,shm --op write --memory cuda => a transfer needs two ranks
--engine cuda --op send --memory cuda => send

# connect --engine shm
--ranks 4 --traffic all-to-all => all-to-all | fan-in
--traffic pair --traffic fan-in => --traffic is given twice

# collective
--backend native:shm --op all-gather --sizes 8 --ranks 4 => the smallest is 16
--backend native:null --op barrier --ranks 2 => write-imm
--backend natve:shm --op barrier --ranks 2 => did you mean
--backend native:shm --op all-reduse --sizes 8 --ranks 2 => all-reduce
--backend native:shm --op broadcast --root 2 --sizes 8 --ranks 2 => root 1
--backend native:shm --op barrier --algorithm ring --ranks 2 => bruck
--backend native:shm --op all-reduce --sizes 8 --root 1 --ranks 2 => root has no effect on all-reduce
--backend native:shm --op barrier --in-place --ranks 2 => in-place has no effect on barrier
--backend native:shm --op barrier --sizes 64 --ranks 2 => sizes has no effect on barrier

# collective --op all-reduce --sizes 8 --ranks 2
--backend mpi --dtype bfloat16 => backend mpi does not support dtype bfloat16
--backend mpi --reduce avg => backend mpi does not support reduce avg
--backend mpi --algorithm ring => without a native backend
--backend mpi --engine-option a=b => without a native backend
--backend mpi --timeout 5ms => --timeout 1s to --timeout
--backend torch => gloo, nccl, mpi, null
--backend torch:glo => did you mean "gloo"
--backend native:shm --python python3 => without a torch
--backend torch:gloo --print-calls --align none => are mutually exclusive
--backend torch:gloo --algorithm ring => without a native backend

# file
--block 4k => --path
--path t --block 10k --transfer 4k => block 10k is not a whole number of transfers of 4k | use --block 8k
--path t --block 10m --transfer 4m => use --block 8M
--path t --block 1k --transfer 4k => use --block 4k
--path t --block -4 => "-4" is not a number of bytes
--path t --block 9999999T => 9999999T
--path t --blcok 4m => --block
--path t --transfer 0 => transfer 0 would move nothing
--path t --segments 0 => the fewest is --segments 1
--path d/ => path d/ is a directory | d/file
--path t --path u => layout shared | layout per-process
--path t --layout shard => did you mean "shared"?
--path t --order random => orders: sequential, shuffled
--path t --fsync ned => did you mean "end"?
--path t --data zero => use random, or compressible=30%
--path t --stripe-count 0 => use a number from 1, or all
--path t --hint romio => such as romio_cb_write=disable
--path t --hint a=b => --engine posix does not support --hint
--path t --collective => --engine posix does not support --collective
--path t --file-view => --engine posix does not support --file-view
--path t --depth 8 => one transfer at a time | leave --depth out | engine uring
--path t --engine uring --fsync each => fsync each | use --fsync end, or use --engine posix
--path t --direct --block 1000 --transfer 1000 => multiples of 512 bytes | use --transfer 1k
--path t --engine posx => did you mean "posix"?
--path t --engine shm => unknown engine "shm"
--path t --phases write,wirte => did you mean "write"?
--path t --phases read,read => phases has read twice
--path t --phases mixed => add --read-percent 70
--path t --read-percent 100 => read-percent 100
--path t --read-shift 1 => one rank | --ranks 2
--path t --ranks 2 --read-shift 2 => read-shift 1 or less
--path t --wear-out => add --stonewall 30s
--path t --stonewall-status s => add --stonewall 30s
--path t --stonewall 1us => the shortest is
--path t --stonewall 5 => has no unit: e.g. 10ns
--path t --phases write --drop-caches => add read to --phases
--path t --phases write --verify=read => add read to --phases
--path t --verify=wirte => did you mean "write"?
--path t --directory-per-rank => layout per-process
--path t --data compressible=100% => compressible=100%
--path t --threads 9 => threads 9 | threads 4 or less
--path t --block 15 --transfer 1 => block 15 | use --block
--path t --ranks 2 --block 4 --transfer 4 => block 4 | use --block
--path t --ranks 3 --block 1 --segments 6 --transfer 1 --layout per-process => block 1 | use --block

# ior --ranks 2
-M 2g => -M of IOR is not supported by tonnage | --posix.odirect
-b 3m -t 2m => -b 3145728 is not a multiple of -t 2097152 | use a multiple
-a HDF5 => HDF5 | -a MPIIO
-C -Q 2 => leads back to a task's own data | use -Q 1
-N 3 => -N 3 and --ranks 2 | leave one of them out
-O summaryFile=nowhere/s => nowhere | mkdir -p
-O summaryFormat=CSV --format csv => summaryFormat | summaryFile
-w -o => -o needs a value | --help
--runs 2 -o t => --runs

# stress
--engine shn --ranks 2 => did you mean "shm"?
--engine null --ranks 2 => use one that does, such as shm
--engine shm,shm --ranks 2 => is named twice
--engine shm => use --ranks 2 to --ranks
--engine shm --ranks 1 => use --ranks 2 to --ranks
--engine shm --ranks 2 --duration 0 => the shortest is --duration 1ms
--engine shm --ranks 2 --duration 1000h => the longest is --duration 168h
--engine shm --ranks 2 --seed one => is not a number
--engine shm --ranks 2 --max-size 0 => the smallest is --max-size 1
--engine shm --ranks 2 --max-size 2G => the largest is --max-size 1G
--engine shm --ranks 2 --threads 0 => use --threads 1 to --threads 1024
--engine shm --ranks 2 --memory hots => did you mean "host"?
--engine shm --ranks 2 --op wirte => write
--engine shm --ranks 2 --devices eth0 => leave it out

# tune --engine shm --op write --sizes 64k --ranks 2
--depth 2000000,3000000 => the largest is | --depth 2000000 | --depth 3000000
--goal speed => speed
--traffic-file m.txt => m.txt
--trial-time 1ns => trial-time
--ping-pong --depth 4,8 => --ping-pong and --depth 4,8 are mutually exclusive
--ping-pong --batch 7 => --ping-pong and --batch 7 are mutually exclusive
--goal bandwidth --rate 10k => already fixes the bandwidth
--goal latency --depth 8 --batch 8 => cannot compete

# verify
--ranks 1 => needs two ranks
--engine null => moves no bytes
--engine shn => did you mean "shm"?
--sizes 0 => the smallest is --sizes 1
--collectives --engine shm => --collectives and --engine are mutually exclusive
--backend native:shm => --collectives
--collectives=barrier => moves no bytes
--collectives=send-recv-pairs --ranks 3 => even number
--collectives --backend natve:shm => did you mean
--collectives --sizes 4 --backend native:shm --ranks 3 => the smallest is 12

# layers
--ranks 3 => use --ranks 4
--backend native:shm => --engine
--backend torch:glo => gloo
--engine null => write-imm
--sizes 2 => less than one element
--runs 2 --sizes 8 => --runs
--hosts h0,h1,h2 --sizes 64 => use 4 ranks; the hosts make 3:
"#;

/// Returns the message of a command line that must be refused.
fn refusal(line: &str) -> String {
    let words = std::iter::once("tonnage").chain(line.split_whitespace());
    let words: Vec<_> = words.map(str::to_owned).collect();
    let Err(error) = check(&words) else {
        panic!("{line} is not refused");
    };
    assert_eq!(error.exit_code(), 2, "{line}: {error}");
    error.to_string()
}

#[test]
fn each_message_has_the_fault_and_a_valid_alternative() {
    let mut command = "";
    let mut lines = REFUSED.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(begin) = line.strip_prefix("# ") {
            command = begin;
            continue;
        }
        let Some((options, parts)) = line.split_once("=> ") else {
            assert!(line.is_empty(), "{line}");
            continue;
        };
        let mut parts = parts.to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with("    ")) {
            parts = format!("{parts} {}", more.trim());
        }
        let line = format!("{command} {options}");
        let message = refusal(&line);
        for part in parts.split(" | ") {
            assert!(message.contains(part), "no {part:?} of {line}: {message}");
        }
    }
}
