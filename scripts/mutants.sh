# For test.sh: mutants. `make mutants` changes one expression after the other and says which changes no unit test
# notices.
#
# Tests beside the code of the mutant's own package are run, and no others unless MUTANT_TESTS names integration tests of
# that package: where a file does nothing but lead whole runs. Tests beside the code are what is fast enough, and whoever
# changes a line should hear of it there; the tests of the program from outside would notice more, in minutes for each
# mutant.

CARGO_MUTANTS_VERSION=27.1.0
# A mutant that waits for ever is stopped, and counts as noticed; tests beside the code take a few seconds, whole
# integration tests without optimisation take longer.
MUTANT_TEST_S_MAX=60
MUTANT_WHOLE_TEST_S_MAX=300

# mutants: of MUTANT_FILES, or of the lines that differ from MUTANT_DIFF; for MUTANT_SECONDS in all.
mutants() {
    local file test packages chosen=() tests=(--lib) out=$PWD/target/mutants status=0 test_s_max=$MUTANT_TEST_S_MAX
    for file in ${MUTANT_FILES:-}; do chosen+=(--file "$file"); done
    if [ -n "${MUTANT_TESTS:-}" ]; then
        # A package without a test of that name fails, which would count as noticed.
        packages=$(for file in ${MUTANT_FILES:-}; do printf '%s\n' "$file"; done | cut -d/ -f1,2 | sort -u)
        if [ -n "${MUTANT_DIFF:-}" ] || [ "$(grep -c . <<<"$packages")" != 1 ]; then
            echo "make mutants: TESTS= are of one package: name files of that package alone by FILES='crates/bench/src/…'" >&2
            exit 2
        fi
        for test in $MUTANT_TESTS; do tests+=(--test "$test"); done
        test_s_max=$MUTANT_WHOLE_TEST_S_MAX
    fi
    mkdir -p "$out"
    if [ -n "${MUTANT_DIFF:-}" ]; then
        git diff "$MUTANT_DIFF" -- '*.rs' >"$out/diff"
        chosen+=(--in-diff "$out/diff")
    fi
    [ ${#chosen[@]} != 0 ] || {
        echo "make mutants: of which files? FILES='crates/loops/src/*.rs' or DIFF=HEAD~1" >&2
        exit 2
    }
    cargo_tool mutants "$CARGO_MUTANTS_VERSION" || {
        skip "cargo-mutants $CARGO_MUTANTS_VERSION could not be had (see above): no mutants were made"
        return
    }
    say "cargo mutants, at most ${MUTANT_SECONDS:-1800} s"
    # Dependencies are built once and kept; without debug information a mutant takes half the time.
    CARGO_TARGET_DIR=$out/build CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_TEST_OPT_LEVEL=0 \
        timeout --signal=INT --kill-after=30 "${MUTANT_SECONDS:-1800}" \
        cargo mutants --workspace --output "$out" --timeout "$test_s_max" --no-shuffle --colors never \
        "${chosen[@]}" -- "${tests[@]}" || status=$?
    mutant_figures "$out/mutants.out" "$status"
}

# mutant_figures FOLDER STATUS: cargo-mutants ends with 2 when some were missed and 3 when some did not end; a run that
# was stopped is no failure of the code, and what it did not reach is counted.
mutant_figures() {
    local name all reached=0 lines=() each
    all=$(grep -c '"replacement"' "$1/mutants.json" 2>/dev/null || true)
    for name in caught missed timeout unviable; do
        each=$(grep -c . "$1/$name.txt" 2>/dev/null || true)
        reached=$((reached + ${each:-0}))
        lines+=("${each:-0} $name")
    done
    printf '\n%d mutants: %s, %s, %s, %s, %d not reached\n' "${all:-0}" "${lines[@]}" $((${all:-0} - reached))
    if [ -s "$1/missed.txt" ]; then
        printf 'missed: %s\n' "" && cat "$1/missed.txt"
    fi
    case $2 in
        0 | 2 | 3 | 124 | 130 | 137) ;;
        *) FAILED+=("cargo mutants") ;;
    esac
}
