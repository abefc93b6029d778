/* Option tables, help, man pages, completion, JSON, figures and parsers. */
#include <poise/core.h>

#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct values {
    bool names, progress, bytes_flag;
    int64_t threads;
    uint64_t memory, interval;
    const char *output, *block;
    struct poise_strings exclude;
    int policy;
};

static const char *const policies[] = {"central", "random", "near", NULL};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What to do"},
    {POISE_OPTION_FLAG, 'n', "names-only", NULL, "read names only, no metadata",
     .offset = offsetof(struct values, names)},
    {POISE_OPTION_FLAG, 0, "progress", NULL,
     "show a line of progress. By default on a terminal only, so that files "
     "stay clean",
     .offset = offsetof(struct values, progress)},
    {POISE_OPTION_INT, 't', "threads", "N", "threads of each rank [cores]",
     .offset = offsetof(struct values, threads), .min = 1, .max = 1024},
    {POISE_OPTION_ENUM, 0, "policy", "NAME", "whom to ask for work",
     .offset = offsetof(struct values, policy), .choices = policies},
    {POISE_OPTION_HEADING, .help = "What comes out"},
    {POISE_OPTION_STRING, 'o', "output", "FILE", "write an inventory",
     .offset = offsetof(struct values, output)},
    {POISE_OPTION_BYTES, 0, "queue-memory-of-each-rank", "SIZE",
     "spill above this [8M]", .offset = offsetof(struct values, memory)},
    {POISE_OPTION_DURATION, 0, "progress-interval", "TIME", "how often [30s]",
     .offset = offsetof(struct values, interval)},
    {POISE_OPTION_LIST, 'X', NULL, "PATTERN",
     "leave out what's matched by [a-z]\\n",
     .offset = offsetof(struct values, exclude)},
    {POISE_OPTION_PRESET, 'k', NULL, "1K", "like --block-size=1K",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_PRESET, 'b', "bytes", "1", "like --apparent --block-size=1",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_FLAG, 'b', "bytes", NULL, NULL,
     .offset = offsetof(struct values, bytes_flag)},
    {POISE_OPTION_STRING, 'B', "block-size", "SIZE", "count in blocks of SIZE",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_INT, 'w', "workers", "N", .renamed = "--threads",
     .offset = offsetof(struct values, threads), .min = 1, .max = 1024},
    {POISE_OPTION_FLAG, 0, "quiet", NULL, "no line", .renamed = "--progress",
     .offset = offsetof(struct values, progress)},
    {POISE_OPTION_END},
};

static const struct poise_command command = {
    "walk",
    "PATH...",
    "walk trees and add up what is there",
    "Walks every tree below each PATH, with all cores of this machine, or "
    "with all ranks under mpirun. Symbolic links are counted. They are never "
    "followed.\n\n  .a line  kept\n  'as it' is\\\n\nAnd more.",
    options,
    "poise walk /data\tadd up everything below /data, and print it in a way "
    "that people can read\n"
    "poise walk -n \"a b\"\tcount names\n",
    "0\tall done\n1\tsomething could not be read\n",
};

/* ---- figures ------------------------------------------------------------ */

static void check_human(int (*put)(struct poise_buf *, uint64_t),
                        uint64_t value, const char *expected)
{
    struct poise_buf buf = {0};

    assert_int_equal(put(&buf, value), 0);
    assert_string_equal(poise_buf_str(&buf), expected);
    poise_buf_free(&buf);
}

