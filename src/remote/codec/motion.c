/*
 * What of a picture is elsewhere: on the screen before, or in the history.
 *
 * All windows of 16 x 8 pixels have a fingerprint, after Karp and Rabin; those
 * whose fingerprint ends in zeros are remembered and looked up, so that both
 * pictures choose the same ones wherever they lie. Windows that are found vote
 * for how they moved; from the windows of the motion with the most votes on,
 * rectangles grow as far as the pixels agree. Pixels are compared, so that what
 * is found is true, however short the fingerprints.
 *
 * Source: thesis 8.5.3.7 (Karp and Rabin), 3.2 of 7.5 (motion).
 */
#include "internal.h"

#include <poise/grid.h>

#include <errno.h>
#include <stdlib.h>

enum {
    WIDE = POISE_DEDUP_WINDOW_WIDE,
    HIGH = POISE_DEDUP_WINDOW_HIGH,
    BEFORE_BITS = 15,
    KEPT_BITS = 18,
    COPIES_MOST = 4096,
    VECTORS_MOST = 256,
    EDGES_LEAST = 48, /* what a copy has to save, as pixels that differ from
                         those beside and above them */
    BOXES_MOST = 16,
    LARGE = 1 << 18 /* pixels */
};

struct window {
    uint32_t hash, x, y;
};
struct windows {
    struct window *windows;
    size_t count, room;
};
/* A window that is also at x, y of a patch. */
struct hit {
    uint64_t patch;
    int32_t dx, dy; /* from where it is to where it was */
    uint32_t x, y;  /* where it is */
    uint32_t votes;
};
struct before_slot {
    uint32_t hash, turn;
    uint32_t x, y;
};
struct kept_slot {
    uint64_t at;
    uint32_t hash;
};
/* Limits of a row, or of some of them. */
struct run {
    uint32_t left, right;
};

struct codec_motion {
    struct before_slot *before;
    struct kept_slot *kept;
    uint32_t turn;
    uint32_t mask;                  /* of fingerprints */
    uint32_t *sums, *line, *chosen; /* of a row */
    size_t line_room;
    struct windows windows;
    struct hit *hits;
    size_t hit_count, hit_room;
    struct run *up, *down;
    size_t run_room;
};

int codec_motion_create(unsigned bits, struct codec_motion **out)
{
    struct codec_motion *motion = poise_alloc(1, sizeof *motion);
    if (!motion) {
        return -ENOMEM;
    }
    motion->mask = bits == 0 || bits >= 32 ? UINT32_MAX : (1u << bits) - 1;
    motion->before =
        poise_alloc((size_t)1 << BEFORE_BITS, sizeof *motion->before);
    motion->kept = poise_alloc((size_t)1 << KEPT_BITS, sizeof *motion->kept);
    if (!motion->before || !motion->kept) {
        codec_motion_destroy(motion);
        return -ENOMEM;
    }
    *out = motion;
    return 0;
}

void codec_motion_destroy(struct codec_motion *motion)
{
    if (motion) {
        free(motion->before);
        free(motion->kept);
        free(motion->sums);
        free(motion->line);
        free(motion->chosen);
        free(motion->windows.windows);
        free(motion->hits);
        free(motion->up);
        free(motion->down);
        free(motion);
    }
}

void codec_motion_forget(struct codec_motion *motion)
{
    memset(motion->kept, 0, sizeof *motion->kept << KEPT_BITS);
}

/* ---- windows ------------------------------------------------------------- */

/* Whether something changes in it both to the right and down: others look the
 * same in too many places. */
static bool is_marked(const struct poise_screen_picture *picture, uint32_t x,
                      uint32_t y)
{
    const uint32_t *top = codec_at(picture, x, y);
    bool across = false, down = false;
    for (uint32_t j = HIGH; j-- > 0 && !(across && down);) {
        const uint32_t *row = codec_at(picture, x, y + j);
        down = down || memcmp(row, top, WIDE * sizeof *row) != 0;
        across = across || memcmp(row, row + 1, (WIDE - 1) * sizeof *row) != 0;
    }
    return across && down;
}

