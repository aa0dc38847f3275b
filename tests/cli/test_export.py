"""What leaves with `octet export`: the trainer's own numbers under Hugging Face's names, whole or not at all."""
import bisect
import json
import math
import os
import signal
import struct
import subprocess
import time

import dcp_folder
import safetensors_file
from program import OCTET, main
from ranks import ENV, MPIRUN
from training import Training

SAVE = ["train", "job.toml", "--checkpoint.enable"]
NAMES = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head", "attention_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm", "attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj",
         "attention.wv": "self_attn.v_proj", "attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj",
         "feed_forward.w2": "mlp.down_proj", "feed_forward.w3": "mlp.up_proj"}
HEAD_DIM = 16


def hf_name(name):
    module = name.removesuffix(".weight")
    if not module.startswith("layers."):
        return NAMES[module] + ".weight"
    layers, i, rest = module.split(".", 2)
    return f"model.{layers}.{i}.{NAMES[rest]}.weight"


def halves_first(content, row_bytes):
    """Rows of heads whose rotated pairs lie side by side, as transformers has them: first halves, then second ones."""
    rows = [content[i:i + row_bytes] for i in range(0, len(content), row_bytes)]
    heads = [rows[i:i + HEAD_DIM] for i in range(0, len(rows), HEAD_DIM)]
    return b"".join(b"".join(head[0::2] + head[1::2]) for head in heads)


def e4m3(code):
    e, m = code >> 3, code & 7
    return math.ldexp(8 + m, e - 10) if e else math.ldexp(m, -9)


E4M3 = [e4m3(code) for code in range(127)]


def e4m3_code(x):
    """To the nearest, ties to the even code; beyond the largest, it."""
    at = bisect.bisect_left(E4M3, abs(x))
    if at and (at == 127 or 2 * abs(x) < E4M3[at - 1] + E4M3[at] or (2 * abs(x) == E4M3[at - 1] + E4M3[at] and at % 2)):
        at -= 1
    return at | (0x80 if math.copysign(1, x) < 0 else 0)


def fp32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def to_bf16(x):
    bits, = struct.unpack("<I", struct.pack("<f", x))
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def bf16(x):
    return struct.unpack("<f", struct.pack("<I", to_bf16(x) << 16))[0]


def exponent(amax, mode):
    """docs/numerics.md: floor(log2 amax) - 8, or ceil(log2(amax / 448)) of an fp32 product."""
    if amax == 0:
        return -127
    if mode == "floor":
        return math.frexp(amax)[1] - 1 - 8
    mantissa, e = math.frexp(fp32(amax * fp32(1 / 448)))
    return e - 1 if mantissa == 0.5 else e


def mxfp8(values, mode):
    """Codes and scales of blocks of 32 along the rows, whose lengths are multiples of it."""
    codes, scales = bytearray(), bytearray()
    for i in range(0, len(values), 32):
        block = values[i:i + 32]
        k = exponent(max(map(abs, block)), mode)
        scales.append(k + 127)
        codes += bytes(e4m3_code(math.ldexp(x, -k)) for x in block)
    return bytes(codes), bytes(scales)


