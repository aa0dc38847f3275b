"""Hugging Face folders in the place of a checkpoint or a job: read exactly as they are, or refused."""
import json
import math
import os
import random
import struct

from program import main
from training import Training

SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=257, max_position_embeddings=64, eos_token_id=256)
LLAMA = dict(SIZES, model_type="llama", dtype="float32")
QWEN3_MOE = dict(SIZES, model_type="qwen3_moe", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                 norm_topk_prob=True, torch_dtype="float32")


def shapes(config):
    """name -> shape, as transformers names them."""
    d, f, v, hd = config["hidden_size"], config["intermediate_size"], config["vocab_size"], config.get("head_dim", 8)
    wide, narrow = config["num_attention_heads"] * hd, config["num_key_value_heads"] * hd
    names = {"model.embed_tokens.weight": [v, d], "model.norm.weight": [d], "lm_head.weight": [v, d]}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        names.update({layer + "input_layernorm.weight": [d], layer + "post_attention_layernorm.weight": [d],
                      layer + "self_attn.q_proj.weight": [wide, d], layer + "self_attn.k_proj.weight": [narrow, d],
                      layer + "self_attn.v_proj.weight": [narrow, d], layer + "self_attn.o_proj.weight": [d, wide]})
        if config["model_type"] != "llama":
            names.update({layer + "self_attn.q_norm.weight": [hd], layer + "self_attn.k_norm.weight": [hd]})
        mlps = {"mlp.": f}
        if "num_experts" in config:
            names[layer + "mlp.gate.weight"] = [config["num_experts"], d]
            mlps = {f"mlp.experts.{e}.": config["moe_intermediate_size"] for e in range(config["num_experts"])}
        for prefix, size in mlps.items():
            names.update({layer + prefix + "gate_proj.weight": [size, d], layer + prefix + "up_proj.weight": [size, d],
                          layer + prefix + "down_proj.weight": [d, size]})
    return names


def deepseek_shapes(config):
    """The same of layers with latent attention, none of which has experts."""
    d, rank, heads = config["hidden_size"], config["kv_lora_rank"], config["num_attention_heads"]
    nope, rope, v = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    names = {n: s for n, s in shapes(dict(config, model_type="llama")).items() if "self_attn" not in n}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}.self_attn."
        names.update({layer + "q_proj.weight": [heads * (nope + rope), d], layer + "kv_a_proj_with_mqa.weight": [rank + rope, d],
                      layer + "kv_a_layernorm.weight": [rank], layer + "kv_b_proj.weight": [heads * (nope + v), rank],
                      layer + "o_proj.weight": [d, heads * v]})
    return names


def f32(shape, values):
    return "F32", shape, struct.pack(f"<{len(values)}f", *values)


def safetensors(tensors):
    header, body = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


# What the files of published models say, beside the dimensions that every one has.
SEEN = dict(attention_dropout=0.0, bos_token_id=1, eos_token_id=[2, 3], hidden_act="silu", initializer_range=0.02, use_cache=True,
            torch_dtype="bfloat16", transformers_version="4.45.0", tie_word_embeddings=False, rms_norm_eps=1e-6)
