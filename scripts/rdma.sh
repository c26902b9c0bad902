# For test.sh: the program on RDMA devices, in a guest that needs no RDMA card.

# For a guest that hangs; a machine that is busy takes some times the usual half minute.
RDMA_GUEST_S_MAX=480

rdma_tests() {
    local status=0 allocations program=${CARGO_TARGET_DIR:-target}/debug/tonnage
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
    allocations=$(cargo test --workspace --locked --no-run --test '*' 2>&1 | tee "$LOGS/rdma-build.txt" |
        sed -n 's|^ *Executable tests/no_allocation/main.rs (\(.*\))$|\1|p') || true
    [ -n "$allocations" ] || { cat "$LOGS/rdma-build.txt" >&2; FAILED+=("the build for RDMA devices"); return; }
    cp "$allocations" "$LOGS/no_allocation"
    bash scripts/rdma-guest.sh run --timeout "$RDMA_GUEST_S_MAX" --file "$program" --file "$LOGS/no_allocation" \
        --file scripts/rdma-guest/cases.sh -- sh cases.sh 2>&1 | tee "$LOGS/rdma.log" || FAILED+=("the cases on RDMA devices")
}
