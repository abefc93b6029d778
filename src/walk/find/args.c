/* The arguments of tests: patterns, numbers, names, modes. */
#include "internal.h"

#include <fnmatch.h>
#include <grp.h>
#include <langinfo.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- patterns ----------------------------------------------------------- */

/* Whether the text begins at a character wherever its bytes are found. */
static bool is_whole(const char *text)
{
    return MB_CUR_MAX == 1 || (strcmp(nl_langinfo(CODESET), "UTF-8") == 0 &&
                               mbstowcs(NULL, text, 0) != (size_t)-1);
}

int find_parse_glob(struct find_parser *parser, struct find_node *node)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    struct find_glob *glob = &node->arg.glob;
    glob->pattern = text;
    glob->kind = FIND_GLOB_ANY;
    if (node->which == 'i') {
        glob->flags = FNM_CASEFOLD;
        return 0;
    }
    bool star = text[0] == '*';
    if (!strpbrk(text + star, "*?[\\") && (!star || is_whole(text + 1))) {
        glob->kind = star ? FIND_GLOB_SUFFIX : FIND_GLOB_PLAIN;
        glob->pattern = text + star;
        glob->len = strlen(glob->pattern);
    }
    return 0;
}

static const struct {
    const char *name;
    reg_syntax_t syntax;
} regex_types[] = {
    {"findutils-default", RE_SYNTAX_EMACS | RE_DOT_NEWLINE},
    {"ed", RE_SYNTAX_ED},
    {"emacs", RE_SYNTAX_EMACS},
    {"gnu-awk", RE_SYNTAX_GNU_AWK},
    {"grep", RE_SYNTAX_GREP},
    {"posix-awk", RE_SYNTAX_POSIX_AWK},
    {"awk", RE_SYNTAX_AWK},
    {"posix-basic", RE_SYNTAX_POSIX_BASIC},
    {"posix-egrep", RE_SYNTAX_POSIX_EGREP},
    {"egrep", RE_SYNTAX_EGREP},
    {"posix-extended", RE_SYNTAX_POSIX_EXTENDED},
    {"posix-minimal-basic", RE_SYNTAX_POSIX_MINIMAL_BASIC},
    {"sed", RE_SYNTAX_SED},
};

int find_parse_regextype(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    const char *names[sizeof regex_types / sizeof *regex_types];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        names[i] = regex_types[i].name;
        if (strcmp(text, names[i]) == 0) {
            parser->syntax = regex_types[i].syntax;
            return 0;
        }
    }
    const char *near = poise_nearest(text, names, sizeof names / sizeof *names);
    return poise_error_set(EINVAL, "understand the expression at", text,
                           "no such type of regular expressions%s%s",
                           near ? "; nearest: " : "", near ? near : "");
}

/* re_compile_pattern reads the syntax from a global of the C library: set,
 * use, put back. */
static pthread_mutex_t syntax_lock = PTHREAD_MUTEX_INITIALIZER;

const char *find_regex_compile(const struct find_regex *regex,
                               struct re_pattern_buffer *out)
{
    pthread_mutex_lock(&syntax_lock);
    reg_syntax_t before = re_set_syntax(regex->syntax);
    const char *why = re_compile_pattern(regex->text, strlen(regex->text), out);
    re_set_syntax(before);
    pthread_mutex_unlock(&syntax_lock);
    return why;
}

int find_parse_regex(struct find_parser *parser, struct find_node *node)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    struct find_regex *regex = poise_alloc(1, sizeof *regex);
    if (!regex) {
        return -ENOMEM;
    }
    regex->text = text;
    regex->syntax = parser->syntax | (node->which == 'i' ? RE_ICASE : 0);
    regex->index = parser->find->regex_count++;
    node->arg.regex = regex;
    const char *why = find_regex_compile(regex, &regex->shared);
    return why ? find_parser_wrong(parser, text, why) : 0;
}

void find_regex_release(struct find_node *node)
{
    if (node->arg.regex) {
        regfree(&node->arg.regex->shared);
        free(node->arg.regex);
    }
}

/* ---- types -------------------------------------------------------------- */

static unsigned type_of_letter(char letter)
{
    static const char letters[] = "bcdpfls";
    static const unsigned char types[] = {DT_BLK, DT_CHR, DT_DIR, DT_FIFO,
                                          DT_REG, DT_LNK, DT_SOCK};
    const char *at = letter ? strchr(letters, letter) : NULL;
    return at ? types[at - letters] : DT_UNKNOWN;
}

