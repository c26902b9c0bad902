//! Options of other benchmarks and their equivalents, one row each. Rows are tried in this order.

/// An option of another benchmark, with all its spellings.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Spellings, separated by spaces.
    pub typed: &'static str,
    /// Whether a value follows.
    pub takes_value: bool,
    /// Equivalent options of tonnage. `{}`, or a kind such as `{size}`, stands for the value. `@name` keeps the value
    /// for the end of the translation. Empty if there is no equivalent.
    pub to: &'static str,
    /// Remark about an option without an equivalent, or about a difference.
    pub remark: &'static str,
    /// Commands to which the row applies, separated by spaces. If empty, the row applies to all commands that have the
    /// options in `to`.
    pub commands: &'static str,
}

const fn row(
    typed: &'static str,
    takes_value: bool,
    to: &'static str,
    remark: &'static str,
) -> Row {
    Row {
        typed,
        takes_value,
        to,
        remark,
        commands: "",
    }
}

const fn flag(typed: &'static str, to: &'static str) -> Row {
    row(typed, false, to, "")
}

const fn value(typed: &'static str, to: &'static str) -> Row {
    row(typed, true, to, "")
}

const fn no_flag(typed: &'static str, remark: &'static str) -> Row {
    row(typed, false, "", remark)
}

const fn no_value(typed: &'static str, remark: &'static str) -> Row {
    row(typed, true, "", remark)
}

const fn only(commands: &'static str, row: Row) -> Row {
    Row { commands, ..row }
}

const MEASURED_ALWAYS: &str = "not needed: it is always measured and is in the record";
const NOT_NEEDED: &str = "not needed";
const PORT: &str = "not needed: ranks find each other over the control channel";
const WARM_UP: &str = "the warm-up is a time here, 50 ms per point (--warmup TIME)";
const UNITS: &str = "not needed: figures are in GB/s, 1e9 bytes; times 8 is Gb/s";

