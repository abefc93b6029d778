/*
 * poise/core.h - all of core's headers: <poise/base.h>, whose conventions hold
 * for the whole library, and what stands on it.
 */
#ifndef POISE_CORE_H
#define POISE_CORE_H

#include <poise/base.h>
#include <poise/disk.h>
#include <poise/fault.h>
#include <poise/file.h>
#include <poise/log.h>
#include <poise/options.h>
#include <poise/output.h>
#include <poise/text.h>
#include <poise/wait.h>

#endif
