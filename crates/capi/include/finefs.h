// finefs: ext2, ext3 and ext4 images in a program, without a mount and without root.
//
// Functions return 0 or a count, or a negative errno; finefs_last_error() then says what failed,
// where and why. Strings end with 0; paths are of any bytes, from the root of the image, with or
// without a leading slash. A handle may be used by several threads at once, but for finefs_dir_t,
// which belongs to one at a time, and for the call that closes it, which must be the last.
//
// Who opens an image acts as its superuser.


#ifndef FINEFS_H
#define FINEFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// For finefs_open: nothing is written, and others may read the image too.
#define FINEFS_READ_ONLY 1

// For functions that take flags: a symbolic link at the end of the path is meant itself.
#define FINEFS_NO_FOLLOW 1

// For finefs_rename: EEXIST where the new name is there.
#define FINEFS_RENAME_NO_REPLACE 1

// For finefs_rename: the two names change places.
#define FINEFS_RENAME_EXCHANGE 2

// For finefs_chown: the owner or group stays.
#define FINEFS_KEEP_ID 4294967295

// For `nsec` in finefs_set_times: the time stays as it is.
#define FINEFS_TIME_OMIT 4294967295

// For `nsec` in finefs_set_times: the time of the call.
#define FINEFS_TIME_NOW 4294967294

// For finefs_setxattr: EEXIST where it is there.
#define FINEFS_XATTR_CREATE 2

// For finefs_setxattr: ENODATA where it is not there.
#define FINEFS_XATTR_REPLACE 4

// An open image or memory file system.
typedef struct finefs_t finefs_t;

// A directory that is being listed, by one thread at a time.
typedef struct finefs_dir_t finefs_dir_t;

// An open file.
typedef struct finefs_file_t finefs_file_t;

// A time, in seconds and nanoseconds since 1970.
typedef struct {
  // Seconds; negative before 1970.
  int64_t sec;
  // Nanoseconds after these, below 1,000,000,000. In finefs_set_times also FINEFS_TIME_OMIT or
  // FINEFS_TIME_NOW.
  uint32_t nsec;
} finefs_time_t;

// Attributes of a file, as stat(2) gives them.
typedef struct {
  // Number of the inode.
  uint64_t ino;
  // Length in bytes.
  uint64_t size;
  // Storage that it takes, in units of 512 bytes.
  uint64_t blocks;
  // Kind and permissions: st_mode.
  uint32_t mode;
  // Hard links.
  uint32_t nlink;
  // Owner.
  uint32_t uid;
  // Group.
  uint32_t gid;
  // The device that a device node names, as makedev(3) gives it.
  uint64_t rdev;
  // Last access.
  finefs_time_t atime;
  // Last change of the data.
  finefs_time_t mtime;
  // Last change of the attributes.
  finefs_time_t ctime;
  // When it was made; 0 where the image has no room for it.
  finefs_time_t btime;
} finefs_stat_t;

// Space and inodes of a file system.
typedef struct {
  // Size of a block in bytes.
  uint32_t block_size;
  // Longest name in bytes.
  uint32_t name_max;
  // All blocks that can hold something.
  uint64_t blocks;
  // Free blocks.
  uint64_t blocks_free;
  // Free blocks for ordinary users.
  uint64_t blocks_available;
  // All inodes.
  uint64_t inodes;
  // Free inodes.
  uint64_t inodes_free;
} finefs_statfs_t;

// An entry of a directory.
typedef struct {
  // Its name; valid until the next call on the directory.
  const char *name;
  // Number of its inode.
  uint64_t ino;
  // Its kind as in st_mode (S_IFDIR, ...).
  uint32_t kind;
} finefs_dirent_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The message of this thread's last call that failed; empty before. It is valid until the thread's
// next call that fails.
const char *finefs_last_error(void);

// Opens a file, as open(2) does: O_RDONLY, O_WRONLY or O_RDWR with O_CREAT, O_EXCL, O_TRUNC,
// O_APPEND, O_NOFOLLOW, O_DIRECTORY; others are EINVAL, and so is O_CREAT with O_DIRECTORY. A file
// that is opened with O_RDONLY and O_TRUNC is emptied. `mode` is that of a file that is made, less
// the umask 022.
int finefs_file_open(const finefs_t *fs,
                     const char *path,
                     int flags,
                     uint32_t mode,
                     finefs_file_t **out);

// Closes a file. What was written is on the image after finefs_file_sync, finefs_sync or
// finefs_close. Null is nothing.
void finefs_file_close(finefs_file_t *file);

// Reads up to `len` bytes at `offset`; tells how many, 0 at the end of the file.
intptr_t finefs_file_read(const finefs_file_t *file,
                          uint8_t *buffer,
                          uintptr_t len,
                          uint64_t offset);

// Writes `len` bytes at `offset`, or at the end of a file that was opened with O_APPEND; tells how
// many were written.
intptr_t finefs_file_write(const finefs_file_t *file,
                           const uint8_t *buffer,
                           uintptr_t len,
                           uint64_t offset);

// Attributes of an open file.
int finefs_file_stat(const finefs_file_t *file, finefs_stat_t *out);

// Makes a file this long: it is cut off, or ends with a hole.
int finefs_file_truncate(const finefs_file_t *file, uint64_t len);

// Returns when the file is on the image, with its attributes and its name.
int finefs_file_sync(const finefs_file_t *file);

// Frees the storage of a range, which reads as zeros from now on.
int finefs_file_punch_hole(const finefs_file_t *file, uint64_t offset, uint64_t len);

// Where the next data is at or after `offset`; ENXIO where there is none.
int64_t finefs_file_seek_data(const finefs_file_t *file, uint64_t offset);