class Exports(Training):
    def exported(self, *args, source="out", name="hf"):
        self.accepted(["export", source, name, *args])
        return self.tensors_of(name)

    def tensors_of(self, folder):
        """Of all files; an index lists exactly what is there."""
        files = sorted(f for f in os.listdir(self.path(folder)) if f.endswith(".safetensors"))
        tensors, places = {}, {}
        for file in files:
            found, metadata = safetensors_file.read(self.path(folder, file))
            self.assertEqual(metadata, {"format": "pt"})
            self.assertFalse(set(found) & set(tensors))
            tensors.update(found)
            places.update({name: file for name in found})
        if files != ["model.safetensors"]:
            with open(self.path(folder, "model.safetensors.index.json")) as file:
                index = json.load(file)
            self.assertEqual(index["weight_map"], places)
            self.assertEqual(index["metadata"]["total_size"], sum(len(t[2]) for t in tensors.values()))
            self.assertEqual(files, [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))])
        return tensors

    def trained(self, folder="out", step=4):
        path = self.path(folder, "checkpoint", f"step-{step}")
        tensors = {}
        for file in os.listdir(path):
            if file.startswith("model-"):
                tensors.update(safetensors_file.read(os.path.join(path, file))[0])
        return tensors

    def json_of(self, *names):
        with open(self.path(*names)) as file:
            return json.load(file)

    def expected(self, folder="out"):
        """The checkpoint's tensors, renamed and with rows in the order of transformers' rotation."""
        tensors = {}
        for name, (dtype, shape, content) in self.trained(folder).items():
            if name.endswith(("wq.weight", "wk.weight")):
                content = halves_first(content, len(content) // shape[0])
            tensors[hf_name(name)] = (dtype, shape, content)
        return tensors

    def test_given_a_trained_model_its_masters_leave_bit_for_bit(self):
        self.accepted(SAVE)
        self.assertEqual(self.exported(), self.expected())
        config = self.json_of("hf", "config.json")
        sizes = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=64, intermediate_size=96,
                     num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=320,
                     tie_word_embeddings=False, torch_dtype="float32", hidden_act="silu")
        self.assertEqual({key: config[key] for key in sizes}, sizes)
        self.assertNotIn("quantization_config", config)
        with open(self.path("tokenizer.json")) as ours:
            self.assertEqual(self.json_of("hf", "tokenizer.json"), json.load(ours))
        self.assertEqual(self.json_of("hf", "generation_config.json")["eos_token_id"], 0)
        self.assertEqual(self.json_of("hf", "tokenizer_config.json")["eos_token"], "<|endoftext|>")
        # octet itself takes the folder, and finds the same model.
        losses = [json.loads(self.accepted(["eval", model, "text.txt", "--limit", 256, "--seq-len", 32, "--recipe", "fp32",
                                            "--json"]).stdout)["loss"] for model in ("out", "hf")]
        self.assertEqual(losses[0], losses[1])

    def test_given_a_size_of_shards_files_hold_no_more_and_the_index_lists_them(self):
        self.accepted(SAVE)
        whole = self.exported()
        shards = self.exported("--shard-size", "100KiB", name="shards")
        self.assertEqual(shards, whole)
        files = [f for f in os.listdir(self.path("shards")) if f.endswith(".safetensors")]
        self.assertGreater(len(files), 3)
        for file in files:
            tensors = safetensors_file.read(self.path("shards", file))[0]
            self.assertLessEqual(sum(len(t[2]) for t in tensors.values()), 100 << 10)
        for size in ("0", "-1", "much", "5TB", "", "1e99GB"):
            self.refused(["export", "out", "other", "--shard-size=" + size], "--shard-size")
        self.assertFalse(os.path.exists(self.path("other")))

    def test_given_a_target_that_is_there_or_cant_be_nothing_is_touched(self):
        self.accepted(SAVE)
        self.write("file", "mine")
        os.makedirs(self.path("folder"))
        os.symlink("nowhere", self.path("link"))
        for name in ("file", "folder", "folder/", "link", "out"):
            self.refused(["export", "out", name], name.rstrip("/"), "exists already")
        for name in ("", ".", "..", "/", "new/..", "x" * 256, "new/" + "y" * 4200):
            self.refused(["export", "out", name])
        self.refused(["export", "out", "file/below"], "file", "Not a directory", status=1)
        self.assertEqual(sorted(os.listdir(self.path("folder"))), [])
        with open(self.path("file")) as file:
            self.assertEqual(file.read(), "mine")
        self.assertFalse(os.path.exists(self.path("new")))

    def test_given_what_isnt_there_or_means_nothing_it_is_refused_by_name(self):
        self.accepted(SAVE)
        self.refused(["export", "out"], "OUT")
        self.refused(["export", "nothing", "new"], "nothing")
        self.refused(["export", "out", "new", "--format", "gguf"], "--format: unknown format", "modelopt", "'gguf'")
        self.refused(["export", "out", "new", "--format", "mxfp"], "(nearest: mxfp8)")
        self.refused(["export", "out", "new", "--format", "hif8"], "no other program reads weights in HiF8")
        self.refused(["export", "out", "new", "--dtype", "fp8"], "expected float32, bfloat16 or float16; got 'fp8'")
        self.refused(["export", "out", "new", "--recipe", "mxfp8"], "--recipe", "high precision")
        self.assertFalse(os.path.exists(self.path("new")))

    def quantized(self, mode="rceil", rounded=lambda x: x, suffix="_scale", high=("lm_head",), folder="out"):
        """What expected() is in MXFP8: every linear but those named in `high`."""
        tensors = {}
        for name, (dtype, shape, content) in self.expected(folder).items():
            module = name.removesuffix(".weight")
            tensors[name] = (dtype, shape, content)
            if len(shape) == 2 and module != "model.embed_tokens" and not module.endswith(high):
                codes, scales = mxfp8([rounded(x) for x in safetensors_file.floats(content)], mode)
                tensors[name] = ("F8_E4M3", shape, codes)
                tensors[name + suffix] = ("U8", [shape[0], shape[1] // 32], scales)
        return tensors

    def loss_of(self, model, *args):
        return json.loads(self.accepted(["eval", model, "text.txt", "--limit", 256, "--seq-len", 32, "--json", *args]).stdout)["loss"]

    def test_given_rules_and_scale_modes_codes_and_scales_are_those_of_training(self):
        cases = {"octet": ("rceil", lambda x: x, []), "framework": ("rceil", bf16, []),
                 "torchtitan@0.2.2": ("floor", bf16, []),
                 "framework, fp32": ("rceil", lambda x: x, ["--training.mixed_precision_param=float32"]),
                 "octet, floor": ("floor", lambda x: x, ["--quantize.linear.mx.scale_mode=floor"])}
        for name, (mode, rounded, args) in cases.items():
            with self.subTest(name):
                folder, rules = name.replace(" ", ""), name.split(",")[0]
                self.accepted(SAVE + ["--model.converters=quantize.linear.mx", f"--quantize.rules={rules}",
                                      f"--job.dump_folder={folder}", "--training.steps=2", *args])
                tensors = self.exported("--format", "compressed-tensors", "--dtype", "float32", source=folder, name=folder + "-out")
                path = self.path(folder, "checkpoint", "step-2")
                os.rename(path, self.path(folder, "checkpoint", "step-4"))
                self.assertEqual(tensors, self.quantized(mode, rounded, folder=folder))

    def test_given_each_dialect_its_words_say_what_is_there(self):
        self.accepted(SAVE + ["--model.converters=quantize.linear.mx"])
        scheme = dict(num_bits=8, type="float", strategy="group", group_size=32, symmetric=True, scale_dtype="torch.uint8")
        words = {
            "compressed-tensors": dict(quant_method="compressed-tensors", format="mxfp8-quantized", quantization_status="compressed",
                                       ignore=["lm_head"], config_groups=dict(group_0=dict(
                                           targets=["Linear"], weights=dict(scheme, dynamic=False),
                                           input_activations=dict(scheme, dynamic=True)))),
            "modelopt": dict(quant_method="modelopt", quant_algo="MXFP8", ignore=["lm_head"]),
            "mxfp8": dict(quant_method="mxfp8", weight_block_size=[1, 32], scale_fmt="ue8m0", activation_scheme="dynamic",
                          fmt="e4m3", ignored_layers=["lm_head"])}
        losses = set()
        for dialect, expected in words.items():
            tensors = self.exported("--format", dialect, "--dtype", "float32", name=dialect)
            self.assertEqual(tensors, self.quantized(rounded=bf16, suffix="_scale_inv" if dialect == "mxfp8" else "_scale"))
            self.assertEqual(self.json_of(dialect, "config.json")["quantization_config"], expected)
            losses.add(self.loss_of(dialect, "--recipe", "fp32"))
        beside = self.json_of("modelopt", "hf_quant_config.json")["quantization"]
        self.assertEqual((beside["quant_algo"], beside["exclude_modules"]), ("MXFP8", ["lm_head"]))
        self.assertEqual(len(losses), 1)
        # What stays high is by default in what training multiplied in, unless the job says otherwise.
        for args, dtype, name in (([], "BF16", "bfloat16"), (["--checkpoint.export_dtype=float32"], "F32", "float32"),
                                  (["--training.mixed_precision_param=float32"], "F32", "float32")):
            folder = "run-" + (args[0].split("=")[0] if args else "plain")
            self.accepted(SAVE + ["--model.converters=quantize.linear.mx", "--job.dump_folder=" + folder, *args])
            tensors = self.exported("--format", "mxfp8", source=folder, name=folder + "-out")
            self.assertEqual({t[0] for t in tensors.values()}, {"F8_E4M3", "U8", dtype})
            self.assertEqual(self.json_of(folder + "-out", "config.json")["torch_dtype"], name)
        # In high precision again it is what codes and scales mean.
        for name, (_, shape, content) in self.exported(source="mxfp8", name="high").items():
            dtype, _, codes = self.tensors_of("mxfp8")[name]
            self.assertEqual(len(content), 4 * math.prod(shape))
            if dtype == "F8_E4M3":
                scales = self.tensors_of("mxfp8")[name + "_scale_inv"][2]
                means = [math.ldexp(math.copysign(e4m3(c & 127), 127.5 - c), scales[i // 32] - 127) for i, c in enumerate(codes)]
                self.assertEqual(safetensors_file.floats(content), tuple(means))
        # octet starts from each, and says so.
        self.accepted(["train", "job.toml", "--checkpoint.enable", "--job.dump_folder=again", "--optimizer.lr=0", "--training.steps=1",
                       "--checkpoint.initial_load_path=mxfp8", "--checkpoint.initial_load_in_hf",
                       "--checkpoint.initial_load_in_hf_quantized"])
        self.assertEqual({self.loss_of("again", "--recipe", "fp32")}, losses)

    def test_given_rows_of_other_lengths_and_filters_what_stays_high_is_named(self):
        self.accepted(SAVE + ["--model.converters=quantize.linear.mx", "--model.args.hidden_dim=72",
                              "--quantize.linear.mx.filter_fqns=output,wk"])
        tensors = self.exported("--format", "modelopt", "--dtype", "float32")
        self.assertEqual(tensors, self.quantized(rounded=bf16, high=("lm_head", "k_proj", "down_proj")))
        kept = [f"model.layers.{i}.{m}" for i in range(2) for m in ("self_attn.k_proj", "mlp.down_proj")] + ["lm_head"]
        self.assertEqual(sorted(self.json_of("hf", "config.json")["quantization_config"]["ignore"]), sorted(kept))

    def test_given_other_recipes_the_dialects_refuse_them_by_module(self):
        self.accepted(SAVE)
        self.refused(["export", "out", "new", "--format", "mxfp8"], "nothing in 8 bits", "a recipe such as mxfp8")
        for recipe, why in (("hif8", "no other program reads weights in HiF8"), ("dynamic_per_tensor_E4M3_E4M3_E4M3", "32 elements"),
                            ("dynamic_mx_E4M3_E5M2_E4M3", "E5M2")):
            self.refused(["export", "out", "new", "--format", "mxfp8", "--recipe", recipe], "layers.0.attention.wq", recipe, why)
        tiles = self.exported("--format", "mxfp8", "--recipe", "mxfp8-32x32", name="tiles")
        dtype, shape, scales = tiles["model.layers.0.mlp.up_proj.weight_scale_inv"]
        self.assertEqual((dtype, shape), ("U8", [96, 2]))
        for row in range(96):  # a tile's scale is each of its rows'
            self.assertEqual(scales[2 * row:2 * row + 2], scales[row // 32 * 64:row // 32 * 64 + 2])
        self.accepted(SAVE + ["--model.converters=quantize.linear.mx", "--model.args.enable_weight_tying=true",
                              "--job.dump_folder=tied", "--quantize.linear.mx.filter_fqns="])
        self.refused(["export", "tied", "new", "--format", "mxfp8"], "output", "embedding table", "filter_fqns")
        self.assertFalse(os.path.exists(self.path("new")))

    def test_given_a_dtype_values_are_rounded_to_it_or_refused(self):
        self.accepted(SAVE)
        for dtype, name, pack in (("bfloat16", "BF16", lambda x: struct.pack("<H", to_bf16(x))),
                                  ("float16", "F16", lambda x: struct.pack("<e", x))):
            tensors = self.exported("--dtype", dtype, name=dtype)
            self.assertEqual(tensors, {n: (name, s, b"".join(map(pack, safetensors_file.floats(c))))
                                       for n, (_, s, c) in self.expected().items()})
            self.assertEqual(self.json_of(dtype, "config.json")["torch_dtype"], dtype)
        # A folder's own dtypes stay; a value that float16 doesn't hold is refused by name.
        self.assertEqual(self.exported(source="bfloat16", name="again"), self.tensors_of("bfloat16"))
        self.assertEqual(self.json_of("again", "config.json"), self.json_of("bfloat16", "config.json"))
        tensors = self.tensors_of("bfloat16")
        for value, said in ((1e5, "is 9.98e+04|is 99840|is 100352"), (math.inf, "is inf"), (math.nan, "is nan")):
            _, shape, content = tensors["model.norm.weight"]
            bad = dict(tensors, **{"model.norm.weight": ("BF16", shape, content[:6] + struct.pack("<f", value)[2:] + content[8:])})
            self.write("bfloat16/model.safetensors", safetensors_file.written(bad))
            result = self.run_octet(["export", "bfloat16", "new", "--dtype", "float16"])
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertRegex(result.stderr, r"^octet: model\.norm\.weight: element 3 (%s); expected at most 65504" % said)
        self.assertEqual([f for f in os.listdir(self.folder) if f.startswith("new")], [])

    def test_given_no_room_on_the_disk_no_target_is_left(self):
        self.accepted(SAVE)
        for size in (1, 100, 300):  # KiB a file: of a 403 KiB file some, most
            self.refused_in_shell("--version >/dev/null && ulimit -f %d && exec %s export out below/new" % (2 * size, OCTET))
            self.assertFalse(os.path.exists(self.path("below")))

    def test_given_a_kill_at_any_time_there_is_a_whole_folder_or_none(self):
        self.accepted(SAVE)
        whole = self.exported()
        began = time.monotonic()
        self.exported(name="timed")
        took = time.monotonic() - began
        for i in range(12):
            for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
                name = f"new{number}-{i:02}"
                job = self.background([OCTET, "export", "out", name, "--shard-size", "20KB"])
                time.sleep(took * i / 8)
                job.send_signal(number)
                status = job.wait(60)
                self.assertIn(status, (0, -number), self.text_of("background.err"))
                left = sorted(f for f in os.listdir(self.folder) if f.startswith(name))
                if name in left:
                    self.assertEqual(self.tensors_of(name), whole)
                elif number != signal.SIGKILL:
                    self.assertEqual(left, [])
                else:  # a temporary folder at most, which the next export removes
                    self.assertLessEqual(len(left), 1)
                    self.assertEqual(self.exported(name=name), whole)
                    self.assertEqual(sorted(f for f in os.listdir(self.folder) if f.startswith(name)), [name])

    def test_given_a_last_save_in_hf_the_last_step_leaves_beside_its_checkpoint(self):
        hf = SAVE + ["--checkpoint.last_save_in_hf"]
        self.accepted(hf)
        self.assertEqual(sorted(os.listdir(self.path("out/checkpoint"))), ["step-2", "step-4", "step-4-hf"])
        self.assertEqual(self.tensors_of("out/checkpoint/step-4-hf"), self.expected())
        self.assertIn("All 4 steps are done", self.accepted(hf).stdout)
        # Another run to step 4 would replace it; one that goes back moves it aside with its checkpoint.
        self.accepted(hf + ["--checkpoint.load_step=2", "--optimizer.lr=1e-3"])
        self.assertEqual(sorted(os.listdir(self.path("out/checkpoint/aside-1"))), ["metrics.jsonl", "step-4", "step-4-hf"])
        self.assertNotEqual(self.tensors_of("out/checkpoint/step-4-hf"), self.tensors_of("out/checkpoint/aside-1/step-4-hf"))
        self.assertEqual(self.tensors_of("out/checkpoint/step-4-hf"), self.expected())
        os.rename(self.path("out/checkpoint/step-4"), self.path("away"))
        self.refused(hf, "checkpoint.last_save_in_hf", "step-4-hf", "exists already")
        for dtype, held in (("bfloat16", "BF16"), ("float16", "F16")):
            self.accepted(hf + ["--checkpoint.last_save_model_only", f"--checkpoint.export_dtype={dtype}", f"--job.dump_folder={dtype}"])
            self.assertEqual({t[0] for t in self.tensors_of(f"{dtype}/checkpoint/step-4-hf").values()}, {held})
            self.assertEqual({t[0] for t in self.trained(dtype).values()}, {"BF16" if held == "BF16" else "F32"})

    def test_given_the_format_of_torchtitan_its_names_and_chunks_hold_the_masters(self):
        names = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
        self.accepted(SAVE)
        self.accepted(["export", "out", "dcp", "--format", "dcp"])
        trained = {n: (names[d], s, c) for n, (d, s, c) in self.trained().items()}
        self.assertEqual({n: t[:3] for n, t in dcp_folder.read(self.path("dcp")).items()}, trained)
        self.assertEqual(sorted(os.listdir(self.path("dcp"))), [".metadata", "__0_0.distcp"])
        self.accepted(["export", "out", "chunks", "--format", "dcp", "--shard-size", "20KB"])
        chunks = dcp_folder.read(self.path("chunks"))
        self.assertEqual({n: t[:3] for n, t in chunks.items()}, trained)
        self.assertEqual(chunks["tok_embeddings.weight"][3], 5)  # 320 rows of 256 bytes, 78 in 20000
        for dtype, pack in (("bfloat16", lambda x: struct.pack("<H", to_bf16(x))), ("float16", lambda x: struct.pack("<e", x))):
            self.accepted(["export", "out", dtype, "--format", "dcp", "--dtype", dtype])
            self.assertEqual({n: t[:3] for n, t in dcp_folder.read(self.path(dtype)).items()},
                             {n: (dtype, s, b"".join(map(pack, safetensors_file.floats(c)))) for n, (_, s, c) in trained.items()})
        self.refused(["export", "out", "new", "--format", "dcp", "--recipe", "mxfp8"], "--recipe: the format dcp")
        # A tied head is there twice, a router's bias in fp32.
        self.accepted(SAVE + ["--model.name=qwen3", "--model.flavor=demo_moe", "--model.args.num_experts=4", "--model.args.head_dim=16",
                              "--model.args.moe_inter_dim=32", "--model.args.enable_weight_tying=true", "--job.dump_folder=tied"])
        self.accepted(["export", "tied", "tied-dcp", "--format", "dcp", "--dtype", "bfloat16"])
        tied = dcp_folder.read(self.path("tied-dcp"))
        self.assertEqual(tied["output.weight"], tied["tok_embeddings.weight"])
        self.assertEqual(tied["layers.1.moe.expert_bias"][:2], ("float32", [4]))
        self.assertEqual(tied["layers.1.moe.experts.w1"][:2], ("bfloat16", [4, 32, 64]))
        self.assertEqual(set(tied), set(self.trained("tied")) | {"output.weight"})

    def from_dcp(self, folder, *args):
        return ["train", "job.toml", "--checkpoint.enable", "--optimizer.lr=0", "--training.steps=1", "--job.dump_folder=" + folder + "-run",
                "--checkpoint.initial_load_path=" + folder, *args]

    def test_given_torchtitans_checkpoint_in_any_rectangles_training_starts_from_it(self):
        self.accepted(SAVE)
        masters = {name: (shape, content) for name, (_, shape, content) in self.trained().items()}
        for name, cuts in (("whole", (1, 1)), ("rows", (3, 1)), ("columns", (1, 5)), ("tiles", (4, 3))):
            dcp_folder.write(self.path(name), masters, cuts)
            self.assertIn("Loaded initial weights from " + name, self.accepted(self.from_dcp(name)).stdout)
            self.assertEqual(self.trained(name + "-run", 1), self.trained())
        self.accepted(["export", "out", "ours", "--format", "dcp", "--shard-size", "20KB"])
        self.accepted(self.from_dcp("ours"))
        self.assertEqual(self.trained("ours-run", 1), self.trained())
        self.refused(self.from_dcp("ours", "--no-checkpoint.initial_load_model_only", "--job.dump_folder=new"), "initial_load_model_only", "weights alone")

    def test_given_torchtitans_checkpoint_that_lies_it_is_refused_by_tensor(self):
        self.accepted(SAVE)
        masters = {name: (shape, content) for name, (_, shape, content) in self.trained().items()}
        norm = "layers.0.ffn_norm.weight"

        def chunks(m):
            return m.state_dict_metadata[norm].chunks

        def info(m):
            return next(v for k, v in m.storage_data.items() if k.fqn == norm)

        changes = [
            (lambda m: setattr(chunks(m)[0], "sizes", dcp_folder.Size([40])), "chunks overlap"),
            (lambda m: chunks(m).pop(), "leave a gap"),
            (lambda m: setattr(chunks(m)[1], "sizes", dcp_folder.Size([33])), "lies outside"),
            (lambda m: setattr(chunks(m)[1], "offsets", dcp_folder.Size([31])), "not where it is"),
            (lambda m: setattr(info(m), "relative_path", "../out"), "leads out of the folder"),
            (lambda m: setattr(info(m), "relative_path", "nowhere"), "nowhere"),
            (lambda m: setattr(info(m), "offset", 10 ** 12), "shorter than .metadata says"),
            (lambda m: setattr(info(m), "length", 10 ** 15), "shorter than .metadata says"),
            (lambda m: setattr(info(m), "offset", info(m).offset + 1), "not an archive of one tensor"),
            (lambda m: setattr(info(m), "transform_descriptors", ["zstd"]), "compressed"),
            (lambda m: m.state_dict_metadata.pop(norm), norm + " is missing"),
            (lambda m: m.state_dict_metadata.update(other=m.state_dict_metadata[norm]), "not where it is"),
            (lambda m: m.state_dict_metadata.update({norm: m.state_dict_metadata["output.weight"]}), "not where it is"),
            (lambda m: m.state_dict_metadata.update({norm: 7}), "neither a tensor nor bytes"),
            (lambda m: m.__dict__.pop("storage_data"), "no storage_data"),
            (lambda m: m.state_dict_metadata.update(evil=os.system), "posix.system"),
        ]
        for i, (change, said) in enumerate(changes):
            dcp_folder.write(self.path(f"bad{i}"), masters, (2, 1), change)
            self.refused(self.from_dcp(f"bad{i}"), "checkpoint.initial_load_path", said)
        dcp_folder.write(self.path("flipped"), masters, (1, 1))
        with open(self.path("flipped", "__0_0.distcp"), "r+b") as file:
            file.seek(5000)
            byte = file.read(1)
            file.seek(5000)
            file.write(bytes([byte[0] ^ 1]))
        self.refused(self.from_dcp("flipped"), "checksum is wrong")
        small = dict(masters, **{norm: ([32], masters[norm][1][:128])})
        dcp_folder.write(self.path("small"), small, (1, 1))
        self.refused(self.from_dcp("small"), norm + " has another shape")
        dcp_folder.write(self.path("more"), dict(masters, extra=([2], bytes(8))), (1, 1))
        self.refused(self.from_dcp("more"), "the job's model has no extra")

    def test_given_several_processes_the_first_exports_what_they_saved(self):
        if not MPIRUN:
            self.skipTest("no mpirun")
        moe = ["--model.name=qwen3", "--model.flavor=demo_moe", "--model.args.num_experts=4", "--model.args.moe_inter_dim=32",
               "--model.args.head_dim=16", "--model.args.load_balance_coeff=0", "--model.converters=npu_gmm",
               "--parallelism.expert_parallel_degree=2"]
        for folder, args in (("out", []), ("experts", moe)):
            result = subprocess.run(MPIRUN + ["-n", "2", OCTET] + SAVE + ["--checkpoint.last_save_in_hf", f"--job.dump_folder={folder}"]
                                    + args, cwd=self.folder, env=ENV, text=True, capture_output=True, timeout=120)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertEqual(result.stdout.count("Exported "), 1)
            tensors = self.tensors_of(f"{folder}/checkpoint/step-4-hf")
            self.assertEqual(self.exported(source=folder, name=folder + "-hf"), tensors)
        self.assertEqual(self.tensors_of("out-hf"), self.expected())

    def test_given_a_model_without_words_a_last_save_in_hf_is_refused_before_it_trains(self):
        hf = SAVE + ["--checkpoint.last_save_in_hf", "--job.dump_folder=new"]
        moe = ["--model.name=qwen3", "--model.flavor=demo_moe", "--model.args.num_experts=4", "--model.args.moe_inter_dim=32",
               "--model.args.head_dim=16", "--model.converters=npu_gmm"]
        self.refused(hf + moe + ["--model.args.load_balance_coeff=1e-3"], "command line: --checkpoint.last_save_in_hf", "load_balance_coeff")
        self.refused(hf + moe + ["--model.args.load_balance_coeff=0", "--model.args.score_before_experts=true"],
                     "no class for such a model", "score_before_experts")
        self.assertFalse(os.path.exists(self.path("new/checkpoint/step-2")))
        self.accepted(hf + moe + ["--model.args.load_balance_coeff=0"])
        self.assertIn("model.layers.1.mlp.experts.3.down_proj.weight", self.tensors_of("new/checkpoint/step-4-hf"))

    def test_given_a_folder_and_no_training_it_comes_back_as_it_was(self):
        self.accepted(SAVE)
        first = self.exported("--dtype", "bfloat16")
        config = dict(self.json_of("hf", "config.json"), initializer_range=0.125, pad_token_id=3, use_cache=True)
        self.write("hf/config.json", json.dumps(config))
        self.write("hf/generation_config.json", json.dumps(dict(eos_token_id=[0, 5], temperature=0.6)))
        self.write("hf/special_tokens_map.json", json.dumps(dict(eos_token="<|endoftext|>")))
        self.write("job.yaml", "model: {model_name_or_path: hf}\n"
                   "data: {dataset_param: {basic_parameters: {dataset: text.txt, cutoff_len: 32}}}\n"
                   "training: {lr: 0, train_iters: 1, micro_batch_size: 2, save: run, save_interval: 1, load: hf}\n")
        self.accepted(["train", "job.yaml"])
        for source, name, args in (("hf", "again", []), ("run", "by-a-job", ["--dtype", "bfloat16"])):
            self.assertEqual(self.exported(*args, source=source, name=name), first)
            self.assertEqual(self.json_of(name, "config.json"), config)
            for file in os.listdir(self.path("hf")):
                if file.endswith(".json"):
                    self.assertEqual(self.json_of(name, file), self.json_of("hf", file), file)


if __name__ == "__main__":
    main()
