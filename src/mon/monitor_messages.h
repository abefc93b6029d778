/*
 * poise/monitor_messages.h - who sends how much to whom, and who waits for
 * whom, in point-to-point messages.
 *
 * A stage of an event scope (<poise/scope.h>) puts the two records of a message
 * together, those of its sender and its receiver (POISE_TRACE_MESSAGE, of
 * collectors called ...Send and ...Recv), by its number. A receiver that went
 * into its call before the sender did waited for it, and a sender that was
 * still inside when the receiver came waited, too. Nothing grows with the
 * length of the run; what has no place is counted. All functions are local; of
 * one thread.
 *
 * Source: thesis 7.2, 4.3 (users' own monitors).
 */
#ifndef POISE_MONITOR_MESSAGES_H
#define POISE_MONITOR_MESSAGES_H

#include <poise/scope.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_monitor_messages;

/** Add the stage to a scope, before its first poll; the scope is borrowed, and
 * not polled after the end of this. -ENOMEM; -ENOSPC: as poise_scope_stage. */
POISE_API int
poise_monitor_messages_create(struct poise_scope *scope,
                              struct poise_monitor_messages **out);
POISE_API void
poise_monitor_messages_destroy(struct poise_monitor_messages *messages);

/** What went from one rank to another. */
struct poise_monitor_pair {
    int32_t from, to;
    uint64_t messages, bytes; /**< sent */
    uint64_t matched;         /**< of which both ends are known */
    int64_t receiver_ns;      /**< that the receiver waited for the sender */
    int64_t sender_ns;        /**< the other way round */
    uint64_t receiver_waits, sender_waits; /**< in how many messages */
};
/** The pairs so far, those with the most waiting first, at most `max`; how many
 * there are. */
POISE_API size_t
poise_monitor_messages_pairs(const struct poise_monitor_messages *messages,
                             struct poise_monitor_pair *out, size_t max);

/** What is not in the pairs' waits. */
struct poise_monitor_unpaired {
    uint64_t alone;    /**< ends whose other end never came, or came too late */
    uint64_t doubtful; /**< waits that are shorter than what two hosts' clocks
                          may be wrong by */
    uint64_t unplaced; /**< ends of pairs of ranks that there was no room for */
};
POISE_API struct poise_monitor_unpaired
poise_monitor_messages_unpaired(const struct poise_monitor_messages *messages);

#ifdef __cplusplus
}
#endif

#endif
