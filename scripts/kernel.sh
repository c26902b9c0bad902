# For test.sh: the kernel's module in the guest of rdma.sh: built here, loaded, measured, broken and unloaded there.

# Seconds of random calls.
KREAD_FUZZ_S=${KREAD_FUZZ_S:-10}
KREAD_FUZZ_SEED=${KREAD_FUZZ_SEED:-1}
# The kernel that the module is tried in: that of Debian 12, or `backports`, which takes a guest of its own, or `both`.
KREAD_KERNEL=${KREAD_KERNEL:-}

# Builds the module and the test programs for the guest; fails where they cannot be had, with a skip or a failure.
kernel_build() {
    local headers keys status=0
    # What an earlier run has made is not tried for this one.
    rm -rf "$LOGS/module" "$LOGS/module-backports"
    headers=$(bash scripts/rdma-guest.sh headers 2>"$LOGS/kernel-headers.txt") || status=$?
    if [ "$status" != 0 ]; then
        cat "$LOGS/kernel-headers.txt" >&2
        skip "$(sed -n 's/^rdma-guest: //p' "$LOGS/kernel-headers.txt"): the kernel's module is not tried"
        return 1
    fi
    module_of "$headers" "$LOGS/module" "the guest's kernel" || return 1
    cp "$LOGS/module/tonnage_kread.ko" "$LOGS/"
    sed -i 's/^#define TKR_ABI\t.*/#define TKR_ABI 7/' "$LOGS/module/tonnage_kread.h"
    module_made "$headers" "$LOGS/module" "another layout of calls" || return 1
    cp "$LOGS/module/tonnage_kread.ko" "$LOGS/other_layout.ko"
    cc -O1 -Wall -Wextra -Werror -static -pthread -I kernel/tonnage_kread -o "$LOGS/kread" kernel/tests/kread.c ||
        { FAILED+=("the test program of the kernel's module") && return 1; }
    cargo test --workspace --locked --no-run --test kernel >"$LOGS/kernel-programs.txt" 2>&1 || true
    keys=$(test_program kernel "$LOGS/kernel-programs.txt")
    [ -n "$keys" ] || { cat "$LOGS/kernel-programs.txt" >&2; FAILED+=("the test of verbs:kernel") && return 1; }
    cp "$keys" "$LOGS/kernel_keys"
    headers=$(bash scripts/rdma-guest.sh headers backports 2>"$LOGS/kernel-headers.txt") ||
        { skip "no headers of Debian's backports: the module is not built for the newer kernel" && return 0; }
    module_of "$headers" "$LOGS/module-backports" "the kernel of backports" || true
}

# module_of HEADERS FOLDER NAME: the module as it is.
module_of() {
    rm -rf "$2"
    cp -r kernel/tonnage_kread "$2"
    module_made "$@"
}

# module_made HEADERS FOLDER NAME: what is in the folder; a warning is a failure.
module_made() {
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
    echo --file "$LOGS/tonnage_kread.ko" --file "$LOGS/other_layout.ko" --file "$LOGS/kread" \
        --file "$LOGS/kernel_keys" --file scripts/rdma-guest/kernel-cases.sh \
        --file plans/one-sided-read.toml
}

# kernel_command: what runs them in the guest.
kernel_command() { echo "FUZZ_S=$KREAD_FUZZ_S FUZZ_SEED=$KREAD_FUZZ_SEED sh kernel-cases.sh"; }

# newer_kernel_tests PROGRAM: the module in the kernel of backports, in a guest of its own.
newer_kernel_tests() {
    local module=$LOGS/module-backports/tonnage_kread.ko program=$1 status=0
    [ -e "$module" ] || return 0
    say "the kernel's module in a guest with the kernel of backports"
    bash scripts/rdma-guest.sh run --kernel backports --timeout "$RDMA_GUEST_S_MAX" --file "$module" --file "$program" \
        --file "$LOGS/kread" --file "$LOGS/kernel_keys" --file scripts/rdma-guest/case.sh \
        --file scripts/rdma-guest/newer-cases.sh -- sh newer-cases.sh 2>&1 | tee "$LOGS/kernel-newer.log" ||
        status=${PIPESTATUS[0]}
    case $status in
        0) ;;
        126) skip "$(sed -n 's/^rdma-guest: //p' "$LOGS/kernel-newer.log"): the module is not tried in the newer kernel" ;;
        *) FAILED+=("the kernel's module in the newer kernel") ;;
    esac
}

kernel_tests() {
    local program=${CARGO_TARGET_DIR:-target}/debug/tonnage files=()
    case $KREAD_KERNEL in
        '' | backports | both) ;;
        *) FAILED+=("KERNEL=$KREAD_KERNEL: it is backports or both, or left out") && return ;;
    esac
    guest_is_there "the kernel's module is not tried" || return 0
    say "the kernel's module in the guest"
    kernel_build || return 0
    cargo build --quiet --locked -p tonnage || { FAILED+=("the build for the kernel's module") && return; }
    if [ "$KREAD_KERNEL" = backports ]; then
        newer_kernel_tests "$program"
        return
    fi
    read -ra files < <(kernel_files)
    bash scripts/rdma-guest.sh run --timeout "$RDMA_GUEST_S_MAX" --file "$program" --file scripts/rdma-guest/case.sh \
        "${files[@]}" -- "$(kernel_command)" 2>&1 | tee "$LOGS/kernel.log" || FAILED+=("the cases of the kernel's module")
    if [ "$KREAD_KERNEL" = both ]; then newer_kernel_tests "$program"; else newer_kernel_is_left; fi
}

# newer_kernel_is_left: says what only the other command tries.
newer_kernel_is_left() {
    [ ! -e "$LOGS/module-backports/tonnage_kread.ko" ] ||
        skip "the module is built for the kernel of backports and not tried in it: make test-kernel KERNEL=backports"
}
