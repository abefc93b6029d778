/*
 * TLS 1.3 between the two ends, with a secret that both have or with
 * certificates that both show. An end that has neither gets no answer.
 */
#include "link.h"

#include <poise/dedup.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

enum {
    SECRET_LEAST = 16,
    SECRET_MOST = 64,
    FILE_MOST = 4096,
    MADE = 32, /* bytes of a secret that is made */
};

/* The name of the secret, which goes in the clear. */
static const unsigned char identity[] = "poise tunnel 1";
/* TLS_AES_128_GCM_SHA256, which a secret is bound to. */
static const unsigned char suite[2] = {0x13, 0x01};

struct remote_keys {
    SSL_CTX *context;
    bool serves;
    const char *peer_name; /* borrowed */
    unsigned char secret[SECRET_MOST];
    size_t secret_len; /* 0: certificates */
};

struct remote_tls {
    SSL *ssl;
    const struct remote_keys *keys;
    bool wants_write;
};

/* What OpenSSL complains of. */
static int failed(int code, const char *doing, const char *what)
{
    unsigned long number = ERR_peek_last_error();
    const char *why = number ? ERR_reason_error_string(number) : NULL;

    ERR_clear_error();
    return why ? poise_error_set(code, doing, what, "%s", why)
               : poise_error_set(code, doing, what, NULL);
}

/* ---- the secret --------------------------------------------------------- */

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Hexadecimal digits, and blanks at the end. */
static int parse_secret(const char *text, size_t len, const char *path,
                        struct remote_keys *keys)
{
    while (len > 0 && strchr(" \t\r\n", text[len - 1])) {
        len--;
    }
    if (len % 2 != 0 || len / 2 < SECRET_LEAST || len / 2 > SECRET_MOST) {
        return poise_error_set(EINVAL, "use secret", path,
                               "it has to be %d to %d hexadecimal digits; "
                               "--make-secret makes one",
                               2 * SECRET_LEAST, 2 * SECRET_MOST);
    }
    for (size_t i = 0; i < len / 2; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return poise_error_set(EINVAL, "use secret", path,
                                   "it holds more than hexadecimal digits");
        }
        keys->secret[i] = (unsigned char)(high << 4 | low);
    }
    keys->secret_len = len / 2;
    return 0;
}

static int read_secret(const char *path, struct remote_keys *keys)
{
    char text[FILE_MOST];
    struct stat st;
    ssize_t bytes_read;
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), code;

    if (fd < 0) {
        return fd;
    }
    if (fstat(fd, &st) != 0) {
        code = poise_error_set(errno, "look at", path, NULL);
    } else if (st.st_mode & 077) {
        code = poise_error_set(EPERM, "use secret", path,
                               "others may read it (chmod 600)");
    } else {
        bytes_read = poise_file_read(fd, text, sizeof text, path);
        code = bytes_read < 0
                   ? (int)bytes_read
                   : parse_secret(text, (size_t)bytes_read, path, keys);
        OPENSSL_cleanse(text, sizeof text);
    }
    close(fd);
    return code;
}

int remote_secret_make(const char *path)
{
    static const char digits[] = "0123456789abcdef";
    struct poise_dedup_key random[MADE / POISE_DEDUP_KEY_BYTES];
    char text[2 * MADE + 1];
    int fd, code = 0, closed;

    for (size_t i = 0; i < MADE / POISE_DEDUP_KEY_BYTES && code == 0; i++) {
        code = poise_dedup_key_make(&random[i]);
    }
    if (code < 0) {
        return code;
    }
    for (size_t i = 0; i < MADE; i++) {
        unsigned char byte = ((const unsigned char *)random)[i];
        text[2 * i] = digits[byte >> 4];
        text[2 * i + 1] = digits[byte & 15];
    }
    text[2 * MADE] = '\n';
    fd = poise_file_open(AT_FDCWD, path,
                         O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        code = poise_file_write(fd, text, sizeof text, path);
        closed = poise_file_close(fd, path);
        code = code < 0 ? code : closed;
        if (code < 0) {
            unlink(path);
        }
    } else {
        code = fd;
    }
    OPENSSL_cleanse(random, sizeof random);
    OPENSSL_cleanse(text, sizeof text);
    return code;
}