FULL = ["full_attention"] * 4
PUBLISHED = {
    "Llama 3.2": dict(model_type="llama", architectures=["LlamaForCausalLM"], attention_bias=False, mlp_bias=False, head_dim=64,
                      pretraining_tp=1, rope_theta=500000.0, rope_scaling=dict(
                          factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192,
                          rope_type="llama3")),
    "SmolLM2": dict(model_type="llama", architectures=["LlamaForCausalLM"], is_llama_config=True, rope_interleaved=False,
                    pretraining_tp=1, rope_scaling=None, rope_theta=100000),
    "SmolLM3": dict(model_type="smollm3", architectures=["SmolLM3ForCausalLM"], layer_types=FULL, max_window_layers=28,
                    no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0], pad_token_id=128004, pretraining_tp=2,
                    rope_theta=5000000.0, sliding_window=None, use_sliding_window=False),
    "Mistral": dict(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=4096, rope_theta=10000.0),
    "Qwen2.5": dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], max_window_layers=24, sliding_window=32768,
                    use_mrope=False, use_sliding_window=False, rope_theta=1000000.0),
    "Qwen3": dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], attention_bias=False, head_dim=128, max_window_layers=28,
                  rope_scaling=None, rope_theta=1000000, sliding_window=None, use_sliding_window=False),
    "Qwen3-MoE": dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], attention_bias=False, decoder_sparse_step=1,
                      head_dim=128, max_window_layers=48, mlp_only_layers=[], moe_intermediate_size=64, norm_topk_prob=True,
                      num_experts=128, num_experts_per_tok=8, output_router_logits=False, rope_scaling=None, rope_theta=1000000.0,
                      router_aux_loss_coef=0.001, sliding_window=None, use_sliding_window=False),
    "DeepSeek-V3": dict(model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], attention_bias=False,
                        auto_map=dict(AutoConfig="configuration_deepseek.DeepseekV3Config"), aux_loss_alpha=0.001, ep_size=1,
                        first_k_dense_replace=3, kv_lora_rank=512, moe_intermediate_size=64, moe_layer_freq=1, n_group=8,
                        n_routed_experts=256, n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=8,
                        num_key_value_heads=16, num_nextn_predict_layers=1, pretraining_tp=1, q_lora_rank=1536,
                        qk_nope_head_dim=128, qk_rope_head_dim=64, quantization_config=dict(
                            activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[128, 128]),
                        rope_scaling=dict(beta_fast=32, beta_slow=1, factor=40, mscale=1.0, mscale_all_dim=1.0,
                                          original_max_position_embeddings=4096, type="yarn"),
                        rope_theta=10000, routed_scaling_factor=2.5, scoring_func="sigmoid", seq_aux=True, topk_group=4,
                        topk_method="noaux_tc", v_head_dim=128),
}


