# For test.sh: the tests. Output of passing tests is shown, so that a test which skips itself is seen.

# If more tests fail, the load of the machine is not the reason.
ALONE_MAX=3

# Beside the code, and in the documentation; rustdoc gives no times.
unit_tests() {
    timed_tests unit --lib --bins
    run_tests documentation "--doc" ""
}

# The program from outside, hosts on this machine, crates as others use them.
system_tests() {
    timed_tests system --test '*'
    skip "packages are not built and installed here, for an optimised build takes minutes (run: make packages test-packages)"
}

# Those of pages in a real browser alone.
browser_tests() {
    say "pages in a browser"
    cargo test --quiet --locked -p tonnage --test end_to_end browser -- --nocapture || FAILED+=("browser")
}

# timed_tests NAME WHICH...: the clock of the test programs is unstable. They accept it from a variable of their
# environment while they run; the compiler does not see the variable, so that what is tested is what stable Rust builds.
timed_tests() {
    local host runner
    host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z.-' 'A-Z__')
    runner=CARGO_TARGET_${host}_RUNNER
    export "$runner=${!runner:-} env RUSTC_BOOTSTRAP=1"
    run_tests "$1" "${*:2}" "-Zunstable-options --report-time"
    unset "$runner"
}

# Signals to random ranks at random moments, and links that are cut.
fault_tests() {
    say "faults: ${FAULTS:-170} cases of seed ${FAULT_SEED:=$RANDOM}"
    FAULTS=${FAULTS:-170} FAULT_SEED=$FAULT_SEED cargo test --quiet --locked -p tonnage --test faults -- --nocapture 2>&1 |
        tee "$LOGS/faults.log" || FAILED+=("faults of seed $FAULT_SEED")
}

# run_tests NAME ARGUMENTS_OF_CARGO ARGUMENTS_OF_THE_TEST_PROGRAMS: a failure is remembered and reported at the end. What is
# shown has no times in it: it reads as cargo prints it.
run_tests() {
    local name=$1 cargo=() programs=()
    read -ra cargo <<<"$2"
    read -ra programs <<<"$3"
    say "cargo test, $name"
    cargo_test "$name" --show-output "${programs[@]}" || pass_alone || FAILED+=("$name")
}

# cargo_test LOG ARGUMENTS_OF_THE_TEST_PROGRAMS..., with the `cargo` of run_tests.
cargo_test() {
    cargo test --workspace --locked --no-fail-fast "${cargo[@]}" -- "${@:2}" 2>&1 |
        tee "$LOGS/$1.log" | sed -uE 's/^(test .* \.\.\. .*) <[0-9.]+s>$/\1/'
}

# Runs the tests that failed once more, without others beside them. Tests of speed and of time limits can fail on a machine
# whose CPUs others take. One that passes now is named at the end of the output, and its first failure is shown there.
pass_alone() {
    local failed=()
    [ ${#programs[@]} != 0 ] || return
    mapfile -t failed < <(sed -nE 's/^test ([^ ]+)( - should panic)? \.\.\. FAILED.*/\1/p' "$LOGS/$name.log" | sort -u)
    if [ ${#failed[@]} = 0 ] || [ ${#failed[@]} -gt "$ALONE_MAX" ]; then return 1; fi
    say "${#failed[@]} of them failed and run again alone"
    cargo_test "$name-alone" --show-output --test-threads=1 --exact "${failed[@]}" || return
    PASSED_ALONE+=("${failed[@]}")
}
