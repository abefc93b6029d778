/* Tables, the page and its drawings. */
#include <poise/report.h>

#include "report/internal.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- tables ------------------------------------------------------------- */

static const struct poise_column columns[] = {
    {"name", POISE_ALIGN_LEFT},
    {"size", POISE_ALIGN_RIGHT},
    {"note", POISE_ALIGN_LEFT},
};

static struct poise_table *small_table(void)
{
    struct poise_table *table;

    assert_int_equal(poise_table_create(columns, 3, &table), 0);
    assert_int_equal(
        poise_table_row(table, (const char *[]){"caf\xc3\xa9", "1", NULL}), 0);
    assert_int_equal(
        poise_table_row(table, (const char *[]){"a|b\nc", "12345", "<x>"}), 0);
    return table;
}

static void test_table(void **state)
{
    struct poise_table *table = small_table();
    struct poise_buf out = {0};

    (void)state;
    assert_int_equal(poise_table_text(table, &out), 0);
    assert_string_equal(poise_buf_str(&out), "name    size  note\n"
                                             "caf\xc3\xa9       1\n"
                                             "a|b?c  12345  <x>\n");
    poise_buf_reset(&out);
    assert_int_equal(poise_table_markdown(table, &out), 0);
    assert_string_equal(poise_buf_str(&out), "| name | size | note |\n"
                                             "| --- | ---: | --- |\n"
                                             "| caf\xc3\xa9 | 1 |  |\n"
                                             "| a\\|b c | 12345 | <x> |\n");
    poise_buf_free(&out);
    poise_table_destroy(table);
    poise_table_destroy(NULL);
}

/* ---- text --------------------------------------------------------------- */

static void check_escape(const char *text, size_t most, const char *expected)
{
    struct poise_buf out = {0};

    report_escape_cut(&out, text, most);
    assert_string_equal(poise_buf_str(&out), expected);
    poise_buf_free(&out);
}