static void test_human(void **state)
{
    (void)state;
    check_human(poise_human_bytes, 0, "0 B");
    check_human(poise_human_bytes, 1023, "1023 B");
    check_human(poise_human_bytes, 1024, "1.0 KiB");
    check_human(poise_human_bytes, 1536, "1.5 KiB");
    check_human(poise_human_bytes, 102348, "99.9 KiB");
    check_human(poise_human_bytes, 102399, "100 KiB");
    check_human(poise_human_bytes, (UINT64_C(1) << 20) - 1, "1.0 MiB");
    check_human(poise_human_bytes, UINT64_C(3) << 29, "1.5 GiB");
    check_human(poise_human_bytes, UINT64_MAX, "16.0 EiB");
    check_human(poise_human_count, 0, "0");
    check_human(poise_human_count, 999, "999");
    check_human(poise_human_count, 1000, "1,000");
    check_human(poise_human_count, 12345678, "12,345,678");
    check_human(poise_human_count, UINT64_MAX, "18,446,744,073,709,551,615");
    check_human(poise_human_ns, 0, "0 ns");
    check_human(poise_human_ns, 999, "999 ns");
    check_human(poise_human_ns, 1500, "1.5 us");
    check_human(poise_human_ns, 999499, "999 us");
    check_human(poise_human_ns, 999500, "1.0 ms");
    check_human(poise_human_ns, 85000000, "85 ms");
    check_human(poise_human_ns, 999600000, "1.0 s");
    check_human(poise_human_ns, UINT64_C(3200000000), "3.2 s");
    check_human(poise_human_ns, UINT64_C(59949999999), "59.9 s");
    check_human(poise_human_ns, UINT64_C(59950000000), "1 min 00 s");
    check_human(poise_human_ns, UINT64_C(125000000000), "2 min 05 s");
    check_human(poise_human_ns, UINT64_C(3599500000000), "1 h 00 min");
    check_human(poise_human_ns, UINT64_C(3720000000000), "1 h 02 min");
    check_human(poise_human_ns, UINT64_C(86400000000000), "1 d 00 h");
    check_human(poise_human_ns, UINT64_MAX, "213504 d 00 h");
}

/* ---- parsers ------------------------------------------------------------ */

