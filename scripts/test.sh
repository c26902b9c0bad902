#!/usr/bin/env bash
# Everything that must pass: formatting, lints, documentation, licences, all tests. `make test` and .ci/run call this.
#
# As root on Debian or Ubuntu it installs what the optional parts need; elsewhere it says what is missing. What could
# not run is never silent: every skip is printed where it happens and again at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

# cargo-deny is built once and kept under target/. Unoptimised it builds in about a minute on two cores and runs in a
# second, where its own release profile would take ten times as long to build.
CARGO_DENY_VERSION=0.20.2
TOOLS=$PWD/target/tools
LOG=$PWD/target/test.log
SKIPS=()

mkdir -p "$TOOLS"

say() { printf '\n== %s\n' "$*"; }

skip() {
    printf 'skip: %s\n' "$*"
    SKIPS+=("$*")
}

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
has_libfabric() { PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep 'libfabric\.so\.1' >/dev/null; }
has() { command -v "$1" >/dev/null; }
has_libpmix() { PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep 'libpmix\.so\.2' >/dev/null; }

# Slurm's plugin asks the loader for this name, when slurmd starts.
has_libpmix_dev() { ls /usr/lib/*/libpmix.so /usr/lib64/libpmix.so 2>/dev/null | grep . >/dev/null; }

# Programs for administrators are not in everybody's PATH.
has_program() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null; }

# component NAME COMMAND: succeeds when cargo has the command, which rustup may first have to add.
component() {
    cargo "$2" --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null && rustup component add "$1" && cargo "$2" --version >/dev/null 2>&1
}

has_cargo_deny() { [ "$(cargo deny --version 2>/dev/null)" = "cargo-deny $CARGO_DENY_VERSION" ]; }

cargo_deny() {
    has_cargo_deny && return
    say "cargo install cargo-deny $CARGO_DENY_VERSION (once, into target/tools)"
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --profile dev --root "$TOOLS" \
        --target-dir "$TOOLS/build" --version "$CARGO_DENY_VERSION" cargo-deny || return
    rm -rf "$TOOLS/build"
    has_cargo_deny
}

PATH=$TOOLS/bin:$PATH

need libfabric1 "the tests that list libfabric's providers skip themselves" has_libfabric
need openmpi-bin "the tests that start ranks by Open MPI's mpirun skip themselves" has mpirun.openmpi
need libpmix2 "ranks under Open MPI's mpirun or srun --mpi=pmix cannot find each other" has_libpmix
need mpich "the tests that start ranks by MPICH's mpirun skip themselves" has mpirun.mpich
need python3-torch "the test that starts ranks by torchrun skips itself" has torchrun
need iproute2 "the tests on several hosts skip themselves" has_program tc
need slurm-wlm "the tests under Slurm skip themselves" has_program slurmctld
need libpmix-dev "the test under srun --mpi=pmix skips itself" has_libpmix_dev
need munge "the tests under Slurm skip themselves" has_program munged

if component rustfmt fmt; then
    say "cargo fmt --check"
    cargo fmt --check
else
    skip "cargo fmt is not installed (run: rustup component add rustfmt): formatting is not checked"
fi

if component clippy clippy; then
    say "cargo clippy, warnings denied"
    cargo clippy --workspace --all-targets --locked -- -D warnings
else
    skip "cargo clippy is not installed (run: rustup component add clippy): lints are not checked"
fi

say "cargo doc, warnings denied"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

if cargo_deny; then
    say "cargo deny check licenses bans sources"
    cargo deny --log-level error --all-features check licenses bans sources
else
    skip "cargo-deny $CARGO_DENY_VERSION could not be had (see above): licences, bans and sources are not checked"
fi

say "cargo test"
# Shows what passing tests print, so that a test which skips itself is seen.
cargo test --workspace --locked --no-fail-fast -- --show-output 2>&1 | tee "$LOG"

while IFS= read -r line; do SKIPS+=("${line#skip: }"); done < <(grep '^skip: ' "$LOG" | sort -u)
if [ ${#SKIPS[@]} = 0 ]; then
    printf '\nPassed; nothing was skipped.\n'
else
    printf '\nPassed, with %d skipped:\n' "${#SKIPS[@]}"
    printf 'skip: %s\n' "${SKIPS[@]}"
fi
