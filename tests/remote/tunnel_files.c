/* See tunnel_files.h. */
#include "tunnel_files.h"
#include "../temporary.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cmocka.h>

static char folder[TEMPORARY_BYTES];

int files_make_folder(void **state)
{
    (void)state;
    return mkdtemp(temporary_name(folder, "tunnel")) ? 0 : -1;
}

int files_remove_folder(void **state)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    (void)state;
    while (dir && (entry = readdir(dir))) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) {
        closedir(dir);
    }
    return rmdir(folder);
}

const char *files_path(const char *name)
{
    static char paths[16][TEMPORARY_MORE];
    static unsigned next;
    char *path = paths[next++ % 16];

    snprintf(path, TEMPORARY_MORE, "%s/%s", folder, name);
    return path;
}

void files_set_secret(struct side *side)
{
    static char secret[TEMPORARY_MORE];

    snprintf(secret, sizeof secret, "%s", files_path("secret"));
    if (access(secret, F_OK) != 0) {
        assert_int_equal(poise_remote_tunnel_secret(secret), 0);
    }
    side->near_options.secret = side->far_options.secret = secret;
}

struct authority {
    EVP_PKEY *key;
    X509 *cert;
};

static void add_extension(X509 *cert, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;

    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* A certificate for `names`, signed by `by`, or by itself. */
static struct authority make_cert(const char *name, const char *names,
                                  const struct authority *by)
{
    static long serial = 1;
    struct authority made = {EVP_EC_gen("P-256"), X509_new()};

    assert_non_null(made.key);
    assert_non_null(made.cert);
    X509_set_version(made.cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(made.cert), -86400);
    X509_gmtime_adj(X509_getm_notAfter(made.cert), 86400);
    X509_set_pubkey(made.cert, made.key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.cert), "CN",
                               MBSTRING_ASC, (const unsigned char *)name, -1,
                               -1, 0);
    X509_set_issuer_name(made.cert,
                         X509_get_subject_name(by ? by->cert : made.cert));
    if (names) {
        add_extension(made.cert, by ? by->cert : made.cert,
                      NID_subject_alt_name, names);
    } else {
        add_extension(made.cert, made.cert, NID_basic_constraints,
                      "critical,CA:TRUE");
    }
    assert_true(X509_sign(made.cert, by ? by->key : made.key, EVP_sha256()) >
                0);
    return made;
}

static void save_cert(const struct authority *made, const char *cert,
                      const char *key)
{
    FILE *file = fopen(cert, "w");

    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, made->cert), 1);
    fclose(file);
    file = fopen(key, "w");
    assert_non_null(file);
    assert_int_equal(
        PEM_write_PrivateKey(file, made->key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
}

static void free_cert(struct authority *made)
{
    EVP_PKEY_free(made->key);
    X509_free(made->cert);
}

void files_set_cert(struct poise_remote_tunnel_options *options,
                    const char *cert, const char *key, const char *ca)
{
    options->cert = files_path(cert);
    options->key = files_path(key);
    options->ca = files_path(ca);
}

void files_make_certs(void)
{
    struct authority ca = make_cert("authority", NULL, NULL);
    struct authority alien = make_cert("another authority", NULL, NULL);
    struct authority far = make_cert("far", "DNS:far.test,IP:127.0.0.1", &ca);
    struct authority near = make_cert("near", "DNS:near.test", &ca);
    struct authority twin = make_cert("near", "DNS:near.test", &ca);
    struct authority other = make_cert("near", "DNS:near.test", &alien);

    save_cert(&ca, files_path("ca.pem"), files_path("ca.key"));
    save_cert(&far, files_path("far.pem"), files_path("far.key"));
    save_cert(&near, files_path("near.pem"), files_path("near.key"));
    save_cert(&twin, files_path("twin.pem"), files_path("twin.key"));
    save_cert(&other, files_path("alien.pem"), files_path("alien.key"));
    free_cert(&ca);
    free_cert(&alien);
    free_cert(&far);
    free_cert(&near);
    free_cert(&twin);
    free_cert(&other);
}