static void test_parse_int(void **state)
{
    static const char *const wrong[] = {"",   "-",  "+",   "x",  "1x",
                                        " 1", "1 ", "0x1", "1.", "--1"};
    int64_t value = 7;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(poise_parse_int(wrong[i], 0, 0, &value), -EINVAL);
        assert_string_equal(poise_error_last()->what, wrong[i]);
    }
    assert_int_equal(value, 7); /* written only on success */
    assert_int_equal(poise_parse_int("0", 0, 0, &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(poise_parse_int("+12", 0, 0, &value), 0);
    assert_int_equal(value, 12);
    assert_int_equal(poise_parse_int("9223372036854775807", 0, 0, &value), 0);
    assert_true(value == INT64_MAX);
    assert_int_equal(poise_parse_int("-9223372036854775808", 0, 0, &value), 0);
    assert_true(value == INT64_MIN);
    assert_int_equal(poise_parse_int("9223372036854775808", 0, 0, &value),
                     -ERANGE);
    assert_int_equal(poise_parse_int("-9223372036854775809", 0, 0, &value),
                     -ERANGE);
    assert_int_equal(poise_parse_int("99999999999999999999", 1, 5, &value),
                     -ERANGE);
    assert_string_equal(poise_error_last()->why, "must be at most 5");
    assert_int_equal(poise_parse_int("0", 1, 5, &value), -ERANGE);
    assert_string_equal(poise_error_last()->why, "must be at least 1");
    assert_int_equal(poise_parse_int("6", 1, 5, &value), -ERANGE);
    assert_int_equal(poise_parse_int("-99999999999999999999", -3, 5, &value),
                     -ERANGE);
    assert_string_equal(poise_error_last()->why, "must be at least -3");
    assert_true(value == INT64_MIN);
}

struct scaled {
    const char *text;
    int code;
    uint64_t value;
};

static void check_scaled(int (*parse)(const char *, uint64_t *),
                         const struct scaled *cases)
{
    for (; cases->text; cases++) {
        uint64_t value = 42;
        int code = parse(cases->text, &value);

        if (code != cases->code || value != (code ? 42 : cases->value)) {
            fail_msg("'%s': code %d, value %llu", cases->text, code,
                     (unsigned long long)value);
        }
    }
}

static void test_parse_bytes(void **state)
{
    static const struct scaled cases[] = {
        {"0", 0, 0},
        {"4096", 0, 4096},
        {"512B", 0, 512},
        {"1K", 0, 1024},
        {"1k", 0, 1024},
        {"1KiB", 0, 1024},
        {"1KB", 0, 1000},
        {"1.5K", 0, 1536},
        {"0.5", 0, 0},
        {"2MB", 0, 2000000},
        {"3G", 0, UINT64_C(3) << 30},
        {"1T", 0, UINT64_C(1) << 40},
        {"15.999999999999999999999E", 0, UINT64_C(18446744073709551614)},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"16E", -ERANGE, 0},
        {"99999999999999999999K", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"K", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {"1 K", -EINVAL, 0},
        {"1KK", -EINVAL, 0},
        {"1.K", -EINVAL, 0},
        {".5K", -EINVAL, 0},
        {"1Q", -EINVAL, 0},
        {NULL, 0, 0},
    };

    (void)state;
    check_scaled(poise_parse_bytes, cases);
}

static void test_parse_duration(void **state)
{
    static const struct scaled cases[] = {
        {"0", 0, 0},
        {"2", 0, UINT64_C(2000000000)},
        {"7ns", 0, 7},
        {"7us", 0, 7000},
        {"7ms", 0, 7000000},
        {"1.5s", 0, UINT64_C(1500000000)},
        {"2m", 0, UINT64_C(120000000000)},
        {"1.5h", 0, UINT64_C(5400000000000)},
        {"5124095h", 0, UINT64_C(18446742000000000000)},
        {"5124096h", -ERANGE, 0},
        {"18446744074", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"-1s", -EINVAL, 0},
        {"1d", -EINVAL, 0},
        {"1sec", -EINVAL, 0},
        {NULL, 0, 0},
    };

    (void)state;
    check_scaled(poise_parse_duration, cases);
}

/* ---- JSON --------------------------------------------------------------- */

static void write_json(struct poise_buf *out, bool compact)
{
    struct poise_json json = poise_json_to(out, compact);

    poise_json_object(&json, NULL);
    poise_json_u64(&json, "u", UINT64_MAX);
    poise_json_i64(&json, "i", INT64_MIN);
    poise_json_bool(&json, "b", true);
    poise_json_string(&json, "null", NULL);
    poise_json_string(&json, "s", "a\"\\\b\f\n\r\t\x01\x7f/\xc3\xa9\xff");
    poise_json_bytes(&json, "y",
                     "a\0\xff"
                     "b",
                     4);
    poise_json_bytes(&json, "ok", "plain", 5);
    poise_json_array(&json, "list");
    poise_json_array(&json, NULL);
    poise_json_end_array(&json);
    poise_json_object(&json, NULL);
    poise_json_end_object(&json);
    poise_json_double(&json, NULL, NAN);
    poise_json_double(&json, NULL, -INFINITY);
    poise_json_bytes(&json, NULL, "\xff", 1);
    poise_json_end_array(&json);
    poise_json_end_object(&json);
}

static void test_json(void **state)
{
    struct poise_buf out = {0};

    (void)state;
    write_json(&out, true);
    assert_string_equal(
        poise_buf_str(&out),
        "{\"u\":18446744073709551615,\"i\":-9223372036854775808,\"b\":true,"
        "\"null\":null,\"s\":\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7f/\xc3\xa9"
        "\xef\xbf\xbd\",\"y\":\"a\\u0000\xef\xbf\xbd"
        "b\",\"y_base64\":"
        "\"YQD/Yg==\",\"ok\":\"plain\",\"list\":[[],{},null,null,"
        "\"\xef\xbf\xbd\"]}");
    poise_buf_reset(&out);
    write_json(&out, false);
    assert_string_equal(
        poise_buf_str(&out),
        "{\n  \"u\": 18446744073709551615,\n  \"i\": -9223372036854775808,\n"
        "  \"b\": true,\n  \"null\": null,\n  \"s\": \"a\\\"\\\\\\b\\f\\n\\r"
        "\\t\\u0001\x7f/\xc3\xa9\xef\xbf\xbd\",\n  \"y\": \"a\\u0000"
        "\xef\xbf\xbd"
        "b\",\n  \"y_base64\": \"YQD/Yg==\",\n"
        "  \"ok\": \"plain\",\n  \"list\": [\n    [],\n    {},\n    null,\n"
        "    null,\n    \"\xef\xbf\xbd\"\n  ]\n}");
    poise_buf_free(&out);
}

static const char *json_double(struct poise_buf *out, double value)
{
    struct poise_json json = poise_json_to(out, true);

    poise_buf_reset(out);
    poise_json_double(&json, NULL, value);
    return poise_buf_str(out);
}

static void test_json_doubles(void **state)
{
    struct poise_buf out = {0};
    struct poise_rng rng;

    (void)state;
    assert_string_equal(json_double(&out, 0.1), "0.1");
    assert_string_equal(json_double(&out, 1.0 / 3), "0.3333333333333333");
    assert_string_equal(json_double(&out, 0.1 + 0.2), "0.30000000000000004");
    assert_string_equal(json_double(&out, -5), "-5");
    assert_string_equal(json_double(&out, 1e300), "1e+300");
    assert_true(strtod(json_double(&out, DBL_MAX), NULL) == DBL_MAX);
    assert_true(strtod(json_double(&out, DBL_TRUE_MIN), NULL) == DBL_TRUE_MIN);
    poise_rng_seed(&rng, 1);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = poise_rng_next(&rng);
        double value;

        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            assert_true(strtod(json_double(&out, value), NULL) == value);
        }
    }
    poise_buf_free(&out);
}

