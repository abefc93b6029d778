/* Grids cut in two dimensions: all of them once, the same where they moved,
 * within their limits; and fingerprints of windows, against a plain loop. */
#include <poise/grid.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 400 };

struct plane {
    uint32_t data[MOST * MOST];
    struct poise_dedup_grid grid;
};

/* What is at a place of an endless canvas; each 16th line of cells is one
 * colour. */
static void fill(struct plane *plane, uint32_t width, uint32_t height,
                 uint32_t x, uint32_t y)
{
    for (uint32_t j = 0; j < height; j++) {
        for (uint32_t i = 0; i < width; i++) {
            uint32_t row = (y + j) / 3, column = (x + i) / 2;
            plane->data[j * width + i] =
                row % 16 == 0
                    ? 7
                    : (uint32_t)poise_hash_u64((uint64_t)row << 32 | column);
        }
    }
    plane->grid =
        (struct poise_dedup_grid){plane->data, width * 4, 4, width, height};
}

static struct poise_dedup_grid_cuts cut(struct poise_dedup_grid_cutter *cutter,
                                        const struct plane *plane)
{
    struct poise_dedup_grid_cuts cuts;
    assert_int_equal(poise_dedup_grid_cut(cutter, &plane->grid, &cuts), 0);
    return cuts;
}

static struct poise_dedup_grid_cutter *open_cutter(const char *text)
{
    struct poise_dedup_grid_options options = {.method = 0};
    struct poise_dedup_grid_cutter *cutter;
    assert_int_equal(poise_dedup_grid_parse(text, &options), 0);
    assert_int_equal(poise_dedup_grid_create(&options, &cutter), 0);
    return cutter;
}

/* Each element lies in one rectangle, and none in two. */
static void check_cover(const struct plane *plane,
                        const struct poise_dedup_grid_cuts *cuts)
{
    static uint8_t seen[MOST * MOST];
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < cuts->count; i++) {
        const struct poise_dedup_place *p = &cuts->places[i];
        assert_true(p->width > 0 && p->height > 0);
        assert_true(p->x + p->width <= plane->grid.width);
        assert_true(p->y + p->height <= plane->grid.height);
        assert_true((uint64_t)p->width * p->height * 4 <=
                    POISE_DEDUP_SEGMENT_MOST);
        for (uint32_t y = p->y; y < p->y + p->height; y++) {
            for (uint32_t x = 0; x < p->width; x++) {
                assert_int_equal(seen[y * MOST + p->x + x]++, 0);
            }
        }
    }
    for (uint32_t y = 0; y < plane->grid.height; y++) {
        for (uint32_t x = 0; x < plane->grid.width; x++) {
            assert_int_equal(seen[y * MOST + x], 1);
        }
    }
}

static void test_cover(void **state)
{
    static const char *const methods[] = {
        "tiles",   "tiles,width=7",
        "columns", "columns,width=1000",
        "blocks",  "blocks,width=50,bits=2",
        "windows", "columns,width=5,bits=1,min=1,max=3,similar=1,edges"};
    static const uint32_t sizes[][2] = {{1, 1},  {1, 300}, {300, 1},
                                        {16, 8}, {17, 9},  {333, 257}};
    static struct plane plane;
    (void)state;
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        struct poise_dedup_grid_cutter *cutter = open_cutter(methods[m]);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            fill(&plane, sizes[i][0], sizes[i][1], 3 * (uint32_t)i, 5);
            struct poise_dedup_grid_cuts cuts = cut(cutter, &plane);
            check_cover(&plane, &cuts);
            assert_true(cuts.likely <= cuts.count);
        }
        poise_dedup_grid_destroy(cutter);
    }
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Hashes of all likely pieces, with their sizes, sorted. */
static size_t print_pieces(const struct plane *plane,
                           const struct poise_dedup_grid_cuts *cuts,
                           uint64_t *out)
{
    for (size_t i = 0; i < cuts->likely; i++) {
        const struct poise_dedup_place *p = &cuts->places[i];
        uint64_t hash = (uint64_t)p->width << 32 | p->height;
        for (uint32_t y = p->y; y < p->y + p->height; y++) {
            hash = poise_hash_bytes(plane->data + y * plane->grid.width + p->x,
                                    p->width * 4, hash);
        }
        out[i] = hash;
    }
    qsort(out, cuts->likely, sizeof *out, by_value);
    return cuts->likely;
}

