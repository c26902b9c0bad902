#!/usr/bin/env bash
# A command inside a throw-away Linux guest that has two RDMA devices, rxeA and rxeB. They are Soft-RoCE, the kernel's
# own RDMA over sockets of UDP: what verbs do is real, how fast they do it says nothing about cards.
#
#     rdma-guest.sh setup     packages and the guest's image, once: needs Debian 12 and a mirror of it, and root where
#                             QEMU is not installed
#     rdma-guest.sh headers [backports]     prints the folder of headers of the guest's kernel, or of the one in Debian's
#                             backports, to build modules with; downloads them where they are missing
#     rdma-guest.sh run [OPTION]... -- COMMAND     boots, makes the devices, runs COMMAND by sh as root in /test
#         --file FILE         a file or folder that the guest has in /test; with a program come its libraries; repeated
#                             for more
#         --share FOLDER      a folder of this machine that the guest reads and writes at /host
#         --timeout S         for all of it, 300 if not given
#         --kernel backports  with the kernel in Debian's backports instead of Debian 12's
#
# Ends as COMMAND ends; with 124 after the time-out, 125 where the guest died before COMMAND ended, and 126 where no
# guest can be had. A line on standard error then says why.
set -euo pipefail

HERE=$(cd "$(dirname "$0")" && pwd)/rdma-guest
CPUS=2
MEMORY_MIB=3072

give_up() {
    local status=$1
    shift
    echo "rdma-guest: $*" >&2
    exit "$status"
}

usage() {
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

# shellcheck source=/dev/null
source "$HERE/image.sh"
# shellcheck source=/dev/null
source "$HERE/headers.sh"

WORK=
GUEST=
clean_up() {
    [ -z "$GUEST" ] || kill "$GUEST" 2>/dev/null || true
    [ -z "$WORK" ] || rm -rf "$WORK"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# /dev/kvm may be there and of no use: a virtual machine without extensions for another inside it may still offer it,
# and then interprets a kernel instruction by instruction until that dies.
#
# Without KVM, a guest that does not see these three features copies and sums by code that QEMU runs two to three times
# as fast as what it would choose for them.
accelerator() {
    if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then
        echo -accel kvm -cpu host
    else
        echo -accel tcg -cpu max,-erms,-fsrm,-pclmulqdq
    fi
}

# clock_option: an emulated guest tells the time by this machine's counter of cycles, and looks how fast that is while
# it boots. One that waits for a CPU meanwhile may take it for another rate as long as it lives, so it is told the rate,
# where this machine says that and not the frequency of the moment.
clock_option() {
    grep -qw aperfmperf /proc/cpuinfo || [ -e /sys/devices/system/cpu/cpu0/cpufreq ] ||
        awk '/^cpu MHz/ { printf "tsc_early_khz=%d\n", $4 * 1000; exit }' /proc/cpuinfo
}

# put FILE: into the guest's /test. Debug information stays here: it is most of a program's size, and the guest keeps
# all its files in memory.
put() {
    local to=$WORK/root/test
    [ -e "$1" ] || give_up 126 "there is no $1"
    cp -rL "$1" "$to/"
    if is_elf "$1"; then
        strip --strip-debug "$to/$(basename "$1")" 2>/dev/null || true
        copy_libraries "$WORK/root" "$1"
    fi
}

run() {
    local files=() file share='' seconds=300 kernel='' devices=() accelerator=() status=0
    while [ $# != 0 ] && [ "$1" != -- ]; do
        [ $# -ge 2 ] || usage
        case $1 in
            --file) files+=("$2") ;;
            --share) share=$(realpath -e "$2") || give_up 126 "there is no folder $2 to share" ;;
            --timeout) seconds=$2 ;;
            --kernel)
                [ "$2" = backports ] || usage
                kernel=$2
                ;;
            *) usage ;;
        esac
        shift 2
    done
    [ $# -ge 2 ] || usage
    shift
    image
    NEWER=
    [ -z "$kernel" ] || newer_kernel
    WORK=$(mktemp -d)
    mkdir -p "$WORK/root/test"
    for file in ${files[@]+"${files[@]}"}; do put "$file"; done
    printf '%s\n' "$*" >"$WORK/root/test/.command"
    # The kernel unpacks one archive after the other.
    { cat "$IMAGE/root.cpio" ${NEWER:+"$NEWER/modules.cpio"} && archive "$WORK/root" "$IMAGE/busybox"; } >"$WORK/root.cpio"
    [ -z "$share" ] || devices=(-virtfs "local,path=${share//,/,,},mount_tag=host,security_model=none")
    read -ra accelerator < <(accelerator)
    # The first serial port is what the command prints, the second is its exit code. What the kernel does not know of
    # its command line, such as share=, is in the environment of the guest's first process. In the background, because
    # the shell runs no trap while it waits for a program before it. QEMU finds code that it has translated by its
    # virtual address: without norandmaps it would translate a program again for each process.
    timeout --kill-after=5 "$seconds" qemu-system-x86_64 -M pc "${accelerator[@]}" -smp "$CPUS" -m "$MEMORY_MIB" \
        -kernel "${NEWER:-$IMAGE}/vmlinux" -initrd "$WORK/root.cpio" \
        -append "tsc=reliable $(clock_option) console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off norandmaps share=${share:+yes}" \
        -nodefaults -display none -no-reboot -serial stdio -serial "file:$WORK/status" \
        ${devices[@]+"${devices[@]}"} </dev/null &
    GUEST=$!
    wait "$GUEST" || status=$?
    GUEST=
    if [ -s "$WORK/status" ]; then
        exit "$(tr -dc 0-9 <"$WORK/status")"
    fi
    case $status in
        124 | 137) give_up 124 "the command did not end within $seconds s" ;;
        *) give_up 125 "the guest died before the command ended" ;;
    esac
}

case ${1:-} in
    setup) image ;;
    headers) headers "${2:-}" ;;
    run)
        shift
        run "$@"
        ;;
    *) usage ;;
esac
