#!/bin/sh
# Runs a program in one of the hosts: on HOST PROGRAM [ARGUMENT...], where HOST is 0, 1, ... or switch.
state=${0%/bin/on}
[ $# -ge 2 ] || { echo "on: write on HOST PROGRAM [ARGUMENT...], where HOST is 0, 1, ... or switch" >&2; exit 2; }
case $1 in switch) host=switch ;; *) host=h$1 ;; esac
space=/run/netns/tonnage-${state##*/}-$host
[ -e "$space" ] || { echo "on: there is no host $1 (or no more)" >&2; exit 2; }
shift
exec nsenter --net="$space" -- unshare --uts --mount --propagation private -- \
    sh "$state/bin/inside" "$host" "$state" "$@"
