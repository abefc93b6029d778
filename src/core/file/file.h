/* What the files of outputs share with each other and with file.c. */
#ifndef POISE_CORE_FILE_FILE_H
#define POISE_CORE_FILE_FILE_H

#include <stdbool.h>

/** Make the entry `path` durable by syncing the directory that holds it. */
int file_sync_parent(const char *path);

/** Whether the file at `path` has an access list beyond its mode. */
bool output_has_acl(const char *path);
/** Give the open file `to` the owner, mode, access list and other attributes
 * of `from`. 0, or a negative errno, which is not recorded, where one of them
 * cannot be kept. */
int output_take_over(int from, int to);

#endif