static void test_escape(void **state)
{
    (void)state;
    check_escape("a<b>&\"'", 99, "a&lt;b&gt;&amp;&quot;&#39;");
    check_escape("\x01\x7f\xff"
                 "x\xc3",
                 99, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx\xef\xbf\xbd");
    check_escape("\xed\xa0\x80", 99, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    check_escape("caf\xc3\xa9!", 5, "caf\xc3\xa9!");
    check_escape("caf\xc3\xa9!?", 5, "caf\xc3\xa9\xe2\x80\xa6");
    check_escape("", 5, "");
    check_escape(NULL, 5, "");
    assert_int_equal(report_width("\xf0\x9f\x98\x80\xff"
                                  "a"),
                     3);
}

static void check_value(double value, enum poise_unit unit, const char *full,
                        const char *tick)
{
    struct poise_buf out = {0};

    report_value(&out, value, unit);
    assert_string_equal(poise_buf_str(&out), full);
    poise_buf_reset(&out);
    report_tick(&out, value, unit);
    if (tick) {
        assert_string_equal(poise_buf_str(&out), tick);
    }
    poise_buf_free(&out);
}

static void test_values(void **state)
{
    (void)state;
    check_value(0, POISE_UNIT_COUNT, "0", "0");
    check_value(0.25, POISE_UNIT_COUNT, "0.25", "0.25");
    check_value(1234567, POISE_UNIT_COUNT, "1,234,567", "1.235M");
    check_value(50000, POISE_UNIT_COUNT, "50,000", "50k");
    check_value(-3, POISE_UNIT_COUNT,
                "\xe2\x88\x92"
                "3",
                "-3");
    check_value(1536, POISE_UNIT_BYTES, "1.5 KiB", "1.5 KiB");
    check_value(85e6, POISE_UNIT_NS, "85 ms", "85 ms");
    check_value(0, POISE_UNIT_NS, "0 ns", "0 s");
    check_value(NAN, POISE_UNIT_NS, "-", NULL);
    check_value(INFINITY, POISE_UNIT_BYTES, "inf B", NULL);
    check_value(1e30, POISE_UNIT_COUNT, "1e+30", NULL);
}

/* ---- scales ------------------------------------------------------------- */

static void check_ticks(double low, double high, enum poise_unit unit, bool log,
                        const double *ticks, unsigned count)
{
    struct report_scale scale = report_scale_make(low, high, unit, log);

    assert_int_equal(scale.tick_count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_true(fabs(scale.ticks[i] - ticks[i]) <= ticks[i] * 1e-9);
    }
    assert_true(report_scale_at(&scale, low) >= 0);
    assert_true(report_scale_at(&scale, high) <= 1);
    assert_true(report_scale_at(&scale, NAN) == 0);
}

static void test_scales(void **state)
{
    (void)state;
    check_ticks(0, 10, POISE_UNIT_COUNT, false,
                (const double[]){0, 2, 4, 6, 8, 10}, 6);
    check_ticks(3, 95, POISE_UNIT_COUNT, false,
                (const double[]){0, 20, 40, 60, 80}, 5);
    check_ticks(0, 0, POISE_UNIT_COUNT, false,
                (const double[]){0, .2, .4, .6, .8, 1}, 6);
    check_ticks(0, 1024 * 1024 * 3, POISE_UNIT_BYTES, false,
                (const double[]){0, 524288, 1048576, 1572864, 2097152, 2621440,
                                 3145728},
                7);
    check_ticks(1, 1e4, POISE_UNIT_COUNT, true,
                (const double[]){1, 10, 100, 1000, 10000}, 5);
    check_ticks(1, 8, POISE_UNIT_COUNT, true, (const double[]){1, 2, 5}, 3);
    /* Whatever comes, the ticks stay few. */
    for (double high = 2; high < 1e300; high *= 1e7) {
        for (int unit = 0; unit < 3; unit++) {
            struct report_scale scale =
                report_scale_make(1, high, (enum poise_unit)unit, true);

            assert_in_range(scale.tick_count, 1, REPORT_TICKS);
            scale = report_scale_make(0, high, (enum poise_unit)unit, false);
            assert_in_range(scale.tick_count, 2, REPORT_TICKS);
        }
    }
}

/* ---- the page ----------------------------------------------------------- */

/* Every element is closed by its own end tag, attributes are quoted, and no
 * script or address is in it. */
static void check_html(const char *html)
{
    const char *stack[64];
    size_t depth = 0;

    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "http"));
    assert_null(strstr(html, "nan"));
    assert_null(strstr(html, "inf\""));
    assert_int_equal(poise_utf8_valid(html, strlen(html)), strlen(html));
    for (const char *at = strchr(html, '<'); at; at = strchr(at + 1, '<')) {
        const char *end = strchr(at, '>');
        size_t n;

        assert_non_null(end);
        if (at[1] == '!') {
            continue;
        }
        if (at[1] == '/') {
            n = strcspn(at + 2, ">");
            assert_true(depth > 0);
            depth--;
            if (strncmp(stack[depth], at + 2, n) != 0) {
                fail_msg("%.20s closed by %.20s", stack[depth], at);
            }
            continue;
        }
        n = strcspn(at + 1, " >/");
        if (end[-1] == '/' || (n == 4 && memcmp(at + 1, "meta", 4) == 0)) {
            continue;
        }
        assert_true(depth < 64);
        stack[depth++] = at + 1;
    }
    assert_int_equal(depth, 0);
}

enum { MANY = 1000 };
static const char odd[] = "<b>&\"'\xff\x01 long label that is to be cut off";

/* A tree in which some are their own parents or have none that there is, and
 * spans with ends that are no numbers. */
static int draw_new(struct poise_page *page, size_t count, const double *values,
                    const char *const *labels)
{
    static int parents[MANY];
    static struct poise_span spans[MANY];
    double weights[MANY];

    for (size_t i = 0; i < count; i++) {
        parents[i] = i == 0        ? -1
                     : i % 50 == 7 ? (int)i
                     : i % 50 == 8 ? MANY + 5
                                   : (int)(i / 3);
        weights[i] = isfinite(values[i]) && values[i] > 0 ? values[i] : 0;
        spans[i] =
            (struct poise_span){i % (count / 2 + 1), i % 2, 0, values[i]};
    }
    int code = poise_page_nodes(
        page, &(struct poise_nodes){odd, "n", labels, parents, weights, NULL,
                                    count, POISE_UNIT_COUNT});
    return code ? code
                : poise_page_spans(
                      page, &(struct poise_spans){odd, "time", labels, labels,
                                                  spans, count / 2 + 1, 2,
                                                  count, POISE_UNIT_NS});
}

