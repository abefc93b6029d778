/*
 * A recording run: call sites of MPI_Allreduce that reduce one value, with what
 * was given and what came out, so that rules can be made of them. Rank 0 writes
 * a rules file in which everything is a comment: only a person who knows the
 * program can say what its loop compares with.
 */
#include "rules.h"

#include <mpi.h>

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SITES 64

/* One call site, as one rank or all saw it. Integers as doubles: for words. */
struct site {
    char name[96], function[64];
    int32_t type, op;
    uint64_t calls;
    double least_in, most_in;   /* what was given */
    double least_out, most_out; /* what came out, but for the last time */
    double first, last;
    uint64_t nans;
};

/* Of the whole program: a preload has no handle to keep it in. */
static struct {
    pthread_mutex_t lock; /* threads may reduce on communicators of theirs */
    const void *at[MOST_SITES];
    struct site sites[MOST_SITES];
    int count;
    uint64_t left_out; /* calls at further sites */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool record_wanted(void)
{
    static int known; /* 0: not yet, 1: no, 2: yes; __atomic access */
    int now = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (now == 0) {
        const char *path = getenv("POISE_COLL_RECORD");
        now = path && *path ? 2 : 1;
        __atomic_store_n(&known, now, __ATOMIC_RELAXED);
    }
    return now == 2;
}

static void name_site(const void *at, struct site *site)
{
    Dl_info info;
    const char *call = (const char *)at - 1;
    if (!dladdr(call, &info) || !info.dli_fname) {
        snprintf(site->name, sizeof site->name, "unknown");
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(site->name, sizeof site->name, "%.63s+%#tx",
             slash ? slash + 1 : info.dli_fname,
             call - (const char *)info.dli_fbase);
    if (info.dli_sname) {
        snprintf(site->function, sizeof site->function, "%.48s+%#tx",
                 info.dli_sname, call - (const char *)info.dli_saddr);
    }
}

static struct site *site_at(const void *at, enum poise_coll_type type,
                            enum poise_coll_op op)
{
    for (int i = 0; i < seen.count; i++) {
        if (seen.at[i] == at && seen.sites[i].type == (int32_t)type &&
            seen.sites[i].op == (int32_t)op) {
            return &seen.sites[i];
        }
    }
    if (seen.count == MOST_SITES) {
        return NULL;
    }
    struct site *site = &seen.sites[seen.count];
    seen.at[seen.count++] = at;
    *site = (struct site){.type = (int32_t)type,
                          .op = (int32_t)op,
                          .least_in = INFINITY,
                          .most_in = -INFINITY,
                          .least_out = INFINITY,
                          .most_out = -INFINITY};
    name_site(at, site);
    return site;
}

static double as_double(enum poise_coll_type type, const void *value)
{
    double real;
    int64_t integer;
    if (type == POISE_DOUBLE) {
        memcpy(&real, value, sizeof real);
        return real;
    }
    memcpy(&integer, value, sizeof integer);
    return (double)integer;
}

static void record(struct site *site, enum poise_coll_type type, const void *in,
                   const void *out)
{
    double mine = as_double(type, in), result = as_double(type, out);
    site->least_in = fmin(site->least_in, mine);
    site->most_in = fmax(site->most_in, mine);
    site->nans += isnan(mine) || isnan(result);
    if (site->calls++ == 0) {
        site->first = result;
    } else {
        site->least_out = fmin(site->least_out, site->last);
        site->most_out = fmax(site->most_out, site->last);
    }
    site->last = result;
}

void record_call(const void *at, enum poise_coll_type type,
                 enum poise_coll_op op, const void *in, const void *out)
{
    pthread_mutex_lock(&seen.lock);
    struct site *site = site_at(at, type, op);
    if (site) {
        record(site, type, in, out);
    } else {
        seen.left_out++;
    }
    pthread_mutex_unlock(&seen.lock);
}

/* ---- the file ----------------------------------------------------------- */

static void merge(struct site *into, const struct site *from)
{
    into->least_in = fmin(into->least_in, from->least_in);
    into->most_in = fmax(into->most_in, from->most_in);
    into->nans += from->nans;
    if (into->calls != from->calls) {
        into->calls = 0; /* not all ranks were there */
    }
}

static const char *sign_of(const struct site *site)
{
    return site->least_in >= 0  ? "not-negative"
           : site->most_in <= 0 ? "not-positive"
                                : "any";
}

/* Why a site is no candidate, or NULL. */
static const char *objection(const struct site *site)
{
    if (site->calls == 0) {
        return "not all ranks called here as often";
    }
    if (site->nans > 0) {
        return "there were values that are no numbers";
    }
    if (site->calls < 3) {
        return "it was called once or twice only";
    }
    if (site->op == POISE_OP_SUM && strcmp(sign_of(site), "any") == 0) {
        return "a sum of mixed signs is never certain early";
    }
    return NULL;
}

static void suggest(const struct site *site, struct poise_buf *out)
{
    const char *op = site->op == POISE_OP_SUM   ? "sum"
                     : site->op == POISE_OP_MIN ? "min"
                                                : "max";
    const char *type = site->type == POISE_DOUBLE ? "double" : "int64";
    const char *why = objection(site);
    poise_buf_printf(out, "\n# %s%s%s: %s of %s, %llu calls\n", site->name,
                     site->function[0] ? " in " : "", site->function, op, type,
                     (unsigned long long)site->calls);
    if (why) {
        poise_buf_printf(out, "# No candidate: %s.\n", why);
        return;
    }
    poise_buf_printf(out,
                     "# given %.6g to %.6g, results %.6g to %.6g, the "
                     "last %.6g\n",
                     site->least_in, site->most_in, site->least_out,
                     site->most_out, site->last);
    const char *test = site->last < site->least_out  ? ">"
                       : site->last > site->most_out ? "<"
                                                     : NULL;
    if (!test) {
        poise_buf_puts(out, "# No candidate: the last result is like the "
                            "others.\n");
        return;
    }
    poise_buf_printf(out,
                     "# The last is %s all others: a loop that goes on while "
                     "result %s CONSTANT has one between %.17g and %.17g.\n"
                     "#allreduce %s %s %s %s CONSTANT %s\n",
                     test[0] == '>' ? "below" : "above", test, site->last,
                     test[0] == '>' ? site->least_out : site->most_out,
                     site->name, op, type, test, sign_of(site));
}

static int write_file(const char *path, int ranks)
{
    struct poise_buf out = {0};
    poise_buf_printf(&out,
                     "# Allreduces of one value on %d ranks. If the result of "
                     "one serves a test\n# and nothing else, and nobody "
                     "relies on it as a barrier, take the '#' off its\n# rule, "
                     "and put the constant in its place.\n",
                     ranks);
    for (int i = 0; i < seen.count; i++) {
        suggest(&seen.sites[i], &out);
    }
    if (seen.left_out > 0) {
        poise_buf_printf(&out,
                         "\n# %llu calls at further places were left "
                         "out.\n",
                         (unsigned long long)seen.left_out);
    }
    int code = poise_file_save(path, &out);
    poise_buf_free(&out);
    return code;
}

/* Put in what another rank saw; its sites lie in the order of its own. */
static void merge_all(const struct site *theirs)
{
    for (int i = 0; i < seen.count; i++) {
        struct site *mine = &seen.sites[i];
        struct site none = {.least_in = INFINITY, .most_in = -INFINITY};
        const struct site *match = &none;
        for (int k = 0; k < MOST_SITES; k++) {
            if (theirs[k].op == mine->op && theirs[k].type == mine->type &&
                strcmp(theirs[k].name, mine->name) == 0) {
                match = &theirs[k];
            }
        }
        merge(mine, match);
    }
}

int record_write(void)
{
    int rank = 0, ranks = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct site *theirs = malloc(sizeof seen.sites);
    int have = theirs != NULL, all = 0;
    PMPI_Allreduce(&have, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (int from = 1; from < ranks && all; from++) {
        if (rank == from) {
            PMPI_Send(seen.sites, (int)sizeof seen.sites, MPI_BYTE, 0, 0,
                      MPI_COMM_WORLD);
        } else if (rank == 0) {
            PMPI_Recv(theirs, (int)sizeof seen.sites, MPI_BYTE, from, 0,
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            merge_all(theirs);
        }
    }
    free(theirs);
    return !all        ? -ENOMEM
           : rank == 0 ? write_file(getenv("POISE_COLL_RECORD"), ranks)
                       : 0;
}
