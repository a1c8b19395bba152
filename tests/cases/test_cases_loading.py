"""Cases of kind (h): damaged and odd checkpoints, given to the program itself. docs/cases.md lists them."""

import ctypes
import json
import os
import shutil
import struct
import subprocess

import pytest

from servers import ROOT, Run, ask, path_from, start_tandem, tandem  # noqa: F401

MODEL = ROOT / "models/tandem-tiny"
SHARD = "model.safetensors-00001-of-00001.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def copy(tmp_path):
    """A folder of the bundled model's files to be altered freely; the weights are linked until they are changed."""
    folder = tmp_path / "ckpt"
    folder.mkdir()
    for file in MODEL.iterdir():
        if file.name == SHARD:
            (folder / SHARD).symlink_to(file)
        else:
            shutil.copy(file, folder)
    return folder


def refused(folder, *words, **how):
    """serve ends with an error that has the words, and never listens."""
    done = subprocess.run([path_from("TANDEM_BIN", "build/release/tandem"), "serve", str(folder), "--port", "0", "--device", "cpu"],
                          capture_output=True, text=True, errors="replace", timeout=60, **how)
    text = done.stdout + done.stderr
    assert done.returncode == 1 and "listening" not in text, text
    for word in words:
        assert word in text, text


def first_logprobs(folder):
    os.environ["TANDEM_MODEL"], before = str(folder), os.environ.get("TANDEM_MODEL")
    try:
        server = start_tandem()
        try:
            return ask(server, "The old house stood", 2).top, "".join(server.lines)
        finally:
            assert server.end() == 0
    finally:
        if before is None:
            del os.environ["TANDEM_MODEL"]
        else:
            os.environ["TANDEM_MODEL"] = before


def edit_index(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def rewrite(folder, change):
    """The shard with its header changed; the data stay."""
    raw = (MODEL / SHARD).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    data = raw[8 + size:]
    header = change(header) or header
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / SHARD).unlink()
    (folder / SHARD).write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_B161_missing_shards_are_named_and_paths_stay_inside(copy):
    (copy / SHARD).unlink()
    refused(copy, SHARD)
    (copy / SHARD).mkdir()
    refused(copy, SHARD)
    (copy / SHARD).rmdir()
    edit_index(copy, lambda index: index["weight_map"].update({name: "../x.safetensors" for name in index["weight_map"]}))
    refused(copy, "../x.safetensors")


def test_B162_folders_without_weights_never_listen(copy):
    (copy / SHARD).unlink()
    (copy / INDEX).unlink()
    refused(copy, "safetensors")
    (copy / "model.safetensors").mkdir()
    refused(copy, "model.safetensors")
    (copy / "model.safetensors").rmdir()
    (copy / "model.safetensors").touch()
    refused(copy, "model.safetensors")
    (copy / "model.safetensors").unlink()
    for text in ("{}", "no json", "[]"):
        (copy / INDEX).write_text(text)
        refused(copy, INDEX)


@pytest.mark.parametrize("length", [2**64 - 3, 2**63, 2**40, "file-7", 0, 1])
def test_B164_header_lengths_are_checked_against_the_file(copy, length):
    (copy / SHARD).unlink()
    raw = (MODEL / SHARD).read_bytes()
    (copy / SHARD).write_bytes(struct.pack("<Q", len(raw) - 7 if length == "file-7" else length) + raw[8:])
    refused(copy, SHARD)


def norm(header):
    return next(name for name in header if name.endswith("layers.0.input_layernorm.weight"))


@pytest.mark.parametrize("change", [
    {"data_offsets": [0, 1 << 50]}, {"data_offsets": [5]}, {"data_offsets": [0, 1, 2]}, {"data_offsets": [9, 3]},
    {"shape": [4294967296, 4294967296]}, {"shape": [-1, 4]}, {"shape": [1.5]}, {"shape": [1] * 40}, {"shape": [0, 8]}, {"dtype": "F99"}],
    ids=lambda change: json.dumps(change)[:40])
def test_B164_B165_spans_and_shapes_of_a_tensor_are_checked(copy, change):
    named = []

    def damage(header):
        named.append(norm(header))
        header[named[0]].update(change)

    rewrite(copy, damage)
    refused(copy, named[0])


def test_B169_stray_weights_beside_an_index_change_nothing(copy):
    plain, _ = first_logprobs(copy)
    stray = json.dumps({"model.norm.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    stray += b" " * (-len(stray) % 8)
    for name in ("model.safetensors", "consolidated.safetensors"):
        (copy / name).write_bytes(struct.pack("<Q", len(stray)) + stray + b"\1" * 8)
    with_stray, log = first_logprobs(copy)
    assert with_stray == plain
    assert "consolidated.safetensors" in log or "model.safetensors" in log


def test_B172_untied_without_a_head_is_refused(copy):
    config = json.loads((copy / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = False
    (copy / "config.json").write_text(json.dumps(config))
    refused(copy, "lm_head.weight", "tie_word_embeddings")


def test_B174_flat_and_nested_checkpoints_agree_and_strangers_are_refused(copy):
    plain, _ = first_logprobs(copy)

    def rename(names):
        return {name.replace("model.language_model.", "model."): value for name, value in names.items()}

    rewrite(copy, rename)
    edit_index(copy, lambda index: index.update(weight_map=rename(index["weight_map"])))
    config = json.loads((copy / "config.json").read_text())
    flat = {**config["text_config"], "architectures": ["Qwen3_5ForCausalLM"], "tie_word_embeddings": config["tie_word_embeddings"]}
    (copy / "config.json").write_text(json.dumps(flat))
    assert first_logprobs(copy)[0] == plain
    (copy / "config.json").write_text(json.dumps({**flat, "architectures": ["OtherForCausalLM"], "model_type": "other"}))
    refused(copy, "qwen3_5_text")


@pytest.mark.parametrize("old", ["embed_tokens.weight", "layers.1.linear_attn.in_proj_z.weight"])
def test_B176_renamed_tensors_stop_the_start(copy, old):
    full = []

    def damage(header):
        name = next(name for name in header if name.endswith(old))
        full.append(name)
        header[name + "_x"] = header.pop(name)

    rewrite(copy, damage)
    edit_index(copy, lambda index: index["weight_map"].update({full[0] + "_x": index["weight_map"].pop(full[0])}))
    refused(copy, full[0])


def test_B180_links_are_followed_and_bad_ones_named(copy, tmp_path):
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(copy.iterdir())):
        blob = blobs / f"blob{number}"
        shutil.copyfile(file, blob)
        file.unlink()
        file.symlink_to(os.path.relpath(blob, copy))  # relative, to names without an ending
    alias = tmp_path / "alias"
    alias.symlink_to(copy)
    assert first_logprobs(alias)[0]
    target = os.readlink(copy / SHARD)
    for bad in ("nowhere", SHARD):  # dangling, and a loop
        (copy / SHARD).unlink()
        (copy / SHARD).symlink_to(bad)
        refused(copy, f"{copy / SHARD} is a link to {bad}, which cannot be opened")
    (copy / SHARD).unlink()
    (copy / SHARD).symlink_to(target)
    (copy / target).chmod(0)
    refused(copy, f"{copy / SHARD} is a link to {target}, which cannot be opened: Permission denied", preexec_fn=read_only_what_may_be_read)


def read_only_what_may_be_read():
    """For a child process: modes of files count for the superuser too."""
    held = int(next(line for line in open("/proc/self/status") if line.startswith("CapEff:")).split()[1], 16)
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if held >> capability & 1 and libc.prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
            raise OSError(ctypes.get_errno(), "prctl")