static int draw_all(struct poise_page *page, size_t count, const double *values,
                    const char *const *labels)
{
    size_t side = (size_t)sqrt((double)count);
    const struct poise_line lines[] = {
        {odd, values, values, count},
        {"reverse", values, values, count / 2},
    };
    int code = 0;

    for (int log = 0; log < 2 && code == 0; log++) {
        code = poise_page_bars(
            page, &(struct poise_bars){odd, "x", "y", labels, values, count,
                                       POISE_UNIT_BYTES, log});
        code = code ? code
                    : poise_page_plot(
                          page, &(struct poise_plot){odd, "x", "y", lines, 2,
                                                     POISE_UNIT_COUNT,
                                                     POISE_UNIT_NS, log, log});
        code = code ? code
                    : poise_page_multiples(
                          page,
                          &(struct poise_plot){odd, "x", "y", lines, log + 1,
                                               POISE_UNIT_NS, POISE_UNIT_BYTES,
                                               false, false});
    }
    code =
        code ? code
             : poise_page_stacks(page, &(struct poise_stacks){
                                           odd, "time", labels, labels, values,
                                           side, side, POISE_UNIT_NS});
    code = code ? code
                : poise_page_heatmap(
                      page, &(struct poise_heatmap){odd, "from", "to", NULL,
                                                    labels, values, side, side,
                                                    POISE_UNIT_COUNT});
    uint16_t of[MANY] = {0};
    for (size_t i = 0; i < count; i++) {
        of[i] = (uint16_t)(i % 3 ? i : POISE_CLASS_NONE);
    }
    code = code ? code
                : poise_page_classes(page,
                                     &(struct poise_classes){odd, odd, odd, odd,
                                                             of, side, side});
    return code ? code : draw_new(page, count, values, labels);
}

static int draw_page(size_t count, const double *values,
                     const char *const *labels, struct poise_buf *out)
{
    struct poise_table *table = NULL;
    struct poise_page *page = NULL;
    int code = poise_page_create(odd, odd, &page);

    code = code ? code : poise_page_section(page, odd, odd);
    code = code ? code : poise_page_section(page, odd, NULL);
    code = code ? code
                : poise_page_figures(page, (const char *[]){odd, "b"},
                                     (const char *[]){"1", odd}, 2);
    code = code ? code : poise_table_create(columns, 3, &table);
    code =
        code ? code : poise_table_row(table, (const char *[]){odd, NULL, "x"});
    code = code ? code : poise_page_table(page, table);
    code = code ? code : draw_all(page, count, values, labels);
    code =
        code ? code : poise_page_html(page, &(struct poise_page_run){0}, out);
    poise_table_destroy(table);
    poise_page_destroy(page);
    return code;
}

static void fill(double *values, const char **labels, int how)
{
    static const double strange[] = {NAN, INFINITY, -INFINITY, -5,
                                     0,   1e300,    1e-300,    7};

    for (size_t i = 0; i < MANY; i++) {
        labels[i] = i % 3 == 0 ? odd : "a";
        values[i] = how == 0 ? 0 : how == 1 ? (double)(i * i) : strange[i % 8];
    }
}

static void test_page(void **state)
{
    static double values[MANY];
    static const char *labels[MANY];
    static const size_t counts[] = {0, 1, 2, 9, 40, MANY};

    (void)state;
    for (int how = 0; how < 3; how++) {
        fill(values, labels, how);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            struct poise_buf out = {0};

            assert_int_equal(draw_page(counts[i], values, labels, &out), 0);
            check_html(poise_buf_str(&out));
            poise_buf_free(&out);
        }
    }
}

/* A bar of ten and one of five: half as high. */
static void test_bars(void **state)
{
    static const double values[] = {10, 5};
    struct poise_page *page;
    const char *html;

    (void)state;
    assert_int_equal(poise_page_create("t", NULL, &page), 0);
    assert_int_equal(
        poise_page_bars(page,
                        &(struct poise_bars){"T", "x", "y",
                                             (const char *[]){"a", "b"}, values,
                                             2, POISE_UNIT_COUNT, false}),
        0);
    html = poise_buf_str(&page->body);
    assert_non_null(strstr(html, "<rect class=\"b\" x=\"63.00\" y=\"28.0\" "
                                 "width=\"343.00\" height=\"200.0\">"
                                 "<title>a: 10</title></rect>"));
    assert_non_null(strstr(html, "y=\"128.0\" width=\"343.00\" "
                                 "height=\"100.0\"><title>b: 5</title>"));
    assert_non_null(strstr(html, "<tr><td>b</td><td class=\"r\">5</td></tr>"));
    assert_non_null(strstr(html, "role=\"img\" aria-labelledby=\"d1\""));
    poise_page_destroy(page);
}

