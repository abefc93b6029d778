/* -files0-from: the whole file is read before the first name is used. */
#include "names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES_CHUNK = 64 << 10 };

static int read_all(const char *path, struct poise_buf *out)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = 1;

    if (fd < 0) {
        return poise_error_set(errno, "open", path, NULL);
    }
    while (got != 0) {
        char *to = poise_buf_reserve(out, NAMES_CHUNK);

        if (!to) {
            break;
        }
        got = read(fd, to, NAMES_CHUNK);
        if (got < 0 && errno != EINTR) {
            poise_error_set(errno, "read", standard ? "standard input" : path,
                            NULL);
            break;
        }
        out->len += got > 0 ? (size_t)got : 0;
    }
    if (!standard) {
        close(fd);
    }
    /* The last name may lack its NUL. */
    if (out->len > 0 && out->data[out->len - 1] != '\0') {
        poise_buf_putc(out, '\0');
    }
    return out->error ? out->error : got < 0 ? -poise_error_last()->code : 0;
}

static int share(const struct cli_job *job, int code, struct poise_buf *text)
{
    struct poise_world *world = cli_job_world(job);

    if (!world) {
        return code;
    }
    code = poise_world_agree(world, code);
    return code < 0 ? code : poise_world_broadcast(world, 0, text);
}

static int split(const struct cli_job *job, const char *path,
                 struct cli_names *names)
{
    const char *at = names->text.data, *end = at + names->text.len;
    size_t records = 0;

    for (size_t i = 0; i < names->text.len; i++) {
        records += names->text.data[i] == '\0';
    }
    names->items = poise_alloc(records + 1, sizeof *names->items);
    if (!names->items) {
        return -ENOMEM;
    }
    for (size_t i = 1; at < end; i++, at += strlen(at) + 1) {
        if (*at) {
            names->items[names->count++] = at;
        } else if (job->rank == 0) {
            names->empty++;
            cli_say(job->name, "%s:%zu: a name of no length",
                    strcmp(path, "-") == 0 ? "standard input" : path, i);
        }
    }
    return 0;
}

int cli_names_read(const struct cli_job *job, const char *path,
                   struct cli_names *out)
{
    struct cli_names names = {0};
    int code = job->rank == 0 ? read_all(path, &names.text) : 0;

    code = share(job, code, &names.text);
    if (code == 0) {
        code = split(job, path, &names);
    }
    if (code < 0) {
        cli_names_free(&names);
        return code;
    }
    *out = names;
    return 0;
}

void cli_names_free(struct cli_names *names)
{
    free(names->items);
    poise_buf_free(&names->text);
    memset(names, 0, sizeof *names);
}
