#!/usr/bin/env python3
"""Tiny models that transformers saves, read by octet: the same logits, and nothing ignored.

usage: hf_peers.py path/to/hf_logits
       hf_peers.py --make FOLDER   (what it runs itself, under each transformers)

OCTET_PEER_PYTHON names interpreters with torch and transformers, separated by colons (default: the one
that runs this); give one with transformers 4 and one with 5. Each makes a random model of every family and
spelling, with weights large enough that nothing is lost in rounding, and saves it with save_pretrained.
octet's fp32 logits must be within 1e-5 of transformers', all at once and token by token through its cache.
Where a case says what it tests, the logits without it must differ, or the case tests nothing. Then each
folder gets a key, a tensor, or loses one, and must be refused by name.

Exit status 77 (skipped) where no interpreter has transformers.
"""
import array
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

BASE = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
HEADS = dict(BASE, head_dim=24)
MOE = dict(HEADS, moe_intermediate_size=24, num_experts_per_tok=2, num_experts=6)
LATENT = dict(BASE, num_key_value_heads=4, moe_intermediate_size=24, num_experts_per_tok=2, n_routed_experts=8, n_group=4,
              topk_group=2, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=20, qk_nope_head_dim=12,
              qk_rope_head_dim=8, v_head_dim=10)
YARN = dict(rope_type="yarn", factor=40.0, original_max_position_embeddings=4096, beta_fast=32.0, beta_slow=1.0)
SHORT_YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)

