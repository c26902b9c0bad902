#!/bin/bash
# Time from typing to the first figure of two hosts beside what ssh itself takes, and the time in which 64 hosts are
# reached at once. To be run in hosts of this machine, which should do nothing else:
#     cargo run -p tonnage-testbed -- --count 64 -- bash benches/by_ssh.sh target/release/tonnage
set -euo pipefail
tonnage=${1:?path of the program}
hosts=${2:-64}
records=$(mktemp -d)
trap 'rm -rf "$records"' EXIT

# Milliseconds since an arbitrary time.
now() { echo $(($(date +%s%N) / 1000000)); }
# The middle one of three.
median() { sort -n | awk '{ all[NR] = $1 } END { if (NR != 3) exit 1; print all[2] }'; }
missed=0
# Prints a figure beside its goal.
beside() {
    local verdict=met
    [ "$2" -le "$3" ] || { verdict=MISSED; missed=1; }
    echo "$1: $2 ms, goal $3 ms: $verdict"
}

one_ssh() {
    local since
    since=$(now)
    ssh -o BatchMode=yes h1 true </dev/null
    echo $(($(now) - since))
}

first_figure() {
    local file=$records/$1.jsonl since
    since=$(now)
    "$tonnage" transfer --hosts h0,h1 --engine fabric:tcp --op write --sizes 1M --trials 2 --trial-time 5ms \
        --bound none -o "$file" </dev/null >"$records/$1.out" 2>&1 &
    until [ -s "$file" ]; do
        kill -0 $! 2>/dev/null || { cat "$records/$1.out" >&2; exit 1; }
        sleep 0.01
    done
    echo $(($(now) - since))
    wait $!
}

ssh_ms=$(for _ in 1 2 3; do one_ssh; done | median)
figure_ms=$(for try in 1 2 3; do first_figure "$try"; done | median)
echo "ssh by itself: $ssh_ms ms"
beside "first figure of two hosts, beside ssh" $((figure_ms - ssh_ms)) 2000

list=$(seq -s, -f 'h%g' 0 $((hosts - 1)))
since=$(now)
if ! "$tonnage" hosts "$list" --ssh-parallel "$hosts" </dev/null >"$records/hosts.out"; then
    cat "$records/hosts.out" >&2
    exit 1
fi
beside "$hosts hosts reached at once" $(($(now) - since)) 10000
exit $missed