/* An edge of all the weight is widest; a node in the middle of those below; one
 * that is in a circle is in the table only. */
static void test_tiles(void **state)
{
    (void)state;
    static const char *const labels[] = {"/data", "a</script>b", "c"};
    static const char *const classes[] = {"young", "old"};
    static const int parents[] = {-1, 0, 0}, wrong[] = {-1, 2, 0};
    static const double values[] = {30, 20, 10};
    static const unsigned char of[] = {0, 1, 0};
    const struct poise_tiles_colouring way = {"age", classes, 2, of};
    struct poise_page *page;
    struct poise_buf out = {0};
    assert_int_equal(poise_page_create("P", NULL, &page), 0);
    struct poise_tiles tiles = {"T", labels, wrong, values,
                                3,   &way,   1,     POISE_UNIT_BYTES};
    assert_int_equal(poise_page_tiles(page, &tiles), -EINVAL);
    tiles.parents = parents;
    assert_int_equal(poise_page_tiles(page, &tiles), 0);
    assert_int_equal(poise_page_tiles(page, &tiles), 0);
    assert_int_equal(poise_page_html(page, NULL, &out), 0);
    const char *html = poise_buf_str(&out);
    /* Data for the script, which no name of a file can end. */
    const char *first = strstr(html, "poiseTiles('t1',{");
    assert_non_null(first);
    assert_non_null(strstr(first, "\"a\\u003c/script>b\""));
    assert_non_null(strstr(first, "\"p\":[-1,0,0]"));
    assert_non_null(strstr(first, "\"of\":[0,1,0]"));
    assert_non_null(strstr(html, "<td>/data/c</td><td class=\"r\">10 B</td>"));
    /* The script is there once, for both. */
    const char *script = strstr(html, "function poiseTiles");
    assert_non_null(script);
    assert_null(strstr(script + 1, "function poiseTiles"));
    assert_non_null(strstr(html, "poiseTiles('t2',"));
    poise_buf_free(&out);
    poise_page_destroy(page);
}

static void test_nodes(void **state)
{
    static const char *const labels[] = {"top", "left", "right", "ring"};
    static const int parents[] = {-1, 0, 0, 3};
    static const double weights[] = {0, 8, 2, 5};
    static const bool marked[] = {false, true, false, false};
    struct poise_page *page;
    const char *html;

    (void)state;
    assert_int_equal(poise_page_create("t", NULL, &page), 0);
    assert_int_equal(
        poise_page_nodes(page, &(struct poise_nodes){"T", "w", labels, parents,
                                                     weights, marked, 4,
                                                     POISE_UNIT_COUNT}),
        0);
    html = poise_buf_str(&page->body);
    assert_non_null(strstr(html, "stroke-width:6.75;stroke:var(--s1)\">"
                                 "<title>left to top: 8</title>"));
    assert_non_null(strstr(html, "stroke-width:2.25;stroke:var(--bar)\">"
                                 "<title>right to top: 2</title>"));
    assert_non_null(strstr(html, "cy=\"40.0\" r=\"3.5\"/>\n<text"));
    assert_null(strstr(html, "<title>ring"));
    assert_non_null(strstr(html, "<td>ring</td>"));
    poise_page_destroy(page);
}

/* Bars where they belong; one series needs no legend; a span without a row is
 * refused, and nothing is drawn. */
