/* Names that command lines know. */
#include <poise/vrank.h>

const char *const poise_vrank_policy_names[POISE_VRANK_POLICIES + 1] = {
    "round-robin", "serial", "priority", "coschedule", "unblocked", NULL};

const char *const poise_vrank_placement_names[POISE_VRANK_PLACEMENTS + 1] = {
    "block", "cyclic", NULL};
