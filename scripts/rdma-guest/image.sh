# For rdma-guest.sh: the guest's kernel and first file system, made of Debian's packages. They are downloaded and
# unpacked, not installed, so that the machine keeps its own.

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/tonnage/rdma-guest
PACKAGES=(busybox-static dash libgcc-s1 iproute2 ibverbs-utils ibverbs-providers libibverbs1 librdmacm1
    rdmacm-utils rdma-core perftest libfabric1 libfabric-bin
    libatomic1 libbpf1 libbsd0 libcap2 libdb5.3 libelf1 libibumad3 libmd0 libmnl0 libnl-3-200 libnl-route-3-200 libnuma1
    libpci3 libpsm-infinipath1 libpsm2-2 libtirpc3 libxtables12)
# Beside what the kernel has built in. Without crc32_generic an rxe device cannot be added, and nothing says why.
MODULES=(rdma_rxe ib_uverbs rdma_ucm crc32_generic veth sch_netem sch_tbf virtio_pci 9p 9pnet_virtio)
PROGRAMS=(bin/{dash,ip} sbin/tc usr/bin/{rdma,rping} usr/bin/{ib_,ibv_,fi_}'*')
# Found while a program runs, not by what it names.
PLUGINS=(libfabric.so.1 libibverbs.so.1 librdmacm.so.1 libgcc_s.so.1 libibverbs/librxe-'*')
LIBRARIES=usr/lib/x86_64-linux-gnu

# Makes what is missing, and sets IMAGE to the folder that has it.
image() {
    local kernel key
    [ "$(uname -m)" = x86_64 ] || give_up 126 "the guest is for x86-64, and this machine is not"
    command -v apt-get >/dev/null ||
        give_up 126 "there is no apt-get, and the guest is made of Debian 12's packages (use a host or container of it)"
    mkdir -p "$CACHE/packages" || give_up 126 "there is no place for the guest's packages (see above)"
    exec 9>"$CACHE/lock"
    flock 9
    kernel=$(kernel_package) || { update && kernel=$(kernel_package); } ||
        give_up 126 "apt-get knows no linux-image-amd64, which is Debian's (root can run: apt-get update)"
    host_packages
    key=$(cat "$0" "$HERE"/{image.sh,init,rdma-up} | sha256sum | cut -c 1-12)
    IMAGE=$CACHE/$kernel-$key
    if [ ! -d "$IMAGE" ]; then
        WORK=$(mktemp -d "$CACHE/new.XXXXXX")
        download "$kernel"
        make_image "${kernel#linux-image-}"
        # Only now has it its name, so that one half made is never used.
        rm -rf "$CACHE"/linux-image-*
        mv "$WORK/image" "$IMAGE"
        rm -rf "$WORK"
    fi
    flock -u 9
}

# Of what goes wrong the last lines: apt-get says the same of every package.
apt() {
    local said
    said=$(timeout 300 apt-get -qq -o DPkg::Lock::Timeout=120 -o APT::Sandbox::User=root "$@" 2>&1 >/dev/null) ||
        { tail -n 2 <<<"$said" >&2 && return 1; }
}

update() { [ "$(id -u)" = 0 ] && apt update; }

