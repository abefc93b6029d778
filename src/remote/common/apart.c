/*
 * Caches apart: one for each other end, so that nobody learns from what a
 * transfer costs what others have sent. At the end that a user starts it is
 * named after the other end as the user wrote it ("to-far"); at the other end
 * after a label that only this pair knows ("from-..."): 128 bits of a hash over
 * the other end's name and an id that lies in the user's caches and that no
 * other end learns. So an end can ask for the cache of no other.
 */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ID_BYTES = 16, NAME_MOST = 64 };

static void put_hex(const unsigned char *bytes, size_t len, char *to)
{
    for (size_t i = 0; i < len; i++) {
        snprintf(to + 2 * i, 3, "%02x", bytes[i]);
    }
}

/* 160 bits over some texts. */
static int hash_texts(const void *one, size_t one_len, const void *two,
                      size_t two_len, unsigned char out[20])
{
    struct poise_dedup_hasher *hasher;
    int code = poise_dedup_hasher_create(&hasher);

    if (code < 0) {
        return code;
    }
    code = poise_dedup_hasher_update(hasher, one, one_len);
    if (code == 0) {
        code = poise_dedup_hasher_update(hasher, two, two_len);
    }
    if (code == 0) {
        code = poise_dedup_hasher_final(hasher, out);
    }
    poise_dedup_hasher_destroy(hasher);
    return code;
}

int remote_cache_part(const char *peer, size_t len,
                      char part[REMOTE_PART_BYTES])
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyz0123456789"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ@._-+:[]";
    unsigned char hash[20];
    char hex[2 * ID_BYTES + 1];
    size_t plain = 0;
    int code;

    while (plain < len && memchr(safe, peer[plain], sizeof safe - 1)) {
        plain++;
    }
    if (plain == len && len <= NAME_MOST) {
        snprintf(part, REMOTE_PART_BYTES, "to-%.*s", (int)len, peer);
        return 0;
    }
    code = hash_texts(peer, len, "", 0, hash);
    put_hex(hash, ID_BYTES, hex);
    snprintf(part, REMOTE_PART_BYTES, "to-%s", hex);
    return code;
}

int remote_cache_part_from(const void *identity, size_t len,
                           char part[REMOTE_PART_BYTES])
{
    unsigned char hash[20];
    char hex[2 * ID_BYTES + 1];
    int code = hash_texts(identity, len, "", 0, hash);

    put_hex(hash, ID_BYTES, hex);
    snprintf(part, REMOTE_PART_BYTES, "from-%s", hex);
    return code;
}

/* Whole, under another name first: another process may do it, too. */
static int make_id(char *path)
{
    unsigned char random[ID_BYTES];
    struct poise_buf made = {0};
    int fd, code = remote_cache_folders(path);

    poise_buf_printf(&made, "%s.%ld", path, (long)getpid());
    if (code == 0 && getentropy(random, sizeof random) != 0) {
        code = poise_error_set(errno, "make an id", path, NULL);
    }
    fd = code < 0
             ? code
             : poise_file_open(AT_FDCWD, poise_buf_str(&made),
                               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        poise_buf_free(&made);
        return fd;
    }
    code = poise_file_write(fd, random, sizeof random, path);
    close(fd);
    if (code == 0 && link(made.data, path) != 0 && errno != EEXIST) {
        code = poise_error_set(errno, "make an id", path, NULL);
    }
    unlink(made.data);
    poise_buf_free(&made);
    return code;
}

/* The user's id, made at first use: 0, or -ENOENT where nothing can be kept. */
static int read_id(unsigned char id[ID_BYTES])
{
    static const struct remote_cache cache = {.default_name = "id"};
    struct poise_buf path = {0};
    int fd, code = remote_cache_path(&cache, &path);

    if (code < 0 || path.len == 0) {
        poise_buf_free(&path);
        return code < 0 ? code : -ENOENT;
    }
    fd = poise_file_open(AT_FDCWD, path.data, O_RDONLY | O_CLOEXEC, 0);
    if (fd == -ENOENT) {
        poise_error_clear();
        code = make_id(path.data);
        fd = code < 0 ? code
                      : poise_file_open(AT_FDCWD, path.data,
                                        O_RDONLY | O_CLOEXEC, 0);
    }
    if (fd >= 0) {
        ssize_t len = poise_file_pread(fd, id, ID_BYTES, 0, path.data);
        code = len == ID_BYTES ? 0
               : len < 0       ? (int)len
                         : poise_error_set(EBADMSG, "read the id", path.data,
                                           "it is too short");
        close(fd);
    }
    poise_buf_free(&path);
    return fd < 0 ? fd : code;
}

int remote_cache_label(const char *peer, size_t len,
                       char label[REMOTE_LABEL_BYTES])
{
    unsigned char id[ID_BYTES], hash[20];
    int code = read_id(id);

    if (code == 0) {
        code = hash_texts(id, sizeof id, peer, len, hash);
    }
    if (code == 0) {
        put_hex(hash, (REMOTE_LABEL_BYTES - 1) / 2, label);
    } else {
        poise_error_clear();
    }
    return code;
}

bool remote_cache_is_label(const char *text)
{
    return strlen(text) == REMOTE_LABEL_BYTES - 1 &&
           strspn(text, "0123456789abcdef") == REMOTE_LABEL_BYTES - 1;
}
