#!/bin/bash
# poise archive beside GNU tar: create and extract, 100,000 small files and one
# large file, the page cache warm, medians of three. Wants a quiet machine.
#
# usage: bench/walk/archive.sh POISE [FOLDER]
set -eu
poise=$(realpath "${1:?usage: bench/walk/archive.sh POISE [FOLDER]}")
folder=$(mktemp -d "${2:-/tmp}/poise-archive-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"

median() { # seconds of three runs of a command, each after a preparation
    local prepare=$1 start end
    shift
    for _ in 1 2 3; do
        eval "$prepare"
        start=$(date +%s.%N)
        "$@" >/dev/null
        end=$(date +%s.%N)
        echo "$end - $start" | bc
    done | sort -n | sed -n 2p
}

mkdir small large
for d in $(seq 1000); do
    mkdir "small/$d"
    for f in $(seq 100); do
        head -c 1000 /dev/urandom >"small/$d/$f"
    done
done
head -c "${POISE_BENCH_LARGE:-4294967296}" /dev/urandom >large/file
echo "tree command seconds"
for tree in small large; do
    echo "$tree tar-create $(median 'rm -f t.tar' tar -cf t.tar $tree)"
    echo "$tree poise-create $(median 'rm -f p.tar' "$poise" archive $tree p.tar)"
    echo "$tree tar-extract $(median 'rm -rf o; mkdir o' tar -C o -xf t.tar)"
    echo "$tree poise-extract $(median 'rm -rf o' "$poise" archive -x p.tar o)"
    echo "$tree poise-extract-tar $(median 'rm -rf o' "$poise" archive -x t.tar o)"
    rm -rf o t.tar p.tar
done
