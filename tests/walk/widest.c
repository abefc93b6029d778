/*
 * The widest directories, of many that are equally wide and were read in pieces
 * by several ranks: always the same ones, each with its path.
 */
#include "../ranks.h"

#include "walk/survey/internal.h"

enum { DIRS = 3000, TOP = 10, WIDE = 4, EACH = 150 };

/* Bytewise in another order than the ids. */
static void path_of(uint64_t id, char *out, size_t room)
{
    snprintf(out, room, "t/%04u", (unsigned)(id * 1103 % 4093));
}

static uint64_t width_of(uint64_t id)
{
    return 2 * EACH + (id % (DIRS / WIDE) == 7 ? id : 0);
}

/* One of two pieces of a directory, as a worker's commit adds it. */
static int add(struct walk_count *count, uint64_t id, uint64_t entries)
{
    const uint64_t record[WALK_PIECE_WORDS] = {id, entries};
    char text[16];
    char *path = malloc(sizeof text);
    path_of(id, text, sizeof text);
    memcpy(path, text, sizeof text);
    EXPECT(walk_set_add(&count->pieces, record) == 0);
    EXPECT(walk_paths_put(&count->piece_paths, id, path, strlen(path)) == 0);
    return 0;
}

static int order(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    char one[16], other[16];
    if (width_of(x) != width_of(y)) {
        return width_of(x) > width_of(y) ? -1 : 1;
    }
    path_of(x, one, sizeof one);
    path_of(y, other, sizeof other);
    return strcmp(one, other);
}

static int check(const struct poise_walk_summary *got)
{
    static uint64_t ids[DIRS];
    for (uint64_t i = 0; i < DIRS; i++) {
        ids[i] = i + 1;
    }
    qsort(ids, DIRS, sizeof *ids, order);
    EXPECT(got->directory_count == TOP);
    for (size_t i = 0; i < TOP; i++) {
        char path[16];
        path_of(ids[i], path, sizeof path);
        EXPECT(got->directories[i].value == width_of(ids[i]));
        EXPECT(got->directories[i].path_len == strlen(path));
        EXPECT(memcmp(got->directories[i].path, path, strlen(path)) == 0);
    }
    return 0;
}

static int merge(struct poise_world *world, void *arg)
{
    int rank = world ? poise_world_rank(world) : 0;
    int size = world ? poise_world_size(world) : 1;
    struct walk_count count, resumed;
    struct poise_walk_summary summary = {0};
    struct poise_buf saved = {0};
    /* What is spilled has no name here, so that no checkpoint can keep it. */
    size_t limit = arg ? 1 << 22 : 1 << 16;
    EXPECT(walk_count_init(&count, TOP, limit, NULL, NULL) == 0);
    for (uint64_t id = 1; id <= DIRS; id++) {
        /* What this rank sees of it says nothing of how wide it is. */
        uint64_t here = EACH + id % 7;
        if ((int)(id % (uint64_t)size) == rank) {
            EXPECT(add(&count, id, here) == 0);
        }
        if ((int)((id + 1) % (uint64_t)size) == rank) {
            EXPECT(add(&count, id, width_of(id) - here) == 0);
        }
    }
    /* Through a checkpoint, or as it is. */
    EXPECT(walk_count_init(&resumed, TOP, limit, NULL, NULL) == 0);
    if (arg) {
        EXPECT(walk_count_save(&count, &saved) == 0);
        EXPECT(walk_count_load(&resumed, saved.data, saved.len) == 0);
    }
    EXPECT(walk_count_merge(world, arg ? &resumed : &count, &summary) == 0);
    if (rank == 0) {
        int line = check(&summary);
        if (line) {
            return line;
        }
    }
    poise_walk_summary_free(&summary);
    poise_buf_free(&saved);
    walk_count_free(&count);
    walk_count_free(&resumed);
    return 0;
}

static void equal_ones_are_told_apart(void **state)
{
    static const int sizes[] = {1, 2, 3, 5};
    (void)state;
    assert_int_equal(merge(NULL, NULL), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        run_clean(sizes[i], NULL, merge, NULL);
    }
}

static void a_checkpoint_keeps_their_names(void **state)
{
    (void)state;
    run_clean(3, NULL, merge, state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_ones_are_told_apart),
        cmocka_unit_test(a_checkpoint_keeps_their_names),
    };
    return cmocka_run_group_tests_name("walk_widest", tests, NULL, NULL);
}
