/*
 * Throwing numbers into buckets, for one width: included by distribute.c,
 * which defines WORD and NAME(name).
 */

static int NAME(put_one)(struct lane *lane, struct cursor *cursor, WORD x)
{
    *(WORD *)(void *)cursor->at = x;
    cursor->at += sizeof(WORD);
    return cursor->at == cursor->end ? block_turn(lane, cursor) : 0;
}

/* `count` <= BATCH encoded numbers. */
static int NAME(put_batch)(struct lane *lane, const WORD *words, size_t count)
{
    const uint64_t *tree = lane->cuts->tree;
    uint32_t nodes[BATCH], leaves = 1u << lane->cuts->levels;
    uint32_t most = lane->cuts->count;
    int code = 0;

    for (size_t i = 0; i < BATCH; i++) {
        nodes[i] = 1;
    }
    for (unsigned level = 0; level < lane->cuts->levels; level++) {
        for (size_t i = 0; i < BATCH; i++) {
            nodes[i] = 2 * nodes[i] + (tree[nodes[i]] <= words[i]);
        }
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        uint32_t rank = nodes[i] - leaves;

        code = NAME(put_one)(lane, &lane->cursors[rank < most ? rank : most],
                             words[i]);
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
