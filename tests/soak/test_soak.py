"""The short form of soak.py; the long one is run by command."""

import pathlib
import subprocess
import sys


def test_B189_pools_are_idle_and_memory_is_flat_after_many_chats_and_1000_open_streams():
    soak = pathlib.Path(__file__).with_name("soak.py")
    # Few chats: what an allocator keeps back after the first ones still counts, so that the bound is wide.
    done = subprocess.run([sys.executable, soak, "--chats", "300", "--warm", "150", "--streams", "1000", "--slope", "40"],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