static int add_window(struct windows *windows, struct window window)
{
    if (windows->count == windows->room) {
        size_t room = windows->room ? 2 * windows->room : 1024;
        struct window *more =
            poise_realloc(windows->windows, room, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        windows->windows = more;
        windows->room = room;
    }
    windows->windows[windows->count++] = window;
    return 0;
}

static int make_room(struct codec_motion *motion, size_t width, size_t height)
{
    if (width > motion->line_room) {
        free(motion->sums);
        free(motion->line);
        free(motion->chosen);
        motion->line_room = 0;
        motion->sums = poise_alloc(width, sizeof *motion->sums);
        motion->line = poise_alloc(width, sizeof *motion->line);
        motion->chosen = poise_alloc(width, sizeof *motion->chosen);
        if (!motion->sums || !motion->line || !motion->chosen) {
            return -ENOMEM;
        }
        motion->line_room = width;
    }
    if (height > motion->run_room) {
        free(motion->up);
        free(motion->down);
        motion->run_room = 0;
        motion->up = poise_alloc(height, sizeof *motion->up);
        motion->down = poise_alloc(height, sizeof *motion->down);
        if (!motion->up || !motion->down) {
            return -ENOMEM;
        }
        motion->run_room = height;
    }
    return 0;
}

/* The windows whose first row is `y`. */
static int choose_in_row(struct codec_motion *motion,
                         const struct poise_screen_picture *picture,
                         const struct poise_screen_rect *box, uint32_t y)
{
    size_t count = poise_dedup_window_choose(motion->line, motion->sums,
                                             box->width, motion->chosen);
    for (size_t i = 0; i < count; i++) {
        uint32_t x = motion->chosen[i];
        uint32_t hash = motion->line[x];
        /* Where neighbours have the same one something repeats. */
        if ((x > 0 && hash == motion->line[x - 1]) ||
            !is_marked(picture, box->x + x, y)) {
            continue;
        }
        if (add_window(&motion->windows, (struct window){hash & motion->mask,
                                                         box->x + x, y}) < 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

/* The windows of a box that are chosen, of each `step`th row. */
static int choose(struct codec_motion *motion,
                  const struct poise_screen_picture *picture,
                  const struct poise_screen_rect *box, uint32_t step)
{
    motion->windows.count = 0;
    if (box->width < WIDE || box->height < HIGH) {
        return 0;
    }
    int code = make_room(motion, box->width, 0);
    if (code < 0) {
        return code;
    }
    memset(motion->sums, 0, box->width * sizeof *motion->sums);
    for (uint32_t j = 0; j < box->height && code == 0; j++) {
        poise_dedup_window_roll(
            motion->sums, codec_at(picture, box->x, box->y + j),
            j >= HIGH ? codec_at(picture, box->x, box->y + j - HIGH) : NULL,
            box->width);
        if (j + 1 >= HIGH && (j + 1 - HIGH) % step == 0) {
            code = choose_in_row(motion, picture, box, box->y + j + 1 - HIGH);
        }
    }
    return code;
}

/* The leading bits of all that are chosen are zeros. */
static size_t slot_of(uint32_t hash, unsigned bits)
{
    return (hash ^ hash >> 13) & (((size_t)1 << bits) - 1);
}

static void learn_before(struct codec_motion *motion)
{
    for (size_t i = 0; i < motion->windows.count; i++) {
        const struct window *w = &motion->windows.windows[i];
        motion->before[slot_of(w->hash, BEFORE_BITS)] =
            (struct before_slot){w->hash, motion->turn, w->x, w->y};
    }
}

int codec_motion_learn(struct codec_motion *motion,
                       const struct poise_screen_picture *now,
                       const struct poise_screen_rect *rect,
                       const struct codec_history *history)
{
    const struct codec_patch *patch =
        &history->patches[(history->end - 1) % CODEC_PATCHES];
    int code = choose(motion, now, rect, 1);
    for (size_t i = 0; i < motion->windows.count && code == 0; i++) {
        const struct window *w = &motion->windows.windows[i];
        uint64_t at = patch->at + (uint64_t)(w->y - rect->y) * rect->width +
                      (w->x - rect->x);
        motion->kept[slot_of(w->hash, KEPT_BITS)] =
            (struct kept_slot){at + 1, w->hash};
    }
    return code;
}

/* ---- votes --------------------------------------------------------------- */

static int add_hit(struct codec_motion *motion, struct hit hit)
{
    if (motion->hit_count == motion->hit_room) {
        size_t room = motion->hit_room ? 2 * motion->hit_room : 1024;
        struct hit *more = poise_realloc(motion->hits, room, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        motion->hits = more;
        motion->hit_room = room;
    }
    motion->hits[motion->hit_count++] = hit;
    return 0;
}

static int look_up(struct codec_motion *motion, const struct window *w,
                   const struct codec_history *history)
{
    const struct before_slot *before =
        &motion->before[slot_of(w->hash, BEFORE_BITS)];
    int code = 0;
    if (before->turn == motion->turn && before->hash == w->hash) {
        code = add_hit(motion,
                       (struct hit){.patch = CODEC_BEFORE,
                                    .dx = (int32_t)before->x - (int32_t)w->x,
                                    .dy = (int32_t)before->y - (int32_t)w->y,
                                    .x = w->x,
                                    .y = w->y});
    }
    const struct kept_slot *kept = &motion->kept[slot_of(w->hash, KEPT_BITS)];
    uint64_t number;
    if (code == 0 && kept->at > 0 && kept->hash == w->hash &&
        codec_history_find(history, kept->at - 1, &number)) {
        const struct codec_patch *patch =
            &history->patches[number % CODEC_PATCHES];
        uint64_t in = kept->at - 1 - patch->at;
        code = add_hit(
            motion,
            (struct hit){.patch = number,
                         .dx = (int32_t)(in % patch->width) - (int32_t)w->x,
                         .dy = (int32_t)(in / patch->width) - (int32_t)w->y,
                         .x = w->x,
                         .y = w->y});
    }
    return code;
}

static int by_motion(const void *left, const void *right)
{
    const struct hit *a = left, *b = right;
    if (a->patch != b->patch) {
        return a->patch > b->patch ? -1
                                   : 1; /* the picture before, the newest */
    }
    if (a->dx != b->dx) {
        return a->dx < b->dx ? -1 : 1;
    }
    return a->dy < b->dy ? -1 : a->dy > b->dy;
}

/* Most votes first; of one motion as they are on the screen. */
static int by_votes(const void *left, const void *right)
{
    const struct hit *a = left, *b = right;
    if (a->votes != b->votes) {
        return a->votes > b->votes ? -1 : 1;
    }
    int order = by_motion(a, b);
    if (order != 0) {
        return order;
    }
    return a->y != b->y ? (a->y < b->y ? -1 : 1) : (a->x < b->x ? -1 : 1);
}

static void count_votes(struct codec_motion *motion)
{
    if (motion->hit_count == 0) {
        return;
    }
    qsort(motion->hits, motion->hit_count, sizeof *motion->hits, by_motion);
    for (size_t i = 0, end; i < motion->hit_count; i = end) {
        end = i + 1;
        while (end < motion->hit_count &&
               by_motion(&motion->hits[i], &motion->hits[end]) == 0) {
            end++;
        }
        for (size_t k = i; k < end; k++) {
            motion->hits[k].votes = (uint32_t)(end - i);
        }
    }
    qsort(motion->hits, motion->hit_count, sizeof *motion->hits, by_votes);
}

/* ---- rectangles ---------------------------------------------------------- */

/* Where the pixels of one row agree around the window, within `most`. */
static struct run agree(const uint32_t *now, const uint32_t *was,
                        struct run most, uint32_t from, uint32_t to)
{
    if (memcmp(now + most.left, was + most.left,
               (most.right - most.left) * sizeof *now) == 0) {
        return most;
    }
    struct run run = {from, from};
    while (run.right < most.right && now[run.right] == was[run.right]) {
        run.right++;
    }
    if (run.right < to) {
        return (struct run){0, 0};
    }
    while (run.left > most.left && now[run.left - 1] == was[run.left - 1]) {
        run.left--;
    }
    return run;
}

/* Limits row by row away from the window; how many rows agree. */
static size_t extend(const struct poise_screen_picture *now,
                     const struct poise_screen_picture *was,
                     const struct hit *hit, struct run most, int direction,
                     struct run *out)
{
    size_t count = 0;
    int64_t y = direction < 0 ? (int64_t)hit->y - 1 : (int64_t)hit->y + HIGH;
    for (; y >= 0 && y < now->height && y + hit->dy >= 0 &&
           y + hit->dy < was->height;
         y += direction) {
        const uint32_t *from =
            was->pixels + (size_t)(y + hit->dy) * was->width + hit->dx;
        most = agree(codec_at(now, 0, (uint32_t)y), from, most, hit->x,
                     hit->x + WIDE);
        if (most.right == 0) {
            break;
        }
        out[count++] = most;
    }
    return count;
}

static struct run narrower(struct run a, struct run b)
{
    return (struct run){a.left > b.left ? a.left : b.left,
                        a.right < b.right ? a.right : b.right};
}

/* The largest rectangle around a window that is found by adding the row that
 * leaves most; empty if the window is not there. */
static struct poise_screen_rect grow(struct codec_motion *motion,
                                     const struct poise_screen_picture *now,
                                     const struct poise_screen_picture *was,
                                     const struct hit *hit)
{
    if ((int64_t)hit->x + hit->dx + WIDE > was->width ||
        (int64_t)hit->y + hit->dy + HIGH > was->height) {
        return (struct poise_screen_rect){0}; /* another patch lies there now */
    }
    int64_t left = hit->dx < 0 ? -(int64_t)hit->dx : 0;
    int64_t right = (int64_t)was->width - hit->dx;
    struct run run = {(uint32_t)left,
                      right < now->width ? (uint32_t)right : now->width};
    for (uint32_t y = hit->y; y < hit->y + HIGH; y++) {
        run = agree(codec_at(now, 0, y),
                    was->pixels + (size_t)((int64_t)y + hit->dy) * was->width +
                        hit->dx,
                    run, hit->x, hit->x + WIDE);
        if (run.right == 0) {
            return (struct poise_screen_rect){0};
        }
    }
    size_t up = extend(now, was, hit, run, -1, motion->up), i = 0;
    size_t down = extend(now, was, hit, run, 1, motion->down), j = 0;
    struct poise_screen_rect best = {0};
    uint64_t most = 0;
    for (;;) {
        uint64_t area = (uint64_t)(run.right - run.left) * (HIGH + i + j);
        if (area > most) {
            most = area;
            best = (struct poise_screen_rect){run.left, hit->y - (uint32_t)i,
                                              run.right - run.left,
                                              HIGH + (uint32_t)(i + j)};
        }
        struct run above =
            i < up ? narrower(run, motion->up[i]) : (struct run){0, 0};
        struct run below =
            j < down ? narrower(run, motion->down[j]) : (struct run){0, 0};
        if (above.right == 0 && below.right == 0) {
            return best;
        }
        if (above.right - above.left >= below.right - below.left) {
            run = above;
            i++;
        } else {
            run = below;
            j++;
        }
    }
}

/* Whether a copy saves enough: pixels that are still wrong, and cannot be told
 * from those beside or above them. */
static bool is_worth(const struct poise_screen_picture *shown,
                     const struct poise_screen_picture *now,
                     const struct poise_screen_rect *rect)
{
    unsigned edges = 0;
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        const uint32_t *is = codec_at(now, 0, y), *old = codec_at(shown, 0, y);
        const uint32_t *above = y > 0 ? is - now->width : is;
        if (memcmp(is + rect->x, old + rect->x, rect->width * sizeof *is) ==
            0) {
            continue;
        }
        for (uint32_t x = rect->x; x < rect->x + rect->width; x++) {
            edges += is[x] != old[x] && (x == 0 || is[x] != is[x - 1]) &&
                     is[x] != above[x];
        }
        if (edges >= EDGES_LEAST) {
            return true;
        }
    }
    return false;
}

void codec_copy_apply(const struct codec_copy *copy,
                      const struct poise_screen_picture *before,
                      const struct codec_history *history,
                      struct poise_screen_picture *shown)
{
    struct poise_screen_picture from =
        copy->patch == CODEC_BEFORE ? *before
                                    : codec_history_patch(history, copy->patch);
    for (uint32_t y = 0; y < copy->to.height; y++) {
        memcpy(codec_at(shown, copy->to.x, copy->to.y + y),
               codec_at(&from, copy->x, copy->y + y),
               copy->to.width * sizeof *from.pixels);
    }
}

static int add_copy(struct codec_copies *copies, const struct codec_copy *copy)
{
    if (copies->count == copies->room) {
        size_t room = copies->room ? 2 * copies->room : 64;
        struct codec_copy *more =
            poise_realloc(copies->copies, room, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        copies->copies = more;
        copies->room = room;
    }
    copies->copies[copies->count++] = *copy;
    return 0;
}

static bool is_within(const struct hit *hit,
                      const struct poise_screen_rect *rect)
{
    return hit->x >= rect->x && hit->y >= rect->y &&
           hit->x + WIDE <= rect->x + rect->width &&
           hit->y + HIGH <= rect->y + rect->height;
}

/* From each window that is still wrong, motion by motion. */
static int take_hits(struct codec_motion *motion,
                     const struct codec_scene *scene, struct codec_copies *out)
{
    int code = 0;
    unsigned vectors = 0;
    struct poise_screen_rect refused = {0}; /* of this motion, the last one */
    uint64_t left =
        (uint64_t)scene->now->width * scene->now->height * CODEC_COPIED_MOST;
    for (size_t i = 0; i < motion->hit_count && code == 0 &&
                       out->count < COPIES_MOST && vectors < VECTORS_MOST;
         i++) {
        const struct hit *hit = &motion->hits[i];
        if (i == 0 || by_motion(hit - 1, hit) != 0) {
            vectors++;
            refused.width = 0;
        }
        if (is_within(hit, &refused) ||
            memcmp(codec_at(scene->shown, hit->x, hit->y + HIGH / 2),
                   codec_at(scene->now, hit->x, hit->y + HIGH / 2),
                   WIDE * sizeof(uint32_t)) == 0) {
            continue;
        }
        struct poise_screen_picture was =
            hit->patch == CODEC_BEFORE
                ? *scene->before
                : codec_history_patch(scene->history, hit->patch);
        struct codec_copy copy = {.to = grow(motion, scene->now, &was, hit),
                                  .patch = hit->patch};
        if (copy.to.width == 0 || codec_area(&copy.to) > left ||
            !is_worth(scene->shown, scene->now, &copy.to)) {
            refused = copy.to;
            continue;
        }
        copy.x = (uint32_t)((int64_t)copy.to.x + hit->dx);
        copy.y = (uint32_t)((int64_t)copy.to.y + hit->dy);
        codec_copy_apply(&copy, scene->before, scene->history, scene->shown);
        left -= codec_area(&copy.to);
        code = add_copy(out, &copy);
    }
    return code;
}

/* ---- where to look ------------------------------------------------------- */

static bool is_near(const struct poise_screen_rect *a,
                    const struct poise_screen_rect *b)
{
    enum { GAP = 2 * CODEC_BLOCK };
    return a->x <= b->x + b->width + GAP && b->x <= a->x + a->width + GAP &&
           a->y <= b->y + b->height + GAP && b->y <= a->y + a->height + GAP;
}

static void join(struct poise_screen_rect *a, const struct poise_screen_rect *b)
{
    uint32_t right = a->x + a->width, bottom = a->y + a->height;
    right = b->x + b->width > right ? b->x + b->width : right;
    bottom = b->y + b->height > bottom ? b->y + b->height : bottom;
    a->x = b->x < a->x ? b->x : a->x;
    a->y = b->y < a->y ? b->y : a->y;
    a->width = right - a->x;
    a->height = bottom - a->y;
}

/* A few boxes that hold all rectangles, each with those near it. */
static size_t find_boxes(const struct codec_rects *rects,
                         struct poise_screen_rect *boxes)
{
    size_t count = 0;
    for (size_t i = 0; i < rects->count; i++) {
        struct poise_screen_rect box = rects->rects[i];
        for (size_t k = 0; k < count;) {
            if (is_near(&boxes[k], &box) || count == BOXES_MOST) {
                join(&box, &boxes[k]);
                boxes[k] = boxes[--count];
                k = 0;
            } else {
                k++;
            }
        }
        boxes[count++] = box;
    }
    return count;
}

int codec_motion_find(struct codec_motion *motion,
                      const struct codec_scene *scene, struct codec_copies *out)
{
    struct poise_screen_rect boxes[BOXES_MOST];
    size_t count = find_boxes(scene->rects, boxes);
    const unsigned neither =
        POISE_SCREEN_WITHOUT_COPIES | POISE_SCREEN_WITHOUT_HISTORY;
    out->count = 0;
    if ((scene->without & neither) == neither) {
        return 0;
    }
    int code = make_room(motion, 0, scene->now->height);
    motion->hit_count = 0;
    motion->turn++;
    bool copies = !(scene->without & POISE_SCREEN_WITHOUT_COPIES);
    for (size_t i = 0; i < count && code == 0 && copies; i++) {
        code = choose(motion, scene->before, &boxes[i], 1);
        learn_before(motion);
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        /* Of a large one fewer rows tell how it moved. */
        code = choose(motion, scene->now, &boxes[i],
                      codec_area(&boxes[i]) > LARGE ? 4 : 2);
        for (size_t k = 0; k < motion->windows.count && code == 0; k++) {
            const struct window *w = &motion->windows.windows[k];
            code = look_up(motion, w, scene->history);
        }
    }
    count_votes(motion);
    return code == 0 ? take_hits(motion, scene, out) : code;
}
