/*
 * poise/sort_order.h - keys made and compared, one by one: what sorting does
 * with the keys that <poise/sort_keys.h> describes.
 */
#ifndef POISE_SORT_ORDER_H
#define POISE_SORT_ORDER_H

#include <poise/sort_keys.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How many fields or parts there are; 0 of NULL. */
size_t poise_sort_keys_count(const struct poise_sort_keys *keys);
/** The `i`-th part of a record; NULL if keys are of lines. Borrowed. */
const struct poise_sort_part *
poise_sort_keys_part(const struct poise_sort_keys *keys, size_t i);
/** Where the `i`-th field of a line is: bytes [*from, *to). */
void poise_sort_keys_span(const struct poise_sort_keys *keys, size_t i,
                          const unsigned char *line, size_t len, size_t *from,
                          size_t *to);
/** Append what GNU sort's --debug prints of a line (without what ends it): the
 * line, tabs as '>', and below it for each key what of it is looked at. `keys`
 * are of rules that are shown. 0 or -ENOMEM. */
POISE_API int poise_sort_keys_show(const struct poise_sort_keys *keys,
                                   const unsigned char *line, size_t len,
                                   struct poise_buf *out);
/** Append what is to be known of rules, and what of them is questionable, as
 * GNU sort 9.1 says it for --debug: a line each. Errors as of
 * poise_sort_keys_make. */
POISE_API int poise_sort_rules_notes(const struct poise_sort_rules *rules,
                                     struct poise_buf *out);
/** Append the key of a line (without what ends it), or of a record, to `key`.
 * Any thread. 0 or -ENOMEM. */
int poise_sort_keys_append(const struct poise_sort_keys *keys,
                           const unsigned char *line, size_t len,
                           struct poise_buf *key);
/** How two keys compare: <0, 0, >0; of keys of NULL, bytes. Any thread. */
int poise_sort_keys_compare(const struct poise_sort_keys *keys,
                            const unsigned char *a, size_t a_len,
                            const unsigned char *b, size_t b_len);
/** Whether keys are more than bytes: only poise_sort_keys_compare orders them,
 * after the bytes of poise_sort_keys_head. False of NULL. */
bool poise_sort_keys_collate(const struct poise_sort_keys *keys);
/** The bytes of a key that order it before all else, as far as they go: where
 * they begin; *head_len is how many. */
const unsigned char *poise_sort_keys_head(const struct poise_sort_keys *keys,
                                          const unsigned char *key, size_t len,
                                          size_t *head_len);
/** Whether keys are drawn at random, another way in each process. */
POISE_API bool poise_sort_keys_random(const struct poise_sort_keys *keys);

#ifdef __cplusplus
}
#endif

#endif