static void test_spans(void **state)
{
    static const char *const rows[] = {"a", "b"}, *const series[] = {"s", "t"};
    struct poise_span spans[] = {{0, 0, 0, 50}, {1, 1, 50, 100}};
    struct poise_spans all = {"T", "x", rows, series,       spans,
                              2,   2,   2,    POISE_UNIT_NS};
    struct poise_page *page;

    (void)state;
    assert_int_equal(poise_page_create("t", NULL, &page), 0);
    assert_int_equal(poise_page_spans(page, &all), 0);
    assert_non_null(strstr(poise_buf_str(&page->body),
                           "x=\"386.15\" y=\"52.00\" width=\"365.85\""));
    assert_non_null(strstr(poise_buf_str(&page->body),
                           "<title>b, t: 50 ns, from 50 ns on</title>"));
    assert_non_null(strstr(poise_buf_str(&page->body), "rx=\"2\""));
    size_t before = page->body.len;
    spans[1].row = 2;
    assert_int_equal(poise_page_spans(page, &all), -EINVAL);
    assert_int_equal(page->body.len, before);
    spans[1] = (struct poise_span){1, 0, 50, 100};
    all.series_count = 1;
    assert_int_equal(poise_page_spans(page, &all), 0);
    assert_null(strstr(poise_buf_str(&page->body) + before, "rx=\"2\""));
    poise_page_destroy(page);
}

/* Zero cells are blank; the largest has the last colour. */
static void test_heatmap(void **state)
{
    static const double values[] = {0, 100, 1, 0};
    struct poise_page *page;
    const char *html;

    (void)state;
    assert_int_equal(poise_page_create("t", NULL, &page), 0);
    assert_int_equal(
        poise_page_heatmap(page, &(struct poise_heatmap){"T", "f", "t", NULL,
                                                         NULL, values, 2, 2,
                                                         POISE_UNIT_COUNT}),
        0);
    html = poise_buf_str(&page->body);
    assert_non_null(
        strstr(html, "fill=\"#fde725\"><title>0 \xe2\x86\x92 1: 100</title>"));
    assert_non_null(
        strstr(html, "fill=\"#440154\"><title>1 \xe2\x86\x92 0: 1</title>"));
    assert_null(strstr(html, "<title>0 \xe2\x86\x92 0"));
    poise_page_destroy(page);
}

/* A matrix too large to be seen is summed up, nothing is lost. */
static void test_heatmap_blocks(void **state)
{
    enum { SIDE = 300 };
    double *values = calloc(SIDE * SIDE, sizeof *values);
    struct poise_page *page;

    (void)state;
    assert_non_null(values);
    values[0] = 3;
    values[SIDE + 2] = 4; /* row 1, column 2: the same block of three */
    assert_int_equal(poise_page_create("t", NULL, &page), 0);
    assert_int_equal(
        poise_page_heatmap(
            page, &(struct poise_heatmap){"T", "f", "t", NULL, NULL, values,
                                          SIDE, SIDE, POISE_UNIT_COUNT}),
        0);
    assert_non_null(strstr(poise_buf_str(&page->body), "<title>0\xe2\x80\x93"
                                                       "2 \xe2\x86\x92 "
                                                       "0\xe2\x80\x93"
                                                       "2: 7</title>"));
    poise_page_destroy(page);
    free(values);
}

/* The page's drawing of one matrix; freed by the next call. */
static const char *draw(const double *values, size_t rows, size_t wide,
                        enum poise_heatmap_kind kind)
{
    static struct poise_page *page;

    if (page) {
        poise_page_destroy(page);
        page = NULL;
    }
    if (!values) {
        return NULL;
    }
    assert_int_equal(poise_page_create("t", NULL, &page), 0);
    assert_int_equal(
        poise_page_heatmap(page, &(struct poise_heatmap){.title = "T",
                                                         .values = values,
                                                         .row_count = rows,
                                                         .column_count = wide,
                                                         .kind = kind}),
        0);
    return poise_buf_str(&page->body);
}

/* Levels: zero and less are values, large ones show means. */
static void test_heatmap_levels(void **state)
{
    enum { SIDE = 256 };
    static const double few[] = {0, -2, NAN, 4};
    double *many = calloc(SIDE * SIDE, sizeof *many);
    const char *html = draw(few, 2, 2, POISE_HEATMAP_LEVELS);

    (void)state;
    assert_non_null(many);
    assert_non_null(
        strstr(html, "fill=\"#440154\"><title>0 \xe2\x86\x92 1: \xe2\x88\x92"
                     "2</title>"));
    assert_non_null(
        strstr(html, "fill=\"#fde725\"><title>1 \xe2\x86\x92 1: 4</title>"));
    assert_non_null(strstr(html, "<title>0 \xe2\x86\x92 0: 0</title>"));
    assert_null(strstr(html, "<title>1 \xe2\x86\x92 0"));
    many[0] = many[SIDE + 1] = 6;
    html = draw(many, SIDE, SIDE, POISE_HEATMAP_LEVELS);
    assert_non_null(strstr(html, "<title>0\xe2\x80\x93"
                                 "1 \xe2\x86\x92 0\xe2\x80\x93"
                                 "1: 3</title>"));
    draw(NULL, 0, 0, POISE_HEATMAP_LEVELS);
    free(many);
}

