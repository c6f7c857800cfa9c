"""Threads run side by side: no call keeps the interpreter's lock."""

import threading
import time

import finefs
import pytest


def longest_pause_beside(call):
    """How long this thread stood still while another was in `call`, and how long that took."""
    ended = []

    def run():
        time.sleep(0.05)  # the loop below runs by then
        begin = time.monotonic()
        call()
        ended.append(time.monotonic() - begin)

    thread = threading.Thread(target=run)
    thread.start()
    last, longest = time.monotonic(), 0.0
    while not ended:
        now = time.monotonic()
        longest = max(longest, now - last)
        last = now
    thread.join()
    return longest, ended[0]


@pytest.mark.parametrize("call", ["read", "write"])
def test_others_go_on_during_a_call(call):
    data = b"x" * (200 << 20)
    with finefs.memory(512 << 20) as image:
        image.write_bytes("f", data)
        calls = {
            # Half of it: the copy into an object of Python's is under the lock.
            "read": lambda: image.read_bytes("f"),
            "write": lambda: image.write_bytes("g", data),
        }
        for _ in range(5):
            longest, whole = longest_pause_beside(calls[call])
            if longest < 0.7 * whole:
                return
    raise AssertionError(f"nothing else ran for {longest:.3f} of {whole:.3f} s")


def test_threads_share_an_image(disk):
    def fill(directory):
        image.mkdir(directory)
        for number in range(300):
            image.write_bytes(f"{directory}/{number}", directory.encode() * 100)

    with finefs.Image(disk, "r+") as image:
        threads = [threading.Thread(target=fill, args=(f"d{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(4):
            assert len(image.listdir(f"d{number}")) == 300
            assert image.read_bytes(f"d{number}/299") == f"d{number}".encode() * 100
