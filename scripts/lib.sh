# For test.sh: what is said, and what is said at the end.

TOOLS=$PWD/target/tools
LOGS=$PWD/target/test
SKIPS=()
FAILED=()
PASSED_ALONE=()
BEGAN=$SECONDS
SLOWEST=10

rm -rf "$LOGS"
mkdir -p "$TOOLS" "$LOGS"
PATH=$TOOLS/bin:$PATH

say() { printf '\n== %s\n' "$*"; }

skip() {
    printf 'skip: %s\n' "$*"
    SKIPS+=("$*")
}

has_cargo_tool() { [ "$(cargo "$1" --version 2>/dev/null)" = "cargo-$1 $2" ]; }

# cargo_tool NAME VERSION: succeeds when cargo has the command, which is built once and kept under target/. Unoptimised it
# builds in about a minute on two cores, where its own release profile would take ten times as long.
cargo_tool() {
    has_cargo_tool "$@" && return
    say "cargo install cargo-$1 $2 (once, into target/tools)"
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --profile dev --root "$TOOLS" \
        --target-dir "$TOOLS/build" --version "$2" "cargo-$1" || return
    rm -rf "$TOOLS/build"
    has_cargo_tool "$@"
}

# Runs at the end, however it comes.
report() {
    local status=$? line
    set +e
    # Packages are never left half installed.
    [ -z "${PREPARING:-}" ] || wait "$PREPARING"
    slowest
    while IFS= read -r line; do SKIPS+=("${line#skip: }"); done < <(cat "$LOGS"/*.log 2>/dev/null | grep '^skip: ' | sort -u)
    for line in "${SKIPS[@]}"; do
        if needless "$line"; then
            printf 'needless skip, for its packages are installed: %s\n' "$line"
            FAILED+=("a needless skip")
        fi
    done
    [ ${#FAILED[@]} = 0 ] || status=1
    echo
    [ ${#SKIPS[@]} = 0 ] || printf 'skip: %s\n' "${SKIPS[@]}"
    # Last, because whoever sees only the end of the output needs it most.
    grep -hE '^(test [^ ]+ .*\.\.\. FAILED|FAILED )' "$LOGS"/*.log 2>/dev/null
    awk '/^successes:$/ { failures = 0 } /^failures:$/ { failures = 1 }
        failures && / panicked at / { print; getline; print "  " $0 }' "$LOGS"/*.log 2>/dev/null
    [ ${#PASSED_ALONE[@]} = 0 ] || printf 'failed beside other tests and passed alone: %s\n' "${PASSED_ALONE[@]}"
    if [ "$status" = 0 ]; then printf 'Passed'; else printf 'Failed%s' "${FAILED[*]:+: ${FAILED[*]}}"; fi
    printf ' in %d s, with %d skipped.\n' $((SECONDS - BEGAN)) ${#SKIPS[@]}
    exit "$status"
}

# needless SKIP: succeeds where every package that the skip asks for is installed. Then its need is present, and the test
# should have run.
needless() {
    local packages=() states
    [[ $1 =~ apt-get\ install\ ([a-z0-9.+\ -]+)\) ]] || return 1
    command -v dpkg-query >/dev/null || return 1
    read -ra packages <<<"${BASH_REMATCH[1]}"
    states=$(dpkg-query -W -f '${db:Status-Status}\n' "${packages[@]}" 2>&1) || return 1
    ! grep -qvx installed <<<"$states"
}

# The tests that took longest. Those of one program run side by side, so that they also wait for each other.
slowest() {
    awk '/^ *Running /{ program = $NF; sub(/.*\//, "", program); sub(/-[0-9a-f]+\)$/, "", program) }
        match($0, /^test .* \.\.\. (ok|FAILED) <[0-9.]+s>$/) {
            time = $NF; gsub(/[<>s]/, "", time); name = substr($0, 6); sub(/ \.\.\. .*/, "", name)
            print time, program "::" name
        }' "$LOGS"/*.log 2>/dev/null | sort -rn >"$LOGS/times"
    [ -s "$LOGS/times" ] || return 0
    say "the slowest of $(wc -l <"$LOGS/times") tests, in seconds"
    head -n "$SLOWEST" "$LOGS/times" | while read -r time name; do printf '%8.1f  %s\n' "$time" "$name"; done
}
