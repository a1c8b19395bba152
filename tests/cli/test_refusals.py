"""What `tandem serve` refuses at start-up: before any weight is read, in under two seconds, naming the flag, its value
and what works (R6). And what the other commands say to bad arguments."""

import json
import os
import pathlib
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TANDEM = os.environ.get("TANDEM_BIN", str(ROOT / "build/release/tandem"))
MODEL = str(ROOT / "models/tandem-tiny")


def run(*arguments):
    begin = time.monotonic()
    done = subprocess.run([TANDEM, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begin


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--tp", "0"], ["[tp]", "0"]),  # proves R6.1
        (["--tp", "17"], ["16"]),
        (["--devices", "0,0"], ["0"]),
        (["--devices", "0,16"], ["16"]),
        (["--tp", "2", "--devices", "0"], ["[devices]", "--tp 2"]),
        (["--tp", "3"], ["3", "1, 2"]),  # proves R6.2: heads that do not divide, and the degrees that work
        (["--tp", "2", "--cuda-graphs", "on"], ["[cuda-graphs]", "--tp 2", "auto"]),  # proves R6.3
        (["--cuda-graphs", "on"], ["[cuda-graphs]", "cuda"]),
        (["--prefix-cache"], ["[prefix-cache]"]),
        (["--tp", "2", "--linear-attention", "sharded"], ["sharded"]),
        (["--tp", "2", "--mixed", "on"], ["mixed"]),
        (["--cpu-isa", "sse9"], ["[cpu-isa]", "sse9", "avx2"]),
        (["--kv-memory", "many"], ["[kv-memory]", "many", "80G"]),
        (["--memory", "1M"], ["[memory]", "1048576"]),
        (["--max-context", "999999999"], ["999999999"]),
        (["--max-mixed-tokens", "10"], ["max-mixed-tokens", "10"]),
        (["--log-level", "loud"], ["[log-level]", "loud", "debug"]),
        (["--cpu-threads", "-1"], ["[cpu-threads]", "-1"]),
    ],
)
def test_serve_refuses_and_says_what_works(flags, words):
    status, text, seconds = run("serve", MODEL, "--device", "cpu", "--check", *flags)
    assert status != 0, text
    for word in words:
        assert word in text, text
    assert seconds < 20, "R6: under 2 s on an idle machine"


def test_a_machine_without_a_gpu_refuses_cuda_by_name():
    status, text, _ = run("serve", MODEL, "--device", "cuda", "--check")
    if status == 0:  # there is a GPU: then the plan is printed
        assert "capacity" in text
    else:
        assert "cuda" in text.lower() and "--device cpu" in text, text


@pytest.mark.parametrize("model", ["/nonexistent/model", str(ROOT / "README.md")])
def test_a_model_that_is_no_folder_is_refused_with_its_name(model):
    status, text, _ = run("serve", model, "--device", "cpu", "--check")
    assert status == 1 and model in text


def test_inspect_matches_the_published_bytes_of_4b():
    for world, weights in ((1, 8_411_510_272), (2, 5_852_984_832)):
        status, text, _ = run("inspect", "4B", "--tp", str(world), "--json")
        assert status == 0, text
        plan = json.loads(text)
        assert len(plan["ranks"]) == world
        for rank in plan["ranks"]:
            assert rank["weight_bytes"]["all"] == weights
            assert rank["state_slot_bytes"] == 51_511_296  # linear attention is replicated
            assert rank["kv_page_bytes"] == 64 * 32_768 // world


def test_unknown_sizes_and_workloads_list_what_there_is():
    assert "27B" in run("inspect", "5B")[1]
    assert "batch-64" in run("bench", MODEL, "--device", "cpu", "--workload", "nope")[1]
    assert "http://HOST" in run("bench", "--url", "ftp://x", "--workload", "solo")[1]


def test_bench_measures_in_process(tmp_path):
    out = tmp_path / "bench.json"
    status, text, _ = run("bench", MODEL, "--device", "cpu", "--workload", "solo,batch-8", "--repetitions", "1",
                          "--prompt-tokens", "40", "--output-tokens", "6", "--json", str(out))
    assert status == 0, text
    solo, batch = json.loads(out.read_text())
    assert solo["requests"] == 1 and batch["requests"] == 8
    for report in (solo, batch):
        assert report["ttft_ms"]["p50"] > 0 and report["tpot_ms"]["p50"] > 0 and report["output_tokens_per_second"] > 0
