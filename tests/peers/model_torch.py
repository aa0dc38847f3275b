#!/usr/bin/env python3
"""The whole model's loss and gradients against PyTorch, on the same weights.

usage: model_torch.py path/to/model_dump

For several small llama3, qwen3 and deepseek_v3 models, with experts too: model_dump draws weights and takes one training step in
fp32; the model below, written with PyTorch's own operators, takes the same step from the same file
in fp64 and in fp32. Both fp32 results are compared with the fp64 one, as |a - b| / |b| over all
gradients, and tensor by tensor; ours may be at most 4 times as far away as PyTorch's own (and 1e-5
as a whole). Then the Hugging Face file: the same model with half-split rotation must give the same
loss, which proves names and the permutation of wq and wk. Of models with experts, the tokens of each
expert and the routers' biases after the step are compared as well. Of models whose attention stays inside documents the mask is
torchtitan's, element by element; PyTorch's flex attention with a block mask, which has no backward on CPUs, must give the same where
there is one.

Prints a table. Exit status 77 (skipped) where PyTorch is missing.
"""
import json
import math
import re
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("SKIP: PyTorch is missing for", sys.executable, "(Debian: python3-torch)")
    sys.exit(77)

try:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
except ImportError:  # before PyTorch 2.5
    flex_attention = None

B, S = 2, 33
END = 3  # the token that model_dump ends documents with
DTYPES = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32, "I64": torch.int64}
LATENT = dict(flavor="demo", vocab_size=100, dim=64, n_heads=3, hidden_dim=96, kv_lora_rank=24, qk_nope_head_dim=12,
              qk_rope_head_dim=8, v_head_dim=10, moe_inter_dim=24)
CASES = {
    "llama3 grouped heads": ("llama3", dict(vocab_size=100, dim=64, n_layers=3, n_heads=4, n_kv_heads=2, hidden_dim=96)),
    "llama3 tied": ("llama3", dict(vocab_size=100, dim=64, n_layers=2, n_heads=4, enable_weight_tying="true")),
    "llama3 unscaled rotation": ("llama3", dict(vocab_size=64, dim=48, n_layers=2, n_heads=2, rope_scaling="false", rope_theta=100)),
    "llama3 scaled from 16": ("llama3", dict(vocab_size=64, dim=64, n_layers=2, n_heads=2, rope_theta=100,
                                            rope_original_max_position_embeddings=64)),
    "qwen3": ("qwen3", dict(vocab_size=100, dim=64, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=24, hidden_dim=96,
                            enable_weight_tying="false")),
    "qwen3 tied": ("qwen3", dict(vocab_size=100, dim=64, n_layers=2, n_heads=4, n_kv_heads=1, head_dim=16, hidden_dim=96)),
    "qwen3 experts": ("qwen3", dict(flavor="demo_moe", vocab_size=100, dim=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=16,
                                    moe_inter_dim=24, num_experts=6, top_k=3)),
    "qwen3 scores before": ("qwen3", dict(flavor="demo_moe", vocab_size=100, dim=64, n_layers=2, n_heads=4, n_kv_heads=2,
                                          head_dim=16, moe_inter_dim=24, score_before_experts="true", route_norm="false")),
    "deepseek_v3": ("deepseek_v3", dict(LATENT, n_layers=3)),
    "deepseek_v3 query latent": ("deepseek_v3", dict(LATENT, q_lora_rank=20, n_layers=2)),
    "deepseek_v3 yarn": ("deepseek_v3", dict(LATENT, n_layers=2, max_seq_len=64, original_seq_len=16, mscale=0.7)),
    "deepseek_v3 softmax": ("deepseek_v3", dict(LATENT, n_layers=2, score_func="softmax", route_norm="false",
                                                num_expert_groups=0, top_k=3, num_shared_experts=2, route_scale=2.5)),
    "llama3 documents": ("llama3", dict(vocab_size=100, dim=64, n_layers=3, n_heads=4, n_kv_heads=2, hidden_dim=96,
                                        attn_mask_type="block_causal")),
    "qwen3 experts, documents": ("qwen3", dict(flavor="demo_moe", vocab_size=100, dim=64, n_layers=2, n_heads=4, n_kv_heads=2,
                                               head_dim=16, moe_inter_dim=24, attn_mask_type="block_causal")),
    "deepseek_v3 documents": ("deepseek_v3", dict(LATENT, n_layers=3, attn_mask_type="block_causal")),
    "deepseek_v3 dense": ("deepseek_v3", dict(LATENT, n_layers=2, num_experts=0, top_k=0, num_shared_experts=0)),
}
DEFAULTS = {
    "llama3": dict(flavor="debugmodel", rope_theta=500000, rope_scaling="true", rope_original_max_position_embeddings=8192, norm_eps=1e-5),
    "qwen3": dict(flavor="debugmodel", rope_theta=1000000, rope_scaling="false", norm_eps=1e-6),
    "deepseek_v3": dict(rope_theta=10000, rope_scaling="yarn", norm_eps=1e-5, q_lora_rank=0, max_seq_len=16384,
                        original_seq_len=4096, mscale=1.0, num_experts=8, top_k=2, score_func="sigmoid", route_norm="true",
                        route_scale=1.0, num_expert_groups=4, num_limited_groups=2, score_before_experts="false",
                        n_dense_layers=1),
}
MOE = dict(rope_theta=10000, num_experts=8, top_k=2, score_func="softmax", route_norm="true", route_scale=1.0,
           num_expert_groups=0, score_before_experts="false")
