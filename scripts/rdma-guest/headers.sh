# For rdma-guest.sh: headers of kernels, to build modules with. Like the image they are downloaded and unpacked, not
# installed.

BACKPORTS="deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm-backports main"

# headers [backports]: prints the folder that modules are built with.
headers() {
    local folder version packages known=() to
    folder=$CACHE/headers${1:+-$1}
    command -v apt-get >/dev/null || give_up 126 "there is no apt-get, and the headers are Debian's packages"
    command -v make >/dev/null && command -v gcc-12 >/dev/null ||
        give_up 126 "there is no make or gcc-12, which Debian's kernels are built with (root can run: apt-get install make gcc-12)"
    mkdir -p "$folder" || give_up 126 "there is no place for the headers (see above)"
    exec 8>"$folder.lock"
    flock 8
    if [ "${1:-}" = backports ]; then
        backports
        known=("${BACKPORTS_KNOWN[@]}")
    fi
    version=$(headers_version ${known[@]+"${known[@]}"}) || give_up 126 "apt-get knows no headers of such a kernel"
    to=$folder/$version
    if [ ! -d "$to" ]; then
        packages=$(headers_packages "$version" ${known[@]+"${known[@]}"})
        WORK=$(mktemp -d "$CACHE/new.XXXXXX")
        # Names of packages have no spaces.
        # shellcheck disable=SC2086
        (cd "$WORK" && apt ${known[@]+"${known[@]}"} download $packages) ||
            give_up 126 "the headers of Linux $version cannot be downloaded (see above)"
        for packages in "$WORK"/*.deb; do dpkg -x "$packages" "$WORK/headers"; done
        # Debian's file names the other half by where it would be installed.
        echo "include $to/usr/src/linux-headers-${version%-amd64}-common/Makefile" \
            >"$WORK/headers/usr/src/linux-headers-$version/Makefile"
        rm -rf "$folder"/[0-9]*
        mv "$WORK/headers" "$to"
        rm -rf "$WORK"
        WORK=
    fi
    flock -u 8
    echo "$to/usr/src/linux-headers-$version"
}

# Lists of backports, apart from the machine's own; those of a day are new enough. Sets BACKPORTS_KNOWN to options of
# apt that know them.
backports() {
    local folder=$CACHE/headers-backports
    mkdir -p "$folder/lists/partial"
    echo "$BACKPORTS" >"$folder/backports.list"
    BACKPORTS_KNOWN=(-o "Dir::Etc::sourcelist=$folder/backports.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::lists=$folder/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
    [ -z "$(find "$folder/lists" -name '*Packages*' -mtime -1 2>/dev/null)" ] || return 0
    apt "${BACKPORTS_KNOWN[@]}" update || give_up 126 "Debian's backports cannot be reached"
}

# headers_version [APT_OPTION]...: of the guest's kernel, or the newest that these options know.
headers_version() {
    local kernel
    if [ $# = 0 ]; then
        kernel=$(kernel_package) || return
        echo "${kernel#linux-image-}"
    else
        apt-cache "$@" depends linux-headers-amd64 2>/dev/null |
            sed -n 's/.*Depends: linux-headers-\([0-9].*\)/\1/p' | grep .
    fi
}

# headers_packages VERSION [APT_OPTION]...: the headers of a version, and what they need to be built with.
headers_packages() {
    local version=$1
    shift
    echo "linux-headers-$version"
    apt-cache "$@" depends "linux-headers-$version" 2>/dev/null |
        sed -n 's/.*Depends: \(linux-headers-.*-common\|linux-kbuild-.*\)/\1/p'
}
