#!/usr/bin/env python3
"""Models that leave octet, under transformers and compressed-tensors: the same logits, the same weights, the same words.

usage: export_peers.py OCTET HF_LOGITS WEIGHTS_DUMP
       export_peers.py --make | --read | --decompress FOLDER   (what it runs itself, under another Python)

OCTET_PEER_PYTHON names interpreters with torch and transformers, separated by colons (default: the one that runs this); give
one with transformers 4 and one with 5, and for the quantized ones any with compressed-tensors.

1. octet trains a small model of each family and exports it; transformers must find every tensor, no other, agree on fp32
   logits within 1e-5 and go on greedily with the same 64 tokens; torch.distributed.checkpoint loads the masters from dcp.
2. transformers makes a model of every family and spelling (hf_peers.py has the list); octet exports the folder, and what
   comes back has the same tensors bit for bit, the same logits, and a config.json that means the same; also by way of a job
   that loads it and trains nothing.
3. `octet eval` on questions and on overlapping windows is what a few lines make of transformers' logits.
4. Models trained in MXFP8 leave in each dialect; what compressed-tensors, or a few lines of torch, dequantize from the files
   is what training multiplied by, bit for bit.

Exit status 77 (skipped) where no interpreter has transformers.
"""
import array
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import hf_peers
from hf_peers import CASES, Failures, distance, floats

TOKENS, GREEDY, N_TEXTS = 48, 64, 300
WINDOWS = [(32, 16), (64, 64), (100, 7)]
WORDS = "the lord said unto moses go down to egypt and say let my people go".split()
PROMPT = "the lord said unto moses"
JOB = """
[job]
dump_folder = "%(folder)s"
[model]
name = "%(name)s"
flavor = "%(flavor)s"
tokenizer_path = "tokenizer.json"
converters = %(converters)s
[model.args]
dim = 64
n_layers = 2
n_heads = 4
vocab_size = 320
%(args)s
[optimizer]
lr = 3e-3
[lr_scheduler]
warmup_steps = 2
[training]
dataset_path = "text.txt"
local_batch_size = 4
seq_len = 128
steps = 12
[checkpoint]
enable = true
interval = 12
[quantize.linear.mx]
filter_fqns = ["output", "router.gate", "wkv_a"]
"""
DENSE = dict(hidden_dim=96, n_kv_heads=2)
EXPERTS = dict(hidden_dim=96, n_kv_heads=2, head_dim=16, num_experts=4, top_k=2, moe_inter_dim=32)
LATENT = dict(hidden_dim=96, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16, num_experts=8, top_k=2,
              num_shared_experts=1, moe_inter_dim=32, n_dense_layers=1, norm_eps=1e-6, score_func="sigmoid", route_norm=True,
              route_scale=2.5, num_expert_groups=4, num_limited_groups=2)
# name: model, flavor, model.args
TRAINED = {
    "llama3": ("llama3", "debugmodel", DENSE),
    "llama3 tied": ("llama3", "debugmodel", dict(DENSE, enable_weight_tying=True)),
    "llama3 scaled": ("llama3", "demo", dict(DENSE, rope_scaling=True, rope_original_max_position_embeddings=32)),
    "qwen3": ("qwen3", "debugmodel", dict(DENSE, head_dim=24, enable_weight_tying=False)),
    "qwen3 tied": ("qwen3", "debugmodel", dict(DENSE, head_dim=24)),
    "qwen3 experts": ("qwen3", "debugmodel_moe", dict(EXPERTS, load_balance_coeff=0.0)),
    "deepseek_v3": ("deepseek_v3", "debugmodel", dict(LATENT, load_balance_coeff=0.05)),
    "deepseek_v3 query latent": ("deepseek_v3", "debugmodel", dict(LATENT, q_lora_rank=24)),
    "deepseek_v3 yarn": ("deepseek_v3", "debugmodel", dict(LATENT, rope_original_max_position_embeddings=64, mscale=1.0)),
    "deepseek_v3 tied": ("deepseek_v3", "debugmodel", dict(LATENT, enable_weight_tying=True, num_expert_groups=0)),
}
QUANTIZED = ["llama3", "llama3 tied", "qwen3 experts", "deepseek_v3"]
DIALECTS = {"compressed-tensors": "_scale", "modelopt": "_scale", "mxfp8": "_scale_inv"}
# By way of a job: a kind each.
BY_JOB = ["llama", "mistral", "qwen2 window", "qwen3", "qwen3_moe", "smollm3", "deepseek_v3", "deepseek_v3 yarn"]
YAML = """
model: {model_name_or_path: "%(case)s"}
data:
  dataset_param: {basic_parameters: {dataset: text.txt, cutoff_len: 32}}
training: {lr: 0, train_iters: 1, micro_batch_size: 2, save: "%(out)s", save_interval: 1, load: "%(case)s"}
"""


