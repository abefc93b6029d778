/*
 * The arguments of find, compiled into a tree.
 *
 * Grammar, loosest first:   list: or { "," or }      or: and { "-o" and }
 *                           and: not { ["-a"] not }  not: { "!" } primary
 * Chains become one node with many children, so that evaluation recurses only
 * as deep as parentheses are nested.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { NESTING_MOST = 250 };

static const char *const compiling = "understand the expression at";

static int wrong(const char *word, const char *why)
{
    return poise_error_set(EINVAL, compiling, word, "%s", why);
}

const char *find_parser_argument(struct find_parser *parser)
{
    if (parser->pos == parser->count) {
        wrong(parser->word, "missing argument");
        return NULL;
    }
    return parser->words[parser->pos++];
}

int find_parser_wrong(const struct find_parser *parser, const char *argument,
                      const char *why)
{
    return poise_error_set(EINVAL, compiling, argument, "%s: %s", parser->word,
                           why);
}

int find_parser_stat(const struct find_parser *parser, const char *path,
                     unsigned mask, struct statx *out)
{
    int code = -ENOENT;
    if (parser->find->follow != POISE_WALK_FOLLOW_NONE) {
        code = poise_file_statx(AT_FDCWD, path, 0, mask, out);
    }
    if (code == -ENOENT || code == -ENOTDIR) {
        code = poise_file_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, mask, out);
    }
    return code < 0 ? poise_error_set(-code, "look at", path, NULL) : 0;
}

struct find_node *find_node_create(struct find_parser *parser,
                                   enum find_kind kind)
{
    struct find_node *node = poise_alloc(1, sizeof *node);
    if (node) {
        node->kind = kind;
        node->all = parser->find->all;
        parser->find->all = node;
    }
    return node;
}

int find_parser_stream(struct find_parser *parser, const char *path)
{
    struct poise_walk_find *find = parser->find;
    if (strcmp(path, "/dev/stdout") == 0) {
        return 0;
    }
    for (unsigned i = 1; i < find->stream_count; i++) {
        if (strcmp(find->streams[i], path) == 0) {
            return (int)i;
        }
    }
    if (find->stream_count == FIND_STREAMS) {
        return find_parser_wrong(parser, path, "too many output files");
    }
    find->streams[find->stream_count] = path;
    return (int)find->stream_count++;
}

/* ---- words -------------------------------------------------------------- */

static bool is_word(const struct find_parser *parser, const char *a,
                    const char *b)
{
    if (parser->pos == parser->count) {
        return false;
    }
    const char *word = parser->words[parser->pos];
    return strcmp(word, a) == 0 || (b && strcmp(word, b) == 0);
}

static bool starts_factor(const struct find_parser *parser)
{
    return parser->pos < parser->count && !is_word(parser, ")", ",") &&
           !is_word(parser, "-o", "-or") && !is_word(parser, "-a", "-and");
}

static int unknown_word(const char *word)
{
    if (word[0] != '-') {
        return wrong(word, "paths must come before the expression (is a "
                           "pattern not quoted?)");
    }
    if (word[1] == '-') {
        return wrong(word, "options of the program itself come before the "
                           "first path, each as one word: --NAME=VALUE");
    }
    if (strcmp(word, "-L") == 0 || strcmp(word, "-H") == 0 ||
        strcmp(word, "-P") == 0) {
        return wrong(word, "it must come before the first path");
    }
    const char *near = find_primary_nearest(word);
    if (!near) {
        return wrong(word, "unknown or unsupported");
    }
    return poise_error_set(EINVAL, compiling, word,
                           "unknown or unsupported; did you mean '%s'?", near);
}

/* ---- the grammar -------------------------------------------------------- */

static struct find_node *parse_list(struct find_parser *parser);

static struct find_node *parse_parentheses(struct find_parser *parser)
{
    if (is_word(parser, ")", NULL)) {
        wrong("()", "empty parentheses");
        return NULL;
    }
    if (parser->nesting == NESTING_MOST) {
        wrong("(", "parentheses nested too deeply");
        return NULL;
    }
    parser->nesting++;
    struct find_node *node = parse_list(parser);
    parser->nesting--;
    if (!node) {
        return NULL;
    }
    if (!is_word(parser, ")", NULL)) {
        wrong("(", "')' is missing");
        return NULL;
    }
    parser->pos++;
    return node;
}