# name: model type, configuration, rotary scaling, what is tested: the logits must change with these instead
CASES = {
    "llama": ("llama", BASE, None, None),
    "llama tied": ("llama", dict(BASE, tie_word_embeddings=True), None, None),
    "llama biases": ("llama", dict(BASE, mlp_bias=True, attention_bias=True), None, None),
    "llama eps": ("llama", dict(BASE, rms_norm_eps=0.1), None, dict(rms_norm_eps=1e-6)),
    "llama swish": ("llama", dict(BASE, hidden_act="swish"), None, None),
    "llama theta": ("llama", dict(BASE, rope_theta=500.0), None, dict(rope_theta=10000.0)),
    "llama linear": ("llama", BASE, dict(rope_type="linear", factor=4.0), dict(rope=None)),
    "llama linear 1": ("llama", BASE, dict(rope_type="linear", factor=1.0), None),
    "llama dynamic": ("llama", dict(BASE, max_position_embeddings=32), dict(rope_type="dynamic", factor=4.0), dict(rope=None)),
    "llama dynamic short": ("llama", BASE, dict(rope_type="dynamic", factor=4.0), None),
    "llama llama3": ("llama", BASE, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                         original_max_position_embeddings=32), dict(rope=None)),
    "llama yarn": ("llama", BASE, SHORT_YARN, dict(rope=None)),
    "llama yarn attention factor": ("llama", BASE, dict(SHORT_YARN, attention_factor=0.7), dict(rope=SHORT_YARN)),
    "llama yarn whole ramp": ("llama", dict(HEADS, rope_theta=100.0), dict(SHORT_YARN, truncate=False), dict(rope=SHORT_YARN)),
    "mistral": ("mistral", dict(BASE, sliding_window=7), None, dict(sliding_window=None)),
    "mistral no window": ("mistral", dict(BASE, sliding_window=None), None, dict(sliding_window=9)),
    "qwen2": ("qwen2", BASE, None, None),
    "qwen2 window": ("qwen2", dict(BASE, use_sliding_window=True, sliding_window=9, max_window_layers=1), None,
                     dict(use_sliding_window=False)),
    "qwen3": ("qwen3", HEADS, None, None),
    "qwen3 biases": ("qwen3", dict(HEADS, attention_bias=True), None, None),
    "qwen3 window": ("qwen3", dict(HEADS, use_sliding_window=True, sliding_window=32, max_window_layers=1), None,
                     dict(max_window_layers=3)),
    "qwen3 yarn": ("qwen3", HEADS, SHORT_YARN, dict(rope=None)),
    "qwen3_moe": ("qwen3_moe", dict(MOE, norm_topk_prob=True), None, dict(norm_topk_prob=False)),
    "qwen3_moe dense layers": ("qwen3_moe", dict(MOE, mlp_only_layers=[1]), None, None),
    "qwen3_moe sparse step": ("qwen3_moe", dict(MOE, decoder_sparse_step=2), None, None),
    "qwen3_moe window": ("qwen3_moe", dict(MOE, use_sliding_window=True, sliding_window=9), None,
                         dict(use_sliding_window=False)),
    "smollm2": ("llama", dict(BASE, tie_word_embeddings=True, rope_theta=100000.0), None, None),
    "smollm3": ("smollm3", dict(BASE, num_hidden_layers=5), None, dict(no_rope_layer_interval=3)),
    "smollm3 layers": ("smollm3", dict(BASE, no_rope_layers=[0, 1, 0]), None, dict(no_rope_layers=[1, 1, 1])),
    "smollm3 window": ("smollm3", dict(BASE, no_rope_layers=[1, 0, 1], use_sliding_window=True, sliding_window=5), None,
                       dict(use_sliding_window=False)),
    "smollm3 biases": ("smollm3", dict(BASE, mlp_bias=True, attention_bias=True, tie_word_embeddings=False), None, None),
    "deepseek_v3": ("deepseek_v3", LATENT, None, None),
    "deepseek_v3 eps": ("deepseek_v3", dict(LATENT, rms_norm_eps=0.1), None, dict(rms_norm_eps=1e-6)),
    "deepseek_v3 halves": ("deepseek_v3", dict(LATENT, rope_interleave=False), None, dict(rope_interleave=True)),
    "deepseek_v3 biases": ("deepseek_v3", dict(LATENT, attention_bias=True), None, None),
    "deepseek_v3 no query latent": ("deepseek_v3", dict(LATENT, q_lora_rank=None), None, None),
    "deepseek_v3 yarn": ("deepseek_v3", LATENT, dict(YARN, mscale=1.0, mscale_all_dim=1.0), dict(rope=None)),
    "deepseek_v3 yarn plain": ("deepseek_v3", LATENT, YARN, dict(rope=None)),
    "deepseek_v3 yarn mscale": ("deepseek_v3", LATENT, dict(YARN, mscale=1.0), dict(rope=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek_v3 yarn both": ("deepseek_v3", LATENT, dict(YARN, mscale=1.0, mscale_all_dim=0.707), dict(rope=YARN)),
}
# Weights in 8 bits: transformers runs on what they dequantize to.
WIDE = dict(BASE, hidden_size=160, intermediate_size=200, head_dim=20, num_attention_heads=8)
WIDE_LATENT = dict(LATENT, hidden_size=160, intermediate_size=200, moe_intermediate_size=136, kv_lora_rank=144)
FP8 = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128])
GROUP = dict(weights=dict(num_bits=8, type="float", strategy="group", group_size=32, symmetric=True, dynamic=False),
             input_activations=dict(num_bits=8, type="float", dynamic=True), targets=["Linear"])
QUANTIZED = {
    "llama blocks": ("llama", WIDE, FP8, "_scale_inv", (128, 128), "F32"),
    "deepseek_v3 blocks": ("deepseek_v3", WIDE_LATENT, FP8, "_scale_inv", (128, 128), "F32"),
    "deepseek_v3 blocks of powers": ("deepseek_v3", WIDE_LATENT, dict(FP8, scale_fmt="ue8m0"), "_scale_inv", (128, 128), "E8M0"),
    "llama compressed-tensors": ("llama", WIDE, dict(quant_method="compressed-tensors", format="mxfp8-quantized", ignore=["lm_head"],
                                                     config_groups=dict(group_0=GROUP), quantization_status="compressed"),
                                 "_scale", (1, 32), "U8"),
    "llama modelopt": ("llama", WIDE, dict(quant_method="modelopt", quant_algo="MXFP8", ignore=["lm_head"]), "_scale", (1, 32), "U8"),
    "llama mxfp8": ("llama", WIDE, dict(quant_method="mxfp8", fmt="e4m3", scale_fmt="ue8m0", activation_scheme="dynamic",
                                        weight_block_size=[1, 32], ignored_layers=["lm_head"]), "_scale_inv", (1, 32), "U8"),
    "qwen3_moe mxfp8": ("qwen3_moe", dict(MOE, hidden_size=72, moe_intermediate_size=40),
                        dict(quant_method="mxfp8", weight_block_size=[1, 32], scale_fmt="ue8m0", ignored_layers=["lm_head"]),
                        "_scale_inv", (1, 32), "E8M0"),
}
S = 64


