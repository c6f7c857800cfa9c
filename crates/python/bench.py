"""Lists and reads the 10,000 files of an image by turns through the Rust API and through this
package, file by file and a directory's files in a call, by one thread and by two: the quickest of
25, and their ratios.

    make wheel && pip install target/wheels/*.whl
    cargo build --release -p finefs --example read_all
    python crates/python/bench.py target/release/examples/read_all
"""

import os
import subprocess
import sys
import tempfile
import threading
import time

import finefs

DIRECTORIES, FILES, BYTES = 10, 1000, 4096
ROUNDS = 25


def make(path):
    finefs.mkfs(path, 200 << 20)
    with finefs.Image(path, "r+") as image:
        for directory in range(DIRECTORIES):
            image.mkdir(f"d{directory}")
            for file in range(FILES):
                image.write_bytes(f"d{directory}/{file}", os.urandom(BYTES))


def read(image, directories):
    read_bytes = 0
    for directory in directories:
        for name in image.listdir(directory):
            read_bytes += len(image.read_bytes(f"{directory}/{name}"))
    assert read_bytes == len(directories) * FILES * BYTES


def read_many(image, directories):
    read_bytes = 0
    for directory in directories:
        paths = [f"{directory}/{name}" for name in image.listdir(directory)]
        read_bytes += sum(map(len, image.read_many(paths)))
    assert read_bytes == len(directories) * FILES * BYTES


def seconds_by_threads(image, count, work):
    directories = sorted(set(image.listdir("/")) - {"lost+found"})
    shares = [directories[number::count] for number in range(count)]
    threads = [threading.Thread(target=work, args=(image, share)) for share in shares]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def seconds_of(program, threads):
    program.stdin.write(f"{threads}\n")
    program.stdin.flush()
    took, read_bytes = program.stdout.readline().split()
    assert int(read_bytes) == DIRECTORIES * FILES * BYTES
    return float(took)


def measure(path, read_all):
    command = [read_all, path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program, finefs.Image(path) as image:
        ways = {"Rust": None, "read_bytes": read, "read_many": read_many}
        found = {(way, threads): [] for way in ways for threads in (1, 2)}
        for turn in range(ROUNDS + 1):
            for (way, threads), seconds in found.items():
                if way == "Rust":
                    took = seconds_of(program, threads)
                else:
                    took = seconds_by_threads(image, threads, ways[way])
                if turn > 0:  # what is read first comes from the image
                    seconds.append(took)
        program.stdin.close()
    return {way: min(seconds) for way, seconds in found.items()}


def main():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "image")
        make(path)
        found = measure(path, sys.argv[1])
    for (way, threads), took in found.items():
        print(
            f"{way:10} {threads} threads {took * 1000:7.1f} ms,"
            f" {took / found['Rust', threads]:.2f} times Rust's,"
            f" {found[way, 1] / took:.2f} times as fast as one thread"
        )


if __name__ == "__main__":
    main()