/* The secret in OpenSSL's form; NULL without memory. */
static SSL_SESSION *make_session(SSL *ssl, const struct remote_keys *keys)
{
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *made = cipher ? SSL_SESSION_new() : NULL;

    if (made &&
        SSL_SESSION_set1_master_key(made, keys->secret, keys->secret_len) &&
        SSL_SESSION_set_cipher(made, cipher) &&
        SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION)) {
        return made;
    }
    SSL_SESSION_free(made);
    return NULL;
}

static const struct remote_keys *keys_of(const SSL *ssl)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

/* The connecting end shows which secret it has. */
static int offer(SSL *ssl, const EVP_MD *digest, const unsigned char **id,
                 size_t *id_len, SSL_SESSION **session)
{
    *session = NULL;
    if (digest && !EVP_MD_is_a(digest, "SHA256")) {
        return 1; /* not the hash that the secret is bound to */
    }
    *session = make_session(ssl, keys_of(ssl));
    *id = identity;
    *id_len = sizeof identity - 1;
    return *session != NULL;
}

/* The other one looks for it. */
static int find(SSL *ssl, const unsigned char *id, size_t id_len,
                SSL_SESSION **session)
{
    *session = NULL;
    if (id_len != sizeof identity - 1 || memcmp(id, identity, id_len) != 0) {
        return 1;
    }
    *session = make_session(ssl, keys_of(ssl));
    return *session != NULL;
}

/* ---- contexts ----------------------------------------------------------- */

static int use_secret(struct remote_keys *keys, const char *path)
{
    int code = read_secret(path, keys);

    if (code < 0) {
        return code;
    }
    if (SSL_CTX_set_ciphersuites(keys->context, "TLS_AES_128_GCM_SHA256") !=
        1) {
        return failed(ENOTSUP, "use the cipher of", path);
    }
    if (keys->serves) {
        /* A secret counts as a session, and sessions are of a kind. */
        if (SSL_CTX_set_session_id_context(keys->context, identity,
                                           sizeof identity - 1) != 1) {
            return failed(ENOMEM, "set up TLS", NULL);
        }
        SSL_CTX_set_psk_find_session_callback(keys->context, find);
    } else {
        SSL_CTX_set_psk_use_session_callback(keys->context, offer);
    }
    return 0;
}