/// Options of other benchmarks in a command line of tonnage.
pub const HABITS: &[Row] = &[
    value(
        "-S -m -l --msg-size --msg_size --msgsize --message-size --message_size --msg-len --sz --bytes --length --len \
         --block-size --block_size --buffer-size --buffer_size --payload --payload-size",
        "--sizes {sweep}",
    ),
    flag("-a --all --all-sizes", "--sizes 2..8M"),
    only(
        "file",
        value(
            "-s --size --sizes --filesize --file-size --file_size -b",
            "--block {size}",
        ),
    ),
    only(
        "stress",
        value(
            "-s --size --sizes --msg-size --max-bytes",
            "--max-size {size}",
        ),
    ),
    only(
        "connect",
        no_value(
            "-s --size --sizes --msg-size",
            "connections carry no payload: sizes are those of `tonnage transfer`",
        ),
    ),
    only(
        "run",
        no_value(
            "-s --size --sizes --msg-size",
            "sizes are in the plan: `tonnage plans NAME` prints one to edit",
        ),
    ),
    only(
        "file",
        value(
            "--bs --blocksize --block-size --block_size --transfer-size --xfer -t",
            "--transfer {size}",
        ),
    ),
    only(
        "file",
        flag("-F --file-per-process --fpp", "--layout per-process"),
    ),
    only("file", flag("-w", "--phases write")),
    only("file", flag("-r", "--phases read")),
    only("file", value("--filename --file -f", "--path {}")),
    only("file", value("--rw --readwrite --op --operation", "{rw}")),
    only("file", value("--ioengine", "--engine {ioengine}")),
    only(
        "file",
        value("--runtime --time --seconds -D", "--stonewall {time}"),
    ),
    only(
        "file",
        value(
            "--io-depth --io_depth --queue-depth --queue_depth --qd -Q -O -W",
            "--engine uring --depth {int}",
        ),
    ),
    only("file", value("--numjobs", "--ranks {int}")),
    only("file", value("--rwmixread", "--read-percent {int}")),
    only(
        "file",
        flag("--odirect --o_direct --posix.odirect -B", "--direct"),
    ),
    only("file", value("--end_fsync", "--fsync end")),
    only("file", flag("-e", "--fsync end")),
    only("file", value("-i", "--trials {int}")),
    only(
        "transfer collective",
        value("-b --minbytes", "@begin {size}"),
    ),
    only("transfer collective", value("-e --maxbytes", "@end {size}")),
    only(
        "transfer collective",
        value("-f --stepfactor --factor", "@factor {int}"),
    ),
    flag(
        "-b --bidir --bi --bi-directional --both --duplex --full-duplex --report-both",
        "--bidirectional",
    ),
    flag("-e --events --use_event", "--cq event"),
    flag("-R --reverse", "--op read"),
    only("collective", value("-i", "--iters {int} --trials 1")),
    value(
        "--iterations --iter --niter --niters --num-iters --num_iters --num-iter --num_iter --num-iterations --count -I",
        "--iters {int} --trials 1",
    ),
    value(
        "-t -D --time --seconds --secs --runtime --run-time --run_time --test-time",
        "--duration {time}",
    ),
    value(
        "-i --report-interval --report_interval",
        "--interval {time}",
    ),
    no_value(
        "-w --warm-up --warmup-iters --warmup_iters --warmup-iterations --warmup_iter -x --skip",
        WARM_UP,
    ),
    value("--omit", "--warmup {time}"),
    value(
        "--num-threads --num_threads --nthreads --nthread --num-workers --num_workers --parallel -P --streams \
         --num-streams",
        "--threads {int}",
    ),
    value(
        "--queue-depth --queue_depth --queuedepth --qd --qdepth --iodepth --io-depth --io_depth --tx-depth --tx_depth \
         --outstanding --inflight --in-flight --window-size --window_size -W -O -Q",
        "--depth {int}",
    ),
    value(
        "-np --np --nprocs --nproc --num-procs --num_procs --num-ranks --num_ranks --ntasks --num-tasks --nranks \
         --processes -N",
        "--ranks {int}",
    ),
    only(
        "collective",
        value("-g --ngpus --num-gpus", "--ranks {int}"),
    ),
    value(
        "-c --host --server --client --peer --connect --hostname --nodes --nodelist",
        "--hosts {peers}",
    ),
    value(
        "--machinefile --machine-file --nodefile --host-file",
        "--hostfile {}",
    ),
    only(
        "collective",
        value("--datatype --data-type --type", "--dtype {dtype}"),
    ),
    value(
        "--device --dev --ib-dev --ib_dev --nic --nics --hca --rdma-dev --rdma-device --net-device --netdev --bind-dev \
         --iface --device-list --device_list -B",
        "--devices {}",
    ),
    value("-p --provider --prov", "--engine fabric:{name}"),
    value("--transport --protocol --network", "--engine {engine}"),
    no_value("-p --port", PORT),
    value(
        "--operation --op-type --op_type --optype --verb --direction",
        "--op {op}",
    ),
    flag(
        "--latency-test --lat --pingpong --ping --pp --ping_pong",
        "--ping-pong",
    ),
    flag("-J --json-output --out_json --jsonl", "--json"),
    flag("--csv", "--format csv"),
    value("--output-format --out-format", "--format {format}"),
    value(
        "--out --outfile --out-file --output-file --output_file --logfile --log-file",
        "--output {}",
    ),
    only("collective", value("-c", "--verify")),
    flag(
        "-c --check --validate --validation --data_validation --data-validation --check_consistency --check-data",
        "--verify",
    ),
    flag("-v --verbose --debug", "--log-level info"),
    value("--gpu --use_cuda --use-cuda --cuda", "--memory cuda:{int0}"),
    flag("--use_cuda --use-cuda --cuda --gpu", "--memory cuda"),
    value("--use_rocm --use-rocm --rocm", "--memory hip:{int0}"),
    flag("--use_rocm --use-rocm --rocm --hip", "--memory hip"),
    flag(
        "--use_hugepages --use-hugepages --hugepages --huge-pages --huge",
        "--memory huge",
    ),
    value(
        "-q --qp --qp-num --num-qp --num-qps --num_qps --num_of_qps --nqp",
        "--queue-pairs {int}",
    ),
    no_value(
        "-x",
        "the GID index of perftest is --engine-option gid=3 here, the warm-up of OSU --warmup TIME",
    ),
    no_value(
        "--gid-index --gid_index --gid",
        "an option of engine verbs:rc: --engine-option gid=3",
    ),
    no_value(
        "--mtu",
        "an option of engine verbs:rc: --engine-option mtu=4096",
    ),
    no_value(
        "--cq-mod --cq_mod",
        "an option of engine verbs:rc: --engine-option signal=16",
    ),
    no_value(
        "--ib-port --ib_port",
        "the port is part of the device's name: --devices mlx5_0:1",
    ),
    no_flag(
        "--server --listen",
        "no server is needed: --hosts n1,n2 starts both ends (`tonnage help launch` has other ways)",
    ),
    only(
        "collective",
        no_value(
            "--factor --stepfactor --step-factor",
            "the factor is part of the sweep: --sizes 8..1G*2",
        ),
    ),
    only(
        "collective",
        no_value("--nthreads", "each rank calls from one thread: --ranks N"),
    ),
    value(
        "--rate-limit --rate_limit --bitrate --bandwidth",
        "--rate {rate}",
    ),
    value(
        "--cpu --cpu-list --cpuset --cores --core --pin --affinity --pin-core --pin_cores -A",
        "--cpus {}",
    ),
    value(
        "--numa-node --numa_node --numanode --cpunodebind --membind",
        "--numa {int0}",
    ),
    value(
        "--repeat --repeats --repetitions --loops --num-runs --nruns --num_runs",
        "--runs {int}",
    ),
    flag("--dryrun --dryRun --dry_run", "--dry-run"),
    value(
        "--batch-size --batch_size --start_batch_size",
        "--batch {int}",
    ),
    value(
        "--randseed --random-seed --random_seed --rand-seed",
        "--seed {int0}",
    ),
    value("--algo", "--algorithm {}"),
    value("--redop --reduce-op --reduce_op", "--reduce {reduce}"),
    no_flag(
        "-F --CPU-freq --force",
        "not needed: CPU frequency is recorded and never asked for",
    ),
    flag("--report_gbits --report-gbits --gbits", "--unit Gb/s"),
    no_flag("--report_mbps", UNITS),
    no_flag("-u --udp", "datagrams are not in this version"),
    no_flag("-U -C --cpu_util --cpu-util --histogram", MEASURED_ALWAYS),
];

