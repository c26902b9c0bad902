#!/bin/sh
# What the program must do on RDMA devices. It runs in the guest of rdma-guest.sh, which has the program in this folder.
# A case is a line at the end; all of them run, and the exit code is 1 if one failed.

. ./case.sh

# cut_for SECONDS: no packet of rxeA arrives any more for so many, once bytes are under way.
cut_for() {
    before=$(cat "$SENT")
    (
        under_way "$before"
        tc qdisc add dev ve0 root netem loss 100%
        sleep "$1"
        tc qdisc del dev ve0 root
    ) &
}

# in_the_dark COMMAND...: the command while rxeA still knows rxeB's address, and no packet of it arrives.
in_the_dark() {
    ip neigh replace 10.1.0.2 lladdr "$(cat /sys/class/net/ve1/address)" dev ve0 nud permanent
    over "loss 100%" "$@"
    ip neigh del 10.1.0.2 dev ve0
}

# narrow COMMAND...: the command while packets of rxeA above some 500 bytes are lost, as at a switch with a smaller MTU:
# behind a queue that takes them, since Soft-RoCE is told of what the first one drops.
narrow() {
    tc qdisc add dev ve0 root handle 1: netem limit 100000
    tc qdisc add dev ve0 parent 1:1 tbf rate 1gbit burst 600 limit 1000000
    "$@"
    tc qdisc del dev ve0 root
}

# unknown COMMAND...: the command while rxeA neither knows rxeB's address nor learns it.
unknown() {
    # rxeB's own requests would make it known again.
    tc qdisc add dev ve1 root netem loss 100%
    ip neigh flush dev ve0
    over "loss 100%" "$@"
    tc qdisc del dev ve1 root
}

# wait_for COUNT PATTERN: until rdma_cm has so many identifiers with that.
wait_for() {
    for _ in $(seq 100); do
        [ "$(rdma resource show cm_id | grep -c "$2")" -lt "$1" ] || return 0
        sleep 0.1
    done
}

# stranger COMMAND...: while the command runs, asks rank 1 to connect, which listens and whose peer's requests do not
# arrive yet; then they do. /tmp/told has what both say.
stranger() {
    ip neigh replace 10.1.0.2 lladdr "$(cat /sys/class/net/ve1/address)" dev ve0 nud permanent
    tc qdisc add dev ve0 root netem loss 100%
    timeout "$CASE_S_MAX" "$@" >/tmp/run 2>&1 &
    wait_for 1 "LISTEN.*10.1.0.2:"
    wait_for 1 "CONNECT.*10.1.0.2:"
    port=$(rdma resource show cm_id | sed -n 's/.*LISTEN.*src-addr 10.1.0.2:\([0-9]*\) .*/\1/p')
    timeout 10 rping -c -a 10.1.0.2 -I 10.1.0.2 -p "$port" -C 1 >/tmp/told 2>&1
    tc qdisc del dev ve0 root
    wait
    ip neigh del 10.1.0.2 dev ve0
    cat /tmp/run >>/tmp/told
    tr '\n' ' ' </tmp/told >/tmp/told.line
    mv /tmp/told.line /tmp/told
}

# held COMMAND...: /tmp/told has what rdma_cm has while the command runs.
held() {
    timeout "$CASE_S_MAX" "$@" >/tmp/run 2>&1 &
    wait_for 4 "state CONNECT"
    # Who listens ends it once the last of them is confirmed.
    sleep 0.5
    echo "$(rdma resource show cm_id | grep -c "state CONNECT .*tonnage") connections," \
        "$(rdma resource show cm_id | grep -c LISTEN) listeners" >/tmp/told
    wait
    cat /tmp/run >>/tmp/told
}

expect "devices" 0 '^ *GID 1 of 2 10\.1\.0\.1 \(RoCE v2\)' tonnage devices
expect "libfabric takes an address that connects" 0 '^ +64 ' tonnage transfer --engine 'fabric:verbs;ofi_rxm' --op write \
    --ranks 2 --sizes 64 --bound none --trials 2 --trial-time 50ms --warmup 20ms