static int use_certificates(struct remote_keys *keys,
                            const struct remote_key_files *files)
{
    if (!files->cert || !files->key || !files->ca) {
        return poise_error_set(EINVAL, "use certificates", NULL,
                               "it takes a certificate, its key, and the "
                               "authority of the other end's");
    }
    if (SSL_CTX_use_certificate_chain_file(keys->context, files->cert) != 1) {
        return failed(EINVAL, "use certificate", files->cert);
    }
    if (SSL_CTX_use_PrivateKey_file(keys->context, files->key,
                                    SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(keys->context) != 1) {
        return failed(EINVAL, "use key", files->key);
    }
    if (SSL_CTX_load_verify_locations(keys->context, files->ca, NULL) != 1) {
        return failed(EINVAL, "use authority", files->ca);
    }
    return 0;
}

int remote_keys_create(const struct remote_key_files *files, bool serves,
                       struct remote_keys **out)
{
    bool certified = files->cert || files->key || files->ca;
    struct remote_keys *made;
    int code;

    if (!files->secret && !certified) {
        *out = NULL;
        return 0;
    }
    if (files->secret && certified) {
        return poise_error_set(EINVAL, "use certificates", files->cert,
                               "there is a secret, too; take one of them");
    }
    made = poise_alloc(1, sizeof *made);
    if (!made) {
        return -ENOMEM;
    }
    made->serves = serves;
    made->peer_name = files->peer_name;
    made->context =
        SSL_CTX_new(serves ? TLS_server_method() : TLS_client_method());
    if (!made->context ||
        SSL_CTX_set_min_proto_version(made->context, TLS1_3_VERSION) != 1) {
        code = failed(ENOMEM, "set up TLS", NULL);
        goto destroy_made;
    }
    SSL_CTX_set_app_data(made->context, made);
    /* An end that connects again proves itself again. */
    SSL_CTX_set_session_cache_mode(made->context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(made->context, 0);
    SSL_CTX_set_mode(made->context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(made->context,
                       SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    code = files->secret ? use_secret(made, files->secret)
                         : use_certificates(made, files);
    if (code == 0) {
        *out = made;
        return 0;
    }
destroy_made:
    remote_keys_destroy(made);
    return code;
}

void remote_keys_destroy(struct remote_keys *keys)
{
    if (keys) {
        SSL_CTX_free(keys->context);
        OPENSSL_cleanse(keys->secret, sizeof keys->secret);
        free(keys);
    }
}

/* ---- connections -------------------------------------------------------- */

/* Whose certificate it has to be. */
static int expect_name(SSL *ssl, const char *name)
{
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1 ||
           SSL_set1_host(ssl, name) == 1;
}

int remote_tls_create(const struct remote_keys *keys, int fd, const char *host,
                      struct remote_tls **out)
{
    struct remote_tls *made = poise_alloc(1, sizeof *made);
    const char *name = keys->peer_name ? keys->peer_name : host;

    if (!made) {
        return -ENOMEM;
    }
    made->keys = keys;
    made->ssl = SSL_new(keys->context);
    if (!made->ssl || SSL_set_fd(made->ssl, fd) != 1 ||
        (keys->secret_len == 0 && name && !expect_name(made->ssl, name))) {
        int code = failed(ENOMEM, "set up TLS", NULL);
        remote_tls_destroy(made);
        return code;
    }
    if (keys->serves) {
        SSL_set_accept_state(made->ssl);
    } else {
        SSL_set_connect_state(made->ssl);
    }
    *out = made;
    return 0;
}

void remote_tls_destroy(struct remote_tls *tls)
{
    if (tls) {
        SSL_free(tls->ssl);
        free(tls);
        ERR_clear_error();
    }
}

/* What a call that did not succeed means: 0 for the end, -EAGAIN, or the
 * error, set. */
static int explain(struct remote_tls *tls, int rc, const char *doing)
{
    int code = errno, what = SSL_get_error(tls->ssl, rc);

    tls->wants_write = what == SSL_ERROR_WANT_WRITE;
    switch (what) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        ERR_clear_error();
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        ERR_clear_error();
        return 0;
    case SSL_ERROR_SYSCALL:
        ERR_clear_error();
        return code ? poise_error_set(code, doing, NULL, NULL) : 0;
    default:
        if (ERR_GET_REASON(ERR_peek_last_error()) ==
            SSL_R_UNEXPECTED_EOF_WHILE_READING) {
            ERR_clear_error();
            return 0;
        }
        return failed(EPROTO, doing, NULL);
    }
}

int remote_tls_shake(struct remote_tls *tls)
{
    static const char doing[] = "agree on keys with the other end";
    int code;

    errno = 0;
    code = SSL_do_handshake(tls->ssl);
    if (code == 1) {
        /* A secret that was not used proves nothing. */
        if (tls->keys->secret_len > 0 && !SSL_session_reused(tls->ssl)) {
            return poise_error_set(EPERM, doing, NULL,
                                   "it does not have the secret");
        }
        return 1;
    }
    code = explain(tls, code, doing);
    return code == -EAGAIN ? 0
           : code < 0      ? code
                      : poise_error_set(ECONNRESET, doing, NULL, "it hung up");
}

ssize_t remote_tls_read(struct remote_tls *tls, void *data, size_t len)
{
    size_t bytes_read = 0;
    int code;

    errno = 0;
    code = SSL_read_ex(tls->ssl, data, len, &bytes_read);
    tls->wants_write = false;
    return code == 1 ? (ssize_t)bytes_read
                     : explain(tls, code, "read from the other end");
}

ssize_t remote_tls_write(struct remote_tls *tls, const void *data, size_t len)
{
    size_t done = 0;
    int code;

    errno = 0;
    code = SSL_write_ex(tls->ssl, data, len, &done);
    tls->wants_write = false;
    if (code == 1) {
        return (ssize_t)done;
    }
    code = explain(tls, code, "write to the other end");
    return code == 0
               ? poise_error_set(EPIPE, "write to the other end", NULL, NULL)
               : code;
}

void remote_tls_bytes(const struct remote_tls *tls, uint64_t *out, uint64_t *in)
{
    BIO *bio = SSL_get_rbio(tls->ssl);

    *out = BIO_number_written(bio);
    *in = BIO_number_read(bio);
}

bool remote_tls_identity(const struct remote_tls *tls,
                         unsigned char out[REMOTE_IDENTITY_BYTES])
{
    X509 *cert = SSL_get1_peer_certificate(tls->ssl);
    unsigned len = 0;
    bool has_one = cert && X509_pubkey_digest(cert, EVP_sha256(), out, &len);

    X509_free(cert);
    return has_one && len == REMOTE_IDENTITY_BYTES;
}

bool remote_tls_wants_write(const struct remote_tls *tls)
{
    return tls->wants_write;
}
