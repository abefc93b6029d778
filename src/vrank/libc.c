/*
 * What the C library keeps for a process, for each rank: its standard output
 * and input, its environment, the state of getopt, strtok and random numbers.
 *
 * A rank's standard output is a stream whose bytes are handed on in whole
 * lines, each in one write, so that lines of several ranks do not tear; what
 * is left without an end of line follows at the rank's end.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/** A line that grows beyond this is handed on as it is. */
#define LIBC_LINE_BYTES ((size_t)1 << 20)

static ssize_t libc_write(void *cookie, const char *data, size_t len)
{
    struct run_rank *rank = cookie;
    struct poise_buf *rest = &rank->line;
    const char *end = memrchr(data, '\n', len);
    size_t whole = end != NULL ? (size_t)(end - data) + 1 : 0;
    int code = 0;
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

int libc_create(struct run_rank *rank, int number, bool alone)
{
    struct vrank_libc *own = &rank->libc;
    size_t count = 0;
    *own = (struct vrank_libc){.optind = 1, .opterr = 1};
    while (environ != NULL && environ[count] != NULL) {
        count++;
    }
    own->environment = poise_alloc(count + 1, sizeof(char *));
    rank->environment = own->environment;
    if (own->environment == NULL) {
        return -ENOMEM;
    }
    if (count > 0) {
        memcpy(own->environment, environ, count * sizeof(char *));
    }
    own->in = stdin;
    if (!alone) {
        cookie_io_functions_t functions = {.write = libc_write};
        own->out = fopencookie(rank, "w", functions);
        /* As under mpirun: only rank 0 reads. */
        own->in = number == 0 ? stdin : fopen("/dev/null", "re");
        if (own->out == NULL || own->in == NULL) {
            return poise_error_set(errno,
                                   "open the standard streams of a "
                                   "virtual rank",
                                   NULL, NULL);
        }
        rank->owns_in = number != 0;
        setvbuf(own->out, NULL, _IOLBF, 0);
    }
    rank->owns_out = !alone;
    return 0;
}

void libc_flush(struct run_rank *rank)
{
    if (rank->owns_out && rank->libc.out != NULL) {
        fflush(rank->libc.out);
        if (rank->line.len > 0) {
            poise_file_write(STDOUT_FILENO, rank->line.data, rank->line.len,
                             "standard output");
            poise_buf_reset(&rank->line);
        }
    }
}

void libc_free(struct run_rank *rank)
{
    libc_flush(rank);
    if (rank->owns_out && rank->libc.out != NULL) {
        fclose(rank->libc.out);
    }
    if (rank->owns_in && rank->libc.in != NULL) {
        fclose(rank->libc.in);
    }
    free(rank->environment);
    poise_buf_free(&rank->line);
}

size_t libc_patches(struct vrank_libc *own, struct load_patch *out)
{
    const struct load_patch patches[] = {
        {"optarg", &own->optarg},        {"optind", &own->optind},
        {"opterr", &own->opterr},        {"optopt", &own->optopt},
        {"stdout", &own->out},           {"stdin", &own->in},
        {"environ", &own->environment},  {"__environ", &own->environment},
        {"_environ", &own->environment}, {NULL, NULL},
    };
    memcpy(out, patches, sizeof patches);
    return sizeof patches / sizeof *patches;
}

/* ---- for the functions in front of the C library's ------------------------
 */

struct vrank_libc *poise_vrank_libc(void)
{
    struct vrank *self = vrank_self();
    struct run_rank *rank = self != NULL ? run_rank_of(self) : NULL;
    /* A program in place has the C library for itself. */
    return rank != NULL && rank->owns_out ? &rank->libc : NULL;
}

void poise_vrank_exit(int status)
{
    struct vrank *self = vrank_self();
    struct run_rank *rank = self != NULL ? run_rank_of(self) : NULL;
    if (rank != NULL) {
        run_rank_end(rank);
        vrank_exit(status & 0xff);
    }
}

void poise_vrank_quit(int status, const char *call)
{
    struct vrank *self = vrank_self();
    /* Whoever ends the process in the end comes here, too. */
    if (self != NULL && !vrank_is_aborting()) {
        vrank_abort(status & 0xff,
                    status != 0 ? "virtual rank %d called %s(%d)" : NULL,
                    vrank_number(self), call, status);
    }
}

bool poise_vrank_yield(void)
{
    if (vrank_self() == NULL) {
        return false;
    }
    vrank_yield();
    return true;
}

bool poise_vrank_sleep(const char *call, uint64_t deadline_ns)
{
    if (vrank_self() == NULL) {
        return false;
    }
    /* A permit that is meant for something else is passed on. */
    bool was_woken = false;
    while (poise_clock_ns() < deadline_ns) {
        vrank_park_until(call, deadline_ns);
        was_woken |= poise_clock_ns() < deadline_ns;
    }
    if (was_woken) {
        vrank_unpark(vrank_self());
    }
    return true;
}

bool poise_vrank_refuses(const char *call)
{
    struct vrank *self = vrank_self();
    return self != NULL && run_rank_refuses(self, call);
}