static const char *draw_classes(struct poise_page **page, const uint16_t *of,
                                size_t rows, size_t wide)
{
    poise_page_destroy(*page);
    *page = NULL;
    assert_int_equal(poise_page_create("t", NULL, page), 0);
    assert_int_equal(
        poise_page_classes(*page,
                           &(struct poise_classes){"T", "row", "column", "node",
                                                   of, rows, wide}),
        0);
    const char *html = poise_buf_str(&(*page)->body);
    check_html(html);
    return html;
}

/* Two nodes: the first is no blank, and both have colours of their own. */
static void test_classes_few(void **state)
{
    static const uint16_t few[] = {0, 1, 1, POISE_CLASS_NONE, 1, 1};
    static const uint16_t one[3] = {0};
    struct poise_page *page = NULL;
    const char *html = draw_classes(&page, few, 2, 3);

    (void)state;
    assert_non_null(strstr(html, "style=\"fill:var(--s0)\"><title>row 0, "
                                 "column 0: node 0</title>"));
    /* What is the same is one patch, with its number in it. */
    assert_non_null(strstr(html,
                           "style=\"fill:var(--s1)\"><title>row "
                           "0\xe2\x80\x93"
                           "1, column 1\xe2\x80\x93"
                           "2: node 1</title></rect>\n<text class=\"n\""));
    assert_null(strstr(html, "row 1, column 0"));
    assert_non_null(strstr(html, ">2 nodes</text>"));
    assert_non_null(strstr(html, "rx=\"2\""));
    /* One node only: nothing to be told apart. */
    html = draw_classes(&page, one, 1, 3);
    assert_non_null(strstr(html, "column 0\xe2\x80\x93"
                                 "2: node 0</title>"));
    assert_null(strstr(html, "rx=\"2\""));
    draw_classes(&page, one, 0, 0);
    poise_page_destroy(page);
}

/* 1,000 x 1,000 places of 64 nodes: numbers are neither added up nor averaged,
 * and rows and columns are those of the grid. */
static void test_classes_many(void **state)
{
    enum { SIDE = 1000, NODES = 64 };
    uint16_t *many = calloc((size_t)SIDE * SIDE, sizeof *many);
    struct poise_page *page = NULL;

    (void)state;
    assert_non_null(many);
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++) {
        many[i] = (uint16_t)(i / SIDE * 8 / SIDE * 8 + i % SIDE * 8 / SIDE);
    }
    many[1] = 60; /* alone among others */
    const char *html = draw_classes(&page, many, SIDE, SIDE);
    size_t patches = 0;
    for (const char *at = html; (at = strstr(at, ": mostly node ")); at++) {
        patches++;
        assert_true(strtoul(at + 14, NULL, 10) < NODES);
    }
    assert_int_equal(patches, NODES);
    assert_non_null(strstr(html, ">each place: 11 \xc3\x97 11; 64 nodes<"));
    assert_non_null(strstr(html, "<title>row 0\xe2\x80\x93"
                                 "120, column 0\xe2\x80\x93"
                                 "120: mostly node 0<"));
    assert_non_null(strstr(html, "999: mostly node 63</title>"));
    assert_true(strlen(html) < 30000);
    poise_page_destroy(page);
    free(many);
}

static void test_faults(void **state)
{
    static double values[MANY];
    static const char *labels[MANY];
    int code = -1;

    (void)state;
    fill(values, labels, 1);
    for (uint64_t k = 1; code != 0; k++) {
        struct poise_buf out = {0};

        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        code = draw_page(9, values, labels, &out);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        assert_true(code == 0 || code == -ENOMEM);
        poise_buf_free(&out);
        assert_true(k < 100000);
    }
}