int find_parse_type(struct find_parser *parser, struct find_node *node)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    uint32_t types = 0;
    for (const char *at = text;; at += 2) {
        unsigned type = type_of_letter(at[0]);
        if (type == DT_UNKNOWN) {
            return find_parser_wrong(parser, text,
                                     "types are b, c, d, p, f, l and s");
        }
        if (types & 1u << type) {
            return find_parser_wrong(parser, text, "a type is named twice");
        }
        types |= 1u << type;
        if (!at[1]) {
            break;
        }
        if (at[1] != ',') {
            return find_parser_wrong(parser, text,
                                     "types must be separated by ','");
        }
    }
    node->arg.types = types;
    return 0;
}

/* ---- numbers ------------------------------------------------------------ */

int find_parse_order(const char **text)
{
    if (**text == '+') {
        ++*text;
        return FIND_MORE;
    }
    if (**text == '-') {
        ++*text;
        return FIND_LESS;
    }
    return FIND_EQUAL;
}

/* Digits up to *end; false if there are none or too many. */
static bool parse_digits(const char *text, const char **end, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
            return false;
        }
    }
    *end = at;
    *out = value;
    return at > text;
}

int find_parse_number(struct find_parser *parser, struct find_node *node)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    const char *at = text;
    struct find_number *number = &node->arg.number;
    number->order = find_parse_order(&at);
    number->unit = 1;
    at += *at == '+'; /* "-+3", which GNU find reads as -3 */
    if (!parse_digits(at, &at, &number->value) || *at) {
        return find_parser_wrong(parser, text, "not a number (N, +N or -N)");
    }
    return 0;
}

int find_parse_size(struct find_parser *parser, struct find_node *node)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    static const char units[] = "bcwkMG";
    static const uint64_t bytes[] = {512, 1, 2, 1 << 10, 1 << 20, 1 << 30};
    const char *at = text;
    struct find_number *number = &node->arg.number;
    number->order = find_parse_order(&at);
    number->unit = 512;
    if (!parse_digits(at, &at, &number->value)) {
        return find_parser_wrong(parser, text, "not a number");
    }
    if (*at) {
        const char *unit = strchr(units, *at);
        if (!unit || at[1]) {
            return find_parser_wrong(parser, text,
                                     "units are b, c, w, k, M and G");
        }
        number->unit = bytes[unit - units];
    }
    return 0;
}

/* ---- users and groups --------------------------------------------------- */

/* A number where no name is known. */
static int parse_id(struct find_parser *parser, struct find_node *node,
                    const char *text)
{
    const char *end;
    uint64_t id;
    if (!parse_digits(text, &end, &id) || *end || id > UINT32_MAX) {
        return find_parser_wrong(parser, text, "no such name");
    }
    node->arg.number = (struct find_number){FIND_EQUAL, id, 1};
    return 0;
}

int find_parse_user(struct find_parser *parser, struct find_node *node)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    struct passwd entry, *found = NULL;
    char space[4096];
    if (getpwnam_r(text, &entry, space, sizeof space, &found) == 0 && found) {
        node->arg.number = (struct find_number){FIND_EQUAL, entry.pw_uid, 1};
        return 0;
    }
    return parse_id(parser, node, text);
}

int find_parse_group(struct find_parser *parser, struct find_node *node)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    struct group entry, *found = NULL;
    char *space = NULL;
    int code = ERANGE;
    /* A group's entry lists its members: no fixed size is enough. */
    for (size_t size = 4096; code == ERANGE && size <= 1 << 24; size *= 4) {
        char *more = poise_realloc(space, size, 1);
        if (!more) {
            free(space);
            return -ENOMEM;
        }
        space = more;
        code = getgrnam_r(text, &entry, space, size, &found);
    }
    bool known = code == 0 && found;
    if (known) {
        node->arg.number = (struct find_number){FIND_EQUAL, entry.gr_gid, 1};
    }
    free(space);
    return known ? 0 : parse_id(parser, node, text);
}

/* ---- other files -------------------------------------------------------- */

int find_parse_fstype(struct find_parser *parser, struct find_node *node)
{
    node->arg.text = find_parser_argument(parser);
    return node->arg.text ? 0 : -EINVAL;
}

int find_parse_samefile(struct find_parser *parser, struct find_node *node)
{
    const char *path = find_parser_argument(parser);
    if (!path) {
        return -EINVAL;
    }
    struct statx st;
    int code = find_parser_stat(parser, path, STATX_INO, &st);
    if (code < 0) {
        return code;
    }
    node->arg.identity = (struct find_identity){.major = st.stx_dev_major,
                                                .minor = st.stx_dev_minor,
                                                .ino = st.stx_ino};
    return 0;
}

