#!/bin/sh
# Slurm's Prolog: ends with 1 when `tonnage check` fails, upon which Slurm drains the node and requeues the job. It calls
# no command of Slurm, which a prolog must not. Everything else, errors above all, ends with 0.
#
#   Prolog=/usr/share/tonnage/slurm/prolog.sh
# An error in the file of settings ends a shell with a code of its own, which would drain the node.
verdict=0
trap 'exit "$verdict"' EXIT
conf=${TONNAGE_CHECK_CONF:-/etc/tonnage/check.conf}
[ -r "$conf" ] && . "$conf"
set -- check --exit prolog --baseline "${BASELINE:-/etc/tonnage/fleet.toml}" --time-limit "${BUDGET:-20s}"
[ -n "$STATE" ] && set -- "$@" --state "$STATE" --cache "${CACHE:-10m}"
# A job's variables name ranks that are none of the check's.
for name in $(env | sed -n 's/^\(SLURM_[A-Z0-9_]*\|PMI[A-Z0-9_]*\)=.*/\1/p'); do
    unset "$name"
done
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
    verdict=1
    printf 'tonnage %s\n' "$reason" >&2
    ;;
esac