# ---- under transformers ----

def make_model(model_type, config, rope):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    config = dict(config)
    if rope:
        config["rope_scaling"] = dict(rope)
    made = AutoConfig.for_model(model_type, **config)
    made._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(made, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, tensor in sorted(list(model.named_parameters()) + [b for b in model.named_buffers() if "correction" in b[0]]):
            noise = torch.randn(tensor.shape, generator=generator)
            norm = "norm" in name
            gain = 0.9 / tensor.shape[-1] ** 0.5 if tensor.dim() > 1 else 0.1
            tensor.copy_(1 + 0.1 * noise if norm else gain * noise)
    return model


def logits_of(model, tokens):
    import torch
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float()


def put_floats(path, tensor):
    path.write_bytes(tensor.contiguous().numpy().astype("<f4").tobytes())


def block_quantize(weight, block, kind):
    """Codes, scales and what they mean: one scale a block, ragged at the ends."""
    import torch
    rows, cols = -(-weight.shape[0] // block[0]), -(-weight.shape[1] // block[1])
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    scales, means = torch.empty(rows, cols), torch.empty(weight.shape)
    for r in range(rows):
        for c in range(cols):
            at = (slice(r * block[0], (r + 1) * block[0]), slice(c * block[1], (c + 1) * block[1]))
            scale = weight[at].abs().max() / 448
            if kind != "F32":
                scale = 2.0 ** torch.ceil(torch.log2(scale))
            codes[at] = (weight[at] / scale).to(torch.float8_e4m3fn)
            scales[r, c] = scale
            means[at] = codes[at].float() * scale
    if kind == "F32":
        return codes, scales, means
    exponents = (torch.log2(scales).round() + 127).to(torch.uint8)
    return codes, exponents if kind == "U8" else exponents.view(torch.float8_e8m0fnu), means


def quantize_folder(folder, model, quantization, suffix, block, kind):
    """The linears of layers in 8 bits in the file, dequantized in the model; heads and routers stay."""
    import torch
    from safetensors.torch import load_file, save_file
    path = folder / "model.safetensors"
    tensors, means = load_file(path), {}
    for name in list(tensors):
        tensor = tensors[name]
        if tensor.dim() == 2 and ".layers." in name and not name.endswith("mlp.gate.weight"):
            tensors[name], tensors[name + suffix], means[name] = block_quantize(tensor, block, kind)
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config))
    plain = folder / "plain"
    model.save_pretrained(plain)
    high = load_file(plain / "model.safetensors")
    high.update(means)
    save_file(high, plain / "model.safetensors", {"format": "pt"})
    from transformers import AutoModelForCausalLM
    dequantized = AutoModelForCausalLM.from_pretrained(plain, attn_implementation="eager").eval().float()
    shutil.rmtree(plain)
    assert isinstance(dequantized.lm_head.weight, torch.Tensor)
    return dequantized


