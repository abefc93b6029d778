/*
 * Termination by Safra's token (EWD998). Each rank counts the basic messages
 * (those that carry work) that it sent less those that it received, and turns
 * black when it receives one. A token goes round (0, 1, ... size-1, 0). Each
 * rank keeps it until it is passive, adds its count, makes it black if the rank
 * is black, passes it on and is white again. Rank 0 ends the run if token and
 * rank are white and the sum, with its own count, is zero.
 *
 * Why that is right: at any moment the sum of all counts is the number of basic
 * messages under way. A rank that the token has passed can become active again
 * only by receiving a message, and is black from then on until the token passes
 * again. So if the token meets white ranks only, each rank was passive from its
 * visit on, its count is still what the token added, and a sum of zero says
 * that nothing is under way to make one active.
 *
 * What must hold for it, beside the order of net_receive (count, blacken, then
 * handle): a passive rank has no task, no undelivered message in its inbox and
 * nothing in its outbox or its output stream that is not yet sent and counted;
 * see task_passive.
 *
 * The paper's rule (EWD840, `plain`, which only a test sets) does not count,
 * and is wrong as soon as a token can overtake a message. Source: tree-walk
 * IV.A.
 *
 * Should tokens get lost, rank 0 sends another after a while, of a higher
 * round; ranks drop tokens of older rounds. But a dropped or lost token has
 * whitened the ranks it passed and carried their blackness away with it, so the
 * first round of a repeated token decides nothing (`doubtful`).
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

bool task_passive(struct poise_pool *pool)
{
    /* The order matters. First: nothing that idle workers could just be taking
     * up, so whatever comes into being comes from a busy one (or from this
     * thread, which puts what arrives into a queue). Then: no busy one, so
     * nothing comes into being any more. Then: nothing that the last busy ones
     * left behind when they went. */
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
    poise_trace_event(POISE_TRACE_TOKEN, round, (uint64_t)next, black, 0);
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

/* Rank 0 has the token back, and is passive. */
static void token_judge(struct poise_pool *pool, uint64_t now)
{
    struct task_token *token = &pool->net.token;
    bool black = token->sum_black || token->black || token->doubtful;
    int64_t sum = token->sum + token->count;
    token->here = false;
    token->out = false;
    token->doubtful = false;
    token->timeout_ns = 0;
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
    if (mine && task_passive(pool)) {
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
        token->timeout_ns = token->timeout_ns ? token->timeout_ns : least;
        if (now - token->sent_at > token->timeout_ns) {
            token->timeout_ns *= 2;
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