# What this machine needs itself.
host_packages() {
    local missing=()
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    command -v xz >/dev/null || missing+=(xz-utils)
    [ ${#missing[@]} != 0 ] || return 0
    [ "$(id -u)" = 0 ] || give_up 126 "only root can install what is missing (run: apt-get install ${missing[*]})"
    echo "apt-get install ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    local install=(install -y --no-install-recommends "${missing[@]}")
    apt "${install[@]}" || { update && apt "${install[@]}"; } ||
        give_up 126 "${missing[*]} could not be installed (see above)"
}

# kernel_package [APT_OPTION]...: the kernel that is newest now: linux-image-amd64 stands for it.
kernel_package() {
    apt-cache "$@" depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | grep .
}

# newer_kernel: makes what is missing of the kernel in backports, and sets NEWER to the folder that has it and its
# modules: the kernel unpacks them behind the image's files.
newer_kernel() {
    local kernel
    exec 7>"$CACHE/headers-backports.lock"
    flock 7
    backports
    kernel=$(kernel_package "${BACKPORTS_KNOWN[@]}") || give_up 126 "apt-get knows no kernel of backports"
    NEWER=$CACHE/newer-$kernel
    if [ ! -d "$NEWER" ]; then
        WORK=$(mktemp -d "$CACHE/new.XXXXXX")
        echo "downloading $kernel" >&2
        (cd "$WORK" && apt "${BACKPORTS_KNOWN[@]}" download "$kernel") ||
            give_up 126 "$kernel cannot be downloaded (see above)"
        dpkg -x "$WORK"/*.deb "$WORK/packages"
        mkdir "$WORK/newer"
        uncompressed_kernel "$WORK/packages/boot/vmlinuz-${kernel#linux-image-}" >"$WORK/newer/vmlinux"
        copy_modules "$WORK/packages" "$WORK/root" "${kernel#linux-image-}" "$IMAGE/busybox"
        archive "$WORK/root" "$IMAGE/busybox" >"$WORK/newer/modules.cpio"
        rm -rf "$CACHE"/newer-*
        mv "$WORK/newer" "$NEWER"
        rm -rf "$WORK"
        WORK=
    fi
    flock -u 7
}

# download KERNEL: a mirror has only the newest of each package, so that old lists may name what is gone.
download() (
    packages=("${PACKAGES[@]}" "$1")
    echo "downloading $1 and ${#PACKAGES[@]} small packages" >&2
    cd "$CACHE/packages" || exit
    apt download "${packages[@]}" || { update && apt download "${packages[@]}"; } ||
        give_up 126 "Debian's packages for the guest cannot be downloaded (see above)"
    # Older ones may lie beside them. In another folder, because apt-get does not name what is there already.
    names=$(cd "$WORK" && apt-get -qq download --print-uris "${packages[@]}" 2>/dev/null | awk '{ print $2 }')
    for name in *.deb; do
        if grep -qxF "$name" <<<"$names"; then
            dpkg -x "$name" "$WORK/packages"
        else
            rm "$name"
        fi
    done
)

# make_image KERNEL_VERSION: from WORK/packages.
make_image() {
    local from=$WORK/packages to=$WORK/root image=$WORK/image name file
    mkdir -p "$image" "$to"/{proc,sys,dev,tmp,root,host,test} "$to/usr"/{bin,sbin,lib64} "$to/$LIBRARIES/libibverbs"
    for name in bin sbin lib64; do ln -s "usr/$name" "$to/$name"; done
    ln -s usr/lib "$to/lib"
    cp "$from/bin/busybox" "$image/"
    uncompressed_kernel "$from/boot/vmlinuz-$1" >"$image/vmlinux"

    copy_modules "$from" "$to" "$1" "$image/busybox"
    # Names with * stand for several files.
    # shellcheck disable=SC2086
    for name in "${PROGRAMS[@]}"; do
        for file in "$from"/$name; do
            [ -e "$file" ] || give_up 1 "no package has $name"
            if is_elf "$file"; then cp -L "$file" "$to/usr/bin/"; fi
        done
    done
    # shellcheck disable=SC2086
    for name in "${PLUGINS[@]}"; do
        for file in "$from/$LIBRARIES"/$name "$from/lib/x86_64-linux-gnu"/$name; do
            if is_elf "$file"; then cp -L "$file" "$to/$LIBRARIES/$(dirname "$name")/"; fi
        done
    done
    PACKAGE_LIBRARIES=$from/$LIBRARIES:$from/lib/x86_64-linux-gnu copy_libraries "$to" "$to"/usr/bin/* \
        "$to/$LIBRARIES"/*.so.* "$to/$LIBRARIES"/libibverbs/*
    mkdir -p "$to/etc/libibverbs.d"
    cp "$from/etc/libibverbs.d/rxe.driver" "$to/etc/libibverbs.d/"

    # Debian's busybox prefers its own commands to files of the same name, and its ip makes no pairs: the shell is dash.
    cp "$from/bin/busybox" "$to/usr/bin/"
    ln -s dash "$to/usr/bin/sh"
    for name in $("$image/busybox" --list); do
        [ -e "$to/usr/bin/$name" ] || ln -s busybox "$to/usr/bin/$name"
    done
    # The kernel calls it by this name for a module that it lacks.
    ln -s ../bin/busybox "$to/usr/sbin/modprobe"
    echo 'root:x:0:0:root:/root:/bin/sh' >"$to/etc/passwd"
    echo '127.0.0.1 localhost' >"$to/etc/hosts"
    install "$HERE/init" "$to/init"
    install "$HERE/rdma-up" "$to/usr/bin/rdma-up"
    archive "$to" "$image/busybox" >"$image/root.cpio"
    echo "made the image of a guest with Linux $1" >&2
}

# copy_modules FROM TO VERSION BUSYBOX: those that the guest needs, as they are without a package's compression.
copy_modules() {
    local kernel=lib/modules/$3 name file
    "$4" depmod -b "$1" "$3"
    mkdir -p "$2/$kernel"
    for name in "${MODULES[@]}"; do
        # A module, and all that it needs.
        grep -E "/$name\.ko(\.xz)?:" "$1/$kernel/modules.dep" | tr -d : ||
            grep -q "/$name\.ko$" "$1/$kernel/modules.builtin" || give_up 1 "the kernel has no module $name"
    done | tr ' ' '\n' | sort -u | while read -r file; do
        install -D -m 644 "$1/$kernel/$file" "$2/$kernel/$file"
        [ "$file" = "${file%.xz}" ] || xz -d "$2/$kernel/$file"
    done
    cp "$1/$kernel"/modules.{builtin,order} "$2/$kernel/"
    "$4" depmod -b "$2" "$3"
}

# uncompressed_kernel FILE: QEMU boots it too, some seconds earlier where it emulates. Where it is packed in another way
# than Debian's are, or with what this machine cannot read, the file itself is printed.
uncompressed_kernel() {
    unpacked "$1" '\xfd7zXZ\x00' xz -dc --single-stream || unpacked "$1" '\x28\xb5\x2f\xfd' zstd -dcq || cat "$1"
}

# unpacked FILE MAGIC COMMAND...: prints the program that the command makes of what begins with these bytes.
unpacked() {
    local file=$1 at
    at=$(LC_ALL=C grep -aboP "$2" "$1" | head -n 1 | cut -d : -f 1) || true
    shift 2
    [ -n "$at" ] && command -v "$1" >/dev/null || return
    # Behind its end there is more, which it may find fault with.
    tail -c "+$((at + 1))" "$file" | "$@" >"$WORK/vmlinux" 2>/dev/null || true
    is_elf "$WORK/vmlinux" && cat "$WORK/vmlinux"
}

is_elf() { [ -f "$1" ] && [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]; }

# archive FOLDER BUSYBOX: as the kernel unpacks it.
archive() { (cd "$1" && find . | "$2" cpio -o -H newc); }

# copy_libraries ROOT ELF_FILE...: what the loader finds for them, in PACKAGE_LIBRARIES before this machine's own.
copy_libraries() {
    local root=$1 file library
    shift
    for file in "$@"; do
        ! is_elf "$file" || LD_LIBRARY_PATH=${PACKAGE_LIBRARIES:-${LD_LIBRARY_PATH:-}} ldd "$file" 2>/dev/null || true
    done | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/lib64\// { print $1 }' | sort -u |
        while read -r library; do
            case $library in
                /lib64/*) install -D "$library" "$root/usr/lib64/${library##*/}" ;;
                *) install -D "$library" "$root/$LIBRARIES/${library##*/}" ;;
            esac
        done
}
