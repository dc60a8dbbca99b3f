#!/usr/bin/env bash
# Build the targets of this folder as OSS-Fuzz does: $CC $CFLAGS $LIB_FUZZING_ENGINE $OUT. Without these variables, with
# clang's libFuzzer and the address sanitizer, in build/fuzz:
#
#   tests/fuzz/build.sh && build/fuzz/blocks -max_total_time=60
#
# `ISA=all` compiles the kernels of every instruction set, too; the scalar kernels alone take a fraction of the time.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CC=${CC:-clang} OUT=${OUT:-build/fuzz} LIB_FUZZING_ENGINE=${LIB_FUZZING_ENGINE:--fsanitize=fuzzer}
export CFLAGS=${CFLAGS:--O1 -g1 -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined}
mkdir -p "$OUT"
${PYTHON:-python3} tests/fuzz/build.py "$OUT"
for target in tests/fuzz/*.py; do
    case $target in *build.py | *test_*) ;; *) cp "$target" "$OUT/" ;; esac
done