SIZES="--sizes 1,64,4097,65536"
# Here the ranks' addresses differ, as they do outside of the guest.
echo 2 >/proc/sys/kernel/randomize_va_space
# shellcheck disable=SC2086
expect "every verb" 0 '^PASS  all' tonnage verify --engine verbs:rc $PAIR $SIZES
echo 0 >/proc/sys/kernel/randomize_va_space
over "loss 1%" transfer "every verb where packets are lost" 0 '(completer_retry_err|duplicate_request|rcvd_seq_err)' \
    --op write,write-imm,read,send --sizes 4k --depth 16 --trials 2 --trial-time 200ms --verify --engine-option retry=6

# shellcheck disable=SC2086
transfer "queue pairs, and sleeping" 0 '^path: the payload crossed rxeA port 1' --op write,read --sizes 64 --queue-pairs 1,4 \
    --cq busy,event --require-path --verify $BRIEF
# shellcheck disable=SC2086
transfer "lists, and every sixteenth signalled" 0 '^verified: .* of [1-9]' --op write,write-imm --sizes 64 \
    --depth 64 --engine-option post-list=16 --engine-option signal=16 --verify $BRIEF
# shellcheck disable=SC2086
transfer "neighbours at the peer are gathered" 0 '^verified: .* of [1-9]' --op write,read --sizes 64,1000 --gap 0 \
    --batch 64 --engine-option max-sge=8 --engine-option signal=5 --verify $BRIEF -o /tmp/gathered
expect "they are counted" 0 '"gathered_operations"' cat /tmp/gathered
# shellcheck disable=SC2086
transfer "wherever they lie here" 0 '^verified: .* of [1-9]' --op read --sizes 1000 --gap 0 --batch 64 \
    --local-access permuted --engine-option max-sge=8 --verify $BRIEF
# shellcheck disable=SC2086
transfer "memory in pieces with a key each" 0 '^verified: .* of [1-9]' --op write,write-imm,read,send \
    --sizes 64,20000 --footprint 200k --access random --engine-option mr-size=40960 --verify $BRIEF -o /tmp/pieces
expect "they are counted too" 0 '"registrations":1[0-9]' cat /tmp/pieces
# shellcheck disable=SC2086
transfer "an operation longer than what surely lies in a piece" 2 'device takes at most 20480' --op write --sizes 20481 \
    --engine-option mr-size=40960 $BRIEF
# shellcheck disable=SC2086
transfer "a window above the send queue" 0 '^verified: .* of [1-9]' --op write --sizes 64 --depth 64 \
    --engine-option sq-depth=4 --engine-option signal=4 --verify $BRIEF
# shellcheck disable=SC2086
transfer "words, and queue pairs that change them at once" 0 '^verified: .* of [1-9]' \
    --op fetch-add --sizes 8 --depth 1,16 --queue-pairs 1,2 --footprint 8 --verify $BRIEF
# shellcheck disable=SC2086
PAIR="--ranks 3 --traffic fan-in --devices-of 0=rxeB --devices-of 1=rxeA --devices-of 2=rxeA" \
    within "words that two others change" swapped_fraction 0.4 0.95 --op compare-swap --target-footprint shared \
    --footprint 8 --sizes 8 --depth 4 --verify $BRIEF
# shellcheck disable=SC2086
expect "all to all of three" 0 '^verified: .* of [1-9]' tonnage transfer --engine verbs:rc --op send --sizes 4k \
    --traffic all-to-all --ranks 3 --devices-of 0=rxeA --devices-of 1=rxeB --devices-of 2=rxeA --verify --trials 2 \
    --trial-time 50ms
expect "connections" 0 'first_byte' tonnage connect --engine verbs:rc --ranks 2 --devices-of 0=rxeA --devices-of 1=rxeB \
    --duration 500ms