# ---- under transformers ----

def load_dcp(folder):
    """Each folder named in `work` as torch.distributed.checkpoint loads it, to a safetensors file."""
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    quiet()
    for name in json.loads((folder / "work").read_text())["dcp"]:
        metadata = dcp.FileSystemReader(folder / name).read_metadata()
        state = {key: torch.empty(t.size, dtype=t.properties.dtype) for key, t in metadata.state_dict_metadata.items()}
        dcp.load(state, checkpoint_id=folder / name)
        save_file(state, folder / (name + ".loaded"))


def save_rank(rank, folder, names):
    """One of two processes that save together: FSDP2's model of the file, experts by expert or by rows within."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    quiet()
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))

    class Model(torch.nn.Module):
        """Parameters by torchtitan's names, in a tree of modules."""

        def put(self, name, tensor):
            first, _, rest = name.partition(".")
            if rest:
                if not hasattr(self, first):
                    self.add_module(first, Model())
                getattr(self, first).put(rest, tensor)
            else:
                self.register_parameter(first, torch.nn.Parameter(tensor))

    for name in names:
        tensors = load_file(folder / (name + ".loaded"))
        model, state = Model(), {}
        for key, tensor in tensors.items():
            if tensor.dim() == 3:
                state[key] = distribute_tensor(tensor, mesh, [Shard(len(state) % 2)])
            elif "expert_bias" in key:
                state[key] = tensor
            else:
                model.put(key, tensor)
        from torch.distributed.fsdp import fully_shard
        fully_shard(model, mesh=mesh)
        state.update(model.state_dict())
        first = next(iter(model.state_dict()))
        state.update({"optimizer.state." + first + ".exp_avg": state[first], "lr_scheduler": {"step": 3}, "train_state": {"step": 3}})
        dcp.save(state, checkpoint_id=folder / (name + " of ranks"))
    dist.destroy_process_group()


def save_dcp(folder):
    import torch.multiprocessing
    names = json.loads((folder / "work").read_text())["save"]
    torch.multiprocessing.spawn(save_rank, (folder, names), nprocs=2)


def quiet():
    import warnings
    import torch
    import transformers
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)