// Where the next hole is at or after `offset`, or the end of the file; ENXIO beyond it.
int64_t finefs_file_seek_hole(const finefs_file_t *file, uint64_t offset);

// Takes the lock of the whole file as flock(2) does: exclusive or shared, without waiting
// (EWOULDBLOCK). It goes when the file is closed.
int finefs_file_try_lock(const finefs_file_t *file, int is_shared);

// Gives the lock of the whole file back.
int finefs_file_unlock(const finefs_file_t *file);

// Opens an image: a path, IMAGE@pN or IMAGE@LABEL for a partition, or another address that the
// commands of finefs take. `flags` is 0 or FINEFS_READ_ONLY.
int finefs_open(const char *image, uint32_t flags, finefs_t **out);

// The same for an image whose journal lies on another device, or in another file: `journal`.
int finefs_open_with_journal(const char *image,
                             const char *journal,
                             uint32_t flags,
                             finefs_t **out);

// Opens a file system in memory, of at most `size` bytes, that is gone when it is closed.
int finefs_open_memory(uint64_t size, finefs_t **out);

// Ends a file system. 0 says that everything is on the image; an error, that something is not. The
// handle is gone in any case; files and directories that are still open fail from now on, and are
// to be closed all the same. Null is nothing.
int finefs_close(finefs_t *fs);

// Returns when everything that was done before is on the image.
int finefs_sync(const finefs_t *fs);

// Space and inodes.
int finefs_statfs(const finefs_t *fs, finefs_statfs_t *out);

// Makes an empty file system of `size` bytes in a new, sparse file. `fs_type` is "ext2", "ext3" or
// "ext4". EEXIST where something is there.
int finefs_mkfs(const char *image, uint64_t size, const char *fs_type);

// The library's version, "MAJOR.MINOR.PATCH".
const char *finefs_version(void);

// Opens a directory to list it.
int finefs_dir_open(const finefs_t *fs, const char *path, finefs_dir_t **out);

// The next entry, in no order that means anything, without "." and "..": 1 with `out` filled, 0 at
// the end.
int finefs_dir_next(finefs_dir_t *dir, finefs_dirent_t *out);

// Ends a listing. Null is nothing.
void finefs_dir_close(finefs_dir_t *dir);

// Attributes of what is at `path`. `flags`: FINEFS_NO_FOLLOW.
int finefs_stat(const finefs_t *fs, const char *path, uint32_t flags, finefs_stat_t *out);

// Makes a directory with these permissions, less the umask 022.
int finefs_mkdir(const finefs_t *fs, const char *path, uint32_t mode);

// Removes an empty directory.
int finefs_rmdir(const finefs_t *fs, const char *path);

// Removes a name of anything but a directory.
int finefs_unlink(const finefs_t *fs, const char *path);

// Renames `from` to `to`. `flags` is 0, FINEFS_RENAME_NO_REPLACE or FINEFS_RENAME_EXCHANGE.
int finefs_rename(const finefs_t *fs, const char *from, const char *to, uint32_t flags);

// Gives the file at `from` the further name `to`. A symbolic link gets one itself.
int finefs_link(const finefs_t *fs, const char *from, const char *to);

// Makes a symbolic link at `path` to `target`.
int finefs_symlink(const finefs_t *fs, const char *target, const char *path);

// Where a symbolic link leads to, without a 0 behind it. Tells the length; with a `size` of 0 only
// that. ERANGE where it does not fit.
intptr_t finefs_readlink(const finefs_t *fs, const char *path, uint8_t *buffer, uintptr_t size);

// Makes a node: `mode` has its kind (S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, S_IFREG) and its
// permissions, `rdev` is as makedev(3) gives it and counts for devices only.
int finefs_mknod(const finefs_t *fs, const char *path, uint32_t mode, uint64_t rdev);

// Sets the permission bits, set-id bits and the sticky bit among them.
int finefs_chmod(const finefs_t *fs, const char *path, uint32_t mode);

// Sets owner and group; FINEFS_KEEP_ID leaves one as it is. `flags`: FINEFS_NO_FOLLOW.
int finefs_chown(const finefs_t *fs, const char *path, uint32_t uid, uint32_t gid, uint32_t flags);

// Sets the times of the last access and of the last change of the data. `flags`: FINEFS_NO_FOLLOW.
int finefs_set_times(const finefs_t *fs,
                     const char *path,
                     finefs_time_t atime,
                     finefs_time_t mtime,
                     uint32_t flags);

// The value of an attribute, e.g. "user.comment". Tells its length; with a `size` of 0 only that.
// ERANGE where it does not fit, ENODATA where there is none. `flags`: FINEFS_NO_FOLLOW.
intptr_t finefs_getxattr(const finefs_t *fs,
                         const char *path,
                         const char *name,
                         uint8_t *buffer,
                         uintptr_t size,
                         uint32_t flags);

// Sets an attribute. `flags`: FINEFS_NO_FOLLOW, and FINEFS_XATTR_CREATE or FINEFS_XATTR_REPLACE.
int finefs_setxattr(const finefs_t *fs,
                    const char *path,
                    const char *name,
                    const uint8_t *value,
                    uintptr_t size,
                    uint32_t flags);

// The names of all attributes, each with a 0 behind it. Tells their length; with a `size` of 0
// only that. ERANGE where they do not fit. `flags`: FINEFS_NO_FOLLOW.
intptr_t finefs_listxattr(const finefs_t *fs,
                          const char *path,
                          uint8_t *buffer,
                          uintptr_t size,
                          uint32_t flags);

// Removes an attribute. `flags`: FINEFS_NO_FOLLOW.
int finefs_removexattr(const finefs_t *fs, const char *path, const char *name, uint32_t flags);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FINEFS_H */
