#!/bin/sh
# What the program must do on RDMA devices. It runs in the guest of rdma-guest.sh, which has the program in this folder.
# A case is a line at the end; all of them run, and the exit code is 1 if one failed.

PATH=$PWD:$PATH
# ofi_rxm makes completion queues for so many peers; for the 256 of its default they are larger than Soft-RoCE has them.
export FI_UNIVERSE_SIZE=8
# Some ten seconds each, and more on a busy machine.
CASE_S_MAX=120
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

# moves NAME ENGINE: writes and reads by it, from one device to the other, with every byte compared and the devices'
# counters for a proof that the bytes went through them.
moves() {
    expect "$1" 0 '^verified: .* checked and right' tonnage transfer --engine "$2" --devices rxeA,rxeB --require-path \
        --op write,read --ranks 2 --sizes 64,64k --trials 2 --trial-time 200ms --warmup 50ms --verify
}

expect "devices" 0 '^ *rxeA port 1 .* ACTIVE ' tonnage devices
moves "fabric:verbs;ofi_rxm" 'fabric:verbs;ofi_rxm'

exit $failed