CM="--engine-option connect=cm"
# shellcheck disable=SC2086
transfer "every verb over rdma_cm" 0 '^verified: .* of [1-9]' --op write-imm,read,send --sizes 64 --verify --engine-option rd-atomic=2 --engine-option traffic-class=104 $CM $BRIEF
# shellcheck disable=SC2086
held tonnage transfer --engine verbs:rc $PAIR $CM --op read,write --sizes 64 --queue-pairs 2 --verify --duration 3s
expect "rdma_cm holds the connections" 0 '^4 connections, 0 listeners' cat /tmp/told
expect "what moves over them is right" 0 '^verified: .* of [1-9]' cat /tmp/told
# shellcheck disable=SC2086
expect "connections by rdma_cm" 0 'first_byte' tonnage connect --engine verbs:rc $PAIR $CM --duration 500ms
# shellcheck disable=SC2086
expect "rdma_cm among three, two of them on one device" 0 '^verified: .* of [1-9]' tonnage transfer --engine \
    verbs:rc --op send --sizes 4k --traffic all-to-all --ranks 3 --devices-of 0=rxeA --devices-of 1=rxeB \
    --devices-of 2=rxeA --verify --trials 2 --trial-time 50ms $CM
# shellcheck disable=SC2086
unknown transfer "an address that nobody answers for" 1 'RDMA_CM_EVENT_ADDR_ERROR' --op write --sizes 64 $CM
# shellcheck disable=SC2086
in_the_dark transfer "a request that gets no answer" 1 'did not answer the request to connect' --op write --sizes 64 $CM
# shellcheck disable=SC2086
stranger tonnage transfer --engine verbs:rc $PAIR $CM --op write --sizes 64 --verify $BRIEF
expect "a stranger is refused, and the run goes on" 0 'REJECTED, error 28.* verified: .* of [1-9]' cat /tmp/told
# shellcheck disable=SC2086
transfer "a GID without a route" 2 'connect=cm needs a routable address' --op write --sizes 64 $CM \
    --engine-option gid=0
# shellcheck disable=SC2086
transfer "a librdmacm that is not there" 2 'connect=cm: /none: cannot open' --op write --sizes 64 $CM \
    --library librdmacm=/none

# A round trip takes 5 ms; a read waits for the one before it where one may be in flight, and twelve are twelve times
# as many where they may. The CPUs are few, so that some of it is lost.
DELAY="delay 5ms limit 100000"
LONGER="--trials 2 --trial-time 400ms --warmup 50ms --cq event"
# shellcheck disable=SC2086
over "$DELAY" within "a delay is read as it is" latency_ns_p50 5e6 7e6 --op read --sizes 64 --depth 1 --trials 2 \
    --trial-time 400ms --warmup 50ms
# shellcheck disable=SC2086
over "$DELAY" within "one read in flight" message_rate_per_s_mean 160 201 --op read --sizes 64 --depth 12 \
    --engine-option rd-atomic=1 $LONGER
# shellcheck disable=SC2086
over "$DELAY" within "twelve reads in flight" message_rate_per_s_mean 1500 2900 --op read --sizes 64 --depth 12 \
    --engine-option rd-atomic=12 $LONGER

# Of the 50 ms that a message takes, a receiver that sleeps works less than 4 on an emulated CPU, most of them to look
# every 10 ms whether the run has ended.
# shellcheck disable=SC2086
over "delay 50ms limit 10000" within "a target that sleeps" target_cpu_ns_per_operation 0 4e6 --op send --sizes 64 \
    --depth 1 --cq event --trials 2 --trial-time 500ms --warmup 50ms

# shellcheck disable=SC2086
narrow transfer "a path that does not carry the MTU" 1 'carry packets of that size; choose engine-option mtu=2048' \
    --op write --sizes 64 $BRIEF
# shellcheck disable=SC2086
narrow transfer "and with packets that it carries" 0 '^verified: .* of [1-9]' --op write,read --sizes 4096 \
    --engine-option mtu=256 --verify $BRIEF

