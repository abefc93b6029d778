/*
 * getopt and its relatives, with the state of the rank that calls: the C
 * library keeps part of it where no caller can reach it. As GNU's in all that
 * programs rely on: options and operands may be mixed (not with '+' or
 * POSIXLY_CORRECT; '-' hands operands out as if of an option 1), long options
 * may be abbreviated, optind 0 begins anew.
 */
#include "libc_wrap.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

/* One call: the rank's state and the arguments. */
struct wrap_call {
    struct vrank_libc *own;
    int argc;
    char **argv;
    const char *letters;
    const struct option *longs;
    int *long_index;
    bool long_only, quiet, in_order, as_option;
};

/* The operands passed over, [first, last), and the options behind them, up to
 * optind, change places. */
static void wrap_exchange(struct wrap_call *call)
{
    struct vrank_libc *own = call->own;
    int passed = own->option_last - own->option_first;
    int options = own->optind - own->option_last;
    for (int i = 0; i < options && passed > 0; i++) {
        char *word = call->argv[own->option_last + i];
        memmove(&call->argv[own->option_first + i + 1],
                &call->argv[own->option_first + i],
                (size_t)passed * sizeof(char *));
        call->argv[own->option_first + i] = word;
    }
    own->option_first += options;
    own->option_last = own->optind;
}

static bool wrap_is_operand(const char *word)
{
    return word[0] != '-' || word[1] == '\0';
}

static void wrap_complain(const struct wrap_call *call, const char *text,
                          const char *what)
{
    if (!call->quiet) {
        fprintf(stderr, "%s: %s '%s'\n", call->argv[0], text, what);
    }
}

/* How a missing argument is reported. */
static int wrap_missing(const struct wrap_call *call)
{
    return call->letters[0] == ':' ? ':' : '?';
}

/* The long option that `name` of `len` bytes means; NULL for none, and for
 * several with *several set. */
static const struct option *wrap_long(const struct wrap_call *call,
                                      const char *name, size_t len,
                                      bool *several)
{
    const struct option *found = NULL;
    *several = false;
    for (const struct option *o = call->longs; o->name != NULL; o++) {
        if (strncmp(o->name, name, len) != 0) {
            continue;
        }
        if (strlen(o->name) == len) {
            *several = false;
            return o;
        }
        if (found != NULL && (found->has_arg != o->has_arg ||
                              found->flag != o->flag || found->val != o->val)) {
            *several = true;
        }
        found = found != NULL ? found : o;
    }
    return *several ? NULL : found;
}

/* The word at optind is a long option whose name begins at `name`. */
static int wrap_do_long(struct wrap_call *call, const struct option *option,
                        const char *name, size_t len)
{
    struct vrank_libc *own = call->own;
    own->option_next = NULL;
    own->optind++;
    own->optopt = option->val;
    if (name[len] == '=') {
        if (option->has_arg == no_argument) {
            wrap_complain(call, "option doesn't allow an argument --",
                          option->name);
            return '?';
        }
        own->optarg = (char *)(uintptr_t)(name + len + 1);
    } else if (option->has_arg == required_argument) {
        if (own->optind >= call->argc) {
            wrap_complain(call, "option requires an argument --", option->name);
            return wrap_missing(call);
        }
        own->optarg = call->argv[own->optind++];
    }
    if (call->long_index != NULL) {
        *call->long_index = (int)(option - call->longs);
    }
    if (option->flag != NULL) {
        *option->flag = option->val;
        return 0;
    }
    return option->val;
}

/* The next option of a word of short options. */
static int wrap_do_short(struct wrap_call *call)
{
    struct vrank_libc *own = call->own;
    char option = *own->option_next++;
    const char *known =
        option != ':' && option != ';' ? strchr(call->letters, option) : NULL;
    char text[2] = {option, '\0'};
    bool is_last = *own->option_next == '\0';
    if (is_last) {
        own->optind++;
    }
    own->optopt = (unsigned char)option;
    if (known == NULL) {
        wrap_complain(call, "invalid option --", text);
        return '?';
    }
    if (known[1] != ':') {
        return (unsigned char)option;
    }
    if (!is_last) {
        own->optarg = own->option_next;
        own->optind++;
    } else if (known[2] != ':') {
        if (own->optind >= call->argc) {
            wrap_complain(call, "option requires an argument --", text);
            return wrap_missing(call);
        }
        own->optarg = call->argv[own->optind++];
    }
    own->option_next = NULL;
    return (unsigned char)option;
}

