# For test.sh: the fuzz targets, with coverage. Tests of the crate in fuzz/ try each of them for some seconds without.
#
# cargo-fuzz is not needed: these flags are what it would add. They are stable Rust's, so that the targets are built by
# the compiler that builds the program. There is no address sanitizer, because what the targets read is read by safe
# Rust alone: it would find little more, need an unstable compiler, and slow builds and runs down.

FUZZ=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
FUZZ_FLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0"
# An input that takes longer, or needs more memory, is a finding too.
FUZZ_INPUT_S_MAX=30
FUZZ_MEMORY_MIB_MAX=2048
# Bounds on what is committed of a target's inputs.
FUZZ_FILES_MAX=100
FUZZ_CORPUS_BYTES_MAX=100000
FUZZ_FILE_BYTES_MAX=3000

# fuzz_build: builds the one program with all targets. Fails where it cannot be built, and skips where something is
# missing that is no part of the repository.
fuzz_build() {
    local host
    if ! command -v c++ >/dev/null; then
        skip "there is no C++ compiler for libFuzzer (run: apt-get install g++): the fuzz targets do not run"
        return 1
    fi
    say "cargo build, the fuzz targets"
    host=$(rustc -vV | sed -n 's/^host: //p')
    # Optimised, and an overflow is a finding.
    export CARGO_PROFILE_PACKAGED_OVERFLOW_CHECKS=true CARGO_PROFILE_PACKAGED_DEBUG_ASSERTIONS=true
    # With a target, build scripts and macros are built without the flags. No target runs any C but libFuzzer's.
    CFLAGS=-O0 RUSTFLAGS=$FUZZ_FLAGS cargo build --locked -p tonnage-fuzz --target-dir "$FUZZ" --target "$host" \
        --profile packaged || { FAILED+=("fuzz targets"); return 1; }
    FUZZ_PROGRAM=$FUZZ/$host/packaged/tonnage-fuzz
}

# fuzz_targets: those that FUZZ_TARGET names, or all.
fuzz_targets() {
    local name
    for name in ${FUZZ_TARGET:-$(ls fuzz/corpus)}; do
        [ -d "fuzz/corpus/$name" ] || { FAILED+=("no fuzz target $name: it is one of $(ls -m fuzz/corpus)") && return 1; }
        TARGETS+=("$name")
    done
}

# fuzz_run SECONDS TARGET...: as many side by side as there are CPUs. What is found new is kept under target/, beside
# what is committed; an input that fails is kept too, and its target fails.
fuzz_run() {
    local seconds=$1 name
    shift
    say "the fuzz targets, $seconds s each"
    mkdir -p "$FUZZ/tmp"
    for name in "$@"; do mkdir -p "$FUZZ/corpus/$name" "$FUZZ/artifacts/$name"; done
    printf '%s\n' "$@" | TMPDIR=$FUZZ/tmp xargs -P "$(nproc)" -I '{}' sh -c '
        TONNAGE_FUZZ_TARGET=$2 timeout $(($3 + 120)) "$1" -max_total_time="$3" -timeout="$4" -rss_limit_mb="$5" \
            -artifact_prefix="$6/artifacts/$2/" "$6/corpus/$2" "fuzz/corpus/$2" >"$7/fuzz-$2.txt" 2>&1 || echo "$2" >>"$7/fuzz-failed.txt"' \
        fuzz "$FUZZ_PROGRAM" '{}' "$seconds" "$FUZZ_INPUT_S_MAX" "$FUZZ_MEMORY_MIB_MAX" "$FUZZ" "$LOGS"
    rm -rf "$FUZZ/tmp"
    for name in "$@"; do fuzz_figures "$name"; done
}

# fuzz_figures TARGET: what libFuzzer says at its end, or why it failed and how to see that again.
fuzz_figures() {
    local log=$LOGS/fuzz-$1.txt input
    if ! grep -qsx "$1" "$LOGS/fuzz-failed.txt"; then
        awk -v name="$1" '$2 == "DONE" { runs = substr($1, 2); for (i = 2; i < NF; i++) value[$i] = $(i + 1) }
            /^Done / { printf "%-10s %10d runs in %d s, %d edges, %d features, %s inputs\n", \
                name, runs, $5, value["cov:"], value["ft:"], value["corp:"] }' "$log"
        return
    fi
    tail -n 40 "$log"
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    # An input that takes too long or too much is found by libFuzzer alone.
    printf '%s failed; again: TONNAGE_FUZZ_TARGET=%s %s -timeout=%s -rss_limit_mb=%s %s\n' "$1" "$1" "$FUZZ_PROGRAM" \
        "$FUZZ_INPUT_S_MAX" "$FUZZ_MEMORY_MIB_MAX" "${input:-fuzz/corpus/$1/*}"
    FAILED+=("fuzz target $1")
}

# For `make fuzz`.
fuzz() {
    local TARGETS=()
    { fuzz_targets && fuzz_build; } || return 0
    fuzz_run "${FUZZ_SECONDS:-60}" "${TARGETS[@]}"
}

# For `make fuzz-corpus`: few inputs that reach all edges which any has reached, and of these the largest that fit,
# because what is short is found again in a second.
fuzz_corpus() {
    local TARGETS=() name
    { fuzz_targets && fuzz_build; } || return 0
    for name in "${TARGETS[@]}"; do
        rm -rf "$FUZZ/merged"
        mkdir -p "$FUZZ/merged" "$FUZZ/corpus/$name" "fuzz/corpus/$name"
        TONNAGE_FUZZ_TARGET=$name "$FUZZ_PROGRAM" -set_cover_merge=1 -use_counters=0 -max_len="$FUZZ_FILE_BYTES_MAX" "$FUZZ/merged" \
            "fuzz/corpus/$name" "$FUZZ/corpus/$name" >"$LOGS/fuzz-$name.txt" 2>&1 ||
            { FAILED+=("corpus of $name"); continue; }
        rm -rf "fuzz/corpus/$name"
        mkdir -p "fuzz/corpus/$name"
        find "$FUZZ/merged" -type f -printf '%s %f\n' | sort -k1,1rn -k2 | awk -v files="$FUZZ_FILES_MAX" \
            -v bytes="$FUZZ_CORPUS_BYTES_MAX" 'count < files && sum + $1 <= bytes { count++; sum += $1; print $2 }' |
            while read -r file; do mv "$FUZZ/merged/$file" "fuzz/corpus/$name/${file:0:12}"; done
        printf '%-10s %3d files, %6d bytes\n' "$name" "$(find "fuzz/corpus/$name" -type f | wc -l)" \
            "$(find "fuzz/corpus/$name" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }')"
    done
}
