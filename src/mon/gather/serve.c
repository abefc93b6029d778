/* The lower end: what is new in the files of this host, when it is asked. */
#include "internal.h"

#include <poise/trace_mirror.h>

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct served {
    uint32_t rank;
    struct poise_trace_feed *feed;
};

struct server {
    const char *path, *name; /* name: the last part of the path */
    char *folder;
    struct served *files;
    size_t count;
};

static bool is_served(const struct server *server, uint32_t rank)
{
    for (size_t i = 0; i < server->count; i++) {
        if (server->files[i].rank == rank) {
            return true;
        }
    }
    return false;
}

/* Whether a name in the folder is that of a rank's file: NAME or NAME.R. */
static bool is_ours(const struct server *server, const char *name,
                    uint32_t *rank)
{
    size_t len = strlen(server->name);
    char *end;
    if (strncmp(name, server->name, len) != 0) {
        return false;
    }
    *rank = 0;
    if (!name[len]) {
        return true;
    }
    unsigned long number =
        name[len] == '.' && isdigit((unsigned char)name[len + 1])
            ? strtoul(name + len + 1, &end, 10)
            : 0;
    *rank = (uint32_t)number;
    return number > 0 && number < INT32_MAX && !*end;
}

/* One that is not whole yet is looked at again with the next question. */
static int add(struct server *server, const char *name, uint32_t rank)
{
    struct poise_buf path = {0};
    struct served *files =
        poise_realloc(server->files, server->count + 1, sizeof *files);
    if (!files) {
        return -ENOMEM;
    }
    server->files = files;
    poise_buf_printf(&path, "%s/%s", server->folder, name);
    struct poise_trace_feed *feed = NULL;
    int code = path.error ? path.error
                          : poise_trace_feed_open(poise_buf_str(&path), &feed);
    poise_buf_free(&path);
    if (code == 0) {
        files[server->count++] = (struct served){rank, feed};
    }
    return code == -ENOMEM ? code : 0;
}

static int find_files(struct server *server)
{
    DIR *folder = opendir(server->folder);
    struct dirent *entry;
    int code = 0;
    while (folder && code == 0 && (entry = readdir(folder))) {
        uint32_t rank;
        if (is_ours(server, entry->d_name, &rank) && !is_served(server, rank)) {
            code = add(server, entry->d_name, rank);
        }
    }
    if (folder) {
        closedir(folder);
    }
    return code;
}

static int send_piece(int out, uint32_t rank, const void *data, uint32_t bytes,
                      size_t len)
{
    struct gather_piece piece = {rank, bytes};
    int code = gather_write(out, &piece, sizeof piece, 0);
    return code < 0 ? code : gather_write(out, data, len, 0);
}

static int answer(struct server *server, int out,
                  const struct gather_question *question)
{
    bool more = false;
    int code = find_files(server);
    for (size_t i = 0; i < server->count && code >= 0; i++) {
        struct poise_buf bytes = {0};
        code = poise_trace_feed_take(server->files[i].feed, question->final,
                                     question->most_bytes, &bytes);
        more = more || code > 0;
        if (code >= 0 && bytes.len > 0) {
            code = send_piece(out, server->files[i].rank, bytes.data,
                              (uint32_t)bytes.len, bytes.len);
        }
        poise_buf_free(&bytes);
    }
    return code < 0 ? code : send_piece(out, GATHER_END, NULL, more, 0);
}

static int open_server(struct server *server, const char *path)
{
    const char *slash = strrchr(path, '/');
    *server = (struct server){.path = path, .name = slash ? slash + 1 : path};
    server->folder =
        slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    return server->folder ? 0 : poise_error_set(ENOMEM, "gather", path, NULL);
}

int poise_gather_serve(int in, int out, const char *path)
{
    struct server server;
    struct gather_question question;
    int code = open_server(&server, path);
    gather_behind(out);
    while (code >= 0 &&
           (code = gather_read(in, &question, sizeof question, 0)) > 0) {
        if (question.magic != GATHER_MAGIC) {
            code = poise_error_set(EPROTO, "gather", path,
                                   "what comes is no question for records");
            break;
        }
        question.most_bytes =
            question.most_bytes < GATHER_ASK ? question.most_bytes : GATHER_ASK;
        code = answer(&server, out, &question);
    }
    for (size_t i = 0; i < server.count; i++) {
        poise_trace_feed_close(server.files[i].feed);
    }
    free(server.files);
    free(server.folder);
    return code < 0 && code != -EPIPE && code != -ECONNRESET ? code : 0;
}
