#!/bin/sh
# Slurm's HealthCheckProgram: drains this node when `tonnage check` fails, with its reason. Everything else, errors above
# all, leaves the node as it is, and so does a node that somebody has drained already. Slurm kills it after 60 seconds.
#
#   HealthCheckProgram=/usr/share/tonnage/slurm/health-check.sh
#   HealthCheckInterval=3600
#   HealthCheckNodeState=IDLE,CYCLE
# An error in the file of settings ends a shell with a code of its own, which is no verdict.
trap 'exit 0' EXIT
conf=${TONNAGE_CHECK_CONF:-/etc/tonnage/check.conf}
[ -r "$conf" ] && . "$conf"
set -- check --exit prolog --baseline "${BASELINE:-/etc/tonnage/fleet.toml}" --time-limit "${BUDGET:-20s}"
[ -n "$STATE" ] && set -- "$@" --state "$STATE" --cache "${CACHE:-10m}"
# Options are words.
# shellcheck disable=SC2086
said=$("${TONNAGE:-tonnage}" "$@" $OPTIONS 2>/dev/null)
code=$?
reason=$(printf '%s\n' "$said" | tail -n 1)
# Whoever asks why a node was not checked finds it in the log.
case $reason in
pass:*) ;;
*) logger -t tonnage "${reason:-error: no verdict, code $code}" 2>/dev/null ;;
esac
# A crash has a code too; only a verdict has its word.
case $code:$reason in
1:fail:*)
    node=${SLURMD_NODENAME:-$(hostname -s)}
    # The reason of whoever drained it before stays.
    case $(scontrol show node --oneliner "$node" 2>/dev/null | sed -n 's/.* State=\([^ ]*\).*/\1/p') in
    *DRAIN*) ;;
    *) scontrol update "nodename=$node" state=drain "reason=tonnage $reason" ;;
    esac
    ;;
esac
