/* The command line on a page. */
#include "report/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* What stands in place of arguments, which `words` has with NULs behind. */
static void check_command(const char *words, size_t len, const char *expected)
{
    struct poise_buf out = {0};

    report_command(&out, words, len);
    assert_string_equal(poise_buf_str(&out), expected);
    poise_buf_free(&out);
}
#define CHECK_COMMAND(words, expected)                                         \
    check_command(words, sizeof(words), expected)

/* Secrets are not in it, in whatever way they were given; all else is. */
static void test_command(void **state)
{
    (void)state;
    CHECK_COMMAND("poise\0walk\0--top=3\0/data/a b\0",
                  "poise walk --top=3 '/data/a b' ''");
    CHECK_COMMAND("a\0--password\0S S\0b", "a --password *** b");
    CHECK_COMMAND("a\0--password=S,S S\0b", "a '--password=***' b");
    CHECK_COMMAND("a\0--Token\0--b", "a --Token --b");
    CHECK_COMMAND("a\0--password-file\0name", "a --password-file name");
    CHECK_COMMAND("a\0--password-file=name", "a --password-file=name");
    CHECK_COMMAND("-x\0MY_API_KEY=S\0b", "-x MY_API_KEY=*** b");
    CHECK_COMMAND("sh\0-c\0run --secret S; TOKEN=S next",
                  "sh -c 'run --secret *** TOKEN=*** next'");
    CHECK_COMMAND("sh\0-c\0run --passwd 'S S' next",
                  "sh -c 'run --passwd *** next'");
    CHECK_COMMAND("-H\0Authorization: Bearer S\0b", "-H 'Authorization:***' b");
    CHECK_COMMAND("http://me:S:S@host:80/?a=1&token=S&b=2",
                  "'http://me:***@host:80/?a=1&token=***&b=2'");
    CHECK_COMMAND("http://host:80/a@b", "http://host:80/a@b");
    CHECK_COMMAND("secret\0data", "secret data");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