static struct find_node *parse_primary(struct find_parser *parser)
{
    const char *word = parser->words[parser->pos++];
    if (strcmp(word, "(") == 0) {
        return parse_parentheses(parser);
    }
    const struct find_primary *primary = find_primary_lookup(word);
    if (!primary) {
        unknown_word(word);
        return NULL;
    }
    if (parser->tests_only && (primary->flags & (FIND_EFFECT | FIND_WALKS))) {
        wrong(word, "not a test: here tests say which entries are meant, and "
                    "nothing else");
        return NULL;
    }
    struct find_node *node = find_node_create(parser, FIND_TEST);
    if (!node) {
        return NULL;
    }
    node->primary = primary;
    node->which = primary->which;
    node->mask = primary->mask;
    parser->word = word;
    if (primary->parse && primary->parse(parser, node) < 0) {
        return NULL;
    }
    if (!primary->eval && node->kind == FIND_TEST) {
        node->kind = FIND_CONST;
        node->truth = true;
    }
    if (node->kind == FIND_TEST) {
        parser->acts |=
            (primary->flags & FIND_EFFECT) && !(primary->flags & FIND_SILENT);
        parser->find->mask |= node->mask;
    }
    return node;
}

/* Any number of "!" in front. */
static struct find_node *parse_not(struct find_parser *parser)
{
    const char *before = NULL;
    bool negate = false;
    while (is_word(parser, "!", "-not")) {
        before = parser->words[parser->pos++];
        negate = !negate;
    }
    if (!starts_factor(parser)) {
        if (before) {
            poise_error_set(EINVAL, compiling, before,
                            "an expression must follow");
        } else if (parser->pos < parser->count) {
            wrong(parser->words[parser->pos],
                  strcmp(parser->words[parser->pos], ")") == 0
                      ? "too many ')'"
                      : "nothing before this operator");
        } else {
            wrong(parser->words[parser->count - 1],
                  "an expression must follow");
        }
        return NULL;
    }
    struct find_node *node = parse_primary(parser);
    if (!node || !negate) {
        return node;
    }
    struct find_node *not = find_node_create(parser, FIND_NOT);
    if (not ) {
        not ->child = node;
    }
    return not ;
}

/* Put `node` behind the children of *chain, which is made a node of `kind`
 * when the second one comes. */
struct chain {
    struct find_node *first, *last, *parent;
};

static int chain_add(struct find_parser *parser, struct chain *chain,
                     enum find_kind kind, struct find_node *node)
{
    if (!chain->first) {
        chain->first = chain->last = node;
        return 0;
    }
    if (!chain->parent) {
        chain->parent = find_node_create(parser, kind);
        if (!chain->parent) {
            return -ENOMEM;
        }
        chain->parent->child = chain->first;
    }
    chain->last->next = node;
    chain->last = node;
    return 0;
}

static struct find_node *chain_node(const struct chain *chain)
{
    return chain->parent ? chain->parent : chain->first;
}

static struct find_node *parse_and(struct find_parser *parser)
{
    struct chain chain = {0};
    do {
        struct find_node *node = parse_not(parser);
        if (!node || chain_add(parser, &chain, FIND_AND, node) < 0) {
            return NULL;
        }
        if (is_word(parser, "-a", "-and")) {
            parser->pos++;
        } else if (!starts_factor(parser)) {
            break;
        }
    } while (true);
    return chain_node(&chain);
}

static struct find_node *parse_or(struct find_parser *parser)
{
    struct chain chain = {0};
    do {
        struct find_node *node = parse_and(parser);
        if (!node || chain_add(parser, &chain, FIND_OR, node) < 0) {
            return NULL;
        }
    } while (is_word(parser, "-o", "-or") && parser->pos++ < parser->count);
    return chain_node(&chain);
}

static struct find_node *parse_list(struct find_parser *parser)
{
    struct chain chain = {0};
    do {
        struct find_node *node = parse_or(parser);
        if (!node || chain_add(parser, &chain, FIND_LIST, node) < 0) {
            return NULL;
        }
    } while (is_word(parser, ",", NULL) && parser->pos++ < parser->count);
    return chain_node(&chain);
}

/* ---- the whole ---------------------------------------------------------- */

/* ROOT -print, where the expression has no action. */
static struct find_node *add_print(struct find_parser *parser,
                                   struct find_node *root)
{
    struct find_node *print = find_node_create(parser, FIND_TEST);
    if (!print) {
        return NULL;
    }
    print->primary = find_primary_lookup("-print");
    if (!root) {
        return print;
    }
    struct find_node *both = find_node_create(parser, FIND_AND);
    if (both) {
        both->child = root;
        root->next = print;
    }
    return both;
}

/* Whether evaluation looks at metadata whatever the entry is. */
static bool always_stats(const struct find_node *node)
{
    while (node && node->kind != FIND_TEST) {
        node = node->child;
    }
    return node && node->mask != 0;
}

