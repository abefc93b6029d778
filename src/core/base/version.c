/* The library's version, as the build gives it. */
#include <poise/base.h>

const char *poise_version(void)
{
    return POISE_VERSION;
}
