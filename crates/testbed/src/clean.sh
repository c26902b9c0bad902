# Removes one set of hosts: clean.sh STATE PREFIX wait|now
#
# STATE is its folder, PREFIX begins the names of its network namespaces. With `wait` this is the guardian: it outlives
# its owner, whose end it sees as the end of standard input. Standard output is the lock that tells others that the set
# is still looked after, so nothing is printed there.
trap '' HUP INT QUIT TERM
state=$1 prefix=$2
PATH=${PATH:-/usr/bin:/bin}:/usr/sbin:/sbin
[ "$3" = now ] || cat >/dev/null

spaces() {
    for file in /run/netns/"$prefix"*; do
        [ ! -e "$file" ] || printf '%s\n' "${file##*/}"
    done
}

pids() { for space in $(spaces); do ip netns pids "$space"; done; }

# Only processes inside these namespaces are ended: asked once, then told.
signal=TERM
for round in $(seq 120); do
    pids=$(pids)
    [ -n "$pids" ] || break
    [ "$round" -lt 20 ] || signal=KILL
    case $round in 1|[2-9]?|1??) kill -s $signal $pids 2>/dev/null ;; esac
    sleep 0.05
done

for space in $(spaces); do ip netns del "$space"; done
left=$(spaces)
[ -z "$left" ] || { echo "tonnage-testbed: cannot remove the network namespaces" $left >&2; exit 1; }
# Mounts that somebody has made in there are not ours.
rm -rf --one-file-system -- "$state"
