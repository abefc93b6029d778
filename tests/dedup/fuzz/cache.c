/*
 * What the processes that share a cache say to who serves it: the input is
 * messages of two clients, a byte of length (in words; above 127: of the second
 * client) before each. Whatever they are: an answer or an error, and the list
 * stays in order.
 */
#include "../../fuzz/fuzz.h"

#include "dedup/cache/sharing.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void remove_folder(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    check(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    rmdir(path);
}

/* Everything that there is, as a client would ask for it. */
static void check_list(struct poise_dedup_server *server)
{
    struct cache_client client = {.fd = -1, .number = 3, .met = true};
    uint64_t from = 0, flags = CACHE_MORE;

    while (flags & CACHE_MORE) {
        struct poise_buf question = {0}, answer = {0};
        struct poise_reader reader;
        int pass;
        poise_buf_u64(&question, CACHE_LIST);
        poise_buf_u64(&question, 0);
        poise_buf_u64(&question, from);
        check(cache_server_answer(server, &client, question.data, question.len,
                                  &answer, &pass) == 0);
        check(answer.len <= CACHE_MESSAGE_MOST && pass < 0);
        reader = poise_reader_of(answer.data, answer.len);
        check(poise_reader_u64(&reader) == CACHE_LIST);
        poise_reader_u64(&reader);
        flags = poise_reader_u64(&reader);
        check(poise_reader_u64(&reader) <= DEDUP_RANK_BITS);
        for (uint64_t n = poise_reader_u64(&reader); n > 0; n--) {
            uint64_t id = poise_reader_u64(&reader);
            check(id >= from && id >> CACHE_ID_BITS == 0);
            from = id + 1;
            poise_reader_u64(&reader);
            check(poise_reader_u64(&reader) <= DEDUP_SLOTS_MOST);
            check(poise_reader_u64(&reader) == 1);
        }
        check(reader.error == 0 && poise_reader_left(&reader) == 0);
        poise_buf_free(&question);
        poise_buf_free(&answer);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct poise_dedup_store_options options = {.memory_bytes = 1 << 20,
                                                .limit_bytes = 1 << 20,
                                                .container_bytes = 1 << 16};
    struct cache_client clients[2] = {{.fd = -1, .number = 1},
                                      {.fd = -1, .number = 2}};
    char folder[] = "/dev/shm/poise-fuzz-XXXXXX",
         other[] = "/tmp/poise-fuzz-XXXXXX";
    const char *path = mkdtemp(folder);
    struct poise_dedup_server *server;
    size_t at = 0;

    path = path ? path : mkdtemp(other);
    check(path != NULL);
    check(cache_server_make(path, &options, &server) == 0);
    while (at < len) {
        struct cache_client *client = &clients[data[at] >> 7];
        size_t bytes = 8 * (size_t)(data[at] & 127);
        struct poise_buf answer = {0};
        int pass, code;
        at++;
        bytes = bytes < len - at ? bytes : len - at;
        code = cache_server_answer(server, client, data + at, bytes, &answer,
                                   &pass);
        check(answer.len <= CACHE_MESSAGE_MOST);
        check(client->held.len <= CACHE_LEASES_MOST * sizeof(uint64_t));
        poise_buf_free(&answer);
        if (code < 0) {
            check(cache_server_disconnect(server, client) == 0);
            client->met = false;
        }
        at += bytes;
    }
    check_list(server);
    for (size_t i = 0; i < 2; i++) {
        check(cache_server_disconnect(server, &clients[i]) == 0);
    }
    check_list(server);
    cache_server_free(server);
    remove_folder(path);
    return 0;
}