static void test_json_base64(void **state)
{
    static const char *const expected[] = {"/w==", "/wA=", "/wAB", "/wABAg=="};
    struct poise_buf out = {0};

    (void)state;
    for (size_t n = 1; n <= 4; n++) {
        struct poise_json json = poise_json_to(&out, true);
        char *hit;

        poise_buf_reset(&out);
        poise_json_object(&json, NULL);
        poise_json_bytes(&json, "k", "\xff\x00\x01\x02", n);
        poise_json_end_object(&json);
        hit = strstr(poise_buf_str(&out), "_base64\":\"");
        assert_non_null(hit);
        assert_memory_equal(hit + 10, expected[n - 1], strlen(expected[n - 1]));
    }
    poise_buf_free(&out);
}

/* ---- command lines ------------------------------------------------------ */

enum { WORDS = 16 };

/* Splits `line` at blanks ("~" stands for an empty word) and parses it;
 * operands are joined in `operands`. */
static int parse_hinting(const char *line, struct values *into, char *operands,
                         struct poise_buf *hints)
{
    static char text[256];
    char *argv[WORDS] = {(char *)(uintptr_t) "walk"};
    int argc = 1;
    int code;

    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        if (strcmp(word, "~") == 0) {
            *word = '\0';
        }
        argv[argc++] = word;
    }
    code = poise_command_parse(&command, argc, argv, into, hints);
    operands[0] = '\0';
    for (int i = code; code > 0 && i < argc; i++) {
        strcat(operands, argv[i]);
        strcat(operands, i + 1 < argc ? " " : "");
    }
    return code;
}

static int parse(const char *line, struct values *into, char *operands)
{
    return parse_hinting(line, into, operands, NULL);
}