/// Options that mean different things in different benchmarks: the option, one of its meanings, and tonnage's option
/// for that meaning. Such an option is refused, and the error lists all meanings that the command has.
pub const AMBIGUOUS: &[(&str, &str, &str)] =
    &[("-n", "ranks", "--ranks"), ("-n", "operations", "--iters")];

/// Values of other benchmarks: tonnage's option, the other benchmark's value, and tonnage's value.
pub const VALUES: &[(&str, &str, &str)] = &[
    ("--engine", "tcp", "fabric:tcp"),
    ("--engine", "ib", "verbs:rc"),
    ("--engine", "rdma", "verbs:rc"),
    ("--engine", "roce", "verbs:rc"),
    ("--engine", "infiniband", "verbs:rc"),
    ("--engine", "ibverbs", "verbs:rc"),
    ("--engine", "rc", "verbs:rc"),
    ("--engine", "ucx", "fabric:ucx"),
    ("--engine", "efa", "fabric:efa"),
    ("--engine", "cxi", "fabric:cxi"),
    ("--engine", "slingshot", "fabric:cxi"),
    ("--engine", "nvlink", "cuda-ipc"),
    ("--engine", "shmem", "shm"),
    ("--engine", "psync", "posix"),
    ("--engine", "io_uring", "uring"),
    ("--backend", "nccl", "torch:nccl"),
    ("--backend", "rccl", "torch:nccl"),
    ("--backend", "gloo", "torch:gloo"),
    ("--backend", "shm", "native:shm"),
    ("--backend", "tcp", "native:fabric:tcp"),
    ("--op", "put", "write"),
    ("--op", "get", "read"),
    ("--op", "writedata", "write-imm"),
    ("--op", "write_imm", "write-imm"),
    ("--op", "write_with_imm", "write-imm"),
    ("--op", "fadd", "fetch-add"),
    ("--op", "cswap", "compare-swap"),
    ("--op", "allreduce", "all-reduce"),
    ("--op", "all_reduce", "all-reduce"),
    ("--op", "allgather", "all-gather"),
    ("--op", "all_gather", "all-gather"),
    ("--op", "alltoall", "all-to-all"),
    ("--op", "reduce_scatter", "reduce-scatter"),
    ("--op", "bcast", "broadcast"),
    ("--op", "sendrecv", "send-recv-ring"),
    ("--op", "reducescatter", "reduce-scatter"),
    ("--op", "put_bw", "write"),
    ("--op", "atomic", "fetch-add"),
    ("--fsync", "1", "end"),
    ("--dtype", "float", "float32"),
    ("--dtype", "half", "float16"),
    ("--dtype", "double", "float64"),
    ("--format", "json", "jsonl"),
];

