#!/usr/bin/env python3
"""8-bit weights of Hugging Face folders against a computation of our own in numpy, from the formats' specifications.

Each folder is made twice: with codes and scales, and with what these mean in F32. Codes are random ones, every finite E4M3 value among them,
and scales spread widely; matrices end inside a block in both directions. octet's logits of the two must be the same bits. Then wrong folders:
each must be refused with the tensor's name and, where shapes are wrong, both of them.

Usage: hf_quantized_peers.py HF_LOGITS. Status 77 without numpy."""
import copy
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("SKIPPED: the Python package numpy is missing")
    sys.exit(77)

PROGRAM = sys.argv[1]
checked = 0


def demand(condition, what):
    global checked
    if not condition:
        sys.exit(f"hf_quantized_peers: {what}")
    checked += 1


# ---- the formats ----

def e4m3(code):
    """OCP 8-bit floating point, E4M3: bias 7, no infinities; 0x7f is NaN."""
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    value = mantissa / 8 * 2.0 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if sign else value


E4M3 = np.array([e4m3(code) for code in range(256)], np.float32)
FINITE = np.array([code for code in range(256) if code & 127 != 127], np.uint8)


def random_codes(rng, shape):
    small = FINITE[np.abs(E4M3[FINITE]) <= 2.0]  # a few large ones, so that logits stay moderate
    codes = np.where(rng.random(shape) < 0.02, rng.choice(FINITE, shape), rng.choice(small, shape))
    return codes.astype(np.uint8)


def random_scales(rng, shape, kind):
    """As they are stored, and what they mean."""
    if kind in ("U8", "F8_E8M0"):
        exponents = rng.integers(114, 124, shape).astype(np.uint8)
        return exponents, np.exp2(exponents.astype(np.float32) - 127)
    scales = (np.exp(rng.normal(-5, 1.5, shape)) * (1 - 2 * (rng.random(shape) < 0.1))).astype(np.float32)
    if kind == "BF16":
        bits = (scales.view(np.uint32) >> 16).astype(np.uint16)
        return bits, (bits.astype(np.uint32) << 16).view(np.float32)
    if kind == "F16":
        halves = scales.astype(np.float16)
        return halves, halves.astype(np.float32)
    return scales, scales


