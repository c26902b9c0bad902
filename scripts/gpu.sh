# For test.sh: engine cuda on the GPU of this machine, the same cases as over the double of its driver, and its figures
# beside a raw loop of the driver's calls. Optimised, one test at a time, so that none disturbs another's figures.

gpu_tests() {
    say "engine cuda on a GPU"
    [ -e /dev/nvidiactl ] || {
        skip "no GPU of NVIDIA here (no /dev/nvidiactl): engine cuda ran over a double of the driver only, and has no figures"
        return 0
    }
    TONNAGE_GPU_FIGURES=1 cargo test --release --locked -p tonnage-engines --test gpu -- --show-output --test-threads 1 2>&1 |
        tee "$LOGS/gpu.log" || FAILED+=("gpu")
}
