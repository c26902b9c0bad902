# For test.sh: what is checked without running the program.

# component NAME COMMAND: succeeds when cargo has the command, which rustup may first have to add.
component() {
    cargo "$2" --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null && rustup component add "$1" && cargo "$2" --version >/dev/null 2>&1
}

check() {
    if component rustfmt fmt; then
        say "cargo fmt --check"
        cargo fmt --check
    else
        skip "cargo fmt is not installed (run: rustup component add rustfmt): formatting is not checked"
    fi
    if component clippy clippy; then
        say "cargo clippy, warnings denied"
        cargo clippy --workspace --all-targets --locked -- -D warnings
    else
        skip "cargo clippy is not installed (run: rustup component add clippy): lints are not checked"
    fi
    say "cargo doc, warnings denied"
    # With examples, crates have the features that clippy has built them with already.
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --lib --examples --no-deps --locked
}
