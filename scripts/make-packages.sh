#!/usr/bin/env bash
# Packages of the program, all of one optimised binary: a wheel, a .deb, a tarball and what an image is made of.
#
#     make packages     into target/packages, for this machine's architecture
#     make packages ARCHITECTURES="x86_64 aarch64"
#
# The binary is linked by zig against the oldest C library that Rust supports, so that it starts on every Linux since
# 2014. maturin, zig and cargo-deb come once, at fixed versions, into target/tools; the first two need python3 with venv.
set -euo pipefail
cd "$(dirname "$0")/.."

GLIBC=2.17
MATURIN_VERSION=1.16.0
ZIG_VERSION=0.17.1
CARGO_DEB_VERSION=3.8.0

tools=$PWD/target/tools
out=$PWD/target/packages
built=${CARGO_TARGET_DIR:-$PWD/target}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
native=$(uname -m)
read -ra architectures <<<"${ARCHITECTURES:-$native}"
skips=()

say() { printf '\n== %s\n' "$*"; }
skip() { printf 'skip: %s\n' "$*"; skips+=("$*"); }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

has_cargo_deb() { [ "$(cargo deb --version 2>/dev/null)" = "cargo-deb $CARGO_DEB_VERSION" ]; }

# Debian's and the containers' names of an architecture.
debian_name() {
    case $1 in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
        *) fail "no package is made for $1: the architectures are x86_64 and aarch64" ;;
    esac
}

get_tools() {
    local python=$tools/packages
    if [ ! -x "$python/bin/maturin" ] || [ "$("$python/bin/maturin" --version)" != "maturin $MATURIN_VERSION" ]; then
        say "maturin $MATURIN_VERSION and zig $ZIG_VERSION (once, into target/tools)"
        python3 -m venv "$python" || fail "python3 has no venv (Debian, Ubuntu: apt-get install python3-venv)"
        "$python/bin/pip" install --quiet "maturin==$MATURIN_VERSION" "ziglang==$ZIG_VERSION"
    fi
    PATH=$tools/bin:$python/bin:$PATH
    if ! has_cargo_deb; then
        say "cargo install cargo-deb $CARGO_DEB_VERSION (once, into target/tools)"
        CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --profile dev --root "$tools" \
            --target-dir "$tools/build" --version "$CARGO_DEB_VERSION" cargo-deb && rm -rf "$tools/build" || true
    fi
}

# binary ARCHITECTURE: its path.
binary() { echo "$built/$1-unknown-linux-gnu/packaged/tonnage"; }

# The wheel brings the binary about, and the others take it from where cargo left it.
wheel() {
    local triple=$1-unknown-linux-gnu
    say "wheel for $1, C library $GLIBC"
    if command -v rustup >/dev/null; then rustup target add "$triple"; fi
    CARGO_INCREMENTAL=0 maturin build --zig --compatibility "manylinux_${GLIBC/./_}" --target "$triple" --out "$out"
}

# Man pages and completions are the same everywhere. The program writes them itself.
pages() {
    local program share=$out/share
    program=$(binary "$native")
    say "man pages and completions"
    mkdir -p "$share"/man/man1 "$share"/bash-completion/completions "$share"/zsh/site-functions \
        "$share"/fish/vendor_completions.d
    "$program" man --dir "$share/man/man1"
    "$program" completions bash >"$share/bash-completion/completions/tonnage"
    "$program" completions zsh >"$share/zsh/site-functions/_tonnage"
    "$program" completions fish >"$share/fish/vendor_completions.d/tonnage.fish"
}

deb() {
    say ".deb for $1"
    if has_cargo_deb; then
        cargo deb --quiet --no-build --no-strip --locked --profile packaged --target "$1-unknown-linux-gnu" -p tonnage \
            --output "$out/tonnage_${version}_$(debian_name "$1").deb"
    else
        skip "cargo-deb $CARGO_DEB_VERSION could not be had (see above): no .deb"
    fi
}

# Two builds of one commit give the same bytes.
tarball() {
    local name=tonnage-$version-$1-linux tree
    say "tarball for $1"
    tree=$out/tree/$name
    mkdir -p "$tree/bin"
    cp "$(binary "$1")" "$tree/bin/tonnage"
    cp -r "$out/share" "$tree/share"
    cp -r plans README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$tree"
    cp -r docs contrib "$tree"
    tar --create --gzip --file "$out/$name.tar.gz" --directory "$out/tree" --sort=name --owner=0 --group=0 \
        --numeric-owner --mtime="@$(git log -1 --format=%ct 2>/dev/null || echo 0)" "$name"
    rm -rf "$out/tree"
}

# What contrib/kubernetes/Dockerfile copies.
image_context() {
    mkdir -p "$out/image/doc" "$out/image/$(debian_name "$1")"
    cp "$(binary "$1")" "$out/image/$(debian_name "$1")/tonnage"
    cp LICENSE-MIT LICENSE-APACHE README.md docs/DEPENDENCIES.md "$out/image/doc"
}

# Builds it for this machine, where something here can.
image() {
    local builder why
    say "image"
    for builder in docker podman buildah; do
        command -v "$builder" >/dev/null || continue
        if why=$("$builder" info 2>&1 >/dev/null); then
            "$builder" build --file contrib/kubernetes/Dockerfile --tag "tonnage:$version" \
                ${TONNAGE_IMAGE_BASE:+--build-arg "BASE=$TONNAGE_IMAGE_BASE"} \
                --build-arg "TARGETARCH=$(debian_name "$native")" "$out/image"
            return
        fi
        echo "$builder is here but does not work: ${why%%$'\n'*}"
    done
    skip "no docker, podman or buildah works here: no image; its folder is target/packages/image"
}

[[ " ${architectures[*]} " == *" $native "* ]] ||
    fail "ARCHITECTURES must name $native, on which man pages and completions are written"
rm -rf "$out"
mkdir -p "$out"
get_tools
for architecture in "${architectures[@]}"; do wheel "$architecture"; done
pages
for architecture in "${architectures[@]}"; do
    deb "$architecture"
    tarball "$architecture"
    image_context "$architecture"
done
say "target/packages"
(cd "$out" && ls -l ./*.whl ./*.deb ./*.tar.gz 2>/dev/null | awk '{ printf "%12d  %s\n", $5, substr($9, 3) }') || true
# Last, because a registry that cannot be reached is an error, and the others are there then.
image
for text in "${skips[@]}"; do echo "skip: $text"; done
