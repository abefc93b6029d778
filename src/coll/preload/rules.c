/*
 * Rules: named call sites of an unchanged program whose allreduce only serves
 * a test. A file of lines
 *
 *     allreduce MODULE+0xOFFSET OP TYPE TEST CONSTANT [SIGN]
 *
 * where the site is what a recording run calls it, OP sum, min or max, TYPE
 * double or int64, TEST > >= < <= or ==, and SIGN any (if it is not said),
 * not-negative or not-positive.
 *
 * A rank at another call site than the others cannot know it, so all allreduces
 * of that shape on a communicator go through one sequence, by a rule or
 * without a test; ranks that differ are found out there.
 */
#include "rules.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_RULES 64
#define MOST_BYTES ((size_t)64 << 10)

struct rule {
    char module[64]; /* the last part of its path */
    uintptr_t offset;
    struct poise_coll_condition condition;
    uint64_t how[3]; /* calls by enum poise_coll_how */
};

/* A preload serves one program: these are its rules, read once, before they
 * are used. */
static struct {
    pthread_mutex_t lock; /* of reading them */
    bool read;
    int count;
    struct rule rules[MOST_RULES];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const op_names[] = {"sum", "min", "max"};
static const enum poise_coll_op ops[] = {POISE_OP_SUM, POISE_OP_MIN,
                                         POISE_OP_MAX};
static const char *const type_names[] = {"double", "int64"};
static const enum poise_coll_type types[] = {POISE_DOUBLE, POISE_INT64};
static const char *const test_names[] = {">", ">=", "<", "<=", "=="};
static const char *const sign_names[] = {"any", "not-negative", "not-positive"};

/* ---- reading ------------------------------------------------------------ */

static int line_error(const char *path, int line, const char *why,
                      const char *word)
{
    char where[PATH_MAX + 16];
    snprintf(where, sizeof where, "%s:%d", path, line);
    return poise_error_set(EINVAL, "read", where, "%s%s%s%s", why,
                           word ? " '" : "", word ? word : "", word ? "'" : "");
}

static int index_of(const char *word, const char *const *names, int count)
{
    for (int i = 0; word && i < count; i++) {
        if (strcmp(word, names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* "prog+0x12ab" */
static bool parse_site(const char *word, struct rule *rule)
{
    const char *plus = word ? strrchr(word, '+') : NULL;
    char *end = NULL;
    if (!plus || plus == word || plus[1] != '0' || plus[2] != 'x' ||
        (size_t)(plus - word) >= sizeof rule->module) {
        return false;
    }
    memcpy(rule->module, word, (size_t)(plus - word));
    rule->module[plus - word] = '\0';
    rule->offset = (uintptr_t)strtoull(plus + 1, &end, 16);
    return *end == '\0';
}

static bool parse_constant(const char *word,
                           struct poise_coll_condition *condition)
{
    char *end = NULL;
    if (!word) {
        return false;
    }
    errno = 0;
    if (condition->type == POISE_DOUBLE) {
        condition->real = strtod(word, &end);
        return end != word && *end == '\0' && !isnan(condition->real);
    }
    condition->integer = strtoll(word, &end, 10);
    return end != word && *end == '\0' && errno == 0;
}

enum { WORDS = 8 };

static int parse_rule(const char *path, int line, char *const words[WORDS],
                      struct rule *rule)
{
    int op = index_of(words[2], op_names, 3);
    int type = index_of(words[3], type_names, 2);
    int test = index_of(words[4], test_names, 5);
    int sign = words[6] ? index_of(words[6], sign_names, 3) : 0;
    if (strcmp(words[0], "allreduce") != 0) {
        return line_error(path, line, "there is no rule for", words[0]);
    }
    if (!parse_site(words[1], rule)) {
        return line_error(path, line, "MODULE+0xOFFSET is expected, not",
                          words[1] ? words[1] : "nothing");
    }
    if (op < 0) {
        return line_error(path, line, "sum, min or max is expected, not",
                          words[2] ? words[2] : "nothing");
    }
    if (type < 0) {
        return line_error(path, line, "double or int64 is expected, not",
                          words[3] ? words[3] : "nothing");
    }
    if (test < 0) {
        return line_error(path, line, ">, >=, <, <= or == is expected, not",
                          words[4] ? words[4] : "nothing");
    }
    rule->condition.op = ops[op];
    rule->condition.type = types[type];
    rule->condition.test = (enum poise_coll_test)test;
    if (!parse_constant(words[5], &rule->condition)) {
        return line_error(path, line, "a number is expected, not",
                          words[5] ? words[5] : "nothing");
    }
    if (sign < 0 || words[7]) {
        return line_error(path, line,
                          "not-negative, not-positive or the end of the line "
                          "is expected, not",
                          sign < 0 ? words[6] : words[7]);
    }
    rule->condition.sign = (enum poise_coll_sign)sign;
    return 0;
}

static int parse(const char *path, char *text)
{
    char *line, *rest = text;
    for (int number = 1; (line = strsep(&rest, "\n")); number++) {
        char *words[WORDS] = {0}, *more = NULL;
        line[strcspn(line, "#")] = '\0';
        words[0] = strtok_r(line, " \t\r", &more);
        for (int i = 1; i < WORDS && words[i - 1]; i++) {
            words[i] = strtok_r(NULL, " \t\r", &more);
        }
        if (!words[0]) {
            continue;
        }
        if (all.count == MOST_RULES) {
            return line_error(path, number, "there are too many rules", NULL);
        }
        int code = parse_rule(path, number, words, &all.rules[all.count]);
        if (code < 0) {
            return code;
        }
        all.count++;
    }
    return 0;
}

static int read_all(const char *path)
{
    char *text = malloc(MOST_BYTES + 1);
    int fd = text ? poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0)
                  : -ENOMEM;
    ssize_t got = fd;
    if (fd >= 0) {
        got = poise_file_read(fd, text, MOST_BYTES, path);
        poise_file_close(fd, path);
    }
    if (got >= 0) {
        text[got] = '\0';
        got = parse(path, text);
    }
    free(text);
    return got < 0 ? (int)got : 0;
}

int rules_read(void)
{
    const char *path = getenv("POISE_COLL_RULES");
    int code = 0;
    pthread_mutex_lock(&all.lock);
    if (!all.read && path && *path) {
        code = read_all(path);
        all.read = true;
    }
    pthread_mutex_unlock(&all.lock);
    return code;
}

bool rules_exist(void)
{
    return all.count > 0;
}

/* ---- calls -------------------------------------------------------------- */

bool rules_fit(int number, enum poise_coll_type type, enum poise_coll_op op)
{
    return number == 1 && (type == POISE_DOUBLE || type == POISE_INT64) &&
           (op == POISE_OP_SUM || op == POISE_OP_MIN || op == POISE_OP_MAX);
}

static struct rule *rule_at(const void *site, enum poise_coll_type type,
                            enum poise_coll_op op)
{
    Dl_info info;
    if (!dladdr(site, &info) || !info.dli_fname) {
        return NULL;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    const char *module = slash ? slash + 1 : info.dli_fname;
    uintptr_t offset = (uintptr_t)site - 1 - (uintptr_t)info.dli_fbase;
    for (int i = 0; i < all.count; i++) {
        struct rule *rule = &all.rules[i];
        if (rule->offset == offset && rule->condition.type == type &&
            rule->condition.op == op && strcmp(rule->module, module) == 0) {
            return rule;
        }
    }
    return NULL;
}

/* A value that compares with the constant as the truth says, with some room
 * for what the program does to it before: it is not known which it would be. */
static double stand_in(double constant, enum poise_coll_test test, bool truth)
{
    double size = fabs(constant), above, below;
    above = constant > 0 ? 2 * constant : constant + (size > 0 ? size / 2 : 1);
    below = constant < 0 ? 2 * constant : constant - (size > 0 ? size / 2 : 1);
    switch (test) {
    case POISE_TEST_GREATER:
    case POISE_TEST_GREATER_EQUAL:
        return truth ? above : below;
    case POISE_TEST_LESS:
    case POISE_TEST_LESS_EQUAL:
        return truth ? below : above;
    default:
        return truth ? constant : above;
    }
}

/* The same for integers, which must not leave their range. */
static int64_t stand_in_integer(int64_t constant, enum poise_coll_test test,
                                bool truth)
{
    int64_t above = constant < INT64_MAX ? constant + 1 : constant;
    int64_t below = constant > INT64_MIN ? constant - 1 : constant;
    if (test == POISE_TEST_EQUAL) {
        return truth ? constant : above > constant ? above : below;
    }
    bool wants_above = (test == POISE_TEST_GREATER ||
                        test == POISE_TEST_GREATER_EQUAL) == truth;
    return wants_above ? above : below;
}

int rules_allreduce(struct poise_coll_if *cond, const void *site,
                    enum poise_coll_type type, enum poise_coll_op op,
                    const void *in, void *out)
{
    struct rule *rule = rule_at(site, type, op);
    struct poise_coll_condition condition = {
        .type = type, .op = op, .test = POISE_TEST_NONE};
    struct poise_coll_verdict verdict;
    if (rule) {
        condition = rule->condition;
    }
    int code = poise_coll_allreduce_if_as(cond, &condition, in, &verdict);
    if (code < 0) {
        return code;
    }
    if (!verdict.complete) {
        verdict.real = stand_in(condition.real, condition.test, verdict.truth);
        verdict.integer =
            stand_in_integer(condition.integer, condition.test, verdict.truth);
    }
    if (type == POISE_DOUBLE) {
        memcpy(out, &verdict.real, sizeof verdict.real);
    } else {
        memcpy(out, &verdict.integer, sizeof verdict.integer);
    }
    if (rule) {
        __atomic_fetch_add(&rule->how[verdict.how], 1, __ATOMIC_RELAXED);
    }
    return 0;
}

void rules_report(void)
{
    for (int i = 0; i < all.count; i++) {
        const struct rule *rule = &all.rules[i];
        dprintf(2,
                "poise: rule %s+%#llx: %llu calls by the own site's values, "
                "%llu by prefetched ones, %llu waited\n",
                rule->module, (unsigned long long)rule->offset,
                (unsigned long long)rule->how[POISE_HOW_LOCAL],
                (unsigned long long)rule->how[POISE_HOW_PREFETCHED],
                (unsigned long long)rule->how[POISE_HOW_WAITED]);
    }
}
