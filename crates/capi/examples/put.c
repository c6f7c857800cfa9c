// Copies a file into an image and lists the directory that it is in:
//
//     cc put.c $(pkg-config --cflags --libs finefs) -o put
//     ./put disk.img report.pdf /srv/report.pdf

#include <fcntl.h>
#include <finefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(long result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, finefs_last_error(), strerror((int)-result));
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s IMAGE FILE PATH\n", argv[0]);
        return 2;
    }
    FILE *from = fopen(argv[2], "rb");
    if (!from) {
        perror(argv[2]);
        return 1;
    }
    finefs_t *fs;
    finefs_file_t *to;
    check(finefs_open(argv[1], 0, &fs), argv[1]);
    check(finefs_file_open(fs, argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0644, &to), argv[3]);
    unsigned char buffer[65536];
    uint64_t offset = 0;
    size_t count;
    while ((count = fread(buffer, 1, sizeof buffer, from)) > 0) {
        for (size_t done = 0; done < count;) {
            ssize_t written = finefs_file_write(to, buffer + done, count - done, offset);
            check(written, argv[3]);
            done += (size_t)written;
            offset += (uint64_t)written;
        }
    }
    finefs_file_close(to);
    fclose(from);

    // The directory: what is before the last slash.
    char *slash = strrchr(argv[3], '/');
    if (slash) {
        slash[1] = 0;
    }
    const char *parent = slash ? argv[3] : "/";
    finefs_dir_t *dir;
    finefs_dirent_t entry;
    int more;
    check(finefs_dir_open(fs, parent, &dir), parent);
    while ((more = finefs_dir_next(dir, &entry)) > 0) {
        printf("%8llu %s\n", (unsigned long long)entry.ino, entry.name);
    }
    check(more, parent);
    finefs_dir_close(dir);
    check(finefs_close(fs), argv[1]); // everything is on the image, or this says what is not
    return 0;
}
