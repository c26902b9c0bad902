#!/bin/sh
# What the kernel's module must do, and the program with it. It runs in the guest of rdma-guest.sh, before the cases of
# RDMA devices where both are asked for.

. ./case.sh
ENGINE=verbs:kernel

# ours: objects of RDMA devices that the module has.
ours() { rdma resource show pd | grep -c tonnage_kread; }

# awaited COMMAND...: waits until the command succeeds, for some seconds.
awaited() {
    for _ in $(seq 100); do
        if "$@"; then return 0; fi
        sleep 0.05
    done
    return 1
}

reads() { [ "$(ours)" != 0 ]; }
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

# during ACTION COMMAND...: the action once the command's module has a session, for a moment then.
during() {
    action=$1
    shift
    (awaited reads && sleep 0.7 && $action >/tmp/action 2>&1; echo "action ended with $?" >>/tmp/action) &
    timeout "$CASE_S_MAX" "$@" >/tmp/run 2>&1
    echo "command ended with $?" >>/tmp/run
    wait
    cat /tmp/action /tmp/run >/tmp/told
}

# Ends rank 1, which reads where there is fan-in, and with it all others.
kill_reader() {
    for process in /proc/[0-9]*; do
        if tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx TONNAGE_RANK=1; then
            kill -9 "${process#/proc/}"
        fi
    done
}

remove_reader() { rdma link del rxeB; }

# Takes rxeA's interface down for a while. Its routes are gone with it.
cut() {
    ip link set ve0 down
    sleep 4
    ip link set ve0 up
    ip route add 10.1.0.2 dev ve0 src 10.1.0.1 table 101
}

# rxeB reads, so that rxeA, where packets are delayed or lost, answers.
PAIR="--ranks 2 --devices-of 0=rxeB --devices-of 1=rxeA"

# shellcheck disable=SC2086
transfer "without the module" 1 'the kernel.s module tonnage_kread is not loaded.*' --op read --sizes 64 $BRIEF
expect "devices, without the module" 0 'module tonnage_kread \(verbs:kernel\)' tonnage devices
# The ring of messages may wrap; then this is gone.
echo "tonnage: the cases begin" >/dev/kmsg
insmod ./tonnage_kread.ko
expect "devices, with it" 0 '^ *module tonnage_kread +verbs:kernel +version [0-9.]+ +layout 1 +/dev/tonnage_kread' \
    tonnage devices
expect "refusals, failed lanes, sessions side by side" 0 '^contract: kept' ./kread contract rxeA rxeB
./kread hold rxeA
expect "unloading it while a child has its file" 1 'temporarily unavailable' rmmod tonnage_kread
gone "the child ends"
expect "random calls in random order" 0 '^fuzz: seed' ./kread fuzz rxeA rxeB "${FUZZ_S:-15}" "${FUZZ_SEED:-1}"
gone "all of them are gone"

expect "an interval, two workers" 0 '^\[ +[0-9.]+ s\] .*op/s.* p50' tonnage transfer --engine verbs:kernel --op read \
    $PAIR --sizes 64 --workers 2 --window 12 --duration 1s --interval 250ms -o /tmp/record