def make_all(folder):
    import random
    import warnings
    import torch
    import transformers
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    draw = random.Random(3)
    tokens = [draw.randrange(BASE["vocab_size"]) for _ in range(S)]
    (folder / "tokens").write_bytes(array.array("i", tokens).tobytes())
    (folder / "version").write_text(transformers.__version__)
    skipped = {}
    for name, (model_type, config, rope, without) in CASES.items():
        try:
            model = make_model(model_type, config, rope)
        except Exception as why:  # a spelling that this version doesn't know
            skipped[name] = f"{type(why).__name__}: {why}"
            continue
        at = folder / name
        model.save_pretrained(at)
        put_floats(at / "logits", logits_of(model, tokens))
        if without is not None:
            changed = dict(config, **{k: v for k, v in without.items() if k != "rope"})
            other = make_model(model_type, changed, without.get("rope", rope))
            put_floats(at / "without", logits_of(other, tokens))
    for name, (model_type, config, quantization, suffix, block, kind) in QUANTIZED.items():
        model = make_model(model_type, config, None)
        at = folder / name
        model.save_pretrained(at)
        put_floats(at / "logits", logits_of(quantize_folder(at, model, quantization, suffix, block, kind), tokens))
    (folder / "skipped").write_text(json.dumps(skipped))


# ---- against octet ----

def floats(path):
    values = array.array("f")
    values.frombytes(path.read_bytes())
    return values


def distance(a, b):
    assert len(a) == len(b), (len(a), len(b))
    return max(abs(x - y) for x, y in zip(a, b))


class Failures(list):
    def demand(self, truth, what):
        if not truth:
            self.append(what)
            print("FAIL:", what)


def run(program, folder, tokens, out):
    return subprocess.run([program, folder, tokens, out], text=True, capture_output=True)


def edit_config(folder, edit):
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    (folder / "config.json").write_text(json.dumps(config))


