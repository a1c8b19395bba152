"""What `tandem serve` refuses at start-up: before any weight is read, in under two seconds, naming the flag, its value
and what works (R6). And what the other commands say to bad arguments."""

import json
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TANDEM = os.environ.get("TANDEM_BIN", str(ROOT / "build/release/tandem"))
MODEL = str(ROOT / "models/tandem-tiny")


def run(*arguments):
    """Status, output and the processor's seconds, which other load on the machine does not change."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([TANDEM, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.returncode, done.stdout + done.stderr, seconds


@pytest.fixture(scope="session")
def without_weights(tmp_path_factory):
    """The bundled model without its weights: only what is refused before they are read can be refused here."""
    folder = tmp_path_factory.mktemp("model") / "no-weights"
    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    return str(folder)


REFUSED = [
    (["--tp", "0"], ["[tp]", "0"]),  # proves R6.1
    (["--tp", "2", "--all-reduce", "nccl"], ["[all-reduce] nccl", "auto works"]),
    (["--tp", "17"], ["[tp] 17 ranks", "1 to 16"]),
    (["--tp", "1000000000"], ["[tp] 1000000000 ranks", "1 to 16"]),
    (["--devices", "0,0"], ["[devices]", "0", "twice"]),
    (["--devices", "0,16"], ["[devices]", "16", "0 to 15"]),
    (["--devices=-1"], ["[devices]", "-1", "0 to 15"]),
    (["--tp", "2", "--devices", "0"], ["[devices]", "--tp 2"]),
    (["--tp", "3"], ["3", "1, 2"]),  # proves R6.2: heads that do not divide, and the degrees that work
    (["--tp", "2", "--cuda-graphs", "on"], ["[cuda-graphs]", "--tp 2", "auto"]),  # proves R6.3
    (["--cuda-graphs", "on"], ["[cuda-graphs]", "cuda"]),
    (["--prefix-cache"], ["[prefix-cache]", "leave it off"]),
    (["--tp", "2", "--linear-attention", "sharded"], ["--linear-attention sharded", "replicated works"]),
    (["--linear-attention", "sharded"], ["--linear-attention sharded", "replicated works"]),  # at every degree, until it is built
    (["--tp", "2", "--mixed", "on"], ["--mixed on with 2 ranks", "--mixed off works"]),
    (["--cpu-isa", "sse9"], ["[cpu-isa]", "sse9", "avx2"]),
    (["--kv-memory", "many"], ["[kv-memory]", "many", "80G"]),
    (["--memory", "1M"], ["[memory]", "1048576"]),
    (["--memory", "0"], ["--memory = 0"]),
    (["--memory", "1G,2G,3G", "--tp", "2"], ["--memory has 3 sizes for 2 ranks"]),
    (["--tp", ""], ["--tp", "is empty"]),
    (["--devices", ""], ["--devices", "is empty"]),
    (["--cpu-isa", ""], ["--cpu-isa", "is empty"]),
    (["--max-requests", "0"], ["--max-requests = 0", "1 or more"]),
    (["--max-requests", "2000000000"], ["--max-requests = 2000000000", "65536 or less"]),
    (["--max-context", "999999999"], ["999999999"]),
    (["--max-step-tokens", "63"], ["--max-step-tokens = 63", "64 or more"]),
    (["--max-mixed-tokens", "10"], ["max-mixed-tokens", "10"]),
    (["--default-max-tokens", "0"], ["default-max-tokens 0"]),
    (["--max-waiting", "0"], ["queue of 0"]),
    (["--fault", "kind=typo"], ["typo", "hang"]),
    (["--fault", "kind=hang,rank=2,step=3", "--tp", "2"], ["rank = 2 of 2 ranks", "0 to 1"]),
    (["--log-level", "loud"], ["[log-level]", "loud", "debug"]),
    (["--cpu-threads", "-1"], ["[cpu-threads]", "-1"]),
    (["--cpu-threads", "1000000"], ["[cpu-threads]", "1 to 1024"]),
    (["--step-deadline", "nan"], ["--step-deadline", "nan", "0.001 to 1000000"]),
    (["--step-deadline", "1e300"], ["--step-deadline", "1e300", "0.001 to 1000000"]),
    (["--abort-grace", "-1"], ["--abort-grace", "-1", "0.001 to 1000000"]),
    (["--idle-ping", "0"], ["--idle-ping", "0.001 to 1000000"]),
]


@pytest.mark.parametrize("flags, words", REFUSED, ids=[" ".join(flags) for flags, _ in REFUSED])
def test_every_command_refuses_alike_before_it_reads_a_weight(without_weights, flags, words):
    said = {}
    for command in ("serve", "chat", "bench", "soak"):
        status, text, seconds = run(command, without_weights, "--device", "cpu", *flags)
        assert status != 0, text
        for word in words:
            assert word in text, text
        assert seconds < 2, text
        said[command] = next(line for line in text.splitlines() if line.startswith("tandem: "))
    assert len(set(said.values())) == 1, said


# --cuda-graphs and --mixed are no flags of the gate, which runs steps of one kind of row.
OF_THE_GATE = [case for case in REFUSED if case[0][0] in ("--tp", "--devices", "--cpu-isa", "--cpu-threads") and not {"--cuda-graphs", "--mixed"} & set(case[0])]


@pytest.mark.parametrize("flags, words", OF_THE_GATE)
def test_the_gate_refuses_what_serve_refuses_of_its_ranks(flags, words):
    status, text, _ = run("gate", str(ROOT / "gates/fixtures/tandem-tiny.json"), "--device", "cpu", *flags)
    assert status != 0
    for word in words:
        assert word in text, text


def test_check_says_that_nothing_would_be_refused(without_weights):
    for flags in ([], ["--tp", "2"], ["--devices", "15,3"], ["--tp", "2", "--cuda-graphs", "auto", "--mixed", "auto"]):
        status, text, _ = run("serve", without_weights, "--device", "cpu", "--check", *flags)
        assert status == 0 and "start-up would not refuse this" in text, text


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--io-threads", "0"], "--io-threads 0; 1 to 1024"),
        (["--text-threads", "0"], "--text-threads 0; 1 to 1024"),
        (["--max-connections", "0"], "--max-connections 0; 1 to"),
        (["--max-body-bytes", "0"], "--max-body-bytes 0; 1024 to"),
        (["--drain-seconds", "-1"], "--drain-seconds: '-1'; 0 to 86400"),
        (["--drain-seconds", "nan"], "--drain-seconds: 'nan'; 0 to 86400"),
        (["--served-model-name", ""], "empty name"),
        (["--port", "99999"], "--port: '99999'; 0 to 65535"),
        (["--port", "abc"], "--port: 'abc'; 0 to 65535"),
        (["--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
        (["--host", ""], "'' is no address"),
    ],
)
def test_check_and_start_refuse_the_same_server_options_before_a_weight_is_read(without_weights, flags, words):
    for check in ([], ["--check"]):
        status, text, _ = run("serve", without_weights, "--device", "cpu", *flags, *check)
        assert status != 0 and words in text, text


def test_a_port_in_use_is_known_before_a_weight_is_read_and_no_hindrance_to_check(without_weights):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ["serve", without_weights, "--device", "cpu", "--port", str(taken.getsockname()[1])]
        status, text, _ = run(*flags)
        assert status == 1 and "Address already in use" in text, text
        assert run(*flags, "--check")[0] == 0


@pytest.mark.parametrize("place", ["before", "after", "="])
def test_a_config_file_holds_flags(tmp_path, place):
    file = tmp_path / "tandem.toml"
    file.write_text(f'model = "{MODEL}"\ndevice = "cpu"\nmax-context = 512\n')
    where = {"before": ["--config", str(file), "--check"], "after": ["--check", "--config", str(file)], "=": ["--check", f"--config={file}"]}[place]
    status, text, _ = run("serve", *where)
    assert status == 0 and "longest request 512 tokens" in text, text
    status, text, _ = run("serve", *where, "--max-context", "256")  # the command line wins
    assert status == 0 and "longest request 256 tokens" in text, text


@pytest.mark.parametrize(
    "content, words",
    [
        ("prefix-cache = true\n", "[prefix-cache]"),  # what the flag says is refused as the flag is
        ('model = "/nonexistent"\n', "/nonexistent"),
        ('port = "abc\n', "tandem.toml:1:"),
        ("tp = 1\ntpp = 2\n", "tandem.toml:2: 'tpp' is no flag"),
        ("tp = 1\ntp = 2\n", "tandem.toml:2:"),
        ('tp = "two"\n', "tandem.toml:1:"),
        (None, "tandem.toml is missing"),
    ],
)
def test_a_config_file_that_cannot_be_used_is_refused(tmp_path, content, words):
    file = tmp_path / "tandem.toml"
    if content is not None:
        file.write_text(content)
    status, text, _ = run("serve", "--device", "cpu", "--check", "--config", str(file))
    assert status != 0 and words in text, text


def test_the_packaged_config_file_is_one():
    status, text, _ = run("serve", "--check", "--device", "cpu", "--config", str(ROOT / "packaging/tandem.toml"))
    assert status == 0, text


def test_the_version_stands_in_one_place():
    stated = re.search(r"^project\(tandem VERSION ([0-9.]+) ", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
    assert run("--version")[1].split() == ["tandem", stated]


def test_a_folder_named_with_a_slash_has_its_name():
    status, text, _ = run("serve", MODEL + "/", "--device", "cpu", "--check")
    assert status == 0, text


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


@pytest.mark.parametrize(
    "command, words",
    [
        (["bench", "--vocab", "0", "--url", "http://127.0.0.1:9"], "--vocab: '0'; 1 to"),
        (["bench", "--rate", "0", "--workload", "chat"], "--rate: '0'; 0.001 to"),
        (["bench", "--rate", "nan", "--workload", "chat"], "--rate: 'nan'; 0.001 to"),
        (["bench", "--repetitions", "0"], "--repetitions: '0'; 1 to"),
        (["bench", "--prompt-tokens", "-5"], "--prompt-tokens: '-5'; 1 to"),
        (["bench", "--output-tokens", "0"], "--output-tokens: '0'; 1 to"),
        (["bench", "--seconds", "-1", "--workload", "mixed"], "--seconds: '-1'; 0.1 to"),
        (["bench", "--seconds", "nan", "--workload", "mixed"], "--seconds: 'nan'; 0.1 to"),
        (["bench", "--url", "http://127.0.0.1:9"], "--served NAME works"),
        (["bench", "--workload", "solo,,chat"], "there is no ''; there are solo,"),
        (["bench", "--workload", ""], "there is no ''; there are solo,"),
        (["bench", "--workload", "solo,"], "there is no ''; there are solo,"),
        (["bench", "--url", "http://127.0.0.1:9", "--served", "x", "--workload", "solo,nope"], "there is no 'nope'; there are solo,"),
        (["gate", "/proc/self"], "[fixture] /proc/self is not a regular file but a folder"),
        (["bench", "--json", "/nonexistent/x.json"], "[json] cannot write /nonexistent/x.json"),
        (["chat", "--max-tokens", "2.5"], "--max-tokens: '2.5'; 1 to"),
        (["chat", "--seed", "3.7"], "--seed: '3.7'; 0 to"),
        (["chat", "--temperature", "nan"], "--temperature: 'nan'; 0 to 2"),
        (["fabricate", "0.8B", "/nonexistent/x", "--threads", "-1"], "--threads: '-1'; 1 to 1024"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_numbers_that_make_no_sense_are_refused(command, words):
    status, text, _ = run(*command)
    assert status in (1, 2) and words in text, text


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_pipe_in_the_models_folder_is_not_waited_for(without_weights, tmp_path, file):
    folder = tmp_path / "model"
    shutil.copytree(without_weights, folder)
    (folder / file).unlink(missing_ok=True)
    os.mkfifo(folder / file)
    status, text, _ = run("serve", str(folder), "--device", "cpu", "--check")
    assert status == 1 and file in text and "not a regular file" in text, text


def test_a_tokenizer_of_another_model_is_refused_with_the_token(without_weights, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(without_weights, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][-1], "id": 99999, "content": "<|far|>"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    status, text, _ = run("serve", str(folder), "--device", "cpu", "--check")
    assert status == 1 and "99999" in text and "<|far|>" in text and "vocab_size" in text, text


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


def test_the_plots_tool_names_the_file_that_it_cannot_draw(tmp_path):
    cases = {"none.json": (None, "No such file"), "broken.json": ("{", "JSON"), "other.json": ('{"a": 1}', "reports")}
    for name, (text, words) in cases.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        done = subprocess.run([sys.executable, str(ROOT / "tools/plot_bench.py"), str(tmp_path / name), "-o", str(tmp_path / "x.svg")],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and name in done.stderr and words in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_bench_measures_in_process(tmp_path):
    out = tmp_path / "bench.json"
    status, text, _ = run("bench", MODEL, "--device", "cpu", "--workload", "solo,batch-8", "--repetitions", "1",
                          "--prompt-tokens", "40", "--output-tokens", "6", "--json", str(out))
    assert status == 0, text
    solo, batch = json.loads(out.read_text())
    assert solo["requests"] == 1 and batch["requests"] == 8
    for report in (solo, batch):
        assert report["ttft_ms"]["p50"] > 0 and report["tpot_ms"]["p50"] > 0 and report["output_tokens_per_second"] > 0
