/* What the parser of find refuses, and any words. */
#include "oracle.h"

#include <poise/find.h>

static const struct {
    const char *words, *hint; /* in the message */
} mistakes[] = {
    {"-nam x", "-name"},
    {"-maxdept 1", "-maxdepth"},
    {"-frobnicate", "-frobnicate"},
    {"-print wide", "wide"},
    {"-name", "-name"},
    {"-a", "-a"},
    {"-o -print", "-o"},
    {"-print -o", "-o"},
    {"-print ,", ","},
    {"!", "!"},
    {"-not", "-not"},
    {"( )", "()"},
    {"( -print", "("},
    {"-print )", ")"},
    {"-print -a -a -print", "-a"},
    {"-type x", "x"},
    {"-type f,", "f,"},
    {"-type ff", "ff"},
    {"-type f,f", "f,f"},
    {"-maxdepth -1", "-1"},
    {"-mindepth x", "x"},
    {"-mtime x", "x"},
    {"-mtime -", "-"},
    {"-size 1K", "1K"},
    {"-size k", "k"},
    {"-size +", "+"},
    {"-size 1kb", "1kb"},
    {"-links 0x1", "0x1"},
    {"-inum 12345678901234567890123", "12345678901234567890123"},
    {"-perm 888", "888"},
    {"-perm u+q", "u+q"},
    {"-perm 10000", "10000"},
    {"-perm u", "u"},
    {"-user nobodyhere", "nobodyhere"},
    {"-gid root", "root"},
    {"-regex [", "["},
    {"-regextype nosuch", "nosuch"},
    {"-newerXY empty", "-newerXY"},
    {"-newermt nonsense", "nonsense"},
    {"-printf a%", "%"},
    {"-printf %{", "%{"},
    {"-exec echo {}", "-exec"},
    {"-exec ;", ";"},
    {"-exec echo {} {} +", "{}"},
    {"-exec echo a{} +", "-exec"},
    {"-exec + ;x", "-exec"},
    {"-delete -prune", "-delete"},
    {"-name x -L", "-L"},
    {"-files0-from - -ok true ;", "-files0-from"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        char line[256];
        const char *argv[ORACLE_WORDS];
        snprintf(line, sizeof line, "%s", mistakes[i].words);
        int argc = oracle_split(line, argv);
        struct poise_walk_find *find = NULL;
        poise_error_clear();
        int code = poise_walk_find_compile(argc, argv, &find);
        struct poise_buf text = {0};
        poise_error_format(poise_error_last(), &text);
        if (code != -EINVAL ||
            !strstr(poise_buf_str(&text), mistakes[i].hint)) {
            fail_msg("%s: %d, %s", mistakes[i].words, code,
                     poise_buf_str(&text));
        }
        assert_null(find);
        poise_buf_free(&text);
    }
    static const char *const missing[] = {"-newer", "nosuchfile"};
    struct poise_walk_find *find = NULL;
    assert_int_equal(poise_walk_find_compile(2, missing, &find), -ENOENT);
}

/* Any words: no crash, no leak, and an error that says something. */
static void test_random_words(void **state)
{
    (void)state;
    static const char *const others[] = {
        "(",   ")",   "!",   "-o",    "-a",
        ",",   "{}",  "+",   ";",     "x",
        "1",   "-1",  "f,d", "%p\\n", "%-5.3f%%\\101",
        "u+x", "+2k", "[a-", "*",     "",
        "%",
    };
    const char *const *pairs = poise_walk_find_primaries();
    size_t known = 0;
    while (pairs[2 * known]) {
        assert_non_null(pairs[2 * known + 1]);
        known++;
    }
    struct poise_rng rng;
    poise_rng_seed(&rng, 20);
    for (int round = 0; round < 20000; round++) {
        const char *argv[12];
        int argc = (int)poise_rng_below(&rng, 12);
        for (int i = 0; i < argc; i++) {
            argv[i] = poise_rng_below(&rng, 2)
                          ? pairs[2 * poise_rng_below(&rng, known)]
                          : others[poise_rng_below(&rng, sizeof others /
                                                             sizeof *others)];
        }
        struct poise_walk_find *find;
        int code = poise_walk_find_compile(argc, argv, &find);
        if (code == 0) {
            poise_walk_find_destroy(find);
        } else {
            assert_int_equal(code, -poise_error_last()->code);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_random_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
