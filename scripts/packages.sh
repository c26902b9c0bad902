# For test.sh: what optional tests need and this machine has not: packages of the system, and the guest's image.

is_root_on_debian() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null &&
        grep -qE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release
}

# need PACKAGE WHAT_IS_SKIPPED_WITHOUT_IT TEST...: the test succeeds where the package is not needed any more.
need() {
    local package=$1 without=$2
    shift 2
    if "$@"; then return; fi
    if is_root_on_debian; then
        say "apt-get install $package"
        apt_install "$package" && return
        skip "$package could not be installed (see above): $without"
    else
        skip "$package is not installed (run: apt-get install $package): $without"
    fi
}

apt_install() {
    local apt=(timeout 300 apt-get -qq -o DPkg::Lock::Timeout=120)
    export DEBIAN_FRONTEND=noninteractive
    "${apt[@]}" install -y --no-install-recommends "$1" ||
        { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$1"; }
}

# Not grep -q, which would end ldconfig by a broken pipe.
has_library() { PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep "$1" >/dev/null; }

# Slurm's plugin asks the loader for this name, when slurmd starts.
has_libpmix_dev() { ls /usr/lib/*/libpmix.so /usr/lib64/libpmix.so 2>/dev/null | grep . >/dev/null; }

# Programs for administrators are not in everybody's PATH.
has_program() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null; }

browser() { need chromium "pages are not opened in a browser" has_program chromium; }

packages() {
    need libfabric1 "the tests that list libfabric's providers skip themselves" has_library 'libfabric\.so\.1'
    need openmpi-bin "the tests that start ranks by Open MPI's mpirun skip themselves" has_program mpirun.openmpi
    need libpmix2 "ranks under Open MPI's mpirun or srun --mpi=pmix cannot find each other" has_library 'libpmix\.so\.2'
    need mpich "the tests that start ranks by MPICH's mpirun skip themselves" has_program mpirun.mpich
    need python3-torch "the tests of torch.distributed and of torchrun skip themselves" has_program torchrun
    need iproute2 "the tests on several hosts skip themselves" has_program tc
    need openssh-server "the tests that start ranks by ssh skip themselves" has_program sshd
    need slurm-wlm "the tests under Slurm skip themselves" has_program slurmctld
    need libpmix-dev "the test under srun --mpi=pmix skips itself" has_libpmix_dev
    need mandoc "man pages are not checked" has_program mandoc
    browser
    need munge "the tests under Slurm skip themselves" has_program munged
}

PREPARING=

# prepare PART...: begins to get what these parts of the tests need. Whether a guest can be had is said by its tests.
prepare() {
    local parts=" $* "
    {
        if [[ $parts == *" unit "* || $parts == *" system "* || $parts == *" faults "* ]]; then packages; fi
        if [[ $parts == *" browser "* ]]; then browser; fi
        if [[ $parts == *" rdma "* ]]; then bash scripts/rdma-guest.sh setup || true; fi
        if [[ $parts == *" kernel "* ]]; then
            # What is missing is said by who builds the module.
            bash scripts/rdma-guest.sh headers >/dev/null 2>&1 || true
            bash scripts/rdma-guest.sh headers backports >/dev/null 2>&1 || true
        fi
    } >"$LOGS/packages.log" 2>&1 &
    PREPARING=$!
}

# Waits until it is there, and says once what was said meanwhile. What was skipped is found in the log.
prepared() {
    [ -n "$PREPARING" ] || return 0
    wait "$PREPARING" || FAILED+=("packages")
    PREPARING=
    cat "$LOGS/packages.log"
}