/// Options for which a bare number means seconds.
pub const SECONDS: &[&str] = &["--duration", "--interval", "--stonewall", "--max-duration"];

/// Options that take a sweep.
pub const SWEEPS: &[&str] = &[
    "--sizes",
    "--window",
    "--depth",
    "--batch",
    "--workers",
    "--threads",
    "--qps",
    "--queue-pairs",
    "--block",
    "--transfer",
    "--chunk",
];

/// perftest.
pub const PERFTEST: &[Row] = &[
    value("-s --size", "--sizes {size}"),
    flag("-a --all", "--sizes 2..8M"),
    value("-n --iters", "--iters {int} --trials 1"),
    value("-D --duration", "--duration {time}"),
    value("-f --margin", "--warmup {time}"),
    value("-t --tx-depth", "--depth {int}"),
    value("-q --qp", "@qps {int}"),
    flag("-b --bidirectional --report-both", "--bidirectional"),
    value("-d --ib-dev", "--devices {}"),
    value("-i --ib-port", "@port {int}"),
    value("-x --gid-index", "--engine-option gid={int0}"),
    value("-m --mtu", "--engine-option mtu={int}"),
    value("-u --qp-timeout", "--engine-option timeout={int}"),
    value("-S --sl", "--engine-option sl={int0}"),
    value("-o --outs", "--engine-option rd-atomic={int}"),
    value("-I --inline_size", "--engine-option inline={int0}"),
    value("-Q --cq-mod", "--engine-option signal={int}"),
    value("-l --post_list", "--engine-option post-list={int}"),
    value("--tclass", "--engine-option traffic-class={int0}"),
    value("--flow_label", "--engine-option flow-label={int}"),
    value("--pkey_index", "--engine-option pkey={int0}"),
    value("--retry_count", "--engine-option retry={retry}"),
    flag(
        "-R --rdma_cm -z --comm_rdma_cm",
        "--engine-option connect=cm",
    ),
    flag("-e --events", "--cq event"),
    value("-c --connection", "@connection {}"),
    value("-A --atomic_type", "@atomic {}"),
    flag("--write_with_imm", "--op write-imm"),
    value("--use_cuda", "--memory cuda:{int0}"),
    value("--use_rocm", "--memory hip:{int0}"),
    flag(
        "--use_cuda_dmabuf --use_rocm_dmabuf",
        "--engine-option registration=dmabuf",
    ),
    flag("--use_hugepages", "--memory huge"),
    flag("--data_validation", "--verify"),
    value("--rate_limit", "@rate {}"),
    value("--rate_units", "@rate_units {}"),
    value("--burst_size", "@burst {int}"),
    flag("--out_json", "--format jsonl"),
    value("--out_json_file", "--output {}"),
    value("--numa_node", "--numa {int0}"),
    flag("-V --version", ""),
    no_flag("-h --help", NOT_NEEDED),
    no_flag(
        "-F --CPU-freq",
        "not needed: CPU frequency is recorded and never asked for",
    ),
    no_value("-p --port", PORT),
    no_value(
        "-r --rx-depth",
        "not needed: receives are posted ahead as the depth needs",
    ),
    flag("--report_gbits", "--unit Gb/s"),
    no_flag(
        "-H --report-histogram -U --report-unsorted",
        "not needed: the record has the histogram",
    ),
    no_flag("-C --report-cycles", "not needed: times are nanoseconds"),
    no_flag("-N --noPeak", "not needed: the best trial is reported"),
    no_flag("--cpu_util", MEASURED_ALWAYS),
    no_value("-W --report-counters", MEASURED_ALWAYS),
    no_value(
        "-w --limit_bw -y --limit_msgrate",
        "limits set no exit code here: see `tonnage baseline` and `tonnage check`",
    ),
    no_flag("--perform_warm_up", "not needed: each point is warmed up"),
    no_flag(
        "--run_infinitely",
        "runs without end are not in this version: use --duration",
    ),
    no_flag(
        "--cqe_poll --disable_dynamic_polling --disable_pcie_relaxed",
        NOT_NEEDED,
    ),
    no_flag(
        "--reversed",
        "rank 0 initiates: exchange the hosts in --hosts",
    ),
    no_flag(
        "-O --dualport",
        "name both devices: --devices A,B --rails stripe",
    ),
    no_value(
        "-T --tos --hop_limit --dlid --ib-port2",
        "not in this version: reliable connections only",
    ),
    no_flag(
        "-g --mcg --ipv6 --use-srq --odp",
        "not in this version: reliable connections only",
    ),
    no_value("-M --MGID -X --eqn", "not in this version"),
];

