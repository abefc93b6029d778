/* What a fuzz target defines; libFuzzer or replay.c calls it. */
#ifndef POISE_TESTS_FUZZ_H
#define POISE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#endif