def open_model(folder):
    from transformers import AutoModelForCausalLM
    model, info = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    left = {key: sorted(info[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[key]}
    if left:
        raise ValueError(f"{folder}: {left}")
    return model.eval().float()


def means_the_same(one, other):
    from transformers import AutoConfig
    a, b = (AutoConfig.from_pretrained(folder).to_dict() for folder in (one, other))
    for config in (a, b):
        # The layers that predict further tokens aren't read, so that an export says it has none.
        for key in ("_name_or_path", "transformers_version", "num_nextn_predict_layers"):
            config.pop(key, None)
    return {key: (a.get(key), b.get(key)) for key in sorted(set(a) | set(b)) if a.get(key) != b.get(key)}


def make(folder):
    """What transformers makes, with octet's tokenizer and room for its vocabulary."""
    import shutil
    import transformers
    quiet()
    (folder / "version").write_text(transformers.__version__)
    for name, (model_type, config, rope, _) in CASES.items():
        model = hf_peers.make_model(model_type, dict(config, vocab_size=320), rope)
        model.save_pretrained(folder / name)
        shutil.copy(folder / "tokenizer.json", folder / name)


def answers(model, tokenizer, questions):
    """Of how many questions the likeliest choice is the answer: summed, and a character."""
    import numpy
    import torch
    right = [0, 0]
    for question in questions:
        before = tokenizer(question["question"]).input_ids
        scores = []
        for choice in question["choices"]:
            ids = tokenizer(question["question"] + " " + choice).input_ids
            logits = hf_peers.logits_of(model, ids).numpy().astype(numpy.float64)
            logs = logits - numpy.logaddexp.reduce(logits, axis=1, keepdims=True)
            total = sum(logs[i - 1, ids[i]] for i in range(len(before), len(ids)))
            scores.append((total, total / len(choice)))
        for kind in (0, 1):
            right[kind] += int(numpy.argmax([s[kind] for s in scores])) == question["answer"]
    return [r / len(questions) for r in right]


def strided_loss(model, ids, window, stride):
    """As transformers' guide to perplexity has it, with max_length = window + 1."""
    import torch
    total = count = done = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window + 1, len(ids))
        new = end - done
        logs = torch.log_softmax(hf_peers.logits_of(model, ids[begin:end]).double(), -1)
        for i in range(max(end - begin - new, 1), end - begin):
            total -= logs[i - 1, ids[begin + i]].item()
            count += 1
        done = end
        if end == len(ids):
            break
    return total / count, count


def read(folder):
    """For each folder named in `work`: its logits and greedy tokens, or in which ways it differs from another."""
    import torch
    from safetensors.torch import load_file
    quiet()
    work = json.loads((folder / "work").read_text())
    tokens = array.array("i", (folder / "tokens").read_bytes())
    prompt = torch.tensor([work["prompt"]])
    results = {}
    for name in work["logits"]:
        model = open_model(folder / name)
        hf_peers.put_floats(folder / (name + ".logits"), hf_peers.logits_of(model, list(tokens)))
        with torch.no_grad():
            out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=GREEDY, do_sample=False,
                                 pad_token_id=0)[0]
        results[name] = out[prompt.shape[1]:].tolist()
    if work.get("questions"):
        from transformers import AutoTokenizer
        model, tokenizer = open_model(folder / work["judge"]), AutoTokenizer.from_pretrained(folder / work["judge"])
        ids = tokenizer((folder / "judged.txt").read_text()).input_ids + [tokenizer.eos_token_id]
        results["eval"] = dict(answers=answers(model, tokenizer, work["questions"]),
                               losses=[strided_loss(model, ids, w, s) for w, s in WINDOWS])
    for one, other in work["pairs"]:
        a, b = load_file(folder / one / "model.safetensors"), load_file(folder / other / "model.safetensors")
        found = [key for key in sorted(set(a) | set(b))
                 if key not in a or key not in b or a[key].dtype != b[key].dtype or not torch.equal(a[key], b[key])]
        same = torch.equal(*(hf_peers.logits_of(open_model(folder / f), list(tokens)) for f in (one, other)))
        results[other] = dict(tensors=found, config={k: [repr(v) for v in pair] for k, pair in
                                                     means_the_same(folder / one, folder / other).items()}, logits=same)
    (folder / "read").write_text(json.dumps(results))


# ---- under compressed-tensors ----

