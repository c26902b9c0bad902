#!/bin/sh
# What the kernel's module must do, and the program with it. It runs in the guest of rdma-guest.sh, before the cases of
# RDMA devices where both are asked for.

. ./case.sh
ENGINE=verbs:kernel

# ours: objects of RDMA devices that the module has.
ours() { rdma resource show pd | grep -c tonnage_kread; }

# awaited COMMAND...: waits until the command succeeds, for half a minute, which a busy machine may take to begin a run.
awaited() {
    for _ in $(seq 600); do
        if "$@"; then return 0; fi
        sleep 0.05
    done
    return 1
}

rests() { [ "$(ours)" = 0 ]; }

# gone NAME: a case: within some seconds the module has nothing on any device.
gone() {
    if awaited rests; then
        echo "ok $1"
        return
    fi
    echo "FAILED $1:"
    rdma resource show pd | sed 's/^/    /'
    failed=1
}

# Packets that rxeB, which reads, has sent.
ASKED=/sys/class/infiniband/rxeB/ports/1/hw_counters/sent_pkts
# has_asked COUNT: whether it has sent more than so many since `asked`.
has_asked() { [ "$(cat "$ASKED")" -gt $((asked + $1)) ]; }

# during ACTION COMMAND...: the action while the command's reads are under way.
during() {
    action=$1
    shift
    asked=$(cat "$ASKED")
    (awaited has_asked 3000 && $action >/tmp/action 2>&1; echo "action ended with $?" >>/tmp/action) &
    timeout "$CASE_S_MAX" "$@" >/tmp/run 2>&1
    echo "command ended with $?" >>/tmp/run
    wait
    cat /tmp/action /tmp/run >/tmp/told
}

# Ends rank 1, which reads where there is fan-in and else is the target, and with it all others.
# shellcheck disable=SC2046
kill_rank() { kill -KILL $(of_rank 1); }

remove_reader() { rdma link del rxeB; }

# Takes rxeA's interface down for a while. Its routes are gone with it.
cut() {
    ip link set ve0 down
    sleep 4
    ip link set ve0 up
    ip route add 10.1.0.2 dev ve0 src 10.1.0.1 table 101
}

# sent: bytes that both ends of the cable have sent.
sent() { cat /sys/class/net/ve[01]/statistics/tx_bytes | awk '{ all += $1 } END { print all }'; }

# in_contact ACTION ARGUMENT...: the action while a transfer's first contact gets no answer, which it waits for without
# end; answers come again afterwards. /tmp/told has what the transfer says and how it ended.
in_contact() {
    action=$1
    shift
    ip neigh replace 10.1.0.1 lladdr "$(cat /sys/class/net/ve0/address)" dev ve1 nud permanent
    ip neigh replace 10.1.0.2 lladdr "$(cat /sys/class/net/ve1/address)" dev ve0 nud permanent
    tc qdisc add dev ve0 root netem loss 100%
    asked=$(cat "$ASKED")
    # shellcheck disable=SC2086
    timeout "$CASE_S_MAX" tonnage transfer --engine verbs:kernel $PAIR --engine-option retry=forever "$@" >/tmp/told 2>&1 &
    transfer=$!
    contact=missed
    if awaited has_asked 0; then contact=seen; fi
    sleep 0.2
    began=$(date +%s)
    $action
    tc qdisc del dev ve0 root
    status=0
    wait "$transfer" || status=$?
    echo "contact $contact, ended with $status within $(($(date +%s) - began)) s" >>/tmp/told
    ip neigh del 10.1.0.1 dev ve1
    ip neigh del 10.1.0.2 dev ve0
}

# of_rank RANK: processes of that rank.
of_rank() {
    for process in /proc/[0-9]*; do
        if tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx "TONNAGE_RANK=$1"; then echo "${process#/proc/}"; fi
    done
}

