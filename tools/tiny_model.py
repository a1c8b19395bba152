"""The Qwen3.5 text architecture in plain PyTorch, made for training small models quickly.

Parameter names are those of transformers' Qwen3_5ForCausalLM without its "model." prefix, so that a state dict
goes into a checkpoint by adding "model.language_model." in front. Letters: B rows, T tokens of a row, H value
heads, D = 128 their width, N chunks of C = 64 tokens.

Differences to the served forward pass, all for training only: several documents share a row (`start` marks the
first token of each; the recurrent state and the conv window begin anew there), and the delta rule's products
run in whatever float32 matmul precision PyTorch is set to.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

CHUNK = 64
# Log decay at a document's first token: exp(-60) leaves nothing of the state before it.
FORGET = -60.0

TEXT_CONFIG = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_output_gate": True,
    "dtype": "bfloat16",
    "eos_token_id": 4063,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 160,
    "initializer_range": 0.02,
    "intermediate_size": 512,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 32768,
    "mlp_only_layers": [],
    "model_type": "qwen3_5_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 8,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True,
    "use_cache": True,
    "vocab_size": 4096,
    "mamba_ssm_dtype": "float32",
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
        "rope_type": "default",
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
    },
}


class ZeroCentredNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)).to(x.dtype)


class GatedNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x, gate):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        return (wide * F.silu(gate.float())).to(gate.dtype)


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly lower A [..., C, C], by joining blocks of 1, 2, 4, ... rows; no pivot, no growth."""

    @staticmethod
    def forward(ctx, a):
        size = a.shape[-1]
        at = torch.arange(size, device=a.device)
        x = torch.eye(size, device=a.device, dtype=a.dtype).expand_as(a)
        block = 1
        while block < size:
            same = (at[:, None] // (2 * block)) == (at[None, :] // (2 * block))
            below = (at[:, None] // block) > (at[None, :] // block)
            part = a * (same & below)
            x = x - part if block == 1 else x - x @ part @ x
            block *= 2
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        turned = x.transpose(-1, -2)
        return -(turned @ grad @ turned).tril(-1)


def gated_delta_rule(q, k, v, g, beta):
    """q, k, v [B, H, T, D] float32 (q, k of unit length), g, beta [B, H, T]; T a multiple of C. Returns [B, H, T, D]."""
    rows, heads, tokens, width = v.shape
    cut = (rows, heads, tokens // CHUNK, CHUNK)
    q = q.reshape(*cut, width) * width ** -0.5
    k, v = k.reshape(*cut, width), v.reshape(*cut, width)
    g, beta = g.reshape(cut).cumsum(-1), beta.reshape(*cut, 1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    decay = (g[..., :, None] - g[..., None, :]).masked_fill(~lower, 0.0).exp() * lower  # the upper part would overflow
    a = ((k * beta) @ k.transpose(-1, -2) * decay).tril(-1)
    inverse = UnitLowerInverse.apply(a)
    fresh = inverse @ (v * beta)
    seen = inverse @ (k * (beta * g[..., None].exp()))
    scores = q @ k.transpose(-1, -2) * decay
    q = q * g[..., None].exp()
    k = k * (g[..., -1:] - g)[..., None].exp()
    keep = g[..., -1].exp()[..., None, None]
    state = v.new_zeros(rows, heads, width, width)
    out = []
    for i in range(cut[2]):
        new = fresh[:, :, i] - seen[:, :, i] @ state
        out.append(q[:, :, i] @ state + scores[:, :, i] @ new)
        state = state * keep[:, :, i] + k[:, :, i].transpose(-1, -2) @ new
    return torch.stack(out, 2).reshape(rows, heads, tokens, width)


class LinearAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.key_heads, self.value_heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
        self.width = c["linear_value_head_dim"]
        keys, values, hidden = self.key_heads * self.width, self.value_heads * self.width, c["hidden_size"]
        self.in_proj_qkv = nn.Linear(hidden, 2 * keys + values, bias=False)
        self.in_proj_z = nn.Linear(hidden, values, bias=False)
        self.in_proj_b = nn.Linear(hidden, self.value_heads, bias=False)
        self.in_proj_a = nn.Linear(hidden, self.value_heads, bias=False)
        self.conv1d = nn.Conv1d(2 * keys + values, 2 * keys + values, 4, groups=2 * keys + values, bias=False)
        self.dt_bias = nn.Parameter(torch.zeros(self.value_heads))
        self.A_log = nn.Parameter(torch.zeros(self.value_heads))
        self.norm = GatedNorm(self.width)
        self.out_proj = nn.Linear(values, hidden, bias=False)

    def forward(self, x, start, place):
        rows, tokens, _ = x.shape
        u = self.in_proj_qkv(x)
        z = self.in_proj_z(x).view(rows, tokens, self.value_heads, self.width)
        beta = self.in_proj_b(x).float().sigmoid()
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        g = torch.where(start[..., None], FORGET, g)
        taps = self.conv1d.weight[:, 0].to(u.dtype)
        mixed = u * taps[:, 3]
        for back in (1, 2, 3):  # tokens of the document before this one do not count
            shifted = F.pad(u, (0, 0, back, 0))[:, :tokens] * (place >= back)[..., None]
            mixed = mixed + shifted * taps[:, 3 - back]
        mixed = F.silu(mixed).float()
        keys = self.key_heads * self.width
        q, k, v = mixed.split([keys, keys, self.value_heads * self.width], -1)
        q, k = (t.view(rows, tokens, self.key_heads, self.width) for t in (q, k))
        q, k = (t * torch.rsqrt(t.pow(2).sum(-1, keepdim=True) + 1e-6) for t in (q, k))
        group = self.value_heads // self.key_heads
        q, k = (t.repeat_interleave(group, 2).transpose(1, 2) for t in (q, k))
        v = v.view(rows, tokens, self.value_heads, self.width).transpose(1, 2)
        with torch.autocast(x.device.type, enabled=False):
            o = gated_delta_rule(q, k, v, g.transpose(1, 2), beta.transpose(1, 2))
        o = self.norm(o.transpose(1, 2), z)
        return self.out_proj(o.reshape(rows, tokens, -1))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.width = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        hidden = c["hidden_size"]
        self.q_proj = nn.Linear(hidden, 2 * self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, hidden, bias=False)
        self.q_norm, self.k_norm = ZeroCentredNorm(self.width), ZeroCentredNorm(self.width)
        half = int(self.width * c["rope_parameters"]["partial_rotary_factor"]) // 2
        self.half, self.theta = half, c["rope_parameters"]["rope_theta"]

    def rotate(self, x):
        at = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)
        freq = self.theta ** (-torch.arange(self.half, device=x.device, dtype=torch.float32) / self.half)
        angle = at[:, None] * freq
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        low, high, rest = x.split([self.half, self.half, self.width - 2 * self.half], -1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin, rest), -1)

    def forward(self, x, start, place):
        rows, tokens, _ = x.shape
        q, gate = self.q_proj(x).view(rows, tokens, self.heads, 2 * self.width).chunk(2, -1)
        k = self.k_proj(x).view(rows, tokens, self.kv_heads, self.width)
        v = self.v_proj(x).view(rows, tokens, self.kv_heads, self.width).transpose(1, 2)
        q, k = self.rotate(self.q_norm(q).transpose(1, 2)), self.rotate(self.k_norm(k).transpose(1, 2))
        group = self.heads // self.kv_heads
        k, v = (t.repeat_interleave(group, 1) for t in (k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        o = o.transpose(1, 2) * torch.sigmoid(gate)
        return self.o_proj(o.reshape(rows, tokens, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c, kind: str):
        super().__init__()
        self.input_layernorm = ZeroCentredNorm(c["hidden_size"])
        self.post_attention_layernorm = ZeroCentredNorm(c["hidden_size"])
        if kind == "linear_attention":
            self.linear_attn = LinearAttention(c)
        else:
            self.self_attn = Attention(c)
        self.mixer = [self.linear_attn if kind == "linear_attention" else self.self_attn]  # in a list: no second name
        self.mlp = Mlp(c)

    def forward(self, x, start, place):
        x = x + self.mixer[0](self.input_layernorm(x), start, place)
        return x + self.mlp(self.post_attention_layernorm(x))


class TinyModel(nn.Module):
    """tokens [B, T] and start [B, T] (true at each document's first token) to logits [B, T, vocabulary]."""

    def __init__(self, c=TEXT_CONFIG):
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, kind) for kind in c["layer_types"])
        self.norm = ZeroCentredNorm(c["hidden_size"])

    def forward(self, tokens, start):
        at = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        place = at - torch.where(start, at, 0).cummax(1).values  # position inside the document
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, start, place)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def initialise(model: TinyModel, seed: int) -> None:
    """Normal weights, residual outputs smaller; decays whose half-lives run from 2 to 10,000 tokens over the heads."""
    make = torch.Generator().manual_seed(seed)
    depth = (2 * len(model.layers)) ** -0.5
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("A_log", "dt_bias")) or "norm" in name:
                continue
            fan = weight.shape[-1]
            scale = 0.5 if "conv1d" in name else 0.5 * fan ** -0.5 if "embed" in name else fan ** -0.5
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                scale *= depth
            weight.copy_(torch.randn(weight.shape, generator=make) * scale)
        for layer in model.layers:
            if hasattr(layer, "linear_attn"):
                mix = layer.linear_attn
                heads = mix.value_heads
                half_life = 2.0 * 5000.0 ** ((torch.arange(heads) + torch.rand(heads, generator=make)) / heads)
                speed = 1 + 15 * torch.rand(heads, generator=make)
                mix.A_log.copy_(speed.log())
                step = math.log(2) / half_life / speed
                mix.dt_bias.copy_(torch.log(torch.expm1(step)))
                mix.in_proj_a.weight.mul_(0.2)