class Models(Training):
    def folder_of(self, config, name="model", made=None, **changes):
        """A folder of random weights, tokenizer included; `changes` gives tensors in their place, or more."""
        draw = random.Random(5)
        tensors = {}
        for tensor, shape in (made or shapes(config)).items():
            n = math.prod(shape)
            tensors[tensor] = f32(shape, [draw.gauss(0, 0.3) for _ in range(n)])
        tensors.update(changes)
        self.write(f"{name}/config.json", json.dumps(config))
        self.write(f"{name}/model.safetensors", safetensors(tensors))
        self.accepted(["tokenizer", "train", "text.txt", "--vocab-size", 257, "--output", f"{name}/tokenizer.json"])
        return name

    def evaluated(self, *args):
        return json.loads(self.accepted(["eval", *args, "--json"]).stdout)

    def refused_with(self, args, *words):
        result = self.run_octet(args)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertEqual(result.stderr.strip().count("\n"), 0, result.stderr)

    def test_given_a_folder_eval_and_generate_take_it_with_its_own_tokenizer(self):
        # Layers add nothing, every token is the same, and the head likes "b" by a logit of 1, which the text doesn't have.
        self.folder_of(LLAMA)
        with open(self.path("model/tokenizer.json")) as file:
            b = json.load(file)["model"]["vocab"]["b"]
        nothing = {n: f32(s, [0.0] * math.prod(s)) for n, s in shapes(LLAMA).items() if n.endswith(("o_proj.weight", "down_proj.weight"))}
        head = [1 / 32 if row == b else 0.0 for row in range(257) for _ in range(32)]
        folder = self.folder_of(LLAMA, **nothing, **{"model.embed_tokens.weight": f32([257, 32], [1.0] * 257 * 32),
                                                     "model.norm.weight": f32([32], [1.0] * 32),
                                                     "lm_head.weight": f32([257, 32], head)})
        expected = math.log(256 + math.e)
        self.assertAlmostEqual(self.evaluated(folder, "text.txt")["loss"], expected, places=5)
        self.assertAlmostEqual(self.evaluated(folder, "text.txt", "--recipe", "mxfp8")["loss"], expected, places=3)
        greedy = ["generate", folder, "--prompt", "a", "--temperature", 0, "--max-new-tokens", 3]
        self.assertEqual(self.accepted(greedy).stdout, "abbb\n")
        # The folder's own end tokens end the text: those of generation_config.json, which has the last word.
        self.write("model/generation_config.json", json.dumps({"eos_token_id": [7, b]}))
        self.assertEqual(self.accepted(greedy).stdout, "a\n")

    def test_given_other_models_each_command_refuses_them_by_name(self):
        self.write("gpt2/config.json", '{"model_type": "gpt2", "n_embd": 8}')
        for args in (["eval", "gpt2", "text.txt"], ["generate", "gpt2"], ["plan", "gpt2"]):
            self.refused_with(args, "model_type: gpt2 isn't supported; expected llama, mistral,")
        folder = self.folder_of(LLAMA, **{"model.layers.2.mlp.up_proj.weight": ("F32", [2], bytes(8)),
                                          "model.layers.0.self_attn.q_proj.bias": ("F32", [32], bytes(128)),
                                          "model.norm.weight": ("F32", [31], bytes(124))})
        for command in (["eval", folder, "text.txt"], ["plan", folder]):
            self.refused_with(command, "surplus: ", "model.layers.0.self_attn.q_proj.bias (32)", "model.layers.2.mlp.up_proj.weight (2)",
                              "of another shape: model.norm.weight: expected (32), got (31)")
        os.remove(self.path(folder, "model.safetensors"))
        self.assertIn("model has no weights: the plan is of what its config.json says", self.accepted(["plan", folder]).stderr)
        self.folder_of(dict(LLAMA, hidden_activation="gelu"))
        self.refused_with(["eval", "model", "text.txt"], "doesn't use: hidden_activation")

    def test_given_a_folder_plan_says_what_is_read_and_what_a_recipe_converts(self):
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
        folder = self.folder_of(dict(LLAMA, model_type="qwen3", head_dim=8, rope_parameters=yarn, use_sliding_window=True,
                                     sliding_window=5, max_window_layers=1))
        text = self.accepted(["plan", folder, "--model.converters=quantize.linear.mx"]).stdout
        self.assertIn("MXLinear", text)
        self.assertIn("yarn scaling by 4 of a model trained on 16 tokens; in force at any length, as in transformers", text)
        self.assertIn("1 of 2 layers see the last 5 tokens alone", text)
        self.assertNotIn("MXLinear", self.accepted(["plan", folder]).stdout)
        told = json.loads(self.accepted(["plan", folder, "--json"]).stdout)
        self.assertEqual(told["positions"], {"scaling": "yarn", "in_force": True})
        self.assertEqual(told["windows"], {"tokens": 5, "layers": [1]})
        # A flavor keeps torchtitan's rule.
        flavor = ["--model.name=deepseek_v3", "--model.flavor=demo", "--model.args.vocab_size=257"]
        short = self.accepted(["plan", "job.toml", *flavor]).stdout
        self.assertIn("not in force: sequences of 32 tokens, and torchtitan's rule", short)
        long = self.accepted(["plan", "job.toml", *flavor, "--training.seq_len=8192"]).stdout
        self.assertIn("; in force: sequences of 8192 tokens, and torchtitan's rule", long)

    def test_given_the_configurations_of_published_models_every_one_is_understood(self):
        sizes = dict(hidden_size=1024, intermediate_size=64, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=2,
                     vocab_size=128, max_position_embeddings=32768)
        for name, config in PUBLISHED.items():
            self.write(f"{name}/config.json", json.dumps({**SEEN, **sizes, **config}))
            self.assertIn("linears", self.accepted(["plan", name]).stdout)

    def test_given_experts_trained_at_no_learning_rate_the_model_stays_what_it_was(self):
        folder = self.folder_of(QWEN3_MOE)
        before = self.evaluated(folder, "text.txt", "--seq-len", 32, "--recipe", "fp32")
        self.write("job.yaml", "model:\n  model_name_or_path: model\n"
                   "data:\n  dataset_param:\n    basic_parameters:\n      dataset: text.txt\n      cutoff_len: 32\n"
                   "training:\n  lr: 0\n  train_iters: 20\n  micro_batch_size: 2\n  save: out\n  save_interval: 20\n"
                   "  load: model\n")
        self.accepted(["train", "job.yaml"])
        after = self.evaluated("out", "text.txt", "--seq-len", 32, "--recipe", "fp32")
        self.assertEqual(after["step"], 20)
        self.assertEqual(after["loss"], before["loss"])
        # A checkpoint is a model like any other.
        self.assertIn("moe.experts", self.accepted(["plan", "out"]).stdout.replace("mlp.experts", "moe.experts"))

    def test_given_a_flavors_job_config_json_is_held_against_it(self):
        folder = self.folder_of(dict(LLAMA, rms_norm_eps=1e-6, rope_theta=20000.0))
        args = [f"--model.args.{k}={v}" for k, v in dict(dim=32, n_layers=2, n_heads=4, n_kv_heads=2, vocab_size=257,
                                                         hidden_dim=48).items()]
        load = ["train", "job.toml", f"--checkpoint.initial_load_path={folder}", "--checkpoint.initial_load_in_hf",
                f"--model.tokenizer_path={folder}", "--training.steps=1"] + args
        self.refused_with(load, "config.json: another model than the job's",
                          "norm_eps is ", "rope_theta is ")
        self.accepted(load + ["--model.args.norm_eps=1e-6", "--model.args.rope_theta=20000.0"])
        asked = self.accepted(load + ["--model.args.norm_eps=1e-6", "--model.args.rope_theta=500.0"])
        self.assertIn(", where the weights' config.json says ", asked.stderr + asked.stdout)
        self.refused_with(load + ["--model.args.norm_eps=1e-6", "--model.args.rope_theta=20000.0",
                                  "--checkpoint.initial_load_in_hf_quantized"], "expected weights in 8 bits")

    def test_given_a_folder_with_yarn_a_flavors_short_job_says_that_it_leaves_it_out(self):
        config = dict(LLAMA, model_type="deepseek_v3", num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=8, qk_nope_head_dim=4,
                      qk_rope_head_dim=4, v_head_dim=8, first_k_dense_replace=2, n_routed_experts=4, num_experts_per_tok=2, n_group=1,
                      topk_group=1, routed_scaling_factor=1.0, moe_intermediate_size=16, rms_norm_eps=1e-6, rope_theta=10000.0, rope_scaling=dict(
                          rope_type="yarn", factor=40.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=1.0))
        folder = self.folder_of(config, made=deepseek_shapes(config))
        sizes = dict(dim=32, n_layers=2, n_heads=4, vocab_size=257, hidden_dim=48, q_lora_rank=0, kv_lora_rank=8, qk_nope_head_dim=4,
                     qk_rope_head_dim=4, v_head_dim=8, n_dense_layers=2, num_experts=4, top_k=2, num_expert_groups=0, moe_inter_dim=16,
                     num_shared_experts=1, norm_eps=1e-6, rope_factor=40.0, original_seq_len=4096, mscale=1.0)
        job = ["train", "job.toml", "--model.name=deepseek_v3", "--model.flavor=demo", "--training.steps=1",
               f"--checkpoint.initial_load_path={folder}", "--checkpoint.initial_load_in_hf", f"--model.tokenizer_path={folder}"]
        job += [f"--model.args.{k}={v}" for k, v in sizes.items()]
        said = "yarn isn't in force: training.seq_len is 32, and torchtitan's rule is to leave it out up to the 4096 tokens"
        self.assertIn(said, self.accepted(job).stdout)
        self.assertNotIn("yarn", self.accepted(job + ["--training.seq_len=4100", "--training.local_batch_size=1", "--validation.no-enable"]).stdout)


if __name__ == "__main__":
    main()
