/* Between the files of poise vnc replay. */
#ifndef POISE_CLI_VNC_REPLAY_H
#define POISE_CLI_VNC_REPLAY_H

#include "cli/common/common.h"

#include <poise/codec.h>
#include <poise/report.h>
#include <poise/screen.h>

/** One way to send the session. */
struct replay_method {
    struct poise_buf label;
    struct poise_screen_trial *trial;
    struct poise_screen_trial_result result;
};
struct replay_link {
    const char *text; /**< as it was given */
    struct poise_screen_link link;
};
/** What was found. */
struct replay_found {
    struct poise_screen_costs costs;
    uint64_t end_us, hash;
    uint32_t width, height;
    struct replay_method *methods; /**< owned */
    size_t method_count;
    struct replay_link *links; /**< owned */
    size_t link_count;
};

void replay_print_text(const struct replay_found *found, struct poise_buf *out);
void replay_print_json(const struct replay_found *found, struct poise_buf *out);
/** The page of plots and tables. */
int replay_save_page(const struct replay_found *found, const char *session,
                     const char *path);
/** A picture as PPM, with the outlines of pieces if there are any. */
int replay_save_picture(const struct poise_screen_picture *picture,
                        const struct poise_screen_piece *pieces, size_t count,
                        const char *path);
/** The table of the methods. */
int replay_table(const struct replay_found *found, struct poise_table **out);
/** The table of when updates were complete. */
int replay_links_table(const struct replay_found *found,
                       struct poise_table **out);
/** Sorted: how long each update took over a link, in milliseconds (NULL:
 * processor time to encode it). Owned by the caller; NULL: no memory. */
double *replay_times(const struct replay_method *method,
                     const struct replay_link *link);

#endif