/* The share of the elements that lie in pieces which were there before. */
static double share_moved(const char *method, uint32_t right, uint32_t down,
                          bool *sideways)
{
    static struct plane plane;
    static uint64_t before[MOST * MOST], now[MOST * MOST];
    struct poise_dedup_grid_cutter *cutter = open_cutter(method);
    /* Twice, so that it is known which way things move. */
    fill(&plane, MOST, MOST, 1000 - right, 1000 - down);
    cut(cutter, &plane);
    fill(&plane, MOST, MOST, 1000, 1000);
    struct poise_dedup_grid_cuts cuts = cut(cutter, &plane);
    size_t count = print_pieces(&plane, &cuts, before);
    fill(&plane, MOST, MOST, 1000 + right, 1000 + down);
    cuts = cut(cutter, &plane);
    *sideways = cuts.sideways;
    /* Unsorted, to know the sizes. */
    uint64_t found = 0;
    for (size_t i = 0; i < cuts.likely; i++) {
        struct poise_dedup_grid_cuts one = {&cuts.places[i], 1, 1, false};
        print_pieces(&plane, &one, now);
        if (bsearch(now, before, count, sizeof *before, by_value)) {
            found += (uint64_t)cuts.places[i].width * cuts.places[i].height;
        }
    }
    poise_dedup_grid_destroy(cutter);
    return (double)found / MOST / MOST;
}

/* What moves down is cut as before by what looks at content; sideways, if that
 * is looked for. Tiles know nothing of it. */
static void test_move(void **state)
{
    bool sideways;
    (void)state;
    assert_true(share_moved("tiles", 0, 31, &sideways) < 0.1);
    assert_true(share_moved("columns", 0, 31, &sideways) > 0.7);
    assert_false(sideways);
    assert_true(share_moved("columns,edges,min=4", 0, 31, &sideways) > 0.7);
    assert_true(share_moved("windows", 0, 31, &sideways) > 0.2);
    assert_true(share_moved("windows", 13, 31, &sideways) > 0.2);
    assert_true(share_moved("columns", 31, 0, &sideways) > 0.5);
    assert_true(sideways);
    assert_true(share_moved("columns,still", 31, 0, &sideways) < 0.1);
    assert_false(sideways);
}

/* Limits hold, but at the ends; similar rows are not chosen from. */
static void test_limits(void **state)
{
    static struct plane plane;
    struct poise_dedup_grid_cutter *cutter =
        open_cutter("columns,width=40,bits=1,min=5,max=20,still");
    (void)state;
    fill(&plane, 120, 400, 0, 0);
    struct poise_dedup_grid_cuts cuts = cut(cutter, &plane);
    for (size_t i = 0; i < cuts.count; i++) {
        const struct poise_dedup_place *p = &cuts.places[i];
        assert_int_equal(p->width, 40);
        assert_true(p->height <= 20);
        assert_true(p->height >= 5 || p->y + p->height == 400);
    }
    poise_dedup_grid_destroy(cutter);
    /* All of one colour: one segment for each column. */
    memset(plane.data, 9, sizeof plane.data);
    cutter = open_cutter("columns,width=40,bits=1");
    cuts = cut(cutter, &plane);
    assert_int_equal(cuts.count, 3);
    poise_dedup_grid_destroy(cutter);
}