def edit_tensors(folder, edit):
    """`edit` changes the header: name -> dtype, shape, bytes."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    tensors = {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]])
               for k, v in header.items() if k != "__metadata__"}
    edit(tensors)
    at, entries, body = 0, {}, b""
    for name, (dtype, shape, content) in tensors.items():
        entries[name] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(content)])
        at += len(content)
        body += content
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def stray(name, shape, dtype="F32"):
    count = 1
    for size in shape:
        count *= size
    return lambda tensors: tensors.__setitem__(name, (dtype, shape, bytes(4 * count)))


def drop(ending):
    def edit(tensors):
        del tensors[next(name for name in tensors if name.endswith(ending))]
    return edit


def reshape(ending):
    def edit(tensors):
        name = next(name for name in tensors if name.endswith(ending))
        dtype, shape, content = tensors[name]
        tensors[name] = (dtype, [1] + shape, content)
    return edit


REFUSALS = [
    (edit_config, lambda c: c.__setitem__("never_seen", 1), ["doesn't use", "never_seen"]),
    (edit_config, lambda c: c.__setitem__("attention_dropout", 0.5), ["attention_dropout"]),
    (edit_config, lambda c: c.__setitem__("hidden_act", "gelu"), ["hidden_act", "gelu"]),
    (edit_config, lambda c: c.__setitem__("quantization_config", FP8), None),
    (edit_tensors, stray("totally.unknown", [3, 5]), ["surplus: totally.unknown (3, 5)"]),
    (edit_tensors, stray("model.layers.9.mlp.up_proj.weight", [2]), ["surplus: model.layers.9.mlp.up_proj.weight (2)"]),
    (edit_tensors, stray("model.norm.bias", [64]), ["surplus: model.norm.bias (64)"]),
    (edit_tensors, stray("nine", [1] * 9), ["surplus: nine (1, 1, 1, 1, 1, 1, 1, 1, 1)"]),
    (edit_tensors, drop("self_attn.o_proj.weight"), ["missing: ", "self_attn.o_proj.weight ("]),
    (edit_tensors, reshape("input_layernorm.weight"), ["of another shape: ", "input_layernorm.weight: expected (", "got (1, "]),
]


def check_refusals(program, case, tokens, failures):
    quantized = "quantization_config" in (case / "config.json").read_text()
    for kind, edit, words in REFUSALS:
        with tempfile.TemporaryDirectory() as scratch:
            copy = pathlib.Path(scratch) / "m"
            shutil.copytree(case, copy)
            kind(copy, edit)
            if words is None and quantized:
                continue
            result = run(program, copy, tokens, os.devnull)
            what = f"{case.name}: {words or 'quantization_config over F32'}: {result.returncode} {result.stderr.strip()}"
            failures.demand(result.returncode == 2, what)
            for word in words or ["expected weights in F8_E4M3"]:
                failures.demand(word in result.stderr, what)


def check_quantized_refusals(program, case, suffix, tokens, failures):
    name = ".layers.1.self_attn.o_proj.weight"
    for edit, word in [(drop(name + suffix), "missing: model" + name + suffix), (reshape(name + suffix), "of another shape: ")]:
        with tempfile.TemporaryDirectory() as scratch:
            copy = pathlib.Path(scratch) / "m"
            shutil.copytree(case, copy)
            edit_tensors(copy, edit)
            result = run(program, copy, tokens, os.devnull)
            failures.demand(result.returncode == 2 and word in result.stderr, f"{case.name}: {word}: {result.stderr.strip()}")
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch) / "m"
        shutil.copytree(case, copy)
        edit_config(copy, lambda c: c.pop("quantization_config"))
        result = run(program, copy, tokens, os.devnull)
        failures.demand(result.returncode == 2 and "as config.json has no quantization_config" in result.stderr,
                        f"{case.name}: codes without a quantization_config: {result.stderr.strip()}")


def check_case(program, folder, name, failures):
    case, tokens = folder / name, folder / "tokens"
    out = folder / "out"
    result = run(program, case, tokens, out)
    if result.returncode:
        failures.demand(False, f"{name}: {result.stderr.strip()}")
        return
    ours, theirs = floats(out), floats(case / "logits")
    all_at_once, by_token = ours[: len(theirs)], ours[len(theirs) :]
    gap = distance(all_at_once, theirs)
    row = len(by_token)
    # Past its context a dynamic rotation turns cached keys otherwise than a whole sequence, in transformers too.
    cache_gap = 0.0 if name == "llama dynamic" else distance(by_token, theirs[-row:])
    print(f"  {name:32} {gap:.2e}  through the cache {cache_gap:.2e}  largest logit {max(map(abs, theirs)):.1f}")
    failures.demand(gap <= 1e-5, f"{name}: logits differ by {gap:.2e}")
    failures.demand(cache_gap <= 1e-5, f"{name}: logits through the cache differ by {cache_gap:.2e}")
    if (case / "without").exists():
        failures.demand(distance(theirs, floats(case / "without")) > 1e-3, f"{name}: the case tests nothing")


def check_python(python, program, failures):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        made = subprocess.run([python, __file__, "--make", folder], text=True, capture_output=True,
                              env=dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false"))
        if made.returncode:
            failures.demand(False, f"{python}: {made.stderr.strip()[-2000:]}")
            return
        skipped = json.loads((folder / "skipped").read_text())
        print(f"transformers {(folder / 'version').read_text()}")
        for name, why in skipped.items():
            failures.demand(False, f"{name}: not made: {why}")
        for name in [n for n in CASES if n not in skipped] + list(QUANTIZED):
            check_case(program, folder, name, failures)
        for name in [n for n in CASES if n not in skipped and len(n.split()) == 1] + list(QUANTIZED):
            for leftover in ("logits", "without"):
                (folder / name / leftover).unlink(missing_ok=True)
            check_refusals(program, folder / name, folder / "tokens", failures)
        for name in QUANTIZED:
            check_quantized_refusals(program, folder / name, QUANTIZED[name][3], folder / "tokens", failures)


def main():
    if sys.argv[1] == "--make":
        make_all(pathlib.Path(sys.argv[2]))
        return 0
    failures, found = Failures(), False
    for python in os.environ.get("OCTET_PEER_PYTHON", sys.executable).split(":"):
        if subprocess.run([python, "-c", "import torch, transformers, safetensors"], capture_output=True).returncode:
            print("SKIP:", python, "has no torch and transformers; OCTET_PEER_PYTHON names interpreters that do")
            continue
        found = True
        check_python(python, sys.argv[1], failures)
    if not found:
        return 77
    print(f"{len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
