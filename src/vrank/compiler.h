/*
 * poise/compiler.h - compiling programs for virtual ranks.
 */
#ifndef POISE_COMPILER_H
#define POISE_COMPILER_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The command line by which `compiler` ("gcc") compiles or links a program for
 * virtual ranks, from the words after the wrapper's name (NULL-terminated). It
 * understands what mpicc does; *only_show: the user wants to see it (-show,
 * -showme, -showme:compile, -showme:link, -compile_info, -link_info). Free with
 * poise_vrank_line_free. -EINVAL for what cannot be linked so (-static),
 * -ENOENT where files of Poise are missing.
 */
POISE_API int poise_vrank_compiler_line(const char *compiler, char *const *args,
                                        bool *only_show, char ***out);
POISE_API void poise_vrank_line_free(char **line);

#ifdef __cplusplus
}
#endif

#endif
