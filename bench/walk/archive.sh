#!/bin/bash
# poise archive beside GNU tar, and bsdtar where it is installed: create and
# extract, 100,000 small files and one large file, the page cache warm, medians
# of three, in seconds, with the time of processors; plain, and compressed by
# Zstandard at level 3 (of random data: what it costs at worst). Wants a quiet
# machine.
#
# usage: bench/walk/archive.sh POISE [FOLDER]
# POISE_BENCH_FILES: how many small files; POISE_BENCH_LARGE: bytes of the large
set -eu
poise=$(realpath "${1:?usage: bench/walk/archive.sh POISE [FOLDER]}")
folder=$(mktemp -d "${2:-/tmp}/poise-archive-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 - "${POISE_BENCH_FILES:-100000}" "${POISE_BENCH_LARGE:-4294967296}" <<'END'
import os, sys
count, large = int(sys.argv[1]), int(sys.argv[2])
os.mkdir("large")
with open("large/file", "wb") as file:
    for at in range(0, large, 1 << 20):
        file.write(os.urandom(min(1 << 20, large - at)))
os.mkdir("small")
for i in range(count):
    if i % 100 == 0:
        os.mkdir(f"small/{i // 100}")
    with open(f"small/{i // 100}/{i}", "wb") as file:
        file.write(os.urandom(1000))
END

TIMEFORMAT='%R %U %S'
median() { # of three runs of a command, each after a preparation
    local prepare=$1
    shift
    for _ in 1 2 3; do
        eval "$prepare"
        { time "$@" >/dev/null 2>&1; } 2>&1
    done | sort -n | sed -n 2p | awk '{printf "%.2f %.2f\n", $1, $2 + $3}'
}

echo "tree command seconds processor-seconds"
for tree in small large; do
    echo "$tree tar-create $(median 'rm -f t.tar' tar -cf t.tar $tree)"
    if command -v bsdtar >/dev/null; then
        echo "$tree bsdtar-create $(median 'rm -f b.tar' bsdtar -cf b.tar $tree)"
    fi
    echo "$tree poise-create $(median 'rm -f p.tar' "$poise" archive $tree p.tar)"
    echo "$tree tar-extract $(median 'rm -rf o; mkdir o' tar -C o -xf t.tar)"
    echo "$tree poise-extract $(median 'rm -rf o' "$poise" archive -x p.tar o)"
    echo "$tree tar-zstd-create $(median 'rm -f t.tar.zst' tar --zstd -cf t.tar.zst $tree)"
    echo "$tree poise-zstd-create $(median 'rm -f p.tar.zst' "$poise" archive $tree p.tar.zst)"
    echo "$tree tar-zstd-extract $(median 'rm -rf o; mkdir o' tar -C o --zstd -xf t.tar.zst)"
    echo "$tree poise-zstd-extract $(median 'rm -rf o' "$poise" archive -x p.tar.zst o)"
    echo "$tree poise-extract-tar $(median 'rm -rf o' "$poise" archive -x t.tar o)"
    rm -rf o t.tar* p.tar* b.tar
done
