/* Runs files, or all files of folders, through a fuzz target without a fuzzer:
 * the corpus as a test, and a finding under a debugger. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    size_t cap = 1 << 20;
    unsigned char *data = malloc(cap);
    size_t len = data != NULL ? fread(data, 1, cap, file) : 0;
    fclose(file);
    if (data != NULL) {
        LLVMFuzzerTestOneInput(data, len);
    }
    free(data);
    return 0;
}

/* The number of files run, or negative. */
static int replay(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return replay_file(path) == 0 ? 1 : -1;
    }
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char name[4096];
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (replay_file(name) != 0) {
            count = -1;
            break;
        }
        count++;
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int count = replay(argv[i]);
        if (count < 0) {
            return 1;
        }
        total += count;
    }
    printf("%d inputs\n", total);
    return total == 0; /* a corpus that is not there proves nothing */
}
