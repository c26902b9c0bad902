# For test.sh: the tests. Output of passing tests is shown, so that a test which skips itself is seen.

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
    cargo test --workspace --locked --no-fail-fast "${cargo[@]}" -- --show-output "${programs[@]}" 2>&1 |
        tee "$LOGS/$name.log" | sed -uE 's/^(test .* \.\.\. .*) <[0-9.]+s>$/\1/' || FAILED+=("$name")
}