/* Pass over operands until optind is at an option; false at the end, with
 * optind at the first operand. */
static bool wrap_find_option(struct wrap_call *call, int *result)
{
    struct vrank_libc *own = call->own;
    if (!call->in_order && !call->as_option) {
        if (own->option_first != own->option_last &&
            own->option_last != own->optind) {
            wrap_exchange(call);
        } else if (own->option_last != own->optind) {
            own->option_first = own->optind;
        }
        while (own->optind < call->argc &&
               wrap_is_operand(call->argv[own->optind])) {
            own->optind++;
        }
        own->option_last = own->optind;
    }
    if (own->optind < call->argc &&
        strcmp(call->argv[own->optind], "--") == 0) {
        own->optind++;
        if (own->option_first != own->option_last &&
            own->option_last != own->optind) {
            wrap_exchange(call);
        } else if (own->option_first == own->option_last) {
            own->option_first = own->optind;
        }
        own->option_last = own->optind = call->argc;
    }
    *result = -1;
    if (own->optind >= call->argc) {
        if (own->option_first != own->option_last) {
            own->optind = own->option_first;
        }
        return false;
    }
    if (wrap_is_operand(call->argv[own->optind])) {
        if (call->as_option) {
            own->optarg = call->argv[own->optind++];
            *result = 1;
        }
        return false;
    }
    return true;
}

static int wrap_option(struct wrap_call *call)
{
    struct vrank_libc *own = call->own;
    int result;
    if (own->option_next == NULL || *own->option_next == '\0') {
        if (!wrap_find_option(call, &result)) {
            return result;
        }
        const char *word = call->argv[own->optind];
        bool is_long = word[1] == '-';
        own->option_next = call->argv[own->optind] + 1;
        if (call->longs != NULL && (is_long || call->long_only)) {
            const char *name = word + 1 + is_long;
            size_t len = strcspn(name, "=");
            bool several;
            const struct option *option = wrap_long(call, name, len, &several);
            if (option != NULL) {
                return wrap_do_long(call, option, name, len);
            }
            if (is_long || several || strchr(call->letters, word[1]) == NULL) {
                wrap_complain(call,
                              several ? "option is ambiguous --"
                                      : "unrecognized option",
                              word);
                own->option_next = NULL;
                own->optind++;
                own->optopt = 0;
                return '?';
            }
        }
    }
    return wrap_do_short(call);
}

static int wrap_parse(int argc, char *const *argv, const char *letters,
                      const struct option *longs, int *long_index,
                      bool long_only)
{
    struct vrank_libc *own = libc_now();
    if (own == NULL) {
        return long_only
                   ? getopt_long_only(argc, argv, letters, longs, long_index)
                   : getopt_long(argc, argv, letters, longs, long_index);
    }
    struct wrap_call call = {.own = own,
                             .argc = argc,
                             .argv = (char **)(uintptr_t)argv,
                             .letters = letters,
                             .longs = longs,
                             .long_index = long_index,
                             .long_only = long_only};
    own->optarg = NULL;
    if (own->optind == 0 || own->option_last == 0) {
        own->optind += own->optind == 0;
        own->option_first = own->option_last = own->optind;
        own->option_next = NULL;
    }
    call.in_order = letters[0] == '+' || getenv("POSIXLY_CORRECT") != NULL;
    call.as_option = letters[0] == '-';
    call.letters += letters[0] == '+' || letters[0] == '-';
    call.quiet = own->opterr == 0 || call.letters[0] == ':';
    return argc < 1 ? -1 : wrap_option(&call);
}

static int wrap_getopt_short(int argc, char *const *argv, const char *letters)
{
    return wrap_parse(argc, argv, letters, NULL, NULL, false);
}

static int wrap_getopt_long(int argc, char *const *argv, const char *letters,
                            const struct option *longs, int *long_index)
{
    return wrap_parse(argc, argv, letters, longs, long_index, false);
}

static int wrap_getopt_long_only(int argc, char *const *argv,
                                 const char *letters,
                                 const struct option *longs, int *long_index)
{
    return wrap_parse(argc, argv, letters, longs, long_index, true);
}

const struct libc_wrap wrap_getopt[] = {
    {"getopt", (void (*)(void))wrap_getopt_short},
    WRAP(getopt_long),
    WRAP(getopt_long_only),
    {NULL, NULL},
};