def opened_alike(folder, method, values):
    """Whether transformers 5 itself opens the folder to the same weights, how many; None where it can't."""
    import importlib.util
    import torch
    import transformers
    if method == "modelopt" or transformers.__version__ < "5" or not importlib.util.find_spec("accelerate"):
        return None
    if method == "compressed-tensors" and any(".experts." in name for name in values):
        return None  # it takes experts' scales as one a row, and fails
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model(torch.tensor([[1, 2, 3]]))  # decompresses what waits for that
    linears = {name + ".weight": m.weight for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    for name in values.keys() & linears.keys():
        if not torch.equal(linears[name].float(), values[name]):
            raise ValueError(f"{folder}: {name}: transformers' is another weight")
    return len(values.keys() & linears.keys())


def decompress(folder):
    """weights.safetensors of each export named in `work`: what its codes and scales mean."""
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from safetensors.torch import load_file, save_file
    work, results = json.loads((folder / "work").read_text()), {}
    for name, suffix in work["decompress"]:
        tensors = load_file(folder / name / "model.safetensors")
        config = json.loads((folder / name / "config.json").read_text())["quantization_config"]
        values, stay = {}, config.get("ignore", config.get("ignored_layers"))
        scheme = None
        if config["quant_method"] == "compressed-tensors":
            parsed = QuantizationConfig.model_validate(config)
            scheme = parsed.config_groups["group_0"]
            if parsed.format != "mxfp8-quantized" or scheme.weights.group_size != 32:
                raise ValueError(f"{name}: {parsed}")
            compressor = BaseCompressor.get_value_from_registry(parsed.format)
        for key in [k for k in tensors if k.endswith(suffix)]:
            weight = key.removesuffix(suffix)
            codes, scales = tensors[weight], tensors[key]
            if weight.removesuffix(".weight") in stay or codes.dtype != torch.float8_e4m3fn:
                raise ValueError(f"{name}: {weight}: {codes.dtype}")
            plain = (codes.double().unflatten(-1, (-1, 32)) * 2.0 ** (scales.double() - 127).unsqueeze(-1)).flatten(-2).float()
            if scheme:
                values[weight] = compressor.decompress(
                    {"weight": codes, "weight_scale": scales}, scheme)["weight"].float()
                if not torch.equal(values[weight], plain):
                    raise ValueError(f"{name}: {weight}: compressed-tensors' isn't codes times scales")
            values[weight] = plain
        high = [k.removesuffix(".weight") for k, t in tensors.items()
                if k.endswith("_proj.weight") or k.endswith("gate.weight") or k == "lm_head.weight"]
        missing = [k for k in high if k not in stay and k + ".weight" not in values]
        if missing:
            raise ValueError(f"{name}: neither in 8 bits nor ignored: {missing}")
        save_file({k: v.contiguous() for k, v in values.items()}, folder / name / "weights.peer")
        results[name] = opened_alike(folder / name, config["quant_method"], values)
    (folder / "decompressed").write_text(json.dumps(results))


# ---- octet ----

class Octet:
    def __init__(self, program, folder, failures):
        self.program, self.folder, self.failures = program, folder, failures

    def __call__(self, *args, **kwargs):
        result = subprocess.run([self.program, *map(str, args)], cwd=self.folder, capture_output=True, **kwargs)
        said = result.stderr.decode(errors="replace")
        self.failures.demand(result.returncode == 0, f"octet {' '.join(map(str, args))}: {said.strip()}")
        return result.stdout


def toml(value):
    return json.dumps(value)


def write_job(octet, folder, family, flavor, args, converters=()):
    text = JOB % dict(folder=folder, name=family, flavor=flavor, converters=toml(list(converters)),
                      args="\n".join(f"{k} = {toml(v)}" for k, v in args.items()))
    (octet.folder / "job.toml").write_text(text)


def train(octet, name, family, flavor, args, converters=()):
    folder = octet.folder / "runs" / name
    write_job(octet, folder, family, flavor, args, converters)
    octet("train", "job.toml")
    return folder


def prepare(octet):
    (octet.folder / "text.txt").write_text(" ".join(WORDS[(i * i + i // 7) % len(WORDS)] for i in range(6000)))
    (octet.folder / "judged.txt").write_text(" ".join(WORDS[i * i % 13] for i in range(200)))
    octet("tokenizer", "train", "text.txt", "--vocab-size", 300, "--output", "tokenizer.json")
    draw = random.Random(3)
    (octet.folder / "tokens").write_bytes(array.array("i", [draw.randrange(1, 300) for _ in range(TOKENS)]).tobytes())
    return [int(i) for i in octet("tokenizer", "encode", "tokenizer.json", "--text", PROMPT).split()]


def run_peer(python, what, folder):
    result = subprocess.run([python, __file__, what, folder], text=True, capture_output=True,
                            env=dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false"))
    return result.returncode == 0, result.stderr.strip()[-2000:]


def has(python, *modules):
    return subprocess.run([python, "-c", "import " + ", ".join(modules)], capture_output=True).returncode == 0


def make_questions():
    draw, choose = random.Random(8), lambda n: " ".join(draw.choice(WORDS) for _ in range(n))
    return [dict(question=choose(5), choices=[choose(n) for n in (1, 2, 3, 2)], answer=draw.randrange(4)) for _ in range(60)]


def check_eval(octet, name, questions, theirs):
    folder, demand = octet.folder, octet.failures.demand
    (folder / "task.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    ours = json.loads(octet("eval", folder / "runs" / name, "--task", "task.jsonl", "--recipe", "fp32", "--json"))
    print(f"  accuracy {ours['accuracy']:.4f}, normalized {ours['accuracy_normalized']:.4f}; theirs {theirs['answers']}")
    demand(max(abs(ours[k] - v) for k, v in zip(("accuracy", "accuracy_normalized"), theirs["answers"])) < 1e-8,
           f"{name}: other accuracies: {ours} and {theirs['answers']}")
    demand(0 < theirs["answers"][0] < 1 and theirs["answers"][0] != theirs["answers"][1], "the questions test nothing")
    for (window, stride), (loss, count) in zip(WINDOWS, theirs["losses"]):
        got = json.loads(octet("eval", folder / "runs" / name, "judged.txt", "--window", window, "--stride", stride, "--recipe",
                               "fp32", "--json"))
        print(f"  window {window} stride {stride}: {got['loss']:.6f} of {got['tokens']} tokens; theirs {loss:.6f} of {count}")
        demand(got["tokens"] == count and abs(got["loss"] - loss) < 1e-5, f"{name}: window {window}, stride {stride}: another loss")


def check_trained(octet, hf_logits, python, exports, prompt):
    folder, demand, questions = octet.folder, octet.failures.demand, make_questions()
    judge = next(iter(exports))
    (folder / "work").write_text(json.dumps(dict(prompt=prompt, logits=list(exports.values()), pairs=[], questions=questions,
                                                 judge=exports[judge])))
    good, why = run_peer(python, "--read", folder)
    demand(good, f"{python}: trained models: {why}")
    if not good:
        return
    results = json.loads((folder / "read").read_text())
    for name, export in exports.items():
        theirs = floats(folder / (export + ".logits"))
        made = subprocess.run([hf_logits, folder / "runs" / name, folder / "tokens", folder / "ours"], text=True, capture_output=True)
        demand(made.returncode == 0, f"{name}: {made.stderr}")
        gap = distance(floats(folder / "ours")[:len(theirs)], theirs)
        print(f"  {name:32} {gap:.2e}  largest logit {max(map(abs, theirs)):.1f}")
        demand(gap <= 1e-5, f"{name}: logits differ by {gap:.2e}")
        check_greedy(octet, folder / "runs" / name, results[export])
    check_eval(octet, judge, questions, results["eval"])


def check_greedy(octet, model, ids):
    """`ids`: transformers' own. Those of the model's vocabulary that the tokenizer doesn't have have no text."""
    continued = octet("generate", model, "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", GREEDY, "--recipe", "fp32")
    texts = [i for i in ids if 0 < i < N_TEXTS]
    same = continued == PROMPT.encode() + octet("tokenizer", "decode", "tokenizer.json", *texts).rstrip(b"\n") + b"\n"
    print(f"  {model.name:32} {len(ids)} greedy tokens{' the same' if same else ': OTHERS'}")
    octet.failures.demand(same, f"{model.name}: other tokens: {continued} and {ids}")


def check_dcp(octet, python):
    """Chunks of a few rows too; a tied head is in torchtitan's files twice."""
    folder, demand, work = octet.folder, octet.failures.demand, []
    for name in TRAINED:
        for size in ("20KB", "5GB"):
            octet("export", folder / "runs" / name, f"{name} dcp {size}", "--format", "dcp", "--shard-size", size)
            work.append((name, f"{name} dcp {size}"))
    (folder / "work").write_text(json.dumps(dict(dcp=[export for _, export in work])))
    good, why = run_peer(python, "--dcp", folder)
    demand(good, f"{python}: dcp: {why}")
    n_same = 0
    for name, export in work if good else []:
        ours = {}
        for file in (folder / "runs" / name / "checkpoint" / "step-12").glob("model-*.safetensors"):
            ours.update(tensors_of(file))
        if "tied" in name:
            ours["output.weight"] = ours["tok_embeddings.weight"]
        same = ours == tensors_of(folder / (export + ".loaded"))
        n_same += same
        demand(same, f"{export}: torch.distributed.checkpoint loads others")
        subprocess.run(["rm", "-r", folder / export], check=True)
    print(f"  torch.distributed.checkpoint: {n_same} of {len(work)} folders the same")
    check_saved(octet, python, [export for _, export in work if export.endswith("5GB")])


def check_saved(octet, python, names):
    """What two processes of torch save, as octet reads it: a run at no learning rate starts from it."""
    folder, demand, n_same = octet.folder, octet.failures.demand, 0
    subprocess.run(["rm", "-rf", folder / "rendezvous"], check=True)
    (folder / "work").write_text(json.dumps(dict(save=names)))
    good, why = run_peer(python, "--save", folder)
    demand(good, f"{python}: dcp of two ranks: {why}")
    for export in names if good else []:
        name = export.partition(" dcp")[0]
        family, flavor, args = TRAINED[name]
        write_job(octet, folder / "again", family, flavor, args)
        subprocess.run(["rm", "-rf", folder / "again"], check=True)
        said = octet("train", "job.toml", "--optimizer.lr=0", "--training.steps=1", "--checkpoint.last_save_model_only=true",
                     "--checkpoint.initial_load_path=" + str(folder / (export + " of ranks")), "--model.args.load_balance_coeff=0")
        demand(b"tensors of the optimizer and of the run aren't used" in said, f"{export}: {said[-500:]}")
        ours = {}
        for file in (folder / "again" / "checkpoint" / "step-1").glob("model-*.safetensors"):
            ours.update(tensors_of(file))
        if "tied" in name:
            ours["output.weight"] = ours["tok_embeddings.weight"]
        same = ours == tensors_of(folder / (export + ".loaded"))
        n_same += same
        demand(same, f"{export}: octet reads others of two ranks")
        subprocess.run(["rm", "-r", folder / (export + " of ranks")], check=True)
    print(f"  saved by two ranks of torch (FSDP2, experts cut in both ways): {n_same} of {len(names)} read the same")


def check_round_trips(octet, python, prompt):
    folder, demand, pairs = octet.folder, octet.failures.demand, []
    good, why = run_peer(python, "--make", folder)
    demand(good, f"{python}: {why}")
    if not good:
        return
    print(f"transformers {(folder / 'version').read_text()}: round trips")
    for name in CASES:
        octet("export", name, name + " out")
        pairs.append((name, name + " out"))
        if name in BY_JOB:
            (folder / "job.yaml").write_text(YAML % dict(case=name, out=name + " run"))
            octet("train", "job.yaml")
            octet("export", name + " run", name + " by a job")
            pairs.append((name, name + " by a job"))
    kinds = [name for name in CASES if len(name.split()) == 1]
    # octet begins with the begin token that generation_config.json names.
    (folder / "work").write_text(json.dumps(dict(prompt=[hf_peers.BASE["bos_token_id"]] + prompt, logits=kinds, pairs=pairs)))
    good, why = run_peer(python, "--read", folder)
    demand(good, f"{python}: round trips: {why}")
    results = json.loads((folder / "read").read_text()) if good else {}
    for name in kinds if good else []:
        check_greedy(octet, folder / (name + " out"), results.pop(name))
    for name, result in results.items():
        if result["tensors"] or result["config"] or not result["logits"]:
            demand(False, f"{name}: {result}")
    print(f"  {sum(not r['tensors'] and not r['config'] and r['logits'] for r in results.values())} of {len(pairs)} the same")


def check_quantized(octet, weights_dump, pythons):
    folder, demand, work = octet.folder, octet.failures.demand, []
    python = next((p for p in pythons if has(p, "torch", "safetensors", "compressed_tensors")), None)
    if not python:
        print("SKIP: no interpreter has compressed-tensors")
        return
    for name in QUANTIZED:
        family, flavor, args = TRAINED[name]
        converters = ["npu_gmm", "quantize.linear.mx", "quantize.grouped_mm.mx"] if "num_experts" in args else ["quantize.linear.mx"]
        run = train(octet, name + " mx", family, flavor, args, converters)
        made = subprocess.run([weights_dump, run, folder / (name + ".weights")], text=True, capture_output=True)
        demand(made.returncode == 0, f"{name}: {made.stderr}")
        for dialect, suffix in DIALECTS.items():
            octet("export", run, f"{name} {dialect}", "--format", dialect)
            work.append((f"{name} {dialect}", suffix))
    (folder / "work").write_text(json.dumps(dict(decompress=work)))
    good, why = run_peer(python, "--decompress", folder)
    demand(good, f"{python}: {why}")
    if good:
        compare_weights(octet, work, json.loads((folder / "decompressed").read_text()))


def tensors_of(path):
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {k: (v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items()}


def in_order(content, shape, name, family):
    """octet's rows of llama3's heads, in transformers' order: all first halves of pairs, then the second ones."""
    if family != "llama3" or not name.endswith(("wq.weight", "wk.weight")):
        return content
    width, head = 4 * shape[1], 16
    rows = [content[i:i + width] for i in range(0, len(content), width)]
    return b"".join(b"".join(rows[i:i + head][0::2] + rows[i:i + head][1::2]) for i in range(0, len(rows), head))


def compare_weights(octet, work, opened):
    """Every weight of ours is one of theirs, by its bytes, and the other way round: names were held to hf elsewhere."""
    folder, demand = octet.folder, octet.failures.demand
    for export, _ in work:
        name = next(n for n in sorted(QUANTIZED, key=len, reverse=True) if export.startswith(n + " "))
        ours, family = [], TRAINED[name][0]
        for weight, (shape, content) in tensors_of(folder / (name + ".weights")).items():
            parts = shape[0] if len(shape) == 3 else 1
            size = len(content) // parts
            ours += [in_order(content[i * size:(i + 1) * size], shape[-2:], weight, family) for i in range(parts)]
        theirs = [content for _, content in tensors_of(folder / export / "weights.peer").values()]
        same = sorted(ours) == sorted(theirs)
        print(f"  {export:40} {len(theirs)} weights {'the same bits' if same else 'OTHERS'}; in transformers {opened[export]}")
        demand(same and theirs, f"{export}: not the weights of training")


def main():
    stages = {"--dcp": load_dcp, "--save": save_dcp, "--make": make, "--read": read, "--decompress": decompress}
    if sys.argv[1] in stages:
        stages[sys.argv[1]](pathlib.Path(sys.argv[2]))
        return 0
    failures = Failures()
    pythons = os.environ.get("OCTET_PEER_PYTHON", sys.executable).split(":")
    readers = [p for p in pythons if has(p, "torch", "transformers", "safetensors")]
    if not readers:
        print("SKIP: no torch and transformers; OCTET_PEER_PYTHON names interpreters that have them")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        octet = Octet(os.path.abspath(sys.argv[1]), pathlib.Path(scratch), failures)
        prompt = prepare(octet)
        exports = {}
        for name, (family, flavor, args) in TRAINED.items():
            octet("export", train(octet, name, family, flavor, args), name + " hf")
            exports[name] = name + " hf"
        for python in readers:
            print(python)
            check_trained(octet, os.path.abspath(sys.argv[2]), python, exports, prompt)
            check_dcp(octet, python)
            with tempfile.TemporaryDirectory() as second:
                other = Octet(octet.program, pathlib.Path(second), failures)
                prepare(other)
                check_round_trips(other, python, prompt)
        check_quantized(octet, os.path.abspath(sys.argv[3]), pythons)
    print(f"{len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