/* Old names do as ever, and say once each what to write instead. */
static void test_renamed(void **state)
{
    struct values v = {0};
    struct poise_buf hints = {0};
    char operands[256];

    (void)state;
    assert_true(parse_hinting("-w 3 a -w4 --workers=5 --no-quiet", &v, operands,
                              &hints) > 0);
    assert_int_equal(v.threads, 5);
    assert_string_equal(operands, "a");
    assert_string_equal(poise_buf_str(&hints),
                        "-w is now --threads\n--workers is now --threads\n"
                        "--no-quiet is now --progress\n");
    poise_buf_reset(&hints);
    assert_true(parse_hinting("-t 6", &v, operands, &hints) > 0);
    assert_string_equal(poise_buf_str(&hints), "");
    poise_buf_free(&hints);
    assert_true(parse("-w 7", &v, operands) > 0);
    assert_int_equal(v.threads, 7);
    /* Neither abbreviated nor suggested. */
    assert_int_equal(parse("--worker 3", &v, operands), -EINVAL);
    assert_string_equal(poise_error_last()->why, "unknown option");
}

static void test_options(void **state)
{
    struct values v = {.progress = true};
    char operands[256];

    (void)state;
    assert_true(parse("a -n --no-progress b -t4 --policy=near -oX - c", &v,
                      operands) > 0);
    assert_string_equal(operands, "a b - c");
    assert_true(v.names);
    assert_false(v.progress);
    assert_int_equal(v.threads, 4);
    assert_int_equal(v.policy, 2);
    assert_string_equal(v.output, "X");

    assert_true(
        parse("--out ~ -nt 7 --queue 1M --progress-i 2s x", &v, operands) > 0);
    assert_string_equal(operands, "x");
    assert_string_equal(v.output, "");
    assert_int_equal(v.threads, 7);
    assert_int_equal(v.memory, 1 << 20);
    assert_int_equal(v.interval, 2000000000);

    assert_true(parse("-X a x -X b -- -X c", &v, operands) > 0);
    assert_string_equal(operands, "x -X c");
    assert_int_equal(v.exclude.count, 2);
    assert_string_equal(v.exclude.items[1], "b");
    poise_strings_free(&v.exclude);
    assert_null(v.exclude.items);

    assert_true(parse("-k -B 7 -b", &v, operands) > 0);
    assert_string_equal(v.block, "1");
    assert_true(v.bytes_flag);
    assert_true(parse("-bk", &v, operands) > 0);
    assert_string_equal(v.block, "1K");
    assert_true(parse("--bytes --block 9", &v, operands) > 0);
    assert_string_equal(v.block, "9");
    assert_int_equal(parse("", &v, operands), 1);
    /* An exact name is no abbreviation of a longer one. */
    v.progress = false;
    assert_true(parse("--progress", &v, operands) > 0);
    assert_true(v.progress);
}

/* An argument that may be left out stands behind "=" only. */
static void test_optional_argument(void **state)
{
    static const struct poise_option table[] = {
        {POISE_OPTION_ENUM, .name = "sync", .arg = "NAME", .help = "how",
         .implied = "near", .offset = offsetof(struct values, policy),
         .choices = policies},
        {POISE_OPTION_END},
    };
    static const struct poise_command one = {
        .name = "one", .summary = "it", .options = table};
    char *alone[] = {(char *)(uintptr_t) "one", (char *)(uintptr_t) "--sync",
                     (char *)(uintptr_t) "central"};
    char *given[] = {(char *)(uintptr_t) "one",
                     (char *)(uintptr_t) "--sync=random"};
    struct poise_buf text = {0};
    struct values v = {0};

    (void)state;
    assert_int_equal(poise_command_parse(&one, 3, alone, &v, NULL), 2);
    assert_int_equal(v.policy, 2);
    assert_int_equal(poise_command_parse(&one, 2, given, &v, NULL), 2);
    assert_int_equal(v.policy, 1);
    assert_int_equal(poise_command_help(&one, &text), 0);
    assert_non_null(strstr(poise_buf_str(&text), "--sync[=NAME]"));
    poise_buf_reset(&text);
    assert_int_equal(poise_command_man(&one, &text), 0);
    assert_non_null(strstr(poise_buf_str(&text), "Fl Fl sync Ns Oo = Ns Ar"));
    poise_buf_free(&text);
}

