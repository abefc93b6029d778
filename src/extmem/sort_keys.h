/*
 * poise/sort_keys.h - keys of lines, described and ordered as GNU sort does:
 * turned into strings of bytes, so that memcmp, and where one string is the
 * begin of another their lengths, order lines.
 *
 * Fields, their positions and the letters of orderings mean what they mean to
 * GNU sort 9.1. Texts are ordered by their bytes unless the locale (LC_ALL,
 * LC_COLLATE, LANG of the environment) collates: then keys begin with bytes
 * that order most of them, and strcoll(3) decides the rest. (What strxfrm(3) of
 * glibc 2.36 makes of texts is not always in the order of strcoll, but for its
 * first level.) The locale of the process is left alone.
 */
#ifndef POISE_SORT_KEYS_H
#define POISE_SORT_KEYS_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What lines are ordered by. Zeros: by their whole text. All is borrowed, and
 * only while poise_sort_keys_make runs. */
struct poise_sort_rules {
    /** Letters of MRVbdfghinr: of whole lines, and of keys that have none of
     * their own. `r` also turns the last comparison round. */
    const char *ordering;
    /** Keys, the most significant first: "F[.C][LETTERS][,F[.C][LETTERS]]". */
    const char *const *keys;
    size_t key_count;
    /** What parts fields: one byte, or "\\0" for NUL. NULL: the place between
     * a character that is not blank and one that is; blanks belong to the field
     * that they begin. */
    const char *separator;
    /** Lines of which all keys are equal are equal: else their whole text
     * decides last. Of no account without keys and letters but r. */
    bool keys_only;
    /** Lines are rows of CSV (RFC 4180), which `separator` parts: fields
     * are what stands in them, without quotes. */
    bool csv;
    /** Make keys of lines that are ordered by their bytes, too: for
     * poise_sort_keys_show. */
    bool is_shown;
    /** For each key whether it was written the old way, +POS [-POS]; NULL: none
     * was. For poise_sort_rules_notes. */
    const bool *old_keys;
    /** `R` is seeded by the first 16 bytes of this file. NULL: at random. */
    const char *random_source;
};

struct poise_sort_keys;

/** *out is NULL where lines are ordered by their bytes. -EINVAL with the
 * reason: a key that is none, letters that exclude each other; errors of
 * reading `random_source`. */
POISE_API int poise_sort_keys_make(const struct poise_sort_rules *rules,
                                   struct poise_sort_keys **out);
POISE_API void poise_sort_keys_free(struct poise_sort_keys *keys);

/** A field of records: at a fixed place, with a fixed length. */
struct poise_sort_part {
    uint32_t offset, bytes; /**< of numbers 4 or 8 bytes */
    enum {
        POISE_SORT_PART_BYTES, /**< compared as they are, the first one first */
        POISE_SORT_PART_UNSIGNED,
        POISE_SORT_PART_SIGNED,
        POISE_SORT_PART_FLOATING, /**< by totalOrder of IEEE 754 */
    } kind;                       /**< in the machine's byte order */
    bool reverse;                 /**< the greatest first */
};
/** Keys of records, the most significant part first: `count` of them, copied.
 * -ENOMEM. */
POISE_API int poise_sort_keys_of_parts(const struct poise_sort_part *parts,
                                       size_t count,
                                       struct poise_sort_keys **out);

#ifdef __cplusplus
}
#endif

#endif
