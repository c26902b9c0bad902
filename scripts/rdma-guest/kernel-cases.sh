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

# Ends rank 0, which reads, and with it all others.
kill_reader() {
    for process in /proc/[0-9]*; do
        if tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx TONNAGE_RANK=1; then
            kill -9 "${process#/proc/}"
        fi
    done
}

remove_reader() { rdma link del rxeB; }

# rxeB reads, so that rxeA, where packets are delayed or lost, answers.
PAIR="--ranks 2 --devices-of 0=rxeB --devices-of 1=rxeA"

# shellcheck disable=SC2086
transfer "without the module" 1 'the kernel.s module tonnage_kread is not loaded.*' --op read --sizes 64 $BRIEF
expect "devices, without the module" 0 'module tonnage_kread \(verbs:kernel\)' tonnage devices
said=$(dmesg | wc -l)
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
    cmp /tmp/sum /tmp/all && [ \"\$(cat /tmp/sum)\" -gt 100 ] && echo alike"
# shellcheck disable=SC2086
over "loss 1%" transfer "every byte where packets are lost" 0 '^verified: .* checked and right' --op read,write --sizes 4k \
    --window 16 --qps 1,3 --footprint 256k --addresses permuted --trials 1 --trial-time 100ms --verify \
    --engine-option retry=6
# shellcheck disable=SC2086
transfer "other orders at both ends, exactly so many" 0 '^verified: .* checked and right' --op read --sizes 1000 --window 1 \
    --footprint 64k --addresses random --local-addresses sequential --iters 777 --trials 1 --verify -o /tmp/exact
expect "exactly so many" 0 '"operations":777' cat /tmp/exact
# shellcheck disable=SC2086
expect "three ranks, two of them read the same" 0 '^verified: .* checked and right' tonnage transfer --engine verbs:kernel \
    --op read --traffic fan-in --ranks 3 --devices-of 0=rxeA --devices-of 1=rxeB --devices-of 2=rxeB --sizes 64 \
    --target-footprint shared --window 4 --verify $BRIEF
# shellcheck disable=SC2086
expect "every operation that it has" 0 '^verify: every one' tonnage verify --engine verbs:kernel $PAIR \
    --sizes 1,4097,2097159

# As over verbs:rc. The CPUs are few, so that some of it is lost.
DELAY="delay 5ms limit 100000"
LONGER="--trials 2 --trial-time 400ms --warmup 50ms"
# shellcheck disable=SC2086
over "$DELAY" within "a delay is read as it is" latency_ns_p50 5e6 7e6 --op read --sizes 64 --window 1 $LONGER
# shellcheck disable=SC2086
over "$DELAY" within "four reads in flight" message_rate_per_s_mean 450 801 --op read --sizes 64 --window 12 \
    --engine-option rd-atomic=4 $LONGER
# shellcheck disable=SC2086
over "$DELAY" within "twelve reads in flight" message_rate_per_s_mean 1300 2401 --op read --sizes 64 --window 12 $LONGER
# shellcheck disable=SC2086
over "$DELAY" within "the first of twelve signalled" message_rate_per_s_mean 1300 4800 --op read --sizes 64 --window 12 \
    --engine-option signalling=first $LONGER

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
expect "a reader that is killed" 0 '^command ended with 1' cat /tmp/told
gone "its objects are gone, too"
# shellcheck disable=SC2086
during remove_reader tonnage transfer --engine verbs:kernel --op read $PAIR --sizes 64 --window 8 --duration 8s
expect "a device that is removed" 0 'verbs:kernel on rxeB.*the device was removed' cat /tmp/told
expect "removing it was not held up" 0 '^action ended with 0' cat /tmp/told
rdma link add rxeB type rxe netdev ve1
awaited grep -q ffff:0a01:0002 /sys/class/infiniband/rxeB/ports/1/gids/1
# shellcheck disable=SC2086
transfer "the device is back" 0 '^verified: .* checked and right' --op read --sizes 64 --verify $BRIEF

gone "nothing is left"
expect "it is unloaded" 0 '^unloaded' sh -c "rmmod tonnage_kread && echo unloaded"
expect "a module without a signature, where one is asked for" 1 'Key was rejected|Required key not available' sh -c \
    "echo 1 >/sys/module/module/parameters/sig_enforce; insmod ./tonnage_kread.ko"
expect "the kernel has nothing to say" 0 '^quiet' sh -c \
    "dmesg | tail -n +$said | grep -E 'WARNING|BUG|lockup|stall|Oops|leak|refcount' || echo quiet"
echo "skip: Debian has no kernel with KASAN or kmemleak: the module's leaks are looked for by what is left of it"

exit $failed