static void test_option_errors(void **state)
{
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"--thraeds 3",
         "cannot use '--thraeds': unknown option; did you mean '--threads'?"},
        {"--zzzzzz", "cannot use '--zzzzzz': unknown option"},
        {"-Q", "cannot use '-Q': unknown option"},
        {"-nQ", "cannot use '-Q': unknown option"},
        {"--p", "cannot use '--p': ambiguous: '--progress' or "
                "'--progress-interval'"},
        {"--threads", "cannot use '--threads': needs an argument N"},
        {"-nt", "cannot use '-t': needs an argument N"},
        {"--names-only=3", "cannot use '--names-only': takes no argument"},
        {"--threads=0", "cannot use '--threads 0': must be at least 1"},
        {"-t 5x", "cannot use '-t 5x': not a whole number"},
        {"--threads ~", "cannot use '--threads ': not a whole number"},
        {"--policy=neer", "cannot use '--policy neer': did you mean 'near'?"},
        {"--policy=quite", "cannot use '--policy quite': must be one of "
                           "central, random, near"},
        {"--queue-memory=9Q", "cannot use '--queue-memory 9Q': not a size "
                              "such as 4096, 64K or 1.5G"},
        {"--progress-interval=x", "cannot use '--progress-interval x': not a "
                                  "duration such as 10s, 500ms or 1.5h"},
        {"--=3", "cannot use '--': ambiguous: '--names-only' or "
                 "'--block-size'"},
    };
    struct poise_buf message = {0};
    char operands[256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct values v = {0};

        assert_true(parse(cases[i].line, &v, operands) < 0);
        poise_buf_reset(&message);
        poise_error_format(poise_error_last(), &message);
        assert_string_equal(poise_buf_str(&message), cases[i].message);
    }
    poise_buf_free(&message);
}

static void test_nearest(void **state)
{
    static const char *const words[] = {"walk", "du", "find", "version"};
    static const struct {
        const char *word, *near;
    } cases[] = {
        {"wlak", "walk"},
        {"wakl", "walk"},
        {"walks", "walk"},
        {"fnd", "find"},
        {"dy", "du"},
        {"verison", "version"},
        {"xyzzy", NULL},
        {"", NULL},
        {"w", NULL},
        {"versionversionversionversionversionversionversionversion", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *near = poise_nearest(cases[i].word, words, 4);

        if (!cases[i].near) {
            assert_null(near);
        } else {
            assert_string_equal(near, cases[i].near);
        }
    }
    assert_null(poise_nearest("walk", words, 0));
}

/* ---- texts made from the table ------------------------------------------ */

static int write_text(const char *kind, struct poise_buf *out)
{
    const struct poise_command *const all[] = {&command};

    if (strcmp(kind, "help") == 0) {
        return poise_command_help(&command, out);
    }
    if (strcmp(kind, "man") == 0) {
        return poise_command_man(&command, out);
    }
    return poise_command_completion("poise", all, 1, kind, out);
}

static const char *const kinds[] = {"help", "man", "bash", "zsh", "fish"};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* What is expected lies in tests/data/core_text; TEST_UPDATE=1 rewrites it. */
static void test_texts(void **state)
{
    const char *data = getenv("TEST_DATA");

    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct poise_buf out = {0};
        char path[4096];
        static char expected[65536];
        FILE *file;
        size_t len;

        assert_int_equal(write_text(kinds[i], &out), 0);
        snprintf(path, sizeof path, "%s/core_text/%s",
                 data ? data : "tests/data", kinds[i]);
        if (getenv("TEST_UPDATE")) {
            file = fopen(path, "w");
            assert_non_null(file);
            assert_int_equal(fwrite(out.data, 1, out.len, file), out.len);
            fclose(file);
        }
        file = fopen(path, "r");
        assert_non_null(file);
        len = fread(expected, 1, sizeof expected - 1, file);
        fclose(file);
        expected[len] = '\0';
        assert_string_equal(poise_buf_str(&out), expected);
        poise_buf_free(&out);
    }
}