/* A drawing that fails leaves the page as it was. */
static void test_rollback(void **state)
{
    static const double values[] = {1, 2};
    const struct poise_bars bars = {
        "T",  "x", "y", (const char *[]){"a", "b"}, values, 2, POISE_UNIT_COUNT,
        false};
    struct poise_page *page;
    size_t before;

    (void)state;
    assert_int_equal(poise_page_create("t", NULL, &page), 0);
    assert_int_equal(poise_page_section(page, "S", NULL), 0);
    before = page->body.len;
    poise_fault_arm(POISE_FAULT_ALLOC, 2, ENOMEM, true);
    assert_int_equal(poise_page_bars(page, &bars), -ENOMEM);
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    assert_int_equal(page->body.len, before);
    assert_int_equal(poise_page_bars(page, &bars), 0);
    assert_true(page->body.len > before);
    poise_page_destroy(page);
}

static unsigned count_of(const char *text, const char *what)
{
    unsigned count = 0;
    for (; (text = strstr(text, what)) != NULL; text++) {
        count++;
    }
    return count;
}

/* Each line once in full, and pale in the drawings of all others. */
static void test_multiples(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2}, y[] = {0, 5, 10};
    struct poise_line lines[5];
    struct poise_page *page = NULL;
    struct poise_buf out = {0};
    for (int i = 0; i < 5; i++) {
        lines[i] = (struct poise_line){"line", x, y, 3};
    }
    assert_int_equal(poise_page_create("t", "s", &page), 0);
    assert_int_equal(
        poise_page_multiples(page, &(struct poise_plot){"some", "x", "y", lines,
                                                        5, POISE_UNIT_COUNT,
                                                        POISE_UNIT_COUNT, false,
                                                        false}),
        0);
    assert_int_equal(poise_page_html(page, NULL, &out), 0);
    const char *text = poise_buf_str(&out);
    assert_int_equal(count_of(text, "class=\"o\""), 5);
    assert_int_equal(count_of(text, "class=\"p\""), 5 * 4);
    assert_int_equal(count_of(text, ">10</text>"), 2); /* one a row */
    assert_int_equal(count_of(text, "across: x, 0 to"), 1);
    poise_buf_free(&out);
    poise_page_destroy(page);
}

/* ---- the foot ----------------------------------------------------------- */

/* The same page with the same date, and what is known of the run. */
static void test_foot(void **state)
{
    const struct poise_page_run run = {"all <of> it", true, UINT64_MAX};
    struct poise_page *page;
    struct poise_buf out = {0};

    (void)state;
    assert_int_equal(poise_page_create("P", NULL, &page), 0);
    assert_int_equal(setenv("SOURCE_DATE_EPOCH", "86399", 1), 0);
    assert_int_equal(poise_page_html(page, &run, &out), 0);
    const char *text = poise_buf_str(&out);
    assert_int_equal(count_of(text, "<footer>"), 1);
    assert_int_equal(count_of(text, "<dd>1970-01-01 23:59:59 UTC</dd>"), 1);
    assert_int_equal(count_of(text, "<dd>all &lt;of&gt; it</dd>"), 1);
    assert_int_equal(count_of(text, "<dd>18446744073709551615</dd>"), 1);
    assert_non_null(strstr(text, poise_version()));
    assert_non_null(strstr(text, "<dt>Command</dt><dd>test_report"));
    assert_non_null(strstr(text, "<dt>Machine</dt><dd>"));
    poise_buf_reset(&out);
    assert_int_equal(
        poise_page_html(page, &(struct poise_page_run){.is_random = true},
                        &out),
        0);
    assert_int_equal(
        count_of(poise_buf_str(&out), "<dd>drawn by the system</dd>"), 1);
    poise_buf_reset(&out);
    /* Nothing that was not said is claimed. */
    assert_int_equal(poise_page_html(page, &(struct poise_page_run){0}, &out),
                     0);
    text = poise_buf_str(&out);
    assert_int_equal(count_of(text, "<dd>none: nothing is random</dd>"), 1);
    assert_int_equal(count_of(text, "<dt>Result checked</dt><dd>no</dd>"), 1);
    assert_int_equal(unsetenv("SOURCE_DATE_EPOCH"), 0);
    poise_buf_free(&out);
    poise_page_destroy(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foot),
        cmocka_unit_test(test_multiples),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_escape),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_bars),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_heatmap),
        cmocka_unit_test(test_heatmap_blocks),
        cmocka_unit_test(test_heatmap_levels),
        cmocka_unit_test(test_classes_few),
        cmocka_unit_test(test_classes_many),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_rollback),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
