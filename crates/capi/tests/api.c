// Every function of finefs.h: what it does, and that it says no as documented.

#define _GNU_SOURCE // O_DIRECT
#include <errno.h>
#include <fcntl.h>
#include <finefs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define IS(actual, expected)                                                            \
    do {                                                                                \
        long long a = (long long)(actual), e = (long long)(expected);                   \
        if (a != e) {                                                                   \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld (%s)\n", __FILE__, __LINE__, #actual, a, e, \
                    finefs_last_error());                                               \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

static finefs_t *fs;

static finefs_stat_t stat_of(const char *path, uint32_t flags) {
    finefs_stat_t found;
    IS(finefs_stat(fs, path, flags, &found), 0);
    return found;
}

static finefs_file_t *open_file(const char *path, int flags) {
    finefs_file_t *file;
    IS(finefs_file_open(fs, path, flags, 0640, &file), 0);
    return file;
}

static void files(void) {
    finefs_file_t *file = open_file("f", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC), *other;
    IS(finefs_file_open(fs, "f", O_RDWR | O_CREAT | O_EXCL, 0, &other), -EEXIST);
    IS(finefs_file_open(fs, "f", O_RDWR | O_DIRECT, 0, &other), -EINVAL);
    IS(finefs_file_write(file, (const uint8_t *)"hello", 5, 3), 5);
    uint8_t buffer[16] = {9, 9, 9, 9};
    IS(finefs_file_read(file, buffer, sizeof buffer, 0), 8);
    IS(memcmp(buffer, "\0\0\0hello", 8), 0);
    IS(finefs_file_read(file, buffer, sizeof buffer, 8), 0);
    IS(finefs_file_read(file, NULL, 1, 0), -EINVAL);
    finefs_stat_t found;
    IS(finefs_file_stat(file, &found), 0);
    IS(found.size, 8);
    IS(found.mode, S_IFREG | 0640);
    IS(finefs_file_truncate(file, 1 << 20), 0);
    IS(finefs_file_seek_data(file, 0), 0);
    IS(finefs_file_seek_hole(file, 0), 4096);
    IS(finefs_file_seek_data(file, 4096), -ENXIO);
    IS(finefs_file_punch_hole(file, 0, 4096), 0);
    IS(finefs_file_seek_data(file, 0), -ENXIO);
    other = open_file("f", O_RDONLY);
    IS(finefs_file_try_lock(file, 0), 0);
    IS(finefs_file_try_lock(other, 1), -EWOULDBLOCK);
    IS(finefs_file_unlock(file), 0);
    IS(finefs_file_try_lock(other, 1), 0);
    IS(finefs_file_write(other, (const uint8_t *)"x", 1, 0), -EBADF);
    finefs_file_close(other);
    IS(finefs_file_sync(file), 0);
    finefs_file_close(file);
    file = open_file("f", O_WRONLY | O_TRUNC);
    finefs_file_close(file);
    file = open_file("f", O_WRONLY | O_APPEND);
    IS(finefs_file_write(file, (const uint8_t *)"one", 3, 0), 3);
    IS(finefs_file_write(file, (const uint8_t *)"two", 3, 0), 3);
    finefs_file_close(file);
    IS(stat_of("f", 0).size, 6);
    finefs_file_close(NULL);
}

// Flags mean each what open(2) says, whatever the access.
static void open_flags(void) {
    const uint8_t *data = (const uint8_t *)"data";
    uint8_t byte;
    finefs_file_t *file = open_file("o", O_RDONLY | O_CREAT);
    IS(stat_of("o", 0).mode, S_IFREG | 0640);
    IS(finefs_file_write(file, data, 4, 0), -EBADF);
    IS(finefs_file_read(file, &byte, 1, 0), 0);
    finefs_file_close(file);
    file = open_file("o", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
    IS(finefs_file_write(file, data, 4, 0), 4);
    IS(finefs_file_write(file, data, 4, 0), 4);
    finefs_file_close(file);
    IS(stat_of("o", 0).size, 8);
    file = open_file("o", O_RDONLY | O_APPEND);
    IS(finefs_file_write(file, data, 4, 0), -EBADF);
    IS(finefs_file_read(file, &byte, 1, 0), 1);
    finefs_file_close(file);
    IS(stat_of("o", 0).size, 8);
    file = open_file("o", O_RDONLY | O_TRUNC);
    IS(finefs_file_write(file, data, 4, 0), -EBADF);
    IS(finefs_file_read(file, &byte, 1, 0), 0);
    finefs_file_close(file);
    IS(stat_of("o", 0).size, 0);
    IS(finefs_file_open(fs, "o", O_RDONLY | O_CREAT | O_EXCL, 0600, &file), -EEXIST);
    IS(finefs_file_open(fs, "o", O_ACCMODE, 0600, &file), -EINVAL);
    IS(finefs_mkdir(fs, "od", 0755), 0);
    IS(finefs_file_open(fs, "od", O_RDONLY | O_TRUNC, 0, &file), -EISDIR);
    IS(finefs_file_open(fs, "od", O_RDONLY | O_CREAT, 0600, &file), -EISDIR);
    IS(finefs_file_open(fs, "od", O_RDONLY | O_CREAT | O_DIRECTORY, 0600, &file), -EINVAL);
    file = open_file("od", O_RDONLY | O_APPEND | O_DIRECTORY);
    finefs_file_close(file);
    IS(finefs_rmdir(fs, "od"), 0);
}

// What opens a file for reading does so on an image that is not written, too.
static void open_flags_read_only(void) {
    uint8_t byte;
    finefs_file_t *file = open_file("f", O_RDONLY | O_APPEND | O_CREAT);
    IS(finefs_file_read(file, &byte, 1, 0), 1);
    finefs_file_close(file);
    IS(finefs_file_open(fs, "f", O_RDONLY | O_TRUNC, 0, &file), -EROFS);
    IS(finefs_file_open(fs, "none", O_RDONLY | O_CREAT, 0600, &file), -EROFS);
    IS(finefs_file_open(fs, "f", O_WRONLY | O_APPEND, 0, &file), -EROFS);
}

static void names(void) {
    IS(finefs_mkdir(fs, "/d", 0777), 0);
    IS(stat_of("d", 0).mode, S_IFDIR | 0755);
    IS(finefs_mkdir(fs, "d", 0777), -EEXIST);
    IS(finefs_symlink(fs, "../f", "d/link"), 0);
    uint8_t buffer[16];
    IS(finefs_readlink(fs, "d/link", NULL, 0), 4);
    IS(finefs_readlink(fs, "d/link", buffer, 3), -ERANGE);
    IS(finefs_readlink(fs, "d/link", buffer, sizeof buffer), 4);
    IS(memcmp(buffer, "../f", 4), 0);
    IS(stat_of("d/link", 0).ino, stat_of("f", 0).ino);
    IS(stat_of("d/link", FINEFS_NO_FOLLOW).mode & S_IFMT, S_IFLNK);
    IS(finefs_link(fs, "f", "d/hard"), 0);
    IS(stat_of("f", 0).nlink, 2);
    IS(finefs_mknod(fs, "d/null", S_IFCHR | 0666, 0x103), 0);
    IS(stat_of("d/null", 0).rdev, 0x103);
    IS(finefs_mknod(fs, "d/dir", S_IFDIR, 0), -EINVAL);
    IS(finefs_chmod(fs, "f", 04711), 0);
    IS(finefs_chown(fs, "d/link", 7, FINEFS_KEEP_ID, FINEFS_NO_FOLLOW), 0);
    IS(finefs_chown(fs, "d/link", FINEFS_KEEP_ID, 8, 0), 0);
    IS(stat_of("d/link", FINEFS_NO_FOLLOW).uid, 7);
    IS(stat_of("f", 0).uid, 0);
    IS(stat_of("f", 0).gid, 8);
    finefs_time_t then = {.sec = -5, .nsec = 7}, keep = {.nsec = FINEFS_TIME_OMIT};
    finefs_time_t before = stat_of("f", 0).atime, wrong = {.nsec = 1000000000};
    IS(finefs_set_times(fs, "f", keep, then, 0), 0);
    IS(stat_of("f", 0).mtime.sec, -5);
    IS(stat_of("f", 0).mtime.nsec, 7);
    IS(stat_of("f", 0).atime.sec, before.sec);
    IS(finefs_set_times(fs, "f", wrong, keep, 0), -EINVAL);
    IS(finefs_rename(fs, "d/hard", "f", FINEFS_RENAME_NO_REPLACE), -EEXIST);
    IS(finefs_rename(fs, "d", "f", FINEFS_RENAME_EXCHANGE), 0);
    IS(finefs_rename(fs, "f", "x", 0), 0);
    IS(finefs_rename(fs, "d", "f", 0), 0);
    IS(finefs_rename(fs, "x", "d", 0), 0);
    IS(finefs_rename(fs, "x", "d", 77), -EINVAL);

    finefs_dir_t *dir;
    finefs_dirent_t entry;
    int count = 0, more;
    IS(finefs_dir_open(fs, "d", &dir), 0);
    while ((more = finefs_dir_next(dir, &entry)) > 0) {
        char path[64];
        snprintf(path, sizeof path, "d/%s", entry.name);
        finefs_stat_t found = stat_of(path, FINEFS_NO_FOLLOW);
        IS(entry.ino, found.ino);
        IS(entry.kind, found.mode & S_IFMT);
        count++;
    }
    IS(more, 0);
    IS(count, 3);
    finefs_dir_close(dir);
    IS(finefs_dir_open(fs, "f", &dir), -ENOTDIR);

    IS(finefs_rmdir(fs, "d"), -ENOTEMPTY);
    IS(finefs_unlink(fs, "d"), -EISDIR);
    IS(finefs_unlink(fs, "d/hard"), 0);
    IS(finefs_unlink(fs, "d/null"), 0);
    IS(finefs_unlink(fs, "d/link"), 0);
    IS(finefs_rmdir(fs, "d"), 0);
    IS(finefs_rmdir(fs, "d"), -ENOENT);
    if (!strstr(finefs_last_error(), "\"d\"")) {
        fprintf(stderr, "no name in: %s\n", finefs_last_error());
        exit(1);
    }
    IS(finefs_stat(fs, NULL, 0, NULL), -EINVAL);
    IS(finefs_stat(NULL, "f", 0, NULL), -EINVAL);
    IS(finefs_stat(fs, "f", 0, NULL), -EINVAL);
}

static void attributes(void) {
    const uint8_t *value = (const uint8_t *)"a\0b";
    uint8_t buffer[64];
    IS(finefs_setxattr(fs, "f", "user.a", value, 3, FINEFS_XATTR_REPLACE), -ENODATA);
    IS(finefs_setxattr(fs, "f", "user.a", value, 3, FINEFS_XATTR_CREATE), 0);
    IS(finefs_setxattr(fs, "f", "user.a", value, 3, FINEFS_XATTR_CREATE), -EEXIST);
    IS(finefs_getxattr(fs, "f", "user.a", NULL, 0, 0), 3);
    IS(finefs_getxattr(fs, "f", "user.a", buffer, 2, 0), -ERANGE);
    IS(finefs_getxattr(fs, "f", "user.a", buffer, sizeof buffer, 0), 3);
    IS(memcmp(buffer, value, 3), 0);
    IS(finefs_listxattr(fs, "f", buffer, sizeof buffer, 0), 7);
    IS(memcmp(buffer, "user.a\0", 7), 0);
    IS(finefs_removexattr(fs, "f", "user.a", 0), 0);
    IS(finefs_getxattr(fs, "f", "user.a", NULL, 0, 0), -ENODATA);
    IS(finefs_symlink(fs, "f", "l"), 0);
    IS(finefs_setxattr(fs, "l", "trusted.t", value, 3, FINEFS_NO_FOLLOW), 0);
    IS(finefs_listxattr(fs, "l", NULL, 0, FINEFS_NO_FOLLOW), 10);
    IS(finefs_listxattr(fs, "l", NULL, 0, 0), 0);
    IS(finefs_unlink(fs, "l"), 0);
}

static void *make_files(void *directory) {
    char path[64];
    for (int number = 0; number < 500; number++) {
        snprintf(path, sizeof path, "%s/%d", (const char *)directory, number);
        finefs_file_t *file = open_file(path, O_WRONLY | O_CREAT);
        IS(finefs_file_write(file, (const uint8_t *)path, strlen(path), 0), strlen(path));
        finefs_file_close(file);
    }
    return NULL;
}

// Threads share the handle.
static void threads(void) {
    pthread_t thread;
    IS(finefs_mkdir(fs, "one", 0755), 0);
    IS(finefs_mkdir(fs, "two", 0755), 0);
    IS(pthread_create(&thread, NULL, make_files, "one"), 0);
    make_files("two");
    IS(pthread_join(thread, NULL), 0);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        return 2;
    }
    IS(finefs_open_memory(64 << 20, &fs), 0);
    files();
    open_flags();
    names();
    attributes();
    IS(finefs_close(fs), 0);
    IS(finefs_close(NULL), 0);

    IS(finefs_mkfs(argv[1], 600 << 20, "ext5"), -EINVAL);
    IS(finefs_mkfs(argv[1], 600 << 20, "ext4"), 0);
    IS(finefs_mkfs(argv[1], 600 << 20, "ext4"), -EEXIST);
    IS(finefs_mkfs("/nowhere/disk.img", 600 << 20, "ext4"), -ENOENT);
    IS(finefs_mkfs("/dev/null/disk.img", 600 << 20, "ext4"), -ENOTDIR);
    IS(finefs_mkfs("/nowhere.img", 1, "ext4"), -EINVAL);
    IS(finefs_open("/nowhere.img", 0, &fs), -ENOENT);
    IS(finefs_open(argv[1], 0, &fs), 0);
    finefs_statfs_t space;
    IS(finefs_statfs(fs, &space), 0);
    IS(space.name_max, 255);
    IS(space.blocks_free > 0 && space.inodes_free < space.inodes, 1);
    files();
    open_flags();
    names();
    attributes();
    threads();
    IS(finefs_sync(fs), 0);
    finefs_file_t *file = open_file("f", O_RDONLY);
    IS(finefs_close(fs), 0);
    uint8_t byte;
    IS(finefs_file_read(file, &byte, 1, 0), -EIO);
    finefs_file_close(file);
    IS(finefs_open(argv[1], FINEFS_READ_ONLY, &fs), 0);
    IS(finefs_mkdir(fs, "no", 0755), -EROFS);
    open_flags_read_only();
    IS(finefs_close(fs), 0);
    // An image whose journal lies in another file.
    IS(finefs_open(argv[2], 0, &fs), -EROFS);
    IS(finefs_open_with_journal(argv[2], "/nowhere", 0, &fs), -ENOENT);
    IS(finefs_open_with_journal(argv[2], NULL, 0, &fs), -EINVAL);
    IS(finefs_open_with_journal(argv[2], argv[3], 0, &fs), 0);
    IS(finefs_mkdir(fs, "d", 0755), 0);
    IS(finefs_close(fs), 0);
    printf("finefs %s\n", finefs_version());
    return 0;
}
