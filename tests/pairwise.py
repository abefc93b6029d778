"""A pairwise cover: few cases in which every pair of values that is wanted
occurs, chosen one after the other for the most pairs that are still missing."""
import heapq


def cover(cases, pairs_of):
    """A list of some of `cases`; pairs_of(case) is the set of its pairs.

    What a case would add only falls while others are chosen: who was best when
    last counted, and still is when counted again, is best of all. Of several
    such the first in `cases` is taken."""
    pairs = [pairs_of(case) for case in cases]
    missing = set().union(*pairs)
    heap = [(-len(some), number) for number, some in enumerate(pairs)]
    heapq.heapify(heap)
    chosen = []
    while missing:
        _, number = heap[0]
        again = (-len(pairs[number] & missing), number)
        if again != heap[0]:
            heapq.heapreplace(heap, again)
            continue
        heapq.heappop(heap)
        chosen.append(cases[number])
        missing -= pairs[number]
    return chosen