# What intervals told of is what the record has.
expect "intervals add up" 0 '^alike' sh -c "sed -n 's/.*\"series\":{\"interval_ns\":[0-9]*,\"operations\":\[\([0-9,]*\)\].*/\1/p' \
    /tmp/record | tr , '\n' | awk '{ sum += \$1 } END { print sum }' >/tmp/sum
    sed -n 's/.*\"trials\":\[{[^[]*\"operations\":\([0-9][0-9]*\).*/\1/p' /tmp/record >/tmp/all
    cmp /tmp/sum /tmp/all && cat /tmp/sum; [ \"\$(cat /tmp/sum)\" -gt 4 ] && echo alike"
# shellcheck disable=SC2086
over "loss 1%" transfer "every byte where packets are lost" 0 '^verified: .* checked and right' --op read,write --sizes 4k \
    --window 16 --qps 1,3 --footprint 256k --addresses permuted --trials 1 --trial-time 100ms --verify \
    --engine-option retry=6
# shellcheck disable=SC2086
transfer "other orders at both ends, exactly so many" 0 '^verified: .* checked and right' --op read --sizes 1000 --window 1 \
    --footprint 64k --addresses random --local-addresses sequential --iters 777 --trials 1 --verify -o /tmp/exact
expect "exactly so many" 0 '"operations":777[,}]' cat /tmp/exact
# shellcheck disable=SC2086
expect "three ranks, two of them read the same" 0 '^verified: .* checked and right' tonnage transfer --engine verbs:kernel \
    --op read --traffic fan-in --ranks 3 --devices-of 0=rxeA --devices-of 1=rxeB --devices-of 2=rxeB --sizes 64 \
    --target-footprint shared --window 4 --verify $BRIEF
# shellcheck disable=SC2086
expect "every operation that it has" 0 '^verify: every one' tonnage verify --engine verbs:kernel $PAIR \
    --sizes 1,4097,2097159

# What a delay makes impossible stays so on a busy machine; what it allows may take several attempts there: the best of
# the trials is what counts, which no machine makes better than the delay.
DELAY="delay 5ms limit 100000"
LONGER="--trials 4 --trial-time 300ms --warmup 50ms"
# shellcheck disable=SC2086
over "$DELAY" within "a delay is read as it is" latency_ns_min 5e6 9.9e6 --op read --sizes 64 --window 1 $LONGER
# Each waits for two rounds before its own, whereas none waits where the option does nothing.
# shellcheck disable=SC2086
over "$DELAY" within "four reads in flight" latency_ns_p50 14e6 1e9 --op read --sizes 64 --window 12 \
    --engine-option rd-atomic=4 $LONGER
# 64 B each; more than 200 of them per second.
# shellcheck disable=SC2086
over "$DELAY" within "twelve reads in flight" bandwidth_bytes_per_s_max 12900 154000 --op read --sizes 64 --window 12 \
    $LONGER
# shellcheck disable=SC2086
over "$DELAY" within "twelve in flight where each is signalled" in_flight_max 12 12 --op read --sizes 64 \
    --window 12 $LONGER
# shellcheck disable=SC2086
over "$DELAY" within "the first of twelve signalled, and two windows less one in flight" in_flight_max 23 23 --op read \
    --sizes 64 --window 12 --engine-option signalling=first $LONGER
# shellcheck disable=SC2086
transfer "batches have no first" 1 'signalling=first.*batch waits for all' --op read --sizes 64 --batch 4 \
    --latency off --engine-option signalling=first
# The plan has 12 workers, which are many for two CPUs.
sed 's/^workers = 12/workers = 2/' one-sided-read.toml >few-workers.toml
# shellcheck disable=SC2086
expect "the plan of the published benchmark" 0 '64 B' tonnage run few-workers.toml \
    --engine verbs:rc,verbs:kernel $PAIR --scale 0.01 -o /tmp/plan
for engine in verbs:rc verbs:kernel; do
    expect "its records of $engine" 0 '^[1-9]' grep -c "\"status\":\"measured\"}.*\"engine\":\"$engine\"" /tmp/plan
done

transfer "messages" 1 'send on verbs:kernel cannot be used here' --op send --sizes 64
transfer "sleeping" 1 '--cq event on verbs:kernel' --op read --sizes 64 --cq event
chmod 755 .
echo "nobody:x:65534:65534::/:/bin/sh" >>/etc/passwd
expect "a user who may not open it" 1 'this user may not open /dev/tonnage_kread' su nobody -c \
    "$PWD/tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64"

# shellcheck disable=SC2086
kill_rank_1
# shellcheck disable=SC2086
transfer "a target that is killed" 1 '^\[1\] failed: ' --op read --sizes 64 --window 8 --duration 8s
wait
gone "its objects are gone"
# shellcheck disable=SC2086
PAIR="--ranks 2 --traffic fan-in --devices-of 0=rxeA --devices-of 1=rxeB"
# shellcheck disable=SC2086
during kill_reader tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64 --window 8 --duration 8s
expect "a reader that is killed" 0 '^command ended with 1$' cat /tmp/told
gone "its objects are gone, too"
# shellcheck disable=SC2086
during remove_reader tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64 --window 8 --duration 8s
expect "a device that is removed" 0 'verbs:kernel on rxeB.*the device was removed' cat /tmp/told
expect "removing it was not held up" 0 '^action ended with 0$' cat /tmp/told
rdma link add rxeB type rxe netdev ve1
awaited grep -q ffff:0a01:0002 /sys/class/infiniband/rxeB/ports/1/gids/1
# shellcheck disable=SC2086
transfer "the device is back" 0 '^verified: .* checked and right' --op read --sizes 64 --verify $BRIEF

# A path that is cut ends the run by its retries.
# shellcheck disable=SC2086
during cut tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64 --window 8 --duration 8s
expect "a link that goes down" 0 'RETRY_EXC_ERR|WR_FLUSH_ERR' cat /tmp/told
expect "its run has failed" 0 '^command ended with 1$' cat /tmp/told
gone "nothing is left"
expect "it is unloaded" 0 '^unloaded' sh -c "rmmod tonnage_kread && echo unloaded"
expect "a module without a signature, where one is asked for" 1 'Key was rejected|Required key not available' sh -c \
    "echo 1 >/sys/module/module/parameters/sig_enforce; insmod ./tonnage_kread.ko || exit 1"
expect "the kernel has nothing to say" 0 '^quiet' sh -c \
    "dmesg >/tmp/dmesg; grep -q 'tonnage: the cases begin' /tmp/dmesg || exit 1
    sed '1,/tonnage: the cases begin/d' /tmp/dmesg |
        grep -E 'WARNING|BUG|lockup|stall|Oops|leak|refcount|UBSAN|KASAN|hung' || echo quiet"
echo "skip: Debian has no kernel with KASAN or kmemleak: the module's leaks are looked for by what is left of it"

exit $failed
