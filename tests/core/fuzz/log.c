/*
 * Record logs of any bytes. Hardly any mutation keeps the checksums right, so
 * that each input is read twice: as it is, and with its checksums repaired,
 * which is what an attacker would do.
 */
#include "../../fuzz/fuzz.h"

#include <poise/core.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC "PTESTLOG"
#define VERSION 3

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* Write the bytes to a file in memory and read it as a log. Whatever is in
 * them: a clear code, or records that account for every byte. */
static void read_as_log(const uint8_t *data, size_t len)
{
    char path[64];
    int fd = memfd_create("fuzz_log", MFD_CLOEXEC);
    check(fd >= 0 && poise_file_write(fd, data, len, "memfd") == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct poise_log_reader *reader;
    int code = poise_log_open(path, MAGIC, VERSION, &reader);
    check(code == 0 || code == -EBADMSG || code == -EPROTO);
    if (code == 0) {
        uint64_t bytes = 24;
        uint32_t type;
        const void *record;
        size_t size;
        while ((code = poise_log_next(reader, &type, &record, &size)) == 1) {
            check(type != UINT32_MAX);
            /* Every byte can be read: the sanitizer looks. */
            poise_hash_bytes(record, size, 0);
            bytes += 16 + size;
        }
        check(code == 0 && bytes + 24 == len);
        poise_log_close(reader);
    }
    close(fd);
}

static void put_u64(uint8_t *to, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

static void repair(uint8_t *data, size_t len)
{
    if (len < 24) {
        return;
    }
    memcpy(data, MAGIC, 8);
    uint64_t chain = poise_hash_bytes(data, 16, 0);
    put_u64(data + 16, chain);
    for (size_t at = 24; len - at >= 16;) {
        uint8_t *record = data + at;
        size_t size = (size_t)record[4] | (size_t)record[5] << 8;
        if (record[6] != 0 || record[7] != 0 || size > len - at - 16) {
            return;
        }
        chain = poise_hash_bytes(record + 16, size,
                                 poise_hash_bytes(record, 8, chain));
        put_u64(record + 8, chain);
        at += 16 + size;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len + 1);
    check(copy != NULL);
    read_as_log(data, len);
    if (len > 0) {
        memcpy(copy, data, len);
    }
    repair(copy, len);
    read_as_log(copy, len);
    free(copy);
    return 0;
}
