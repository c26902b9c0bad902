#!/usr/bin/env bash
# Tests that must pass: `scripts/test.sh check unit system`, or some of these parts; and searches for rare faults. `make`
# has a command for each of them.
#
#     check     formatting, lints, documentation     check.sh
#     unit      tests beside the code, and those in the documentation     tests.sh
#     system    the program from outside, hosts on this machine, whole crates     tests.sh
#     faults    signals to random ranks, links that are cut: FAULTS cases of FAULT_SEED     tests.sh
#     rdma      the program on RDMA devices, in a virtual machine     rdma.sh, rdma-guest.sh
#     kernel    the kernel's module in that machine, which is shared where rdma is asked for too     kernel.sh
#     gpu       engine cuda on a GPU, with its figures     gpu.sh
#     browser   pages of `tonnage report` in Chromium, which `system` has too     tests.sh
#     fuzz      fuzz targets for as long as FUZZ_SECONDS says     fuzz.sh
#     corpus    what is committed of their inputs, made anew     fuzz.sh
#     mutants   changes that no unit test notices     mutants.sh
#
# As root on Debian or Ubuntu it installs what the optional tests need (packages.sh); elsewhere it says what is missing.
# Tests that could not run are never silent: every skip is printed where it happens and again at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
for part in lib packages check tests rdma kernel gpu fuzz mutants; do
    # shellcheck source=/dev/null
    source "scripts/$part.sh"
done

# A first build gains nothing from what incremental compilation writes.
[ -d "${CARGO_TARGET_DIR:-target}/debug/incremental" ] || export CARGO_INCREMENTAL=0
[ $# != 0 ] || {
    echo "usage: scripts/test.sh [check] [unit] [system] [faults] [rdma] [kernel] [gpu] [browser] [fuzz] [corpus] [mutants]" >&2
    exit 2
}
trap report EXIT
# What comes over the network comes while `check` compiles.
prepare "$@"
for part in "$@"; do
    case $part in
        check) check ;;
        unit) prepared; unit_tests ;;
        system) prepared; system_tests ;;
        faults) prepared; fault_tests ;;
        rdma) prepared; if [[ " $* " == *" kernel "* ]]; then rdma_tests kernel; else rdma_tests; fi ;;
        kernel) [[ " $* " == *" rdma "* ]] || { prepared; kernel_tests; } ;;
        gpu) gpu_tests ;;
        browser) prepared; browser_tests ;;
        fuzz) fuzz ;;
        corpus) fuzz_corpus ;;
        mutants) mutants ;;
        *)
            echo "scripts/test.sh: no part $part: check, unit, system, faults, rdma, kernel, gpu, browser, fuzz, corpus or mutants" >&2
            exit 2
            ;;
    esac
done