cut_for 2
transfer "a path that is cut" 1 'RETRY_EXC_ERR \(12\), queue pair [0-9]+' --op write --sizes 64 --depth 8 --duration 8s
wait
cut_for 1
transfer "a path that is cut for a while" 0 '^ +64 ' --op write --sizes 64 --depth 8 --duration 4s \
    --engine-option retry=6 --engine-option timeout=18
wait
# The control channel is closed with the process. Where rank 0 gets no CPU for half a second, its queue pair is first.
KILLED='^\[1\] failed: (rank 1 on .* ended without saying goodbye|rank 0 on .* with rank 1 on .* failed: (RETRY_EXC|WR_FLUSH)_ERR)'
kill_rank_1
transfer "a rank that is killed" 1 "$KILLED" --op write --sizes 64 --depth 8 --duration 8s
wait
kill_rank_1
# shellcheck disable=SC2086
transfer "a rank that is killed, over rdma_cm" 1 "$KILLED" --op write --sizes 64 \
    --depth 8 --duration 8s $CM
wait

transfer "seven is a word" 2 'retry=forever\|0 to 6' --op write --sizes 64 --engine-option retry=7
transfer "an address that is not there" 2 'no address with index 9.*' --op write --sizes 64 --engine-option gid=9
transfer "a list longer than its queue" 2 'Choose at most post-list=8' --op write --sizes 64 --engine-option sq-depth=8 \
    --engine-option post-list=16
echo "nobody:x:65534:65534::/:/bin/sh" >>/etc/passwd
chmod 600 /dev/infiniband/uverbs*
expect "a user who may not open the device" 2 'check that this user may open /dev/infiniband/uverbs' su nobody -c \
    "$PWD/tonnage transfer --engine verbs:rc --op write $PAIR --sizes 64"
chmod 666 /dev/infiniband/uverbs*
expect "too little locked memory" 1 'ulimit -l' sh -c "ulimit -l 64; exec su nobody -c \
    '$PWD/tonnage transfer --engine verbs:rc --op write $PAIR --sizes 1M'"
transfer "a list shorter than what is gathered" 2 'Choose post-list=all or at least 8' --op write --sizes 64 \
    --engine-option post-list=4 --engine-option max-sge=8
expect "a port that is not there" 2 'rxeA has no port 2' tonnage transfer --engine verbs:rc --op write --ranks 2 \
    --devices rxeA:2 --sizes 64
expect "a transport that is not there" 2 'UD supports neither' tonnage transfer --engine verbs:ud --op write \
    --ranks 2 --sizes 64
expect "a transport of other cards" 2 "rxeA is not an mlx5 device; DC is mlx5's own" tonnage transfer --engine verbs:dc \
    --op read --ranks 2 --devices rxeA --sizes 64
expect "a peer that takes its memory back" 0 '^verbs:rc: read with peer 1 .*REM_ACCESS_ERR \(10\)' \
    env TONNAGE_TEST_ENGINES=verbs:rc sessions keys --nocapture
expect "sessions of the library, and a peer that is killed" 0 '^test result: ok\. 5 passed' \
    env TONNAGE_TEST_ENGINES=verbs:rc sessions alive killed
expect "nothing is allocated in the loop" 0 '^test a_stream_over_verbs_allocates_nothing \.\.\. ok' \
    no_allocation a_stream_over_verbs_allocates_nothing

# The last one that needs the path: what else its interface had is not made again.
take_down
# A failed queue pair is reported, or the silence of the path where none has failed: both with the device's events.
transfer "an interface that goes down" 1 \
    '(_ERR \(|no write with rank 1 .* has ended for).*; the device reports: .*port' --op write --sizes 64 --depth 8 --duration 8s
wait

# What a run leaves behind would show here: queue pairs and rdma_cm's identifiers of programs, and files.
expect "nothing is left" 0 'nothing' sh -c 'left=$(rdma resource show qp | grep -v "type GSI"; rdma resource show cm_id; ls /dev/shm)
    echo "${left:-nothing}"'

exit $failed
