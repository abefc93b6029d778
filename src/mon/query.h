/*
 * poise/query.h - questions about calls, as text.
 *
 *     filter op=MPI_Allreduce and bytes<64 | by rank | mean(wait), max(wait)
 *
 * A query is asked of each rank's part of each call that a monitor sees
 * (poise_query_watch), or of each tuple of a scope (poise_query_stage), while
 * the program runs. It keeps one row for each group, in bounded memory, and can
 * be read at any time. All functions are local, and a query is used by one
 * thread at a time.
 *
 * Grammar: stages are separated by '|' and may each come once, in this order:
 *
 *     filter CONDITION     NAME (= | != | < | <= | > | >=) VALUE, put together
 *                          by `and`, `or`, `not` and parentheses. A value is a
 *                          number, with ns, us, ms, s or K, M, G (of 1,024)
 *                          behind it, or a word; '...' for other text
 *     by NAME, ...         the groups, by at most four; without it all is one
 *     SUMMARY, ...         count, sum(NAME), mean(NAME), min(NAME), max(NAME),
 *                          deviation(NAME); at most eight; without it count
 *
 * Names, of parts of calls: op, comm, cause, host, cluster (words); rank, seq,
 * bytes, code; in ns time (inside the call), wait (until the last came), depart
 * (after the first left), late (of the rank that came last, by how much); last
 * and blamed (1 or 0). Of tuples: type, op, comm, host, cluster, rank, peer,
 * seq, time (between its first two times, ns) and whatever its type calls its
 * values (<poise/trace.h>), times as they are, in ticks.
 *
 * Source: thesis 7.2, 4.3 (filter and reduce wrappers).
 */
#ifndef POISE_QUERY_H
#define POISE_QUERY_H

#include <poise/monitor.h>
#include <poise/scope.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_query;

/** -EINVAL: not a query; the error says where and what is expected. -ENOMEM. */
POISE_API int poise_query_parse(const char *text, struct poise_query **out);
/** Before the monitor that it watches. NULL is allowed. */
POISE_API void poise_query_destroy(struct poise_query *query);

/** Ask it of each rank's part of each call from now on. `scope` knows the hosts
 * and is borrowed; NULL: host and cluster are "". -EINVAL: a name that calls do
 * not have, or it is compared with what it never is; -ENOSPC: too many watch.
 */
POISE_API int poise_query_watch(struct poise_query *query,
                                struct poise_monitor *monitor,
                                const struct poise_scope *scope);

/** A stage behind the gather (poise_scope_stage) with the query as `arg`: lets
 * those tuples pass that the condition holds for; of tuples that lack a name it
 * never does. */
POISE_API size_t poise_query_stage(const struct poise_scope_from *from,
                                   struct poise_trace_event *tuples,
                                   size_t count, void *arg);

/** How many columns a row has, and their names: those of `by`, then summaries,
 * as they were written. NULL: there is none. */
POISE_API unsigned poise_query_keys(const struct poise_query *query);
POISE_API unsigned poise_query_columns(const struct poise_query *query);
POISE_API const char *poise_query_column(const struct poise_query *query,
                                         unsigned column);

/** Groups so far. */
POISE_API unsigned poise_query_rows(const struct poise_query *query);
/** A key of a row: a word, or NULL and the number. In order of appearance. */
POISE_API const char *poise_query_key(const struct poise_query *query,
                                      unsigned row, unsigned key,
                                      int64_t *number);
/** A summary of a row, from 0. */
POISE_API double poise_query_value(const struct poise_query *query,
                                   unsigned row, unsigned summary);
/** Parts or tuples that the condition held for, and of those the ones whose
 * group found no place (there are 4,096). */
POISE_API void poise_query_counts(const struct poise_query *query,
                                  uint64_t *matched, uint64_t *left_out);

#ifdef __cplusplus
}
#endif

#endif
