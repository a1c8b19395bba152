"""Cases of kind (b): tensor parallelism and capacity, on CPU ranks. docs/cases.md lists them."""

import concurrent.futures
import json
import shutil
import signal
import subprocess
import time

import pytest

from servers import ROOT, PAGE, Run, ask, ids, path_from, within  # noqa: F401

PAGE_BYTES = 256 << 10  # of the bundled model: two layers with keys and values of two heads of 256, in bf16; a pool has one page more, for padding


@pytest.fixture
def checked(tmp_path):
    """`serve --check` of the bundled model without its weights and with other sizes: status, output, seconds."""
    def check(sizes, *flags):
        folder = tmp_path / "ckpt"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "models/tandem-tiny", folder, ignore=shutil.ignore_patterns("*.safetensors*"))
        config = json.loads((folder / "config.json").read_text())
        config["text_config"].update(sizes)
        (folder / "config.json").write_text(json.dumps(config))
        begin = time.monotonic()
        done = subprocess.run([path_from("TANDEM_BIN", "build/release/tandem"), "serve", folder, "--device", "cpu", "--check", *flags],
                              capture_output=True, text=True, timeout=60)
        assert time.monotonic() - begin < within(10)
        return done.returncode, done.stdout + done.stderr

    return check


def test_B027_more_ranks_than_kv_heads_replicate_them_or_are_refused(checked):
    """The logits of replicated heads: TensorParallel of src/executor, whose model has two kv heads on four ranks."""
    for sizes, count in (({"num_attention_heads": 16, "num_key_value_heads": 4}, 8), ({"num_attention_heads": 16, "num_key_value_heads": 2}, 4)):
        status, text = checked(sizes, "--tp", str(count))
        assert status == 0 and "would not refuse" in text, text
    status, text = checked({"num_attention_heads": 12, "num_key_value_heads": 3}, "--tp", "4")
    assert status != 0 and "num_key_value_heads = 3" in text and "this model runs on 1" in text, text


def test_B028_a_degree_that_does_not_divide_is_refused_with_those_that_do(checked):
    """The heads of linear attention, which CPU ranks keep whole, are refused by Partition.ARefusalNamesFieldValueAndTheDegreesThatWork."""
    status, text = checked({}, "--tp", "3")
    assert status != 0 and "num_attention_heads = 4 does not divide over 3 ranks; this model runs on 1, 2 or 4" in text, text
    status, text = checked({"num_attention_heads": 6}, "--tp", "4")
    assert status != 0 and "num_attention_heads = 6 does not divide over 4 ranks; this model runs on 1 or 2" in text, text


@pytest.mark.parametrize("less", [0, 1])
def test_B029_the_rank_with_less_memory_decides_for_both(less):
    def start(*taken):
        return Run("--tp", "2", "--cpu-threads", "1", "--memory", "318M,318M", "--max-context", "512", *taken)

    with start() as server:
        whole = server.metric("tandem:kv_pages")
    with start("--debug-take-memory", "7M,0" if less == 0 else "0,7M") as server:
        pages = server.metric("tandem:kv_pages")
        assert 8 <= pages < 32 < whole  # one number for both; eight requests of four pages each want more
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(lambda seed: ask(server, ids(200, seed), 40), range(24)))
        assert all(len(answer.ids) == 40 for answer in answers)
        server.check_idle()


@pytest.mark.parametrize("before", ["nothing", "one", "one-in-flight", "100"])
def test_B034_an_interrupt_ends_two_ranks_in_order(before):
    run = Run("--tp", "2", "--cpu-threads", "1", "--drain-seconds", "30")
    server = run.__enter__()
    for seed in range(100 if before == "100" else 1 if before != "nothing" else 0):
        ask(server, ids(4, seed), 2)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        if before == "one-in-flight":
            last = pool.submit(ask, server, "Once upon a time", 200)
            server.wait_for("vllm:num_requests_running", 1)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(within(45)) == 0, "".join(server.lines)
        if before == "one-in-flight":
            assert len(last.result().ids) == 200
        else:
            assert time.monotonic() - begin < within(15)
    log = "".join(server.lines)
    assert "abort" not in log.lower() and "terminate" not in log.lower(), log


def test_B038_a_full_pool_lets_requests_wait_and_fails_none():
    with Run("--kv-memory", str(17 * PAGE_BYTES), "--max-requests", "8", "--max-context", "960") as server:
        assert server.metric("tandem:kv_pages") == 16  # 1,024 tokens; a request below takes 8 pages
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            running = [pool.submit(ask, server, ids(50, seed), 400) for seed in range(8)]
            refused = server.complete(ids(50), max_tokens=5000, ignore_eos=True)
            assert refused.status_code == 400 and "960" in refused.json()["error"]["message"]
            assert all(len(one.result().ids) == 400 and one.result().finish == "length" for one in running)
        server.check_idle()


def test_B039_a_pool_of_three_pages_is_enough_to_the_last_token_or_the_request_is_refused():
    with Run("--kv-memory", str(4 * PAGE_BYTES), "--max-requests", "1") as server:
        assert server.metric("tandem:kv_pages") == 3
        for prompt, tokens in ((PAGE, PAGE + 1), (PAGE, 2 * PAGE + 1), (1, PAGE), (PAGE + 1, PAGE), (2 * PAGE + 1, PAGE), (PAGE, 1)):
            assert len(ask(server, ids(prompt), tokens).ids) == tokens
        assert server.complete(ids(PAGE), max_tokens=2 * PAGE + 2).status_code == 400
        server.check_idle()


def test_B040_many_more_requests_than_slots_wait_for_their_turn():
    """120 at once with the default flags; what a GPU's memory has to say about it is not in this."""
    with Run() as server:
        assert server.metric("tandem:state_slots") < 120
        with concurrent.futures.ThreadPoolExecutor(120) as pool:
            answers = list(pool.map(lambda seed: ask(server, ids(64, seed), 8), range(120)))
        assert all(len(answer.ids) == 8 for answer in answers)
        assert server.metric("tandem:requests_failed_total") == 0
        server.check_idle()
