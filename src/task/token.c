/*
 * Termination by Safra's token (EWD998): every rank counts the basic messages
 * that it sent less those it received, and is black since it received one. A
 * token goes round (0, 1, ... size-1, 0), held by each rank until it has
 * nothing to do, adds up the counts and takes the colours. White, and a sum
 * of zero with rank 0's own: nothing is left, nor under way.
 *
 * The paper's rule (EWD840, `plain`, which only a test sets) does not count,
 * and is wrong as soon as a message can be overtaken by the token. Source:
 * tree-walk IV.A.
 *
 * Should tokens get lost, rank 0 sends another after a while. Ranks forget
 * older ones; but as a stale one may have whitened a rank that the new one
 * has not reached yet, the first round of a repeated token decides nothing.
 */
#include "internal.h"

#include <errno.h>

#define TOKEN_PAUSE_LEAST_NS UINT64_C(100000)
#define TOKEN_PAUSE_MOST_NS UINT64_C(20000000)

void task_token_init(struct poise_pool *pool)
{
    struct task_token *token = &pool->net.token;
    token->pause_ns = TOKEN_PAUSE_LEAST_NS;
}

bool task_quiet(struct poise_pool *pool)
{
    /* The order matters: see worker.c. */
    return !task_work_visible(pool) &&
           __atomic_load_n(&pool->busy, __ATOMIC_SEQ_CST) == 0 &&
           !task_work_visible(pool) &&
           __atomic_load_n(&pool->net.outbox_count, __ATOMIC_SEQ_CST) == 0 &&
           task_stream_empty(pool);
}

static void token_send(struct poise_pool *pool, uint64_t round, int64_t sum,
                       bool black)
{
    int next = (pool->rank + 1) % pool->size;
    struct task_head head = {.kind = TASK_TOKEN,
                             .flags = black ? TASK_FLAG_BLACK : 0,
                             .a = round,
                             .b = (uint64_t)sum};
    poise_trace_emit(pool->comm->ring, POISE_TRACE_TOKEN, 0, (uint64_t)next,
                     black);
    task_send(pool, next, head, NULL, 0);
}

static void token_start(struct poise_pool *pool, uint64_t now)
{
    struct task_token *token = &pool->net.token;
    token->seen++;
    token->out = true;
    token->sent_at = now;
    token->black = false;
    pool->stats.token_rounds++;
    token_send(pool, token->seen, 0, false);
}

/* Rank 0 has the token back, and is quiet. */
static void token_judge(struct poise_pool *pool, uint64_t now)
{
    struct task_token *token = &pool->net.token;
    bool black = token->sum_black || token->black || token->doubtful;
    int64_t sum = token->sum + token->count;
    token->here = false;
    token->out = false;
    token->doubtful = false;
    token->patience_ns = 0;
    if (!black && (sum == 0 || token->plain)) {
        task_end_all(pool, false);
        return;
    }
    token->next_at = now + token->pause_ns;
    token->pause_ns = token->pause_ns * 2 < TOKEN_PAUSE_MOST_NS
                          ? token->pause_ns * 2
                          : TOKEN_PAUSE_MOST_NS;
    /* All idle, and the same messages missing all the time. */
    if (black || sum != token->last_sum || token->stuck_since == 0) {
        token->stuck_since = black ? 0 : now;
        token->last_sum = sum;
    } else if (now - token->stuck_since >= pool->net.lost_ns) {
        poise_error_set(EPROTO, "finish", NULL, "%lld messages got lost",
                        (long long)(sum < 0 ? -sum : sum));
        task_stop(pool, -EPROTO);
    }
}

void task_token_turn(struct poise_pool *pool)
{
    struct task_token *token = &pool->net.token;
    bool mine = token->here || (pool->rank == 0 && !token->out);
    uint64_t now;
    if (mine && task_quiet(pool)) {
        now = poise_clock_ns();
        if (pool->rank != 0) {
            token->here = false;
            token_send(pool, token->round, token->sum + token->count,
                       token->sum_black || token->black);
            token->black = false;
        } else if (token->here) {
            token_judge(pool, now);
        } else if (now >= token->next_at) {
            token_start(pool, now);
        }
    } else if (pool->rank == 0 && token->out && !token->here) {
        now = poise_clock_ns();
        uint64_t least = pool->net.lost_ns / 5;
        token->patience_ns = token->patience_ns ? token->patience_ns : least;
        if (now - token->sent_at > token->patience_ns) {
            token->patience_ns *= 2;
            token_start(pool, now);
            token->doubtful = true;
        }
    }
}

void task_on_token(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_token *token = &pool->net.token;
    bool stale =
        pool->rank == 0 ? in->head.a != token->seen : in->head.a <= token->seen;
    if (stale) {
        return;
    }
    token->seen = in->head.a;
    token->round = in->head.a;
    token->here = true;
    token->sum = (int64_t)in->head.b;
    token->sum_black = in->head.flags & TASK_FLAG_BLACK;
}