static void test_wrong(void **state)
{
    static const char *const texts[] = {"",
                                        "hextile",
                                        "tiles,",
                                        "tiles,width=0",
                                        "tiles,8",
                                        "columns,bits=17",
                                        "tiles,width=",
                                        "columns,still=1",
                                        "columns,width=-1"};
    struct poise_dedup_grid_options options = {.min = 77};
    struct poise_dedup_grid_cutter *cutter;
    static struct plane plane;
    struct poise_dedup_grid_cuts cuts;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(texts[i], "tiles,") == 0) {
            continue; /* a comma too many does no harm */
        }
        int code = poise_dedup_grid_parse(texts[i], &options);
        assert_true(code == -EINVAL || code == -ERANGE);
        assert_int_equal(options.min, 77);
    }
    options = (struct poise_dedup_grid_options){.min = 9, .max = 8};
    assert_int_equal(poise_dedup_grid_create(&options, &cutter), -EINVAL);
    cutter = open_cutter("windows");
    fill(&plane, 30, 30, 0, 0);
    plane.grid.element = 2;
    assert_int_equal(poise_dedup_grid_cut(cutter, &plane.grid, &cuts),
                     -EOPNOTSUPP);
    poise_dedup_grid_destroy(cutter);
}

/* Elements of any size. */
static void test_elements(void **state)
{
    static struct plane plane;
    (void)state;
    fill(&plane, 300, 300, 0, 0);
    for (uint32_t element = 1; element <= 24; element += 7) {
        struct poise_dedup_grid_cutter *cutter = open_cutter("columns");
        plane.grid = (struct poise_dedup_grid){plane.data, 1200, element,
                                               1200 / element, 300};
        struct poise_dedup_grid_cuts cuts = cut(cutter, &plane);
        uint64_t covered = 0;
        for (size_t i = 0; i < cuts.count; i++) {
            covered += (uint64_t)cuts.places[i].width * cuts.places[i].height;
        }
        assert_int_equal(covered, (uint64_t)(1200 / element) * 300);
        poise_dedup_grid_destroy(cutter);
    }
}

/* Of each window by itself, by its definition. */
static void test_windows(void **state)
{
    enum { WIDTH = 75, HEIGHT = 20 };
    static uint32_t data[HEIGHT][WIDTH];
    uint32_t sums[WIDTH] = {0}, prints[WIDTH], chosen[WIDTH];
    uint32_t value[HEIGHT][WIDTH];
    struct poise_rng rng;
    (void)state;
    poise_rng_seed(&rng, 4);
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            data[y][x] = (uint32_t)poise_rng_below(&rng, 1 << 24);
        }
    }
    /* The same window elsewhere. */
    for (int y = 0; y < POISE_DEDUP_WINDOW_HIGH; y++) {
        memcpy(&data[9 + y][50], &data[2 + y][3],
               POISE_DEDUP_WINDOW_WIDE * sizeof(uint32_t));
    }
    for (int y = 0; y < HEIGHT; y++) {
        int high = POISE_DEDUP_WINDOW_HIGH;
        poise_dedup_window_roll(sums, data[y],
                                y >= high ? data[y - high] : NULL, WIDTH);
        size_t count = poise_dedup_window_choose(prints, sums, WIDTH, chosen);
        memcpy(value[y], prints, sizeof prints);
        size_t zeros = 0;
        for (uint32_t x = 0; x + POISE_DEDUP_WINDOW_WIDE <= WIDTH; x++) {
            if (prints[x] >> (32 - POISE_DEDUP_WINDOW_BITS) == 0) {
                assert_int_equal(chosen[zeros++], x);
            }
        }
        assert_int_equal(count, zeros);
    }
    assert_int_equal(value[9 + 7][50], value[2 + 7][3]);
    assert_int_not_equal(value[9 + 7][51], value[2 + 7][4]);
    assert_int_equal(poise_dedup_window_choose(prints, sums, 15, chosen), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cover),    cmocka_unit_test(test_move),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_elements), cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
