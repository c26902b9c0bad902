# For the cases of the guest: what one of them is. Whoever takes this in ends with `exit $failed`.

PATH=$PWD:$PATH
# ofi_rxm makes completion queues for so many peers; for the 256 of its default they are larger than Soft-RoCE has them.
export FI_UNIVERSE_SIZE=8
# Ranks of a busy machine take their time.
export TONNAGE_JOIN_TIMEOUT=60
# The engine of `transfer` and `within`.
ENGINE=verbs:rc
# Some ten seconds each, and more on a busy machine.
CASE_S_MAX=120
# Two ranks, a device each, so that what they move crosses the cable between them.
PAIR="--ranks 2 --devices-of 0=rxeA --devices-of 1=rxeB"
BRIEF="--trials 2 --trial-time 50ms --warmup 20ms"
failed=0

# expect NAME EXIT_CODE PATTERN COMMAND...: a line of what the command prints has the pattern, which is an extended
# regular expression.
expect() {
    name=$1 code=$2 pattern=$3
    shift 3
    status=0
    timeout "$CASE_S_MAX" "$@" >/tmp/case 2>&1 || status=$?
    if [ "$status" = "$code" ] && grep -qE -e "$pattern" /tmp/case; then
        echo "ok $name"
        return
    fi
    echo "FAILED $name: exit code $status, expected $code and a line with: $pattern"
    sed 's/^/    /' /tmp/case
    failed=1
}

# transfer NAME EXIT_CODE PATTERN ARGUMENT...: the same of a transfer by ENGINE.
transfer() {
    name=$1 code=$2 pattern=$3
    shift 3
    # shellcheck disable=SC2086
    expect "$name" "$code" "$pattern" tonnage transfer --engine $ENGINE $PAIR "$@"
}

# column COLUMN: that of the first point of the last transfer, in CSV. Texts with commas are quoted, and no column that
# is looked at is one.
column() {
    sed 's/"[^"]*"//g' /tmp/case | awk -F, -v column="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == column) at = i }
        NR == 2 { print $at }'
}

# measured COLUMN ARGUMENT...: value is that column of a transfer, and status how it ended.
measured() {
    column=$1 status=0
    shift
    # shellcheck disable=SC2086
    timeout "$CASE_S_MAX" tonnage transfer --engine $ENGINE $PAIR --format csv "$@" >/tmp/case 2>&1 || status=$?
    value=$(column "$column")
}

# between LOW HIGH: whether value is.
between() {
    [ "$status" = 0 ] && [ -n "$value" ] && awk -v value="$value" -v low="$1" -v high="$2" \
        'BEGIN { exit !(value + 0 >= low && value + 0 <= high) }'
}

# verdict NAME LOW HIGH: a case of a value.
verdict() {
    if between "$2" "$3"; then
        echo "ok $1 ($column $value)"
        return
    fi
    echo "FAILED $1: exit code $status, $column is $value, expected $2 to $3"
    sed 's/^/    /' /tmp/case
    failed=1
}

# within NAME COLUMN LOW HIGH ARGUMENT...: a column of the first point of a transfer lies between both.
within() {
    name=$1 low=$3 high=$4
    column=$2
    shift 4
    measured "$column" "$@"
    verdict "$name" "$low" "$high"
}

# also NAME COLUMN LOW HIGH: another column of the transfer before.
also() {
    column=$2
    value=$(column "$column")
    verdict "$1" "$3" "$4"
}

# witness ARGUMENT...: the same column of the same transfer by verbs:rc, as it is on this machine now. What the transfer
# before has said stays.
witness() {
    own_value=$value own_status=$status engine=$ENGINE
    cp /tmp/case /tmp/own
    ENGINE=verbs:rc
    measured "$column" "$@"
    ENGINE=$engine witnessed=$value
    is_had=no is_possible=no
    if between "$low" "$high"; then is_had=yes; fi
    if between "$least" "$most"; then is_possible=yes; fi
    mv /tmp/own /tmp/case
    value=$own_value status=$own_status
}

# known NAME COLUMN LOW HIGH LEAST MOST ARGUMENT...: the same with an answer that is known, LOW to HIGH, which a
# transfer has in one of two tries. A machine that others keep busy may have none of it, which verbs:rc shows by turns
# with it: where that misses the answer too, it is a skip that says so, and else a failure. So is what only verbs:rc has
# between LEAST and MOST, which are half an answer and more than a machine can have.
known() {
    name=$1 column=$2 low=$3 high=$4 least=$5 most=$6
    shift 6
    for _ in 1 2; do
        measured "$column" "$@"
        if between "$low" "$high" || [ "$status" != 0 ]; then break; fi
        witness "$@"
        [ $is_had = yes ] || break
    done
    if between "$low" "$high" || [ "$status" != 0 ] || [ $is_had = yes ] ||
        { [ $is_possible = yes ] && ! between "$least" "$most"; }; then
        verdict "$name" "$low" "$high"
    else
        echo "skip: $name: others took this machine's time, $column is $value, $witnessed by verbs:rc, and not $low to $high"
    fi
}

# noisy: what the kernel found fault with since the cases began; or that its messages since then are gone.
noisy() {
    dmesg >/tmp/dmesg
    grep -q 'tonnage: the cases begin' /tmp/dmesg || { echo "the ring of messages has wrapped" && return; }
    awk 'begun; /tonnage: the cases begin/ { begun = 1 }' /tmp/dmesg |
        grep -E 'WARNING|BUG|lockup|stall|Oops|leak|refcount|UBSAN|KASAN|hung'
}

# over NETEM COMMAND...: the command while rxeA's packets suffer that.
over() {
    netem=$1
    shift
    # shellcheck disable=SC2086
    tc qdisc add dev ve0 root netem $netem
    "$@"
    tc qdisc del dev ve0 root
}

# Packets that rxeA has sent.
SENT=/sys/class/infiniband/rxeA/ports/1/hw_counters/sent_pkts

# under_way COUNT: waits until rxeA has sent a thousand packets more than so many: a busy machine takes its time to begin.
under_way() {
    for _ in $(seq 600); do
        [ "$(cat "$SENT")" -le $(($1 + 1000)) ] || break
        sleep 0.05
    done
}

# Takes rxeA's interface down for a while, once bytes are under way. Its routes are gone with it.
take_down() {
    before=$(cat "$SENT")
    (
        under_way "$before"
        ip link set ve0 down
        sleep 3
        ip link set ve0 up
        ip route add 10.1.0.2 dev ve0 src 10.1.0.1 table 101
    ) &
}

# Kills rank 1 without a warning, once bytes are under way.
kill_rank_1() {
    before=$(cat "$SENT")
    (
        under_way "$before"
        for process in /proc/[0-9]*; do
            if tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx TONNAGE_RANK=1; then
                kill -9 "${process#/proc/}"
                break
            fi
        done
    ) &
}
