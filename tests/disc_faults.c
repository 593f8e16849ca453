/* A disc that fails: preloaded, it makes writes below one folder fail from a drawn byte on.

   Nothing fails until `disc_faults_arm` is called in the process. The write that crosses the byte is a short
   one; every later one fails with the error, `failing` calls in all (below 0: for ever), then the disc is back.
   A file counts where its path begins with `folder` and holds `only`. With EIO also syncs fail meanwhile, and
   from the drawn sync on (`at_sync`, from 1; 0 for none) they fail though no write did. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX], only[256];
static long at_byte, at_sync, failing, bytes, syncs, failed;
static int fault;

void disc_faults_arm(const char *where, const char *part, long byte, long sync, int error, long calls) {
    snprintf(folder, sizeof folder, "%s", where);
    snprintf(only, sizeof only, "%s", part);
    at_byte = byte, at_sync = sync, fault = error, failing = calls;
    bytes = syncs = failed = 0;
}

long disc_faults_bytes(void) { return bytes; }
long disc_faults_syncs(void) { return syncs; }
long disc_faults_failed(void) { return failed; }

static int is_ours(int descriptor) {
    char link[64], path[PATH_MAX];
    if (!fault) return 0;
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = kept;
    if (length <= 0) return 0;
    path[length] = 0;
    return !strncmp(path, folder, strlen(folder)) && strstr(path, only);
}

static int fails(void) {
    if (failing >= 0 && failed >= failing) return 0;
    failed++;
    errno = fault;
    return 1;
}

/* How many of these bytes may be written now; -1 with errno where none may. */
static ssize_t allowed(int descriptor, size_t count) {
    if (!is_ours(descriptor)) return count;
    pthread_mutex_lock(&lock);
    ssize_t may = count;
    if (at_byte && bytes >= at_byte) {
        if (fails()) may = -1;
    } else if (at_byte && bytes + (long)count > at_byte) {
        may = at_byte - bytes;
    }
    if (may > 0) bytes += may;
    pthread_mutex_unlock(&lock);
    return may;
}

static int sync_fails(int descriptor) {
    if (!is_ours(descriptor)) return 0;
    pthread_mutex_lock(&lock);
    syncs++;
    int reached = (at_byte && bytes >= at_byte && fault == EIO) || (at_sync && syncs >= at_sync);
    int no = reached && fails();
    pthread_mutex_unlock(&lock);
    return no;
}

/* Whether the file may not get this size now: growing takes room, anything takes a disc that works. */
static int size_fails(int descriptor, off_t size) {
    struct stat found;
    if (!is_ours(descriptor) || fstat(descriptor, &found)) return 0;
    pthread_mutex_lock(&lock);
    int no = at_byte && bytes >= at_byte && (fault == EIO || size > found.st_size) && fails();
    pthread_mutex_unlock(&lock);
    return no;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int descriptor, const void *data, size_t count) {
    ssize_t may = allowed(descriptor, count);
    return may < 0 ? -1 : REAL(write)(descriptor, data, may);
}

ssize_t pwrite(int descriptor, const void *data, size_t count, off_t at) {
    ssize_t may = allowed(descriptor, count);
    return may < 0 ? -1 : REAL(pwrite)(descriptor, data, may, at);
}

ssize_t pwrite64(int descriptor, const void *data, size_t count, off64_t at) {
    ssize_t may = allowed(descriptor, count);
    return may < 0 ? -1 : REAL(pwrite64)(descriptor, data, may, at);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    ssize_t total = 0;
    for (int at = 0; at < count; at++) {
        ssize_t wrote = write(descriptor, parts[at].iov_base, parts[at].iov_len);
        if (wrote < 0) return total ? total : -1;
        total += wrote;
        if ((size_t)wrote < parts[at].iov_len) break;
    }
    return total;
}

int ftruncate(int descriptor, off_t size) {
    return size_fails(descriptor, size) ? -1 : REAL(ftruncate)(descriptor, size);
}

int ftruncate64(int descriptor, off64_t size) {
    return size_fails(descriptor, size) ? -1 : REAL(ftruncate64)(descriptor, size);
}

int fallocate(int descriptor, int mode, off_t at, off_t length) {
    return size_fails(descriptor, at + length) ? -1 : REAL(fallocate)(descriptor, mode, at, length);
}

int posix_fallocate(int descriptor, off_t at, off_t length) {
    return size_fails(descriptor, at + length) ? errno : REAL(posix_fallocate)(descriptor, at, length);
}

int fsync(int descriptor) { return sync_fails(descriptor) ? -1 : REAL(fsync)(descriptor); }

int fdatasync(int descriptor) { return sync_fails(descriptor) ? -1 : REAL(fdatasync)(descriptor); }
