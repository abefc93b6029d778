/*
 * Shared inside room keys: what a key consists of.
 *
 * The key of a line is one string, the parts of its fields one after the other.
 * No part is the begin of another part of the same field, so that the first
 * field that differs decides; where order is descending its bits are turned.
 */
#ifndef POISE_EXTMEM_KEYS_INTERNAL_H
#define POISE_EXTMEM_KEYS_INTERNAL_H

#include <poise/sort_keys.h>
#include <poise/sort_order.h>

#include <locale.h>

#define KEYS_NO_FIELD SIZE_MAX

enum keys_order {
    KEYS_TEXT,
    KEYS_NUMERIC,
    KEYS_GENERAL,
    KEYS_HUMAN,
    KEYS_MONTH,
    KEYS_RANDOM,
    KEYS_VERSION,
};

/** A key as it is described; numbers begin at 0. */
struct keys_field {
    size_t begin_field, begin_char; /**< KEYS_NO_FIELD: the line's begin */
    size_t end_field, end_char; /**< KEYS_NO_FIELD: the line's end; end_char 0:
                                     the field's end */
    bool skip_begin, skip_end;  /**< blanks do not count there */
    bool numeric, general, human, month, random, version;
    bool dictionary, printable, fold, reverse;
};

enum { KEYS_MONTHS = 12, KEYS_SEED = 16, KEYS_NONE = 256 };

/** First weights of characters that stand by themselves (weights.c). */
enum { KEYS_MOST_WEIGHT = 4, KEYS_NO_WEIGHT = 255 };
struct keys_weights {
    unsigned char bytes[256][KEYS_MOST_WEIGHT];
    unsigned char len[256]; /**< KEYS_NO_WEIGHT: it has none */
};
/** *out is NULL where there are none; for free(). 0 or -ENOMEM. */
int keys_weights_make(locale_t locale, struct keys_weights **out);
/** The first level of a text, unless a character has no weight: then false, and
 * nothing was put. key->error if there is no memory. */
bool keys_put_weights(const struct keys_weights *weights,
                      const unsigned char *at, size_t len,
                      struct poise_buf *key);

struct poise_sort_keys {
    /* Of records: these, and nothing of what follows. */
    struct poise_sort_part *parts; /* owned */
    size_t part_count;
    struct keys_field *fields; /* owned */
    size_t count;
    struct keys_field global;     /* the letters of whole lines */
    bool whole;                   /* the whole line decides last */
    bool whole_reverse;           /* the other way round */
    bool collates;                /* texts are ordered by strxfrm */
    int separator;                /* KEYS_NONE: blanks */
    bool csv;                     /* fields are of CSV */
    locale_t locale;              /* owned; 0: C */
    struct keys_weights *weights; /* owned; NULL: only strxfrm knows them */
    bool blank[256], not_dictionary[256], not_printable[256];
    unsigned char upper[256];
    int point, thousands;      /* of numbers; KEYS_NONE: there is none */
    char *months[KEYS_MONTHS]; /* owned; in capitals, without blanks */
    uint64_t seed[KEYS_SEED / 8];
};

/** As poise_sort_keys_make, but there are always some. */
int keys_build(const struct poise_sort_rules *rules,
               struct poise_sort_keys **out);

enum keys_order keys_order_of(const struct keys_field *field);

/** A text. */
struct keys_span {
    const unsigned char *at, *end;
};
static inline int keys_peek(const struct keys_span *text,
                            const unsigned char *at)
{
    return at < text->end ? *at : -1;
}
/** A field of a line; it may end before it begins: then there is none. */
struct keys_span keys_find(const struct poise_sort_keys *keys,
                           const struct keys_field *field,
                           struct keys_span line);
/** Without the blanks that it begins with. */
struct keys_span keys_trim(const struct poise_sort_keys *keys,
                           struct keys_span text);

/* What stands for a text in a key. 0 or -ENOMEM. */

/** A decimal number of any length (numbers.c). */
int keys_put_number(const struct poise_sort_keys *keys, struct keys_span text,
                    struct poise_buf *key);
/** The same behind its unit, K, M, G, ... */
int keys_put_human(const struct poise_sort_keys *keys, struct keys_span text,
                   struct poise_buf *key);
/** What strtold reads: no number, NaNs, numbers. */
int keys_put_general(const struct poise_sort_keys *keys, struct keys_span text,
                     struct poise_buf *key);
int keys_put_month(const struct poise_sort_keys *keys, struct keys_span text,
                   struct poise_buf *key);
/** A version, as in names of files (version.c). */
int keys_put_version(struct keys_span text, struct poise_buf *key);
/** Where what the above look at ends: text.at where it is no number or month.
 * The text begins with no blank. */
const unsigned char *keys_number_end(const struct poise_sort_keys *keys,
                                     struct keys_span text, bool and_unit);
const unsigned char *keys_general_end(const struct poise_sort_keys *keys,
                                      struct keys_span text);
const unsigned char *keys_month_end(const struct poise_sort_keys *keys,
                                    struct keys_span text);
/** A count, in fewer bytes the smaller it is; any first byte from `base` on. */
int keys_put_count(struct poise_buf *key, unsigned base, unsigned most,
                   size_t count);

/** Of a record, its parts (parts.c). */
int keys_put_parts(const struct poise_sort_keys *keys,
                   const unsigned char *record, struct poise_buf *key);

#endif
