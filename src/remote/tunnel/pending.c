/*
 * Who has not proved yet who he is. Links of such are *pending*: from accept
 * until both ends have said what they take. They cost little, and there is a
 * budget for them: so many from one address, so many in all, and so long each
 * (LINK_S of link.c). None that comes is turned away for it, since it may be
 * the right one; another goes in its place: of the address that has most of
 * them (of its own, if that has all it may have) the one that got least far,
 * and of these the oldest. So who says nothing never keeps out who can prove
 * himself, and who comes from elsewhere not even by many that begin to prove
 * themselves.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

static bool is_pending(const struct tunnel_link *link)
{
    return !link->opens && !link->lost && link->window == 0;
}

static bool is_same(const struct tunnel_link *a, const struct tunnel_link *b)
{
    return memcmp(a->from, b->from, sizeof a->from) == 0;
}

/* How far it got. */
static int progress(const struct tunnel_link *link)
{
    uint64_t out, in;

    remote_link_bytes(&link->wire, &out, &in);
    return (in > 0) + (link->peer && link->wire.tls);
}

/* How many of them are of the same address as `who`. */
static unsigned count_same(const struct tunnel *tunnel,
                           const struct tunnel_link *who)
{
    unsigned count = 0;

    for (const struct tunnel_link *at = tunnel->links; at; at = at->next) {
        count += is_pending(at) && is_same(at, who);
    }
    return count;
}

/* One of the address that has most of them, `but` left out. */
static const struct tunnel_link *find_largest(const struct tunnel *tunnel,
                                              const struct tunnel_link *but)
{
    const struct tunnel_link *found = NULL;
    unsigned most = 0;

    for (const struct tunnel_link *at = tunnel->links; at; at = at->next) {
        unsigned count =
            at != but && is_pending(at) ? count_same(tunnel, at) : 0;
        if (count > 0 && count >= most) {
            most = count;
            found = at;
        }
    }
    return found;
}

/* Later ones of the list are older. */
static void end_one(struct tunnel *tunnel, const struct tunnel_link *of,
                    const struct tunnel_link *but)
{
    struct tunnel_link *found = NULL;

    for (struct tunnel_link *at = tunnel->links; at; at = at->next) {
        if (is_pending(at) && at != but && is_same(at, of) &&
            (!found || progress(at) <= progress(found))) {
            found = at;
        }
    }
    if (found) {
        found->lost = true;
        poise_error_set(EUSERS, "serve", found->name,
                        "it did not prove who it is, and others came");
        tunnel_stranger_problem(tunnel);
    }
}

void tunnel_pending_admit(struct tunnel *tunnel, const struct tunnel_link *link)
{
    unsigned count = 0;

    for (const struct tunnel_link *at = tunnel->links; at; at = at->next) {
        count += is_pending(at);
    }
    if (count_same(tunnel, link) > TUNNEL_PENDING_FROM) {
        end_one(tunnel, link, link);
    } else if (count > TUNNEL_PENDING) {
        end_one(tunnel, find_largest(tunnel, link), link);
    }
}

bool tunnel_has_too_many_links(const struct tunnel *tunnel)
{
    unsigned count = 0;

    for (const struct tunnel_link *at = tunnel->links; at; at = at->next) {
        count += !at->opens && !at->lost && at->window > 0;
    }
    return count > tunnel->links_most;
}

/* ---- what is said of them ----------------------------------------------- */

void tunnel_stranger_problem(struct tunnel *tunnel)
{
    if (tunnel->now_ns >= tunnel->strangers_ns) {
        tunnel_strangers_tell(tunnel);
        tunnel->strangers_ns = tunnel->now_ns + TUNNEL_STRANGERS_NS;
    }
    if (tunnel->strangers_told < TUNNEL_STRANGERS_TOLD) {
        tunnel->strangers_told++;
        tunnel_problem(tunnel);
    } else {
        tunnel->strangers_silent++;
    }
}

void tunnel_strangers_tell(struct tunnel *tunnel)
{
    if (tunnel->strangers_silent > 0) {
        poise_error_set(EUSERS, "serve", "others",
                        "%u more did not prove who they are",
                        tunnel->strangers_silent);
        tunnel_problem(tunnel);
    }
    tunnel->strangers_told = tunnel->strangers_silent = 0;
}