# Signals that end nothing: the calls that they interrupt go on. Who is halted for three seconds would be taken for lost.
halt_and_go_on() {
    halted=$(of_rank 0)
    # shellcheck disable=SC2086
    kill -STOP $halted
    sleep 0.1
    # shellcheck disable=SC2086
    kill -CONT $halted
    sleep 0.2
}

# The transfer is ended while nothing answers it.
end_transfer() {
    kill -TERM "$transfer"
    for _ in $(seq 100); do
        kill -0 "$transfer" 2>/dev/null || break
        sleep 0.1
    done
}

# rxeB reads, so that rxeA, where packets are delayed or lost, answers.
PAIR="--ranks 2 --devices-of 0=rxeB --devices-of 1=rxeA"

# shellcheck disable=SC2086
transfer "without the module" 2 'the kernel module tonnage_kread is not loaded.*' --op read --sizes 64 $BRIEF
expect "devices, without the module" 0 'module tonnage_kread \(verbs:kernel\)' tonnage devices
# The ring of messages may wrap; then this is gone.
echo "tonnage: the cases begin" >/dev/kmsg
insmod ./other_layout.ko
# shellcheck disable=SC2086
transfer "a module of another layout" 2 'has layout 7 of its calls, and this program 1\. Build' --op read --sizes 64 \
    $BRIEF
expect "devices, with one of another layout" 0 'has layout 7 of its calls, and' tonnage devices
rmmod tonnage_kread
insmod ./tonnage_kread.ko
expect "devices, with it" 0 '^ *module tonnage_kread +verbs:kernel +version [0-9.]+ +layout 1 +/dev/tonnage_kread' \
    tonnage devices
expect "refusals, failed lanes, sessions side by side" 0 '^contract: kept' ./kread contract rxeA rxeB
expect "a device that all namespaces have" 0 '^namespace: kept' ./kread namespace rxeA 0
# The kernel is still ending the namespace of the case before.
awaited rdma system set netns exclusive 2>/dev/null
expect "a device that another namespace has" 0 '^namespace: kept' ./kread namespace rxeA 19
# The namespace of the case before goes a moment after its process.
awaited rdma system set netns shared 2>/dev/null
expect "a key that no target gave" 0 'write with rank 0 .*REM_ACCESS_ERR \(10\), queue pair [0-9]+' \
    env TONNAGE_TEST_KERNEL=rxeA,rxeB ./kernel_keys --nocapture
./kread hold rxeA
expect "unloading it while a child has its file" 1 'temporarily unavailable' rmmod tonnage_kread
gone "the child ends"
expect "random calls in random order" 0 '^fuzz: seed' ./kread fuzz rxeA rxeB "${FUZZ_S:-15}" "${FUZZ_SEED:-1}"
gone "all of them are gone"

expect "an interval, two workers" 0 '^\[ +[0-9.]+ s\] .*op/s.* p50' tonnage transfer --engine verbs:kernel --op read \
    $PAIR --sizes 64 --threads 2 --depth 12 --duration 1s --interval 250ms -o /tmp/record
