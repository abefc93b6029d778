/*
 * Throwing numbers into buckets, for one width: included by distribute.c,
 * which defines WORD, NAME(name) and TURN.
 */

static int NAME(put_one)(struct lane *lane, struct cursor *cursor, WORD x)
{
    *(WORD *)(void *)cursor->at = x;
    cursor->at += sizeof(WORD);
    return cursor->at == cursor->end ? block_turn(lane, cursor) : 0;
}

/* Buckets of BATCH numbers, by walks through the tree that overlap. */
static void NAME(find_batch)(const struct sort_splitters *splitters,
                             const WORD *words, uint32_t *ranks)
{
    const uint64_t *tree = splitters->tree;
    uint32_t leaves = 1u << splitters->levels, most = splitters->count;

    for (size_t i = 0; i < BATCH; i++) {
        ranks[i] = 1;
    }
    for (unsigned level = 0; level < splitters->levels; level++) {
        for (size_t i = 0; i < BATCH; i++) {
            ranks[i] = 2 * ranks[i] + (tree[ranks[i]] <= words[i]);
        }
    }
    for (size_t i = 0; i < BATCH; i++) {
        uint32_t rank = ranks[i] - leaves;

        ranks[i] = rank < most ? rank : most;
    }
}

/* `count` <= BATCH encoded numbers. */
static int NAME(put_batch)(struct lane *lane, const WORD *words, size_t count)
{
    const struct sort_splitters *splitters = lane->splitters;
    uint32_t ranks[BATCH];
    int code = 0;

    if (splitters->cells) {
        for (size_t i = 0; i < BATCH; i++) {
            ranks[i] = sort_splitters_find_number(splitters, words[i]);
        }
    } else {
        NAME(find_batch)(splitters, words, ranks);
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        code = NAME(put_one)(lane, &lane->cursors[ranks[i]], words[i]);
    }
    return code;
}

static int NAME(put_words)(struct lane *lane, const WORD *words, size_t count)
{
    bool encode = !lane->source->bucket;
    bool hash = encode && lane->run->options->checksum;
    int code = 0;

    for (size_t i = 0; i < count && code == 0; i += BATCH) {
        size_t some = count - i < BATCH ? count - i : BATCH;
        WORD batch[BATCH] = {0};

        if (encode) {
            sort_encode(lane->run->type.kind, words + i, batch, some);
            if (lane->run->type.reverse) {
                TURN(batch, some);
            }
        } else {
            memcpy(batch, words + i, some * sizeof *words);
        }
        for (size_t j = 0; hash && j < some; j++) {
            lane->checksum += sort_item_hash(&words[i + j], sizeof *words);
        }
        code = NAME(put_batch)(lane, batch, some);
    }
    return code;
}

#undef WORD
#undef NAME
#undef TURN