/* No line of --help is longer than the terminal. */
static void test_help_width(void **state)
{
    struct poise_buf out = {0};

    (void)state;
    write_text("help", &out);
    for (const char *line = poise_buf_str(&out); *line;) {
        size_t n = strcspn(line, "\n");

        assert_true(n <= 80);
        line += n + 1;
    }
    poise_buf_free(&out);
}

static void check_syntax(const char *kind, const char *checker)
{
    struct poise_buf out = {0};
    FILE *pipe;

    assert_int_equal(write_text(kind, &out), 0);
    pipe = popen(checker, "w");
    assert_non_null(pipe);
    fwrite(out.data, 1, out.len, pipe);
    assert_int_equal(pclose(pipe), 0);
    poise_buf_free(&out);
}

static void test_syntax(void **state)
{
    (void)state;
    check_syntax("bash", "bash -n");
    check_syntax("man", "if command -v mandoc >/dev/null; then "
                        "mandoc -Tlint -Wwarning; else cat >/dev/null; fi");
}

/* The script answers as a shell would ask it. */
static void check_complete(const char *words, int at, const char *expected)
{
    struct poise_buf script = {0};
    char answer[512];
    FILE *file = fopen("core_text.bash", "w");
    FILE *pipe;
    size_t len;

    assert_non_null(file);
    write_text("bash", &script);
    poise_buf_printf(&script,
                     "COMP_WORDS=(%s); COMP_CWORD=%d; _poise; "
                     "echo \"${COMPREPLY[@]}\"\n",
                     words, at);
    fwrite(script.data, 1, script.len, file);
    fclose(file);
    poise_buf_free(&script);
    pipe = popen("bash core_text.bash", "r");
    assert_non_null(pipe);
    len = fread(answer, 1, sizeof answer - 1, pipe);
    answer[len] = '\0';
    assert_int_equal(pclose(pipe), 0);
    assert_string_equal(answer, expected);
    assert_int_equal(remove("core_text.bash"), 0);
}

static void test_completion(void **state)
{
    (void)state;
    check_complete("poise w", 1, "walk\n");
    check_complete("poise walk --po", 2, "--policy\n");
    check_complete("poise walk --policy n", 3, "near\n");
    check_complete("poise walk --policy = r", 4, "random\n");
    check_complete("poise walk --policy =", 3, "central random near\n");
    check_complete("poise walk -t ''", 3, "\n");
}

static void test_completion_shell(void **state)
{
    struct poise_buf out = {0};

    (void)state;
    assert_int_equal(write_text("tcsh", &out), -EINVAL);
    poise_buf_free(&out);
}

/* ---- every allocation fails in turn ------------------------------------- */

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        int code = -1;

        for (uint64_t k = 1; code != 0; k++) {
            struct poise_buf out = {0};

            poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, k % 2 == 0);
            code = write_text(kinds[i], &out);
            poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
            assert_true(code == 0 || code == -ENOMEM);
            poise_buf_free(&out);
            assert_true(k < 1000);
        }
    }
    for (uint64_t k = 1; k <= 8; k++) {
        struct values v = {0};
        char operands[256];
        int code;

        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, true);
        code = parse("-X a -X b -t 0", &v, operands);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        assert_true(code == -ENOMEM || code == -ERANGE);
        poise_strings_free(&v.exclude);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_human),
        cmocka_unit_test(test_parse_int),
        cmocka_unit_test(test_parse_bytes),
        cmocka_unit_test(test_parse_duration),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_doubles),
        cmocka_unit_test(test_json_base64),
        cmocka_unit_test(test_renamed),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_optional_argument),
        cmocka_unit_test(test_option_errors),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_help_width),
        cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_completion_shell),
        cmocka_unit_test(test_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
