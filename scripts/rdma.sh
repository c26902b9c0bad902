# For test.sh: the program on RDMA devices, in a guest that needs no RDMA card.

# For a guest that hangs; a machine that is busy takes some times the usual half minute.
RDMA_GUEST_S_MAX=480

# test_program FOLDER: the path of the test program whose main.rs is in that folder of tests.
test_program() { sed -n "s|^ *Executable tests/$1/main.rs (\(.*\))\$|\1|p" "$LOGS/rdma-build.txt"; }

rdma_tests() {
    local status=0 allocations sessions program=${CARGO_TARGET_DIR:-target}/debug/tonnage
    say "a guest with Soft-RoCE devices"
    bash scripts/rdma-guest.sh setup 2>&1 | tee "$LOGS/rdma-setup.txt" || status=${PIPESTATUS[0]}
    case $status in
        0) ;;
        126)
            skip "$(sed -n 's/^rdma-guest: //p' "$LOGS/rdma-setup.txt"): nothing runs on RDMA devices"
            return
            ;;
        *)
            FAILED+=("the guest with Soft-RoCE devices")
            return
            ;;
    esac
    # The programs of the other system tests, which may be there already.
    cargo test --workspace --locked --no-run --test '*' >"$LOGS/rdma-build.txt" 2>&1 || true
    allocations=$(test_program no_allocation) sessions=$(test_program processes)
    if [ -z "$allocations" ] || [ -z "$sessions" ]; then
        cat "$LOGS/rdma-build.txt" >&2
        FAILED+=("the build for RDMA devices")
        return
    fi
    cp "$allocations" "$LOGS/no_allocation"
    cp "$sessions" "$LOGS/sessions"
    bash scripts/rdma-guest.sh run --timeout "$RDMA_GUEST_S_MAX" --file "$program" --file "$LOGS/no_allocation" \
        --file "$LOGS/sessions" --file scripts/rdma-guest/cases.sh -- sh cases.sh 2>&1 | tee "$LOGS/rdma.log" ||
        FAILED+=("the cases on RDMA devices")
}