/* What stands before the start paths, and "--". */
static void parse_leading(struct find_parser *parser)
{
    while (parser->pos < parser->count) {
        const char *word = parser->words[parser->pos];
        if (!poise_walk_find_leads(word)) {
            parser->pos += strcmp(word, "--") == 0;
            return;
        }
        parser->pos++;
        switch (word[1]) {
        case 'H':
            parser->find->follow = POISE_WALK_FOLLOW_OPERANDS;
            break;
        case 'L':
            parser->find->follow = POISE_WALK_FOLLOW_ALL;
            break;
        case 'P':
            parser->find->follow = POISE_WALK_FOLLOW_NONE;
            break;
        default: /* -O2: it is always done */
            break;
        }
    }
}

bool poise_walk_find_leads(const char *word)
{
    return strcmp(word, "-H") == 0 || strcmp(word, "-L") == 0 ||
           strcmp(word, "-P") == 0 ||
           (strncmp(word, "-O", 2) == 0 && word[2] >= '0' && word[2] <= '9' &&
            word[3] == '\0');
}

/* Whether what it does to one entry may show at another: commands and -quit
 * do, and what is deleted where more than names and a file's own metadata is
 * asked for, or printed. */
static bool shows_elsewhere(const struct poise_walk_find *find)
{
    if (find->exec_count > 0 || find->has_quit) {
        return true;
    }
    bool seen = find->follow != POISE_WALK_FOLLOW_NONE;
    for (const struct find_node *n = find->all; n; n = n->all) {
        unsigned flags = n->kind == FIND_TEST ? n->primary->flags : 0;
        bool prints = (flags & FIND_EFFECT) && !(flags & FIND_SILENT) &&
                      n->primary->eval != find_delete;
        seen |= prints || (flags & FIND_SHAKY);
    }
    return find->has_delete && seen;
}

static int compile(struct find_parser *parser)
{
    struct find_node *root = NULL;
    if (!parser->tests_only) {
        parse_leading(parser);
    }
    if (parser->pos < parser->count) {
        root = parse_list(parser);
        if (!root) {
            return -poise_error_last()->code;
        }
        if (parser->pos < parser->count) {
            return wrong(parser->words[parser->pos], "too many ')'");
        }
    }
    struct poise_walk_find *find = parser->find;
    if (find->has_delete && find->has_prune && !parser->explicit_depth) {
        return poise_error_set(EINVAL, compiling, "-delete",
                               "it turns on -depth, under which -prune does "
                               "nothing; say -depth if that is meant");
    }
    if (find->has_ask && find->roots_file &&
        strcmp(find->roots_file, "-") == 0) {
        return poise_error_set(EINVAL, compiling, "-files0-from",
                               "-ok and -okdir read standard input, too");
    }
    if (!parser->acts && !parser->tests_only) {
        root = add_print(parser, root);
        if (!root) {
            return -ENOMEM;
        }
    }
    find->in_order = shows_elsewhere(find);
    find->root = find_simplify(root);
    find->fetch_mask = always_stats(find->root) ? find->mask : 0;
    return 0;
}

static int copy_words(struct poise_walk_find *find, size_t count,
                      const char *const *argv)
{
    find->words = poise_alloc(count + 1, sizeof *find->words);
    if (!find->words) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(argv[i]) + 1;
        find->words[i] = poise_alloc(len, 1);
        if (!find->words[i]) {
            return -ENOMEM;
        }
        memcpy(find->words[i], argv[i], len);
        find->word_count++;
    }
    return 0;
}

int find_compile(size_t count, const char *const *words, bool filter,
                 struct poise_walk_find **out)
{
    struct poise_walk_find *find = poise_alloc(1, sizeof *find);
    if (!find) {
        return -ENOMEM;
    }
    find->stream_count = 1;
    int code = copy_words(find, count, words);
    if (code == 0) {
        struct find_parser parser = {
            .find = find,
            .words = (const char *const *)find->words,
            .count = find->word_count,
            .syntax = RE_SYNTAX_EMACS,
            .tests_only = filter,
        };
        code = compile(&parser);
    }
    if (code < 0) {
        poise_walk_find_destroy(find);
        return code;
    }
    *out = find;
    return 0;
}

int poise_walk_find_compile(int argc, const char *const *argv,
                            struct poise_walk_find **out)
{
    return find_compile((size_t)argc, argv, false, out);
}

const char *poise_walk_find_roots_file(const struct poise_walk_find *find)
{
    return find->roots_file;
}

void poise_walk_find_destroy(struct poise_walk_find *find)
{
    if (!find) {
        return;
    }
    for (struct find_node *node = find->all, *next; node; node = next) {
        next = node->all;
        if (node->primary && node->primary->release) {
            node->primary->release(node);
        }
        free(node);
    }
    for (size_t i = 0; i < find->word_count; i++) {
        free(find->words[i]);
    }
    free(find->words);
    free(find);
}