def dequantize(codes, scales, block):
    """Element (r, c) times the scale of its block (r div rows, c div columns)."""
    r, c = np.indices(codes.shape)
    return (E4M3[codes] * scales[r // block[0], c // block[1]]).astype(np.float32)


def put_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


# ---- folders ----

def llama(hidden, heads, kv_heads, head_dim, inner):
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=37, hidden_size=hidden, intermediate_size=inner,
                  num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim, hidden_act="silu",
                  rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=64, tie_word_embeddings=False, attention_bias=False,
                  mlp_bias=False)
    shapes = {"model.embed_tokens.weight": (37, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (37, hidden)}
    for layer in range(2):
        at = f"model.layers.{layer}."
        shapes.update({at + "input_layernorm.weight": (hidden,), at + "post_attention_layernorm.weight": (hidden,),
                       at + "self_attn.q_proj.weight": (heads * head_dim, hidden),
                       at + "self_attn.k_proj.weight": (kv_heads * head_dim, hidden),
                       at + "self_attn.v_proj.weight": (kv_heads * head_dim, hidden),
                       at + "self_attn.o_proj.weight": (hidden, heads * head_dim), at + "mlp.gate_proj.weight": (inner, hidden),
                       at + "mlp.up_proj.weight": (inner, hidden), at + "mlp.down_proj.weight": (hidden, inner)})
    return config, shapes


GROUP = dict(weights=dict(num_bits=8, type="float", strategy="group", group_size=32, symmetric=True, dynamic=False), targets=["Linear"])


def blocks(rows, cols):
    return dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[rows, cols])


TENSORS = dict(quant_method="compressed-tensors", format="mxfp8-quantized", config_groups=dict(group_0=GROUP), ignore=["lm_head"])
MODELOPT = dict(quant_method="modelopt", quant_algo="MXFP8", ignore=["lm_head"])
MXFP8 = dict(quant_method="mxfp8", fmt="e4m3", scale_fmt="ue8m0", weight_block_size=[1, 32])
# name: quantization_config, suffix of scales, block, their type, also the head
KINDS = {
    "128x128 F32": (blocks(128, 128), "_scale_inv", (128, 128), "F32", False),
    "128x128 BF16": (blocks(128, 128), "_scale_inv", (128, 128), "BF16", True),
    "128x128 F16": (blocks(128, 128), "_scale_inv", (128, 128), "F16", False),
    "128x128 E8M0": (dict(blocks(128, 128), scale_fmt="ue8m0"), "_scale_inv", (128, 128), "F8_E8M0", False),
    "64x32 F32": (blocks(64, 32), "_scale_inv", (64, 32), "F32", False),
    "1x128 F32": (blocks(1, 128), "_scale_inv", (1, 128), "F32", True),
    "compressed-tensors": (TENSORS, "_scale", (1, 32), "U8", False),
    "modelopt": (MODELOPT, "_scale", (1, 32), "U8", False),
    "modelopt E8M0": (MODELOPT, "_scale", (1, 32), "F8_E8M0", True),
    "mxfp8": (MXFP8, "_scale_inv", (1, 32), "U8", False),
}
SHAPES = [llama(72, 4, 2, 18, 130), llama(160, 5, 5, 26, 257), llama(33, 3, 1, 10, 31), llama(128, 4, 4, 32, 256), llama(200, 2, 1, 66, 129)]


def make(rng, shape, kind):
    """The config, the tensors in 8 bits, and in F32."""
    (config, shapes), (quantization, suffix, block, dtype, head) = shape, KINDS[kind]
    config = dict(config, quantization_config=quantization)
    low, high = {}, {}
    for name, size in shapes.items():
        if len(size) == 1 or name.startswith("model.embed") or (name == "lm_head.weight" and not head):
            low[name] = high[name] = ("F32", (rng.normal(1, 0.1, size) if len(size) == 1 else rng.normal(0, 1, size)).astype(np.float32))
            continue
        codes = random_codes(rng, size)
        stored, scales = random_scales(rng, (-(-size[0] // block[0]), -(-size[1] // block[1])), dtype)
        low[name], low[name + suffix] = ("F8_E4M3", codes), (dtype, stored)
        high[name] = ("F32", dequantize(codes, scales, block))
    return config, low, high


def run(folder, config, tensors):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    put_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    out = os.path.join(folder, "out")
    tokens = os.path.join(folder, "tokens")
    np.arange(1, 30, dtype=np.int32).tofile(tokens)
    result = subprocess.run([PROGRAM, folder, tokens, out], text=True, capture_output=True)
    return result, None if result.returncode else np.fromfile(out, np.uint32)


def check_values(folder):
    rng = np.random.default_rng(5)
    for kind in KINDS:
        for shape in SHAPES:
            config, low, high = make(rng, shape, kind)
            ours, in_8_bits = run(folder, config, low)
            demand(ours.returncode == 0, f"{kind} {shape[0]['hidden_size']}: {ours.stderr}")
            plain = {k: v for k, v in config.items() if k != "quantization_config"}
            theirs, in_floats = run(folder, plain, high)
            demand(theirs.returncode == 0, f"{kind}: in F32: {theirs.stderr}")
            demand(np.isfinite(in_floats.view(np.float32)).all(), f"{kind}: the case has no finite logits")
            demand(np.array_equal(in_8_bits, in_floats), f"{kind} {shape[0]['hidden_size']}: other logits than from the dequantized weights")


# ---- wrong folders ----

NAME = "model.layers.1.mlp.down_proj.weight"


def reshaped(change):
    def edit(config, low, suffix):
        dtype, array = low[NAME + suffix]
        old = array.shape
        low[NAME + suffix] = (dtype, change(array))
        new = low[NAME + suffix][1].shape
        return [NAME + suffix + ": expected " + str(old), "got " + (str(new) if len(new) != 1 else f"({new[0]})")]
    return edit


def padded(rows, cols):
    return reshaped(lambda s: np.pad(s, [(0, rows), (0, cols)], constant_values=1))


def without_scale(config, low, suffix):
    shape = low.pop(NAME + suffix)[1].shape
    return ["missing: " + NAME + suffix + " " + str(shape)]


def without_weight(config, low, suffix):
    shape = low.pop(NAME)[1].shape
    return ["missing: " + NAME + " " + str(shape), "surplus: " + NAME + suffix]


def stray_scale(config, low, suffix):
    low["model.embed_tokens.weight" + suffix] = low[NAME + suffix]
    return ["surplus: model.embed_tokens.weight" + suffix]


def scale_of_nothing(config, low, suffix):
    low["model.layers.7.mlp.up_proj.weight" + suffix] = low[NAME + suffix]
    return ["surplus: model.layers.7.mlp.up_proj.weight" + suffix]


def other_suffix(config, low, suffix):
    other = "_scale" if suffix == "_scale_inv" else "_scale_inv"
    low[NAME + other] = low.pop(NAME + suffix)
    return ["missing: " + NAME + suffix, "surplus: " + NAME + other]


def typed(name, dtype, make_array):
    def edit(config, low, suffix):
        low[name + suffix] = (dtype, make_array(low[name + suffix][1]))
        return [name + suffix + ": expected ", "got " + dtype]
    return edit


def code_type(config, low, suffix):
    low[NAME] = ("F8_E5M2", low[NAME][1])
    return [NAME + ": expected ", "got F8_E5M2"]


def norm_in_8_bits(config, low, suffix):
    name = "model.norm.weight"
    low[name] = ("F8_E4M3", np.full(low[name][1].shape, 0x38, np.uint8))
    return [name + ": expected F32, BF16 or F16, got F8_E4M3"]


def transposed_weight(config, low, suffix):
    old = low[NAME][1].shape
    low[NAME] = ("F8_E4M3", low[NAME][1].T)
    return [NAME + f": expected {old}, got {old[::-1]}"]


def no_config(config, low, suffix):
    del config["quantization_config"]
    return ["as config.json has no quantization_config"]


def nothing_in_8_bits(config, low, suffix):
    for name in [n for n in low if n.endswith(suffix)]:
        del low[name]
        weight = name[:-len(suffix)]
        low[weight] = ("F32", np.zeros(low[weight][1].shape, np.float32))
    return ["expected weights in F8_E4M3; none is"]


WRONG = [padded(1, 0), padded(0, 1), padded(0, 3), padded(127, 3), reshaped(lambda s: s.T), reshaped(lambda s: s.reshape(-1)),
         reshaped(lambda s: s[:1, :1].reshape(1)), reshaped(lambda s: s[:, :, None]), reshaped(lambda s: s[:, :-1]), without_scale,
         without_weight, stray_scale, scale_of_nothing, other_suffix, typed(NAME, "I8", lambda s: np.ones(s.shape, np.int8)),
         typed(NAME, "I32", lambda s: np.ones(s.shape, np.int32)), code_type, norm_in_8_bits, transposed_weight, no_config,
         nothing_in_8_bits]


def check_refusals(folder):
    rng = np.random.default_rng(6)
    for kind in KINDS:
        config, low, _ = make(rng, SHAPES[1], kind)
        suffix = KINDS[kind][1]
        edits = list(WRONG)
        if "_scale" == suffix or kind == "mxfp8":  # powers of two only
            edits.append(typed(NAME, "F32", lambda s: np.ones(s.shape, np.float32)))
        else:  # which a byte isn't
            edits.append(typed(NAME, "U8", lambda s: np.ones(s.shape, np.uint8)))
        for edit in edits:
            wrong_config, wrong = copy.deepcopy(config), dict(low)
            before = {name: array.shape for name, (_, array) in low.items()}
            words = edit(wrong_config, wrong, suffix)
            if wrong_config == config and {n: a.shape for n, (_, a) in wrong.items()} == before and \
                    {n: d for n, (d, _) in wrong.items()} == {n: d for n, (d, _) in low.items()}:
                continue  # a square of scales, transposed
            result, _ = run(folder, wrong_config, wrong)
            what = f"{kind}: {words}: {result.returncode} {result.stderr.strip()}"
            demand(result.returncode == 2 and result.stderr.count("\n") == 1, what)
            for word in words:
                demand(word in result.stderr, what)


with tempfile.TemporaryDirectory(prefix="octet-test-") as temporary:
    check_values(temporary)
    check_refusals(temporary)
print(f"{checked} comparisons")