# What intervals told of is what the record has.
expect "intervals add up" 0 '^alike' sh -c "sed -n 's/.*\"series\":{\"interval_ns\":[0-9]*,\"operations\":\[\([0-9,]*\)\].*/\1/p' \
    /tmp/record | tr , '\n' | awk '{ sum += \$1 } END { print sum }' >/tmp/sum
    sed -n 's/.*\"trials\":\[{[^[]*\"operations\":\([0-9][0-9]*\).*/\1/p' /tmp/record >/tmp/all
    cmp /tmp/sum /tmp/all && cat /tmp/sum; [ \"\$(cat /tmp/sum)\" -gt 4 ] && echo alike"
# shellcheck disable=SC2086
over "loss 1%" transfer "every byte where packets are lost" 0 '^verified: .* of [1-9]' --op read,write --sizes 4k \
    --depth 16 --queue-pairs 1,3 --footprint 256k --access permuted --trials 1 --trial-time 100ms --verify \
    --engine-option retry=6
# shellcheck disable=SC2086
transfer "other orders at both ends, exactly so many" 0 '^verified: .* of [1-9]' --op read --sizes 1000 --depth 1 \
    --footprint 64k --access random --local-access sequential --iters 777 --trials 1 --verify -o /tmp/exact
expect "exactly so many" 0 '"operations":777[,}]' cat /tmp/exact
# shellcheck disable=SC2086
expect "three ranks, two of them read the same" 0 '^verified: .* of [1-9]' tonnage transfer --engine verbs:kernel \
    --op read --traffic fan-in --ranks 3 --devices-of 0=rxeA --devices-of 1=rxeB --devices-of 2=rxeB --sizes 64 \
    --target-footprint shared --depth 4 --verify $BRIEF
# shellcheck disable=SC2086
expect "every operation that it has" 0 '^PASS  all' tonnage verify --engine verbs:kernel $PAIR \
    --sizes 1,4097,2097159

# Both interfaces count what both engines move: the same operations, and what first contact reads or writes.
for engine in verbs:rc verbs:kernel; do
    before=$(sent)
    # shellcheck disable=SC2086
    expect "a thousand operations by $engine" 0 '^ +4000 ' tonnage transfer --engine $engine --op read $PAIR --sizes 4000 \
        --depth 8 --iters 1000 --trials 1 --warmup 1ms --bound none
    echo $(($(sent) - before)) >"/tmp/sent $engine"
done
expect "interfaces have sent as much for one as for the other" 0 '^alike' sh -c \
    "paste '/tmp/sent verbs:rc' '/tmp/sent verbs:kernel' | awk '{ print; d = \$1 / \$2; if (\$2 > 4e6 && d > 0.99 && d < 1.01) print \"alike\" }'"

# shellcheck disable=SC2086
in_contact halt_and_go_on --op read --sizes 64 --verify $BRIEF
expect "a signal in first contact, which goes on" 0 '^contact seen, ended with 0 ' cat /tmp/told
expect "and is right" 0 '^verified: .* of [1-9]' cat /tmp/told
# shellcheck disable=SC2086
in_contact end_transfer --op read --sizes 64 $BRIEF
expect "first contact of a run that is ended" 0 '^contact seen, ended with 143 within [0-5] s' cat /tmp/told
gone "nothing of it is left"

# The answers that a delay of 5 ms has: 200 operations a second at most with one in flight, 2,400 with twelve, 800 with
# four, each some less for what else a round trip takes. The best trial counts, which no machine makes better than the
# delay; 64 B each.
DELAY="delay 5ms limit 100000"
LONGER="--trials 4 --trial-time 300ms --warmup 50ms"
# shellcheck disable=SC2086
over "$DELAY" known "a delay is read as it is" latency_ns_p50 5e6 5.6e6 5e6 11.2e6 --op read --sizes 64 --depth 1 $LONGER
# shellcheck disable=SC2086
over "$DELAY" known "170 to 200 of them in a second" bandwidth_bytes_per_s_max 10880 12864 5440 12864 --op read --sizes 64 \
    --depth 1 $LONGER
# shellcheck disable=SC2086
over "$DELAY" known "four reads in flight" bandwidth_bytes_per_s_max 44800 51500 22400 51500 --op read --sizes 64 --depth 12 \
    --engine-option rd-atomic=4 $LONGER
# Each waits for two rounds before its own, whereas none waits where the option does nothing.
also "the others wait" latency_ns_p50 14e6 1e9
# shellcheck disable=SC2086
over "$DELAY" known "twelve reads in flight" bandwidth_bytes_per_s_max 128000 153600 64000 153600 --op read --sizes 64 \
    --depth 12 $LONGER
also "twelve in flight where each is signalled" in_flight_max 12 12
# shellcheck disable=SC2086
over "$DELAY" within "the first of twelve signalled, and two windows less one in flight" in_flight_max 23 23 --op read \
    --sizes 64 --depth 12 --engine-option signalling=first $LONGER
# shellcheck disable=SC2086
transfer "batches have no first" 1 'signalling=first.*batch waits for all' --op read --sizes 64 --batch 4 \
    --latency off --engine-option signalling=first
# All 12 workers, but one short trial of each cell, without limits: two CPUs have many of them to open.
sed 's/^workers = 12/&\ntrials = 1\nwarmup = "1ms"\nlimit = "none"/' one-sided-read.toml >short.toml
# shellcheck disable=SC2086
expect "the plan of the published benchmark" 0 '^64 B, the first of 12 signalled' tonnage run short.toml \
    --engine verbs:rc,verbs:kernel $PAIR --scale 0.01 -o /tmp/plan
for engine in verbs:rc verbs:kernel; do
    expect "its records of $engine" 0 '^[1-9]' grep -c "\"status\":\"measured\"}.*\"engine\":\"$engine\"" /tmp/plan
done

transfer "messages" 2 'send on verbs:kernel cannot be used here' --op send --sizes 64
transfer "sleeping" 2 '--cq event on verbs:kernel' --op read --sizes 64 --cq event
chmod 755 .
echo "nobody:x:65534:65534::/:/bin/sh" >>/etc/passwd
expect "a user who may not open it" 2 'this user may not open /dev/tonnage_kread' su nobody -c \
    "$PWD/tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64"

# shellcheck disable=SC2086
during kill_rank tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64 --depth 8 --duration 8s
expect "a target that is killed" 0 '^\[1\] failed: ' cat /tmp/told
expect "its run has failed" 0 '^command ended with 1$' cat /tmp/told
gone "its objects are gone"
# shellcheck disable=SC2086
PAIR="--ranks 2 --traffic fan-in --devices-of 0=rxeA --devices-of 1=rxeB"
# shellcheck disable=SC2086
during kill_rank tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64 --depth 8 --duration 8s
expect "a reader that is killed" 0 '^command ended with 1$' cat /tmp/told
gone "its objects are gone, too"
# shellcheck disable=SC2086
during remove_reader tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64 --depth 8 --duration 8s
expect "a device that is removed" 0 'verbs:kernel on rxeB.*the device was removed' cat /tmp/told
expect "removing it was not held up" 0 '^action ended with 0$' cat /tmp/told
rdma link add rxeB type rxe netdev ve1
awaited grep -q ffff:0a01:0002 /sys/class/infiniband/rxeB/ports/1/gids/1
# shellcheck disable=SC2086
transfer "the device is back" 0 '^verified: .* of [1-9]' --op read --sizes 64 --verify $BRIEF

# A path that is cut ends the run by its retries.
# shellcheck disable=SC2086
during cut tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64 --depth 8 --duration 8s
expect "a link that goes down" 0 'RETRY_EXC_ERR|WR_FLUSH_ERR' cat /tmp/told
expect "that run has failed, too" 0 '^command ended with 1$' cat /tmp/told
gone "nothing is left"
expect "it is unloaded" 0 '^unloaded' sh -c "rmmod tonnage_kread && echo unloaded"
expect "a module without a signature, where one is asked for" 1 'Key was rejected|Required key not available' sh -c \
    "echo 1 >/sys/module/module/parameters/sig_enforce; insmod ./tonnage_kread.ko || exit 1"
# Its silence would be no news where the ring has lost the beginning.
expect "a ring that has wrapped is not taken for quiet" 0 '^the ring of messages has wrapped' sh -c \
    ". ./case.sh; dmesg() { echo later; }; noisy || echo quiet"
expect "the first message after it is heard" 0 '^BUG' sh -c \
    ". ./case.sh; dmesg() { echo tonnage: the cases begin; echo BUG; }; noisy || echo quiet"
expect "the kernel has nothing to say" 0 '^quiet' sh -c ". ./case.sh; noisy || echo quiet"
echo "skip: Debian has no kernel with KASAN or kmemleak: the module's leaks are looked for by what is left of it"

exit $failed