/// fabtests.
pub const FABTESTS: &[Row] = &[
    value("-p", "--engine fabric:{}"),
    value("-d -s", "--devices {}"),
    value("-S", "--sizes {fabtests}"),
    value("-I", "--iters {int} --trials 1"),
    value("-W", "@window {int}"),
    value("-o", "@op {}"),
    flag("-v", "--verify"),
    flag("-U", "--engine-option completion=delivery"),
    row(
        "-j",
        true,
        "--engine-option inject=off",
        "the limit of inject is the provider's",
    ),
    value("-c", "@wait {}"),
    value("-D", "@hmem {}"),
    value("-i", "@gpu {int0}"),
    flag("-R", "--engine-option registration=dmabuf"),
    flag("-m", "--format jsonl"),
    value("--pin-core", "--cpus {}"),
    value("-n", "@threads {int}"),
    no_value("-w", WARM_UP),
    no_value(
        "-e",
        "endpoints are reliable datagrams (FI_EP_RDM) in any case",
    ),
    no_value("-t", "completions always come from a queue"),
    no_value("-B -P -b -F -a -C -f --timeout", PORT),
    no_flag("-E -O -l -k -r -K -Q -H --sync-comp", NOT_NEEDED),
    no_flag("-h", NOT_NEEDED),
];

/// iperf3.
pub const IPERF3: &[Row] = &[
    value("-c --client", "@server {}"),
    flag("-s --server", ""),
    value("-l --length", "--sizes {size}"),
    value("-P --parallel", "--threads {int}"),
    flag("-R --reverse", "--op read"),
    flag("--bidir", "--bidirectional"),
    value("-t --time", "--duration {time}"),
    value("-i --interval", "@interval {}"),
    value("-b --bitrate --bandwidth", "@rate {}"),
    value("-B --bind --bind-dev", "--devices {}"),
    value("-A --affinity", "--cpus {cpu}"),
    flag("-J --json", "--format jsonl"),
    value("--logfile", "--output {}"),
    value("-O --omit", "--warmup {time}"),
    no_value("-p --port --cport", PORT),
    no_value(
        "-n --bytes -k --blockcount",
        "a measurement ends by time here: --duration",
    ),
    no_flag("-u --udp", "UDP is not in this version: this measures TCP"),
    no_value(
        "-w --window -M --set-mss -C --congestion -S --tos --dscp --fq-rate --pacing-timer",
        "options of sockets are not in this version; the record has those of the path",
    ),
    no_flag(
        "-N --no-delay -Z --zerocopy -D --daemon -1 --one-off -V --verbose -d --debug --get-server-output -4 --version4 -6 --version6 --forceflush",
        NOT_NEEDED,
    ),
    no_value(
        "-f --format -T --title -I --pidfile --connect-timeout",
        NOT_NEEDED,
    ),
];

