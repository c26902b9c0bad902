# For test.sh: engines cuda and hip on the GPU of this machine, the same cases as over the doubles of their drivers, and
# figures beside a raw loop of the driver's calls, on those of NVIDIA also beside nvbandwidth where it is in PATH.
# Optimised, one test at a time, so that none disturbs another's figures. Then the program itself: between processes,
# staged, verified, and the page of a node.

gpu_tests() {
    say "engines cuda and hip on a GPU"
    [ -e /dev/nvidiactl ] ||
        skip "no GPU of NVIDIA here (no /dev/nvidiactl): engines cuda and cuda-ipc, alloc=vmm, export, flush, staging and" \
            "the page of a node ran over a double only, without figures"
    [ -e /dev/kfd ] ||
        skip "no GPU of AMD here (no /dev/kfd): engine hip, alloc=vmm and export ran over a double of the runtime only," \
            "without figures"
    [ -e /dev/nvidiactl ] || [ -e /dev/kfd ] || return 0
    export TONNAGE_GPU_FIGURES=1
    cargo test --release --locked -p tonnage-engines --test gpu --test cuda -- --show-output --test-threads 1 2>&1 |
        tee "$LOGS/gpu.log" || FAILED+=("gpu")
    cargo test --release --locked -p tonnage-sys --test cuda kernels:: -- --show-output --test-threads 1 2>&1 |
        tee -a "$LOGS/gpu.log" || FAILED+=("gpu-kernels")
    if [ -e /dev/nvidiactl ]; then
        TONNAGE_TEST_GPUS=$(gpus_of_nvidia) cargo test --release --locked -p tonnage --test end_to_end gpu:: -- \
            --show-output --test-threads 1 2>&1 | tee -a "$LOGS/gpu.log" || FAILED+=("gpu-program")
    fi
    unset TONNAGE_GPU_FIGURES
}

# Those that a process may see: its variable may leave some out, and all where it is empty.
gpus_of_nvidia() {
    local -a all=(/dev/nvidia[0-9]*) named
    if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
        IFS=, read -ra named <<<"$CUDA_VISIBLE_DEVICES"
        echo "${#named[@]}"
    else
        echo "${#all[@]}"
    fi
}
