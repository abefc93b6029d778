/*
 * The peer of 'poise sort': STXXL's parallel sort of the same items.
 *
 *   sort_stxxl TYPE FILE MEMORY_BYTES      TYPE: u32, u64 or record
 *
 * Items of FILE are put into a vector on STXXL's own disk (see $STXXLCFG);
 * then the sort alone is timed; then order and sum are looked at. Prints the
 * seconds of the sort. Built by bench/sort, where STXXL is installed.
 */
#include <stxxl/sort>
#include <stxxl/vector>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

template <typename T> struct number_order {
    bool operator()(const T &a, const T &b) const
    {
        return a < b;
    }
    T min_value() const
    {
        return std::numeric_limits<T>::min();
    }
    T max_value() const
    {
        return std::numeric_limits<T>::max();
    }
};

struct record {
    unsigned char bytes[100];
};

struct record_order {
    bool operator()(const record &a, const record &b) const
    {
        return std::memcmp(a.bytes, b.bytes, 10) < 0;
    }
    record min_value() const
    {
        return filled(0);
    }
    record max_value() const
    {
        return filled(0xff);
    }

  private:
    static record filled(int byte)
    {
        record r;

        std::memset(r.bytes, byte, sizeof r.bytes);
        return r;
    }
};

template <typename T> static uint64_t sum_of(const T &item)
{
    uint64_t sum = 0;

    std::memcpy(&sum, &item, sizeof item < 8 ? sizeof item : 8);
    return sum;
}

/*
 * A vector whose own cache is small: the sort does not use it. Blocks are of
 * the size that STXXL 1.4.1 takes by itself; 1.4.99 would take 16 MiB, of which
 * an eighth of the data holds too few.
 */
template <typename T>
using vector_of = typename stxxl::VECTOR_GENERATOR<T, 1, 2, 2 << 20>::result;

template <typename T, typename Order>
static int run(const char *path, size_t memory)
{
    vector_of<T> items;
    FILE *file = std::fopen(path, "rb");
    uint64_t before = 0, after = 0;
    bool sorted = true;
    T item, last;

    if (!file) {
        std::perror(path);
        return 1;
    }
    while (std::fread(&item, sizeof item, 1, file) == 1) {
        before += sum_of(item);
        items.push_back(item);
    }
    std::fclose(file);
    items.flush();

    auto begin = std::chrono::steady_clock::now();
    stxxl::sort(items.begin(), items.end(), Order(), memory);
    items.flush();
    std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;

    for (typename vector_of<T>::bufreader_type in(items);
         !in.empty(); ++in) {
        sorted = sorted && (after == 0 || !Order()(*in, last));
        after += sum_of(*in);
        last = *in;
    }
    if (!sorted || after != before) {
        std::fprintf(stderr, "not sorted\n");
        return 1;
    }
    std::printf("{\"seconds\": %.6f}\n", took.count());
    return 0;
}

int main(int argc, char **argv)
{
    std::string type = argc == 4 ? argv[1] : "";
    size_t memory = argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 0;

    if (type == "u32") {
        return run<uint32_t, number_order<uint32_t>>(argv[2], memory);
    }
    if (type == "u64") {
        return run<uint64_t, number_order<uint64_t>>(argv[2], memory);
    }
    if (type == "record") {
        return run<record, record_order>(argv[2], memory);
    }
    std::fprintf(stderr, "usage: sort_stxxl u32|u64|record FILE BYTES\n");
    return 2;
}