/// OSU micro-benchmarks.
pub const OSU: &[Row] = &[
    value("-m --message-size", "@sizes {}"),
    value("-i --iterations", "--iters {int} --trials 1"),
    value("-W --window-size", "@window {int}"),
    flag("-c --validation", "--verify"),
    value("-d --accelerator", "@memory {}"),
    no_value("-x --warmup -u --validation-warmup", WARM_UP),
    no_value("-M --mem-limit", "memory follows from sizes and depth"),
    no_flag(
        "-f --full -z --tail-lat -G --graph",
        "not needed: minimum, maximum and percentiles are in the record",
    ),
    no_value(
        "-t --num_threads -r --sync-option -w --win-options",
        "not in this version",
    ),
    no_value(
        "-T --type",
        "the default type is used: see --dtype of `tonnage collective`",
    ),
    no_flag("-h --help -v --version", NOT_NEEDED),
];

/// nccl-tests.
pub const NCCL: &[Row] = &[
    value("-b --minbytes", "@begin {size}"),
    value("-e --maxbytes", "@end {size}"),
    value("-f --stepfactor", "@factor {int}"),
    value("-i --stepbytes", "@step {size}"),
    value("-g --ngpus", "@gpus {int}"),
    value("-t --nthreads", "@threads {int}"),
    value("-n --iters", "--iters {int} --trials 1"),
    value("-d --datatype", "@dtype {}"),
    value("-o --op", "@reduce {}"),
    value("-r --root", "@root {int0}"),
    value("-c --check", "@check {int0}"),
    value("-a --average", "@average {int0}"),
    value("-N --run_cycles", "--runs {int}"),
    value("-J --output_file", "--output {}"),
    no_value("-w --warmup_iters", WARM_UP),
    no_value("-m --agg_iters", "calls are not aggregated"),
    no_value(
        "-p --parallel_init -z --blocking -y --unalign -T --timeout -C --report_cputime -S --report_timestamps",
        NOT_NEEDED,
    ),
    no_value(
        "-G --cudagraph -R --local_register -L --local_rank",
        "not in this version",
    ),
    no_flag("-h --help", NOT_NEEDED),
];

/// fio.
pub const FIO: &[Row] = &[
    value("--name", "@name {}"),
    value("--rw --readwrite", "@rw {}"),
    value("--bs --blocksize", "--transfer {size}"),
    value("--size --filesize", "--block {size}"),
    value("--numjobs", "@jobs {int}"),
    value("--iodepth", "@depth {int}"),
    value("--ioengine", "@engine {}"),
    value("--direct", "@direct {int0}"),
    value("--runtime", "--stonewall {time}"),
    value("--filename", "@file {}"),
    value("--directory", "@directory {}"),
    value("--fsync --fdatasync", "@fsync {int0}"),
    value("--end_fsync", "@end_fsync {int0}"),
    value("--rwmixread", "@mix {int}"),
    value("--rwmixwrite", "@mix_write {int}"),
    row(
        "--verify",
        true,
        "--verify",
        "every byte is compared: tonnage has no kinds of checksums",
    ),
    value("--randseed", "@seed {int0}"),
    value("--loops", "--trials {int}"),
    value("--startdelay", "--delay {time}"),
    value("--buffer_compress_percentage", "--data compressible={int}%"),
    value("--invalidate", "@invalidate {int0}"),
    value("--output", "--output {}"),
    value("--output-format", "--format {format}"),
    flag("--thread", "@thread 1"),
    no_flag(
        "--group_reporting --time_based --refill_buffers --norandommap --minimal --eta --unlink",
        NOT_NEEDED,
    ),
    no_value("--ramp_time", "files have no warm-up"),
    no_value(
        "--rate --rate_iops --thinktime",
        "rates of files are not in this version",
    ),
    no_value(
        "--offset --nrfiles --fallocate --create_on_open --status-interval --eta-interval",
        "not in this version",
    ),
    no_value("--cpus_allowed", "name CPUs with --cpus"),
    no_value(
        "--numa_cpu_nodes --numa_mem_policy",
        "name a node with --numa",
    ),
];

