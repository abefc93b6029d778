/*
 * send_liar.h - the other end of poise send, as a process of its own that
 * says what it likes. The test starts itself as the remote shell:
 * "PROGRAM --liar CASE ROOT host poise send --server", where CASE is the name
 * of one, or "gives=SEED" or "takes=SEED", a storm (send_storm.c).
 */
#ifndef SEND_LIAR_H
#define SEND_LIAR_H

#include "remote/send/internal.h"

/** What a peer says and how this end has to take it. */
struct liar_case {
    const char *name;
    void (*play)(void *liar);
    const char *sources[3]; /* of a pull; none: this end sends ROOT/source/ */
    int code;               /* that poise_remote_send returns */
    const char *word;       /* in its error, or in the last problem */
    const char *made;       /* where a pull may write, below ROOT/target */
};
extern const struct liar_case liar_pulls[], liar_pushes[];

/** Be the other end: the exit status. */
int liar_main(int argc, char **argv);

/** A test's own end of a connection: for a server in the same process. */
struct liar {
    struct remote_channel channel;
    const char *root;         /* "source", "target", "beside" lie there */
    struct poise_buf heard;   /* data of files */
    unsigned batches, files;  /* lists and files that came */
    unsigned wants, problems; /* answers, errors */
    bool done;
};
int liar_open(struct liar *liar, int in, int out);
void liar_close(struct liar *liar);
/** Go on until the other end is gone, or `until` messages of the kind came. */
void liar_hear(struct liar *liar, const unsigned *count, unsigned until);
/** Parts of what a sender says. */
struct remote_entry liar_entry(const char *name, uint32_t mode);
void liar_begin(struct liar *liar, unsigned single, uint64_t count);
void liar_batch(struct liar *liar, unsigned flags,
                const struct remote_entry *entries, size_t count);
void liar_list_end(struct liar *liar);
void liar_file(struct liar *liar, const char *text);
/** Say nothing until it is gone. */
void liar_be_silent(struct liar *liar);
void liar_path(const struct liar *liar, const char *name, char out[512]);
/** Say things at random, those of a sender or of a receiver. */
void liar_storm(struct liar *liar, uint64_t seed, bool gives);
/** Links without end to a file that does not come. */
void liar_flood(struct liar *liar);
/** Read what a server says to its greeting: 0 if it is content. */
int liar_skip_welcome(int fd);
/** A greeting to go with it. */
void liar_storm_greeting(uint64_t seed, bool gives, struct poise_buf *out);
/** A message of this kind with these bytes. */
void liar_say(struct liar *liar, unsigned kind, const void *data, size_t len);

#endif