/* ---- permissions -------------------------------------------------------- */

struct who {
    mode_t bits; /* which of 07777 a clause is about */
    bool named;
};

static struct who parse_who(const char **text)
{
    struct who who = {0};
    for (;; ++*text) {
        switch (**text) {
        case 'u':
            who.bits |= S_ISUID | S_IRWXU;
            break;
        case 'g':
            who.bits |= S_ISGID | S_IRWXG;
            break;
        case 'o':
            who.bits |= S_ISVTX | S_IRWXO;
            break;
        case 'a':
            who.bits |= S_ISUID | S_ISGID | S_ISVTX | 0777;
            break;
        default:
            return who;
        }
        who.named = true;
    }
}

/* The bits that the letters behind an operator stand for, for all of u, g and
 * o at once; `dir`: X counts. */
static mode_t parse_letters(const char **text, mode_t current, bool dir)
{
    if (**text == 'u' || **text == 'g' || **text == 'o') {
        unsigned shift = **text == 'u' ? 6 : **text == 'g' ? 3 : 0;
        ++*text;
        return (current >> shift & 7u) * 0111u;
    }
    mode_t bits = 0;
    for (;; ++*text) {
        switch (**text) {
        case 'r':
            bits |= 0444;
            break;
        case 'w':
            bits |= 0222;
            break;
        case 'x':
            bits |= 0111;
            break;
        case 'X':
            bits |= dir || (current & 0111) ? 0111 : 0;
            break;
        case 's':
            bits |= S_ISUID | S_ISGID;
            break;
        case 't':
            bits |= S_ISVTX;
            break;
        default:
            return bits;
        }
    }
}

/* One clause "ugoa+rwx=..."; false if it is none. */
static bool parse_clause(const char **text, mode_t *mode, bool dir)
{
    struct who who = parse_who(text);
    /* No class named is all of them, less the umask; for find that is 0. */
    mode_t mask = who.named ? who.bits : 07777;
    if (!**text || !strchr("+-=", **text)) {
        return false;
    }
    while (**text && strchr("+-=", **text)) {
        char op = *(*text)++;
        mode_t bits;
        if (**text >= '0' && **text <= '7') {
            uint64_t octal = 0;
            while (**text >= '0' && **text <= '7' && octal <= 07777) {
                octal = octal * 8 + (uint64_t)(*(*text)++ - '0');
            }
            if (octal > 07777 || who.named) {
                return false;
            }
            bits = (mode_t)octal;
        } else {
            bits = parse_letters(text, *mode, dir) & mask;
        }
        if (op == '=') {
            *mode = (*mode & ~mask) | bits;
        } else if (op == '+') {
            *mode |= bits;
        } else {
            *mode &= ~bits;
        }
    }
    return true;
}

static int parse_symbolic(const char *text, bool dir, mode_t *out)
{
    mode_t mode = 0;
    for (;; text++) {
        if (!parse_clause(&text, &mode, dir)) {
            return -EINVAL;
        }
        if (*text != ',') {
            break;
        }
    }
    *out = mode;
    return *text ? -EINVAL : 0;
}

/* "644" or "u=rw,go=r": what it gives, starting from nothing. -EINVAL without
 * an error set. */
int find_parse_mode(const char *text, struct find_permission *out)
{
    if (text[0] >= '0' && text[0] <= '7') {
        unsigned mode = 0;
        for (; *text >= '0' && *text <= '7'; text++) {
            mode = mode * 8 + (unsigned)(*text - '0');
            if (mode > 07777) {
                return -EINVAL;
            }
        }
        out->file = out->dir = mode;
        return *text ? -EINVAL : 0;
    }
    int code = parse_symbolic(text, false, &out->file);
    return code < 0 ? code : parse_symbolic(text, true, &out->dir);
}

int find_parse_perm(struct find_parser *parser, struct find_node *node)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    struct find_permission *perm = &node->arg.perm;
    const char *mode = text;
    perm->how = FIND_PERM_EXACT;
    if (*mode == '-' || *mode == '/') {
        perm->how = *mode == '-' ? FIND_PERM_ALL : FIND_PERM_ANY;
        mode++;
    }
    if (find_parse_mode(mode, perm) < 0) {
        return find_parser_wrong(parser, text, "not a mode");
    }
    return 0;
}
