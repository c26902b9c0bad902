#!/usr/bin/env bash
# Three hosts on this machine with two shaped links each, and from the first of them to the other two at once: one link,
# every operation over both, and a link for each peer. Needs root, ip and tc.
#
#     rails.sh RATE          makes the hosts and runs the comparison in them; RATE such as 1gbit or 300mbit
set -euo pipefail

rate=${1:?a rate such as 1gbit}

case $rate in
*gbit) speed=${rate%gbit}Gb/s ;;
*mbit) speed=${rate%mbit}Mb/s ;;
*)
    echo "error: $rate is not the rate of a link: write one such as 1gbit or 300mbit" >&2
    exit 2
    ;;
esac

if [[ -z ${HOST2_RAIL1:-} ]]; then
    cargo build --quiet --release --locked
    exec cargo run --quiet --locked -p tonnage-testbed -- --count 3 --links 2 --rate "$rate" -- bash "$0" "$rate"
fi

program=${CARGO_TARGET_DIR:-target}/release/tonnage
TONNAGE_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export TONNAGE_SECRET
rank() {
    on "$1" "$program" transfer --rank "$1" --world-size 3 --master "$HOST0:29500" --engine fabric:tcp --op write \
        --traffic fan-out --sizes 1M --depth 8 --devices eth0,eth1 --rails single,stripe,round-robin \
        --link-speed "$speed" --trials 3 --trial-time 2s
}
rank 1 &
rank 2 &
# The others end with this one, or say why they did not.
status=0
rank 0 || status=$?
wait
exit "$status"
