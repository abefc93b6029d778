/*
 * tunnel_files.h - the folder of a test of tunnels: secrets and certificates.
 */
#ifndef TUNNEL_FILES_H
#define TUNNEL_FILES_H

#include "tunnel_side.h"

/** The folder for a group of tests, made, and removed with what is in it:
 * fixtures of cmocka. */
int files_make_folder(void **state);
int files_remove_folder(void **state);
/** A path in it; one of the last 16 that were asked for. */
const char *files_path(const char *name);
/** Both ends have the secret in the folder, made at first use. */
void files_set_secret(struct side *side);
/** Certificates of one authority (ca.pem) for the names far.test and 127.0.0.1
 * (far.pem) and near.test (near.pem, and with another key twin.pem), and of
 * another one for near.test (alien.pem); keys are in .key. */
void files_make_certs(void);
/** What an end shows, and which authority it believes. */
void files_set_cert(struct poise_remote_tunnel_options *options,
                    const char *cert, const char *key, const char *ca);

#endif
