"""What leaves with `octet export`: the trainer's own numbers under Hugging Face's names, whole or not at all."""
import json
import os

import safetensors_file
from program import main
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


if __name__ == "__main__":
    main()
