# For test.sh: the program on RDMA devices, in a guest that needs no RDMA card.

# For a guest that hangs; a machine that is busy takes some times the usual half minute.
RDMA_GUEST_S_MAX=600

# test_program FOLDER OUTPUT: the path of the test program whose main.rs is in that folder of tests, as cargo told it.
test_program() { sed -n "s|^ *Executable tests/$1/main.rs (\(.*\))\$|\1|p" "$2"; }

# guest_is_there SKIPPED: fails where there is no guest, with what is skipped then.
guest_is_there() {
    local status=0
    say "a guest with Soft-RoCE devices"
    bash scripts/rdma-guest.sh setup 2>&1 | tee "$LOGS/rdma-setup.txt" || status=${PIPESTATUS[0]}
    case $status in
        0) ;;
        126)
            skip "$(sed -n 's/^rdma-guest: //p' "$LOGS/rdma-setup.txt"): $1"
            return 1
            ;;
        *)
            FAILED+=("the guest with Soft-RoCE devices")
            return 1
            ;;
    esac
}

# rdma_tests [kernel]: with the cases of the kernel's module in the same guest, before the others, whose last one takes
# an interface down.
rdma_tests() {
    local allocations sessions program=${CARGO_TARGET_DIR:-target}/debug/tonnage files=() first=true
    guest_is_there "nothing runs on RDMA devices" || return 0
    if [ "${1:-}" = kernel ] && kernel_build; then
        read -ra files < <(kernel_files)
        first=$(kernel_command)
    fi
    # The programs of the other system tests, which may be there already.
    cargo test --workspace --locked --no-run --test '*' >"$LOGS/rdma-build.txt" 2>&1 || true
    allocations=$(test_program no_allocation "$LOGS/rdma-build.txt") sessions=$(test_program processes "$LOGS/rdma-build.txt")
    if [ -z "$allocations" ] || [ -z "$sessions" ]; then
        cat "$LOGS/rdma-build.txt" >&2
        FAILED+=("the build for RDMA devices")
        return
    fi
    cp "$allocations" "$LOGS/no_allocation"
    cp "$sessions" "$LOGS/sessions"
    bash scripts/rdma-guest.sh run --timeout "$RDMA_GUEST_S_MAX" --file "$program" --file "$LOGS/no_allocation" \
        --file "$LOGS/sessions" --file scripts/rdma-guest/case.sh --file scripts/rdma-guest/cases.sh \
        ${files[@]+"${files[@]}"} -- "$first; first=\$?; sh cases.sh && exit \$first" 2>&1 | tee "$LOGS/rdma.log" ||
        FAILED+=("the cases on RDMA devices")
    [ "$first" = true ] || newer_kernel_is_left
}
