/*
 * What the C library keeps for a process, for each rank: its standard output
 * and input, its environment, the state of getopt, strtok and random numbers.
 *
 * A rank's standard output is a stream whose bytes are handed on in whole
 * lines, each in one write, so that lines of several ranks do not tear; what
 * is left without an end of line follows at the rank's end.
 */
#include "loader.h"
#include "vrank/thread/rank.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/** A line that grows beyond this is handed on as it is. */
#define LIBC_LINE_BYTES ((size_t)1 << 20)

static ssize_t libc_write(void *cookie, const char *data, size_t len)
{
    struct vrank_libc *own = cookie;
    struct poise_buf *rest = &own->line;
    const char *end = memrchr(data, '\n', len);
    size_t whole = end != NULL ? (size_t)(end - data) + 1 : 0;
    int code = 0;
    if (own->is_discarded) {
        return (ssize_t)len;
    }
    if (rest->len + len > LIBC_LINE_BYTES) {
        whole = len;
    }
    if (whole > 0 && rest->len == 0) {
        code = poise_file_write(STDOUT_FILENO, data, whole, "standard output");
    } else if (whole > 0) {
        poise_buf_append(rest, data, whole);
        code = rest->error != 0
                   ? rest->error
                   : poise_file_write(STDOUT_FILENO, rest->data, rest->len,
                                      "standard output");
        poise_buf_reset(rest);
    }
    if (code == 0 && whole < len) {
        code = poise_buf_append(rest, data + whole, len - whole);
    }
    if (code < 0) {
        errno = -code;
        return 0;
    }
    return (ssize_t)len;
}

int libc_create(struct vrank_libc *own, int number)
{
    size_t count = 0;
    *own = (struct vrank_libc){.optind = 1, .opterr = 1};
    while (environ != NULL && environ[count] != NULL) {
        count++;
    }
    own->environment = poise_alloc(count + 1, sizeof(char *));
    own->first_environment = own->environment;
    if (own->environment == NULL) {
        return -ENOMEM;
    }
    if (count > 0) {
        memcpy(own->environment, environ, count * sizeof(char *));
    }
    cookie_io_functions_t functions = {.write = libc_write};
    own->out = fopencookie(own, "w", functions);
    /* As under mpirun: only rank 0 reads. */
    own->in = number == 0 ? stdin : fopen("/dev/null", "re");
    if (own->out == NULL || own->in == NULL) {
        return poise_error_set(errno,
                               "open the standard streams of a virtual "
                               "rank",
                               NULL, NULL);
    }
    setvbuf(own->out, NULL, _IOLBF, 0);
    return 0;
}

void libc_flush(struct vrank_libc *own)
{
    if (own->out != NULL) {
        fflush(own->out);
        if (own->line.len > 0) {
            poise_file_write(STDOUT_FILENO, own->line.data, own->line.len,
                             "standard output");
            poise_buf_reset(&own->line);
        }
    }
}

void libc_discard(struct vrank_libc *own)
{
    own->is_discarded = true;
    poise_buf_reset(&own->line);
}

void libc_free(struct vrank_libc *own)
{
    libc_flush(own);
    libc_handlers_free(own);
    if (own->out != NULL) {
        fclose(own->out);
    }
    if (own->in != NULL && own->in != stdin) {
        fclose(own->in);
    }
    free(own->first_environment);
    poise_buf_free(&own->line);
}

const char *const libc_data_names[] = {
    "optarg", "optind",  "opterr",    "optopt",   "stdout",
    "stdin",  "environ", "__environ", "_environ", NULL};

void libc_data(struct vrank_libc *own, void *out[LIBC_DATA])
{
    void *const addresses[LIBC_DATA] = {
        &own->optarg,      &own->optind,      &own->opterr,
        &own->optopt,      &own->out,         &own->in,
        &own->environment, &own->environment, &own->environment};
    memcpy(out, addresses, sizeof addresses);
}

struct vrank_libc *libc_now(void)
{
    const struct vrank *self = vrank_self();
    struct load_rank *program = self != NULL ? self->program : NULL;
    return program != NULL ? &program->libc : NULL;
}