/// ucx_perftest.
pub const UCX: &[Row] = &[
    value("-t", "@test {}"),
    value("-s", "--sizes {size}"),
    value("-n", "--iters {int} --trials 1"),
    value("-O", "--depth {int}"),
    value("-T", "--threads {int}"),
    value("-c", "--cpus {}"),
    value("-d", "@device {}"),
    value("-x", "@transport {}"),
    value("-m", "@memory {}"),
    flag("-v", "--format csv"),
    flag("-f", "--format csv"),
    no_value("-w", WARM_UP),
    no_value("-p", PORT),
    no_value("-D -H -A -W -M -b -r -R -i -E -o", "not in this version"),
    no_flag("-e -C -q -N -l -B -U -I -h", NOT_NEEDED),
];

/// nixlbench.
pub const NIXL: &[Row] = &[
    value("--backend", "@backend {}"),
    value("--op_type", "@op {}"),
    value("--start_block_size", "@begin {size}"),
    value("--max_block_size", "@end {size}"),
    value("--start_batch_size", "@batch_begin {int}"),
    value("--max_batch_size", "@batch_end {int}"),
    value("--pipeline_depth", "--batches-in-flight {int}"),
    value("--num_iter", "--iters {int} --trials 1"),
    value("--num_threads", "--threads {int}"),
    value("--scheme", "@scheme {}"),
    value("--initiator_seg_type", "@memory {}"),
    value("--target_seg_type", "@target_memory {}"),
    value("--num_initiator_dev", "@initiators {int}"),
    value("--num_target_dev", "@targets {int}"),
    value("--device_list", "@devices {}"),
    flag("--check_consistency", "--verify"),
    flag("--recreate_xfer", "--session fresh"),
    flag("--reregister_mem", "--session register"),
    flag("--use_hugepages", "--memory huge"),
    value("--filepath --filenames", "@file {}"),
    value("--posix_api_type", "@api {}"),
    flag("--storage_enable_direct", "@direct 1"),
    no_value("--warmup_iter --large_blk_iter_ftr", WARM_UP),
    no_value(
        "--total_buffer_size --num_files --posix_ios_pool_size",
        NOT_NEEDED,
    ),
    no_value(
        "--runtime_type --etcd_endpoints --benchmark_group --asio_address --asio_port",
        PORT,
    ),
    no_value(
        "--mode",
        "each rank has one device, or takes --devices in turn",
    ),
    no_value(
        "--worker_type --progress_threads --gds_batch_pool_size --gpunetio_device_list",
        "not in this version",
    ),
    no_flag(
        "--enable_pt --enable_vmm --prepared_xfer --use_device_api",
        "not in this version",
    ),
];

/// Options of mpirun and srun that place ranks.
pub const LAUNCHERS: &[Row] = &[
    value("-np -n --np --ntasks", "@ranks {int}"),
    value("-H -host --host -hosts --hosts -w --nodelist", "@hosts {}"),
    value(
        "-hostfile --hostfile -machinefile --machinefile -f",
        "@hostfile {}",
    ),
    no_value(
        "-N -ppn --map-by --bind-to --mca -x -genv --mpi -p --partition -env --rank-by --prefix -bind-to -map-by -mca",
        "see docs/LAUNCHING.md for tonnage under a launcher",
    ),
    no_flag("--allow-run-as-root --oversubscribe --exclusive -l", ""),
];
