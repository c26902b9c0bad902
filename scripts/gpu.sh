# For test.sh: engines cuda and hip on the GPU of this machine, the same cases as over the doubles of their drivers, and
# on one of NVIDIA figures beside a raw loop of the driver's calls. Optimised, one test at a time, so that none disturbs
# another's figures.

gpu_tests() {
    say "engines cuda and hip on a GPU"
    [ -e /dev/nvidiactl ] ||
        skip "no GPU of NVIDIA here (no /dev/nvidiactl): engine cuda, alloc=vmm, export and flush ran over a double only," \
            "without figures"
    [ -e /dev/kfd ] ||
        skip "no GPU of AMD here (no /dev/kfd): engine hip ran over a double of the runtime only"
    [ -e /dev/nvidiactl ] || [ -e /dev/kfd ] || return 0
    TONNAGE_GPU_FIGURES=1 cargo test --release --locked -p tonnage-engines --test gpu -- --show-output --test-threads 1 2>&1 |
        tee "$LOGS/gpu.log" || FAILED+=("gpu")
}
