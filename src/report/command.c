/*
 * A command as it was typed, without what in it is secret: the values of names
 * that say so (--password=X, --token X, API_KEY=X, "Authorization: X", also
 * inside of one word that a shell gets), and the part of an address behind the
 * user's name. Names of files are no secrets.
 */
#include "internal.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Stands for what is not shown. */
#define MASKED "***"

/* Longer ones are cut: nobody reads them, and arguments may be megabytes. */
enum { COMMAND_MOST = 2000 };

/* Whether the value of what has this name is a secret. */
static bool is_secret(const char *name, size_t len)
{
    static const char *const parts[] = {
        "password", "passwd",     "passphrase",  "secret",       "token",
        "apikey",   "api-key",    "api_key",     "access-key",   "access_key",
        "bearer",   "credential", "private-key", "authorization"};

    if (len >= 4 && strncasecmp(name + len - 4, "file", 4) == 0) {
        return false;
    }
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        size_t part = strlen(parts[p]);

        for (size_t i = 0; i + part <= len; i++) {
            if (strncasecmp(name + i, parts[p], part) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Behind a value in the text of a shell: what is quoted, or up to a blank. */
static const char *skip_value(const char *text)
{
    const char *end;

    if (*text == '"' || *text == '\'') {
        end = strchr(text + 1, *text);
        return end ? end + 1 : text + strlen(text);
    }
    return text + strcspn(text, " \t\n&'\"");
}

/* With `text` at "://user:password@host": where the password is, its end in
 * *end. NULL: there is none. */
static const char *password_of(const char *text, const char **end)
{
    const char *from, *at = NULL;
    size_t most;

    if (strncmp(text, "://", 3) != 0) {
        return NULL;
    }
    text += 3;
    most = strcspn(text, "/ \t\n?#");
    from = memchr(text, ':', most);
    for (size_t i = most; i > 0 && !at; i--) {
        at = text[i - 1] == '@' ? text + i - 1 : NULL;
    }
    *end = at;
    return at && from && from < at ? from + 1 : NULL;
}

/* Write what is between a name and the value behind it; where the name is that
 * of a secret also what stands for the value. Where to go on. */
static const char *put_mark(struct poise_buf *out, const char *word,
                            const char *name, const char *mark)
{
    bool secret = is_secret(name, (size_t)(mark - name));
    const char *next = mark + 1;

    poise_buf_putc(out, *mark);
    if (!secret) {
        return next;
    }
    if (*mark == '=' && name == word) {
        next += strlen(next);
    } else if (*mark == '=') {
        next = skip_value(next);
    } else if (*mark == ':') { /* a line of HTTP */
        next += strcspn(next, "\n'\"");
    } else if (*name == '-') { /* blank */
        next = skip_value(next + strspn(next, " \t"));
    } else {
        return next;
    }
    poise_buf_puts(out, MASKED);
    return next;
}

/* One argument. Whether the next one is a secret. */
static bool put_word(struct poise_buf *out, const char *word)
{
    const char *name = word, *c = word, *from, *end;

    while (*c) {
        from = password_of(c, &end);
        if (from) {
            poise_buf_append(out, c, (size_t)(from - c));
            poise_buf_puts(out, MASKED);
            c = end;
            name = c;
        } else if (isalnum((unsigned char)*c) || strchr("-_.", *c)) {
            poise_buf_putc(out, *c++);
        } else {
            c = put_mark(out, word, name, c);
            name = c;
        }
    }
    return *name == '-' && is_secret(name, (size_t)(c - name));
}

void report_command(struct poise_buf *out, const char *words, size_t len)
{
    static const char plain[] = "%+,-./:=@_~^";
    size_t start = out->len;
    bool masked = false;

    for (size_t at = 0; at < len; at += strlen(words + at) + 1) {
        const char *word = words + at;
        bool hidden = masked && *word != '-', quote = *word == '\0';

        for (const char *c = word; *c && !hidden; c++) {
            quote = quote || !(isalnum((unsigned char)*c) ||
                               (unsigned char)*c >= 0x80 || strchr(plain, *c));
        }
        if (out->len - start > COMMAND_MOST) {
            poise_buf_puts(out, " \xe2\x80\xa6");
            return;
        }
        poise_buf_puts(out, at > 0 ? " " : "");
        poise_buf_puts(out, quote ? "'" : "");
        masked = !hidden && put_word(out, word);
        poise_buf_puts(out, hidden ? MASKED : "");
        poise_buf_puts(out, quote ? "'" : "");
    }
}