LOAD_BALANCE_COEFF = 1e-3


def read_safetensors(path):
    data = open(path, "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, info in json.loads(data[8 : 8 + n]).items():
        if name != "__metadata__":
            begin, end = (8 + n + offset for offset in info["data_offsets"])
            flat = torch.frombuffer(bytearray(data[begin:end]), dtype=DTYPES[info["dtype"]])
            tensors[name] = flat.reshape(info["shape"])
    return tensors


YARN_FACTOR = 40.0


def uses_yarn(args):
    return args["rope_scaling"] == "yarn" and args["max_seq_len"] > args["original_seq_len"]


def rotary_angles(args, head_dim):
    frequency = 1.0 / args["rope_theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim)
    if args["rope_scaling"] == "true":
        context, factor, low, high = args["rope_original_max_position_embeddings"], 8.0, 1.0, 4.0
        turns = context * frequency / (2 * math.pi)  # in the original context
        share = ((turns - low) / (high - low)).clamp(0, 1)
        frequency = share * frequency + (1 - share) * frequency / factor
    if uses_yarn(args):
        # the pairs that make 32 turns and 1 turn in the original context bound a linear ramp
        low, high = (head_dim * math.log(args["original_seq_len"] / (turns * 2 * math.pi)) / (2 * math.log(args["rope_theta"]))
                     for turns in (32, 1))
        low, high = max(math.floor(low), 0), min(math.ceil(high), head_dim - 1)
        ramp = ((torch.arange(head_dim // 2) - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        frequency = frequency / YARN_FACTOR * ramp + frequency * (1 - ramp)
    return torch.outer(torch.arange(S).float(), frequency)


def rotate(x, angles, halves):
    """x (B,S,heads,head_dim)"""
    cos, sin = (f(angles).to(x.dtype)[:, None, :] for f in (torch.cos, torch.sin))
    half = x.shape[-1] // 2
    a, b = (x[..., :half], x[..., half:]) if halves else (x[..., 0::2], x[..., 1::2])
    turned = a * cos - b * sin, a * sin + b * cos
    return torch.cat(turned, -1) if halves else torch.stack(turned, -1).flatten(-2)


class Peer:
    """The model over a dictionary of weights with torchtitan's names."""

    def __init__(self, weights, biases, args, halves):
        self.w, self.biases, self.args, self.halves = weights, biases, args, halves
        self.tokens = {}  # of each expert, by the name of the bias

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.args["norm_eps"]) * self.w[name + ".weight"]

    def heads(self, x, name, norm, angles):
        x = F.linear(x, self.w[name + ".weight"]).unflatten(-1, (-1, self.head_dim))
        if norm + ".weight" in self.w:
            x = self.norm(x, norm)
        return rotate(x, angles, self.halves).transpose(1, 2)

    def attend(self, q, k, v, scale):
        """q, k (B,heads,S,a), v (B,heads,S,b)"""
        if self.args.get("attn_mask_type") == "block_causal":
            return self.attend_documents(q, k, v, scale).transpose(1, 2).flatten(-2)
        hidden = torch.full((S, S), -math.inf, dtype=q.dtype).triu(1)
        p = (scale * q @ k.transpose(-1, -2) + hidden).softmax(-1)
        return (p @ v).transpose(1, 2).flatten(-2)

    def attend_documents(self, q, k, v, scale):
        """torchtitan's get_document_mask_mod: a document's number is how many ended before the token"""
        document = torch.zeros_like(self.ids)
        document[:, 1:] = (self.ids == END).cumsum(1)[:, :-1]

        def sees(b, h, i, j):
            return (i >= j) & (document[b, i] == document[b, j])

        row = torch.arange(S)
        mask = torch.stack([sees(b, 0, row[:, None], row[None, :]) for b in range(B)]).unsqueeze(1)
        o = (scale * q @ k.transpose(-1, -2)).masked_fill(~mask, -math.inf).softmax(-1) @ v
        if flex_attention:
            flex = flex_attention(*(t.detach() for t in (q, k, v)), scale=scale,
                                  block_mask=create_block_mask(sees, B, None, S, S, device="cpu"))
            assert (o.detach() - flex).abs().max() <= (1e-12 if q.dtype == torch.float64 else 1e-5) * o.abs().max()
        return o

    def latent_attention(self, x, name):
        a = self.args
        nope, rope, v_dim, rank = (a[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"))
        angles = rotary_angles(a, rope)
        if a["q_lora_rank"]:
            q = self.linear(self.norm(self.linear(x, name + ".wq_a"), name + ".q_norm"), name + ".wq_b")
        else:
            q = self.linear(x, name + ".wq")
        q_nope, q_rope = q.unflatten(-1, (-1, nope + rope)).split([nope, rope], -1)
        latent, k_rope = self.linear(x, name + ".wkv_a").split([rank, rope], -1)
        up = self.linear(self.norm(latent, name + ".kv_norm"), name + ".wkv_b").unflatten(-1, (-1, nope + v_dim))
        k_nope, v = up.split([nope, v_dim], -1)
        k_rope = rotate(k_rope.unsqueeze(2), angles, self.halves).expand(-1, -1, a["n_heads"], -1)
        q = torch.cat([q_nope, rotate(q_rope, angles, self.halves)], -1)
        k = torch.cat([k_nope, k_rope], -1)
        mscale = 0.1 * a["mscale"] * math.log(YARN_FACTOR) + 1 if uses_yarn(a) else 1
        o = self.attend(*(t.transpose(1, 2) for t in (q, k, v)), mscale ** 2 / math.sqrt(nope + rope))
        return self.linear(o, name + ".wo")

    def linear(self, x, name):
        return F.linear(x, self.w[name + ".weight"])

    def choose(self, scores, bias):
        """the experts of each token, by score and bias, within the best groups"""
        a, keys = self.args, scores.detach() + bias.to(scores.dtype)
        if a["num_expert_groups"]:
            groups = keys.unflatten(-1, (a["num_expert_groups"], -1))
            best = groups.topk(2, -1).values.sum(-1).topk(a["num_limited_groups"], -1).indices
            kept = torch.zeros(groups.shape[:-1], dtype=torch.bool).scatter(-1, best, True)
            keys = groups.masked_fill(~kept.unsqueeze(-1), -math.inf).flatten(-2)
        return keys.topk(a["top_k"], -1).indices

    def moe(self, x, name):
        """a loop over the experts; every token is multiplied by all, weight 0 drops what isn't chosen"""
        a, flat = self.args, x.flatten(0, 1)
        logits = self.linear(flat, name + ".router.gate")
        scores = logits.sigmoid() if a["score_func"] == "sigmoid" else logits.softmax(-1)
        chosen = self.choose(scores, self.biases[name + ".expert_bias"])
        weights = scores.gather(-1, chosen)
        if a["route_norm"] == "true":
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        weights = weights * a["route_scale"]
        self.tokens[name + ".expert_bias"] = torch.bincount(chosen.flatten(), minlength=a["num_experts"])
        y = torch.zeros_like(flat)
        if name + ".shared_experts.w1.weight" in self.w:
            y = self.feed_forward(flat, name + ".shared_experts")
        for e in range(a["num_experts"]):
            w1, w2, w3 = (self.w[f"{name}.experts.{w}"][e] for w in ("w1", "w2", "w3"))
            weight = (weights * (chosen == e)).sum(-1, keepdim=True)
            inside, outside = (weight, 1) if a["score_before_experts"] == "true" else (1, weight)
            h = flat * inside
            y = y + outside * F.linear(F.silu(F.linear(h, w1)) * F.linear(h, w3), w2)
        return y.unflatten(0, x.shape[:2])

    def attention(self, x, name):
        if name + ".wkv_a.weight" in self.w:
            return self.latent_attention(x, name)
        self.head_dim = self.w[name + ".wq.weight"].shape[0] // self.args["n_heads"]
        angles = rotary_angles(self.args, self.head_dim)
        q = self.heads(x, name + ".wq", name + ".q_norm", angles)
        k = self.heads(x, name + ".wk", name + ".k_norm", angles)
        v = F.linear(x, self.w[name + ".wv.weight"]).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        repeat = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(repeat, 1) for t in (k, v))
        return self.linear(self.attend(q, k, v, 1 / math.sqrt(self.head_dim)), name + ".wo")

    def feed_forward(self, x, name):
        gate, up = (F.linear(x, self.w[f"{name}.{w}.weight"]) for w in ("w1", "w3"))
        return F.linear(F.silu(gate) * up, self.w[name + ".w2.weight"])

    def loss(self, tokens, targets):
        self.ids = tokens
        x = self.w["tok_embeddings.weight"][tokens.long()]
        for i in range(self.args["n_layers"]):
            layer = f"layers.{i}"
            x = x + self.attention(self.norm(x, layer + ".attention_norm"), layer + ".attention")
            has_experts = layer + ".moe.router.gate.weight" in self.w
            inner = self.moe if has_experts else self.feed_forward
            x = x + inner(self.norm(x, layer + ".ffn_norm"), layer + (".moe" if has_experts else ".feed_forward"))
        head = self.w.get("output.weight", self.w["tok_embeddings.weight"])
        logits = F.linear(self.norm(x, "norm"), head)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=-100)


def step(weights, args, halves, tokens, targets, dtype):
    """the loss, the gradients, and the tokens of each expert"""
    biases = {name: w for name, w in weights.items() if name.endswith(".expert_bias")}
    leaves = {name: w.to(dtype).requires_grad_() for name, w in weights.items() if name not in biases}
    peer = Peer(leaves, biases, args, halves)
    loss = peer.loss(tokens, targets)
    loss.backward()
    return loss.item(), {name: w.grad.double() for name, w in leaves.items()}, peer.tokens


def routing_agrees(weights, got, counts):
    """the counts, and the biases after torchtitan's update by their signs"""
    for name, n in counts.items():
        delta = LOAD_BALANCE_COEFF * torch.sign(n.float().mean() - n.float())
        moved = weights[name] + delta - delta.mean()
        if not torch.equal(got["tokens." + name], n) or (got["moved." + name] - moved).abs().max() > 1e-8:
            print(f"  {name}: tokens {got['tokens.' + name].tolist()}, expected {n.tolist()}; bias "
                  f"{got['moved.' + name].tolist()}, expected {moved.tolist()}")
            return False
    return True


def distance(a, b):
    difference = sum((a[name].double() - b[name]).pow(2).sum().item() for name in b)
    return math.sqrt(difference / sum(b[name].pow(2).sum().item() for name in b))


def from_hf(weights, biases):
    names = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output",
             "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
             "self_attn.o_proj": "attention.wo", "self_attn.q_norm": "attention.q_norm", "self_attn.k_norm": "attention.k_norm",
             "self_attn.q_a_proj": "attention.wq_a", "self_attn.q_a_layernorm": "attention.q_norm",
             "self_attn.q_b_proj": "attention.wq_b", "self_attn.kv_a_proj_with_mqa": "attention.wkv_a",
             "self_attn.kv_a_layernorm": "attention.kv_norm", "self_attn.kv_b_proj": "attention.wkv_b",
             "mlp.shared_experts.gate_proj": "moe.shared_experts.w1", "mlp.shared_experts.down_proj": "moe.shared_experts.w2",
             "mlp.shared_experts.up_proj": "moe.shared_experts.w3", "mlp.gate.": "moe.router.gate.",
             "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
             "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "model.layers": "layers"}
    result, experts = dict(biases), {}
    for hf_name, w in weights.items():
        found = re.fullmatch(r"model\.(layers\.\d+)\.mlp\.experts\.(\d+)\.(gate|down|up)_proj\.weight", hf_name)
        if found:
            matrix = {"gate": "w1", "down": "w2", "up": "w3"}[found[3]]
            experts.setdefault(f"{found[1]}.moe.experts.{matrix}", {})[int(found[2])] = w
            continue
        name = hf_name
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        result[name] = w
    for name, matrices in experts.items():
        result[name] = torch.stack([matrices[e] for e in range(len(matrices))])
    return result


def run_case(title, dump, model, given):
    experts = MOE if given.get("flavor") == "demo_moe" else {}
    args = {**DEFAULTS[model], **experts, **given}
    halves = model == "qwen3"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([dump, folder, model, args["flavor"]] + [f"{k}={v}" for k, v in given.items() if k != "flavor"],
                       check=True)
        weights, hf, got = (read_safetensors(f"{folder}/{n}.safetensors") for n in ("weights", "hf", "step"))
    tokens, targets, loss = got.pop("tokens"), got.pop("targets"), got.pop("loss").item()
    grads = {name[len("grad."):]: g for name, g in got.items() if name.startswith("grad.")}
    biases = {name: w for name, w in weights.items() if name.endswith(".expert_bias")}
    assert grads.keys() | biases.keys() == weights.keys()
    exact_loss, exact, counts = step(weights, args, halves, tokens, targets, torch.float64)
    peer_loss, peer, _ = step(weights, args, halves, tokens, targets, torch.float32)
    ours, theirs = distance(grads, exact), distance(peer, exact)
    ratios = {name: distance({name: grads[name]}, {name: exact[name]}) /
              max(distance({name: peer[name]}, {name: exact[name]}), 1e-7) for name in exact}
    worst = max(ratios, key=ratios.get)
    # llama3's pairs lie otherwise there; deepseek_v3's don't
    hf_loss, _, _ = step(from_hf(hf, biases), args, model != "deepseek_v3", tokens, targets, torch.float64)
    print(f"{title:26} {loss:9.6f} {abs(loss / exact_loss - 1):9.1e} {abs(peer_loss / exact_loss - 1):9.1e}"
          f" {ours:9.1e} {theirs:9.1e} {ratios[worst]:6.2f} {worst}")
    # The Hugging Face model turns by the same angles in another order of the elements.
    hf_agrees = abs(hf_loss / exact_loss - 1) < 1e-12
    if not hf_agrees:
        print(f"  Hugging Face's layout gives loss {hf_loss}, expected {exact_loss}")
    return (hf_agrees and routing_agrees(weights, got, counts) and ours <= 1e-5 and ours <= 4 * max(theirs, 1e-7) and ratios[worst] <= 4
            and abs(loss / exact_loss - 1) <= 1e-6)


def main():
    torch.set_num_threads(1)
    print("relative to PyTorch's fp64: loss, gradients; ours and PyTorch's fp32; the worst tensor's ratio of both")
    print(f"{'model':26} {'loss':>9} {'ours':>9} {'torch':>9} {'ours':>9} {'torch':>9} {'ratio':>6}")
    failed = [title for title, case in CASES.items() if not run_case(title, sys.argv[1], *case)]
    print("failed: " + ", ".join(failed) if failed else f"all {len(CASES)} models agree")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
