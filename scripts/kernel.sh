# For test.sh: the kernel's module in the guest of rdma.sh: built here, loaded, measured, broken and unloaded there.

# Seconds of random calls.
KREAD_FUZZ_S=${KREAD_FUZZ_S:-15}
KREAD_FUZZ_SEED=${KREAD_FUZZ_SEED:-1}

# Builds the module and the test program for the guest; fails where they cannot be had, with a skip or a failure.
kernel_build() {
    local headers status=0
    headers=$(bash scripts/rdma-guest.sh headers 2>"$LOGS/kernel-headers.txt") || status=$?
    if [ "$status" != 0 ]; then
        cat "$LOGS/kernel-headers.txt" >&2
        skip "$(sed -n 's/^rdma-guest: //p' "$LOGS/kernel-headers.txt"): the kernel's module is not tried"
        return 1
    fi
    module_of "$headers" "$LOGS/module" "the guest's kernel" || return 1
    cp "$LOGS/module/tonnage_kread.ko" "$LOGS/"
    cc -O1 -Wall -Wextra -Werror -static -pthread -I kernel/tonnage_kread -o "$LOGS/kread" kernel/tests/kread.c ||
        { FAILED+=("the test program of the kernel's module") && return 1; }
    headers=$(bash scripts/rdma-guest.sh headers backports 2>"$LOGS/kernel-headers.txt") ||
        { skip "no headers of Debian's backports: the module is not built for the newer kernel" && return 0; }
    module_of "$headers" "$LOGS/module-backports" "the kernel of backports" || true
}

# module_of HEADERS FOLDER NAME: a warning is a failure.
module_of() {
    rm -rf "$2"
    cp -r kernel/tonnage_kread "$2"
    # The types of debuggers need pahole, and a guest needs no such types.
    if make -s -C "$2" KERNEL="$1" W=1 CONFIG_DEBUG_INFO_BTF_MODULES= >"$2.txt" 2>&1 &&
        ! grep -q 'warning:' "$2.txt"; then
        say "the kernel's module, for $3 ($(basename "$1"))"
        return
    fi
    cat "$2.txt" >&2
    FAILED+=("the kernel's module for $3")
    return 1
}

# kernel_files: options of rdma-guest.sh for what kernel_build made.
kernel_files() {
    echo --file "$LOGS/tonnage_kread.ko" --file "$LOGS/kread" --file scripts/rdma-guest/kernel-cases.sh \
        --file plans/one-sided-read.toml
}

# kernel_command: what runs them in the guest.
kernel_command() { echo "FUZZ_S=$KREAD_FUZZ_S FUZZ_SEED=$KREAD_FUZZ_SEED sh kernel-cases.sh"; }

kernel_tests() {
    local program=${CARGO_TARGET_DIR:-target}/debug/tonnage files=()
    guest_is_there "the kernel's module is not tried" || return 0
    say "the kernel's module in the guest"
    kernel_build || return 0
    cargo build --quiet --locked -p tonnage || { FAILED+=("the build for the kernel's module") && return; }
    read -ra files < <(kernel_files)
    bash scripts/rdma-guest.sh run --timeout "$RDMA_GUEST_S_MAX" --file "$program" --file scripts/rdma-guest/case.sh \
        "${files[@]}" -- "$(kernel_command)" 2>&1 | tee "$LOGS/kernel.log" || FAILED+=("the cases of the kernel's module")
}
