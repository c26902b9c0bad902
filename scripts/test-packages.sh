#!/usr/bin/env bash
# Installs each package of target/packages as its users do, into directories that are removed, and runs the program
# there. `make packages` comes first. A package whose tool is not here is skipped, and that is said.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/target/packages
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
native=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
binary=$out/image/$(case $native in x86_64) echo amd64 ;; *) echo arm64 ;; esac)/tonnage
skips=()
# The C library that the wheel says it needs.
promised=$(basename "$out"/*manylinux*"$native".whl 2>/dev/null | sed 's/.*manylinux_\([0-9]*\)_\([0-9]*\)_.*/GLIBC_\1.\2/')

skip() { printf 'skip: %s\n' "$*"; skips+=("$*"); }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# runs NAME COMMAND...: the program says its version and revision, and moves checked bytes between two ranks by the
# libfabric that is inside.
runs() {
    local name=$1 said
    shift
    said=$("$@" --version)
    [[ $said == "tonnage $version ("*"inside: libfabric "* ]] || fail "$name says: $said"
    [[ $said == *"(unknown)"* ]] && fail "$name does not know its revision"
    "$@" transfer --engine fabric:tcp --libfabric embedded --op write --ranks 2 --sizes 4k --trials 2 \
        --trial-time 5ms --verify --bound none >"$work/table" 2>&1 || { cat "$work/table"; fail "$name does not measure"; }
    echo "ok: $name: ${said%%$'\n'*}"
}

# same NAME FILE: all packages have one binary.
same() { cmp --silent "$2" "$binary" || fail "$1 has another binary than the image"; }

# shares NAME DIRECTORY: pages and completions that shells and man can read.
shares() {
    local page share=$2
    [ "$(find "$share/man/man1" -name 'tonnage*.1*' | wc -l)" -gt 10 ] || fail "$1 has no man pages"
    page=$(find "$share/man/man1" -name 'tonnage-transfer.1*')
    case $page in *.gz) gzip -dc "$page" ;; *) cat "$page" ;; esac | grep -q -- '--engine\|\\-\\-engine' ||
        fail "$1: the page of transfer names no options"
    bash -n "$share/bash-completion/completions/tonnage" || fail "$1: bash cannot read its completions"
    grep -q '^#compdef tonnage' "$share/zsh/site-functions/_tonnage" "$share/zsh/vendor-completions/_tonnage" 2>/dev/null ||
        fail "$1 has no completions of zsh"
    [ -s "$share/fish/vendor_completions.d/tonnage.fish" ] || fail "$1 has no completions of fish"
}

# The C library that the binary asks for must not be newer than what its wheel promises.
c_library() {
    local newest
    command -v objdump >/dev/null || { skip "objdump is not here: the C library that is asked for is not checked"; return; }
    newest=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
    [ "$(printf '%s\n' "$newest" "$promised" | sort -V | tail -1)" = "$promised" ] ||
        fail "the binary wants $newest, and its wheel promises $promised"
    echo "ok: the binary wants $newest at most"
}

wheel() {
    python3 -m venv "$work/venv" || { skip "python3 has no venv: the wheel is not tried"; return; }
    "$work/venv/bin/pip" install --quiet --no-index "$out"/*"$native".whl
    same wheel "$work/venv/bin/tonnage"
    runs wheel "$work/venv/bin/tonnage"
}

deb() {
    local root=$work/root deb
    deb=$(ls "$out"/*.deb 2>/dev/null | grep "_$(basename "$(dirname "$binary")").deb") || { skip "there is no .deb"; return; }
    command -v dpkg >/dev/null || { skip "dpkg is not here: the .deb is not tried"; return; }
    mkdir -p "$root"/var/lib/dpkg/{info,updates}
    touch "$root/var/lib/dpkg/status"
    # Into a root of its own: what it depends on is not there, and dpkg needs no rights for it.
    dpkg --root="$root" --force-not-root --force-depends --force-script-chrootless --log=/dev/null --install "$deb" \
        >"$work/dpkg" 2>&1 || { cat "$work/dpkg"; fail "dpkg does not install the .deb"; }
    same .deb "$root/usr/bin/tonnage"
    shares .deb "$root/usr/share"
    [ "$(dpkg-deb --field "$deb" Depends)" = "libc6 (>= ${promised#GLIBC_})" ] || fail "the .deb does not want $promised"
    runs .deb "$root/usr/bin/tonnage"
}

tarball() {
    local tree
    tar --extract --file "$out/tonnage-$version-$native-linux.tar.gz" --directory "$work"
    tree=$work/tonnage-$version-$native-linux
    same tarball "$tree/bin/tonnage"
    shares tarball "$tree/share"
    for file in LICENSE-MIT plans/tour.toml docs/LAUNCHING.md contrib/slurm/pair.sbatch; do
        [ -s "$tree/$file" ] || fail "the tarball has no $file"
    done
    runs tarball "$tree/bin/tonnage"
}

# As any user's command line starts it: the image says the program, and who runs it.
image() {
    local builder container user
    for builder in docker podman; do
        "$builder" image inspect "tonnage:$version" >/dev/null 2>&1 || continue
        user=$("$builder" run --rm --entrypoint /usr/bin/id "tonnage:$version" -u)
        [ "$user" = 65532 ] || fail "the image runs as user $user"
        runs image "$builder" run --rm "tonnage:$version"
        return
    done
    if buildah inspect "tonnage:$version" >/dev/null 2>&1; then
        container=$(buildah from "tonnage:$version")
        user=$(buildah run "$container" id -u)
        runs "image (by buildah)" buildah run "$container" /usr/bin/tonnage
        buildah rm "$container" >/dev/null
        [ "$user" = 65532 ] || fail "the image runs as user $user"
        return
    fi
    skip "docker, podman and buildah have no image tonnage:$version: it is not tried"
}

[ -x "$binary" ] || fail "no packages in target/packages: make packages first"
c_library
wheel
deb
tarball
image
for text in "${skips[@]}"; do echo "skip: $text"; done
