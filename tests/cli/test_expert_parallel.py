"""Experts spread over processes, as a user drives them: losses, bytes, checkpoints, and what is refused."""
import json
import shutil

from ranks import BATCH, OnRanks, main

MOE = ["--model.name=deepseek_v3", "--model.args.moe_inter_dim=64", "--model.args.kv_lora_rank=32",
       "--training.global_batch_size=8"]
GROUPED = "--model.converters=npu_gmm,quantize.linear.mx,quantize.grouped_mm.mx"
LOW = [GROUPED, "--quantize.linear.mx.enable_fsdp_low_precision_all_gather",
       "--quantize.grouped_mm.mx.enable_fsdp_low_precision_all_gather"]
KINDS = ("bytes_gather_8bit", "bytes_gather_high", "bytes_reduce_scatter")
YAML = """
model: {model_id: qwen3_moe, model_name_or_path: hf}
data: {dataset_param: {basic_parameters: {dataset: text.txt, cutoff_len: 32}}}
parallel: {expert_parallel_size: %d}
training: {train_iters: 2, micro_batch_size: 1, seed: 5, save: out, save_interval: 2}
"""
QWEN = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 64, "head_dim": 16,
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}


def degree(n):
    return "--parallelism.expert_parallel_degree=%d" % n


class ExpertParallel(OnRanks):
    def one(self, *args):
        self.accepted(["train", "job.toml", "--job.dump_folder=one"] + BATCH + MOE + list(args))

    def check_losses(self, delta=1e-3):
        for one, many in zip(self.metrics("one"), self.metrics()):
            self.assertAlmostEqual(one["loss"], many["loss"], delta=delta)
            self.assertAlmostEqual(one["grad_norm"], many["grad_norm"], delta=0.01)
            self.assertEqual(one["expert_idle_share"], many["expert_idle_share"])

    def wire(self, n, *args):
        return json.loads(self.accepted(["plan", "job.toml", "--json", "--ranks", n] + BATCH + MOE +
                                        list(args)).stdout)["wire"]

    def saved(self, folder="out"):
        with open(self.path(folder, "checkpoint", "step-6", "model-00001-of-00001.safetensors"), "rb") as file:
            return file.read()

    def test_given_teams_of_2_among_4_losses_are_those_of_one_process_and_bytes_those_of_the_plan(self):
        even = "--debug.moe_force_load_balance"
        self.one(*LOW, even)
        out = self.train(4, *MOE, *LOW, degree(2), even)
        self.check_losses()
        self.assertIn("Experts spread over teams of 2 processes, each expert sharded over 2", out)
        self.assertRegex(out, r"bytes of step 1: .* all_to_all [1-9]")
        wire = self.wire(4, *LOW, degree(2), even)
        self.assertEqual(wire["expert_parallel_degree"], 2)
        for line in self.metrics():
            for kind in KINDS:
                self.assertEqual(line[kind], wire[kind])
            self.assertEqual(line["bytes_all_to_all"], wire["bytes_all_to_all_if_even"])
            self.assertGreater(line["wire_s_all_to_all"], 0)

    def test_given_copies_of_teams_losses_are_those_of_one_process(self):
        copies = ["--parallelism.data_parallel_replicate_degree=2", degree(2)]
        self.one()
        self.train(4, *MOE, *copies)
        self.check_losses()
        wire = self.wire(4, *copies)
        for line in self.metrics():
            for kind in KINDS:
                self.assertEqual(line[kind], wire[kind])

    def test_given_a_checkpoint_of_a_team_any_degree_goes_on_from_it(self):
        save = [*MOE, "--checkpoint.enable", "--checkpoint.interval=3", "--validation.enable",
                "--model.converters=npu_gmm",
                "--training.mixed_precision_param=float32"]  # a token between two experts decides the same way
        self.train(2, *save, degree(2))
        whole = self.metrics()
        saved = self.saved()
        for n, of in ((1, 1), (2, 1), (4, 2), (4, 4), (2, 2)):
            shutil.rmtree(self.path("out", "checkpoint", "step-6"))
            out = self.train(n, *save, degree(of))
            self.assertIn("Training starts at step 4", out)
            told = "resumed with another parallelism.expert_parallel_degree: was 2, is %d" % of
            self.assertEqual(told in out, of != 2, out)
            self.assertAlmostEqual(self.metrics()[-1]["loss"], whole[-1]["loss"], delta=1e-3)
        self.assertEqual(self.saved(), saved)  # teams of 2 again: as if never stopped
        shutil.rmtree(self.path("out", "checkpoint"))
        self.train(1, *save)
        shutil.rmtree(self.path("out", "checkpoint", "step-6"))
        self.assertIn("Training starts at step 4", self.train(4, *save, degree(2)))
        self.assertAlmostEqual(self.metrics()[-1]["loss"], whole[-1]["loss"], delta=1e-3)

    def test_given_steps_without_training_a_teams_checkpoint_has_one_processs_bytes(self):
        save = [*MOE, "--checkpoint.enable", "--optimizer.lr=0"]
        for n, of in ((1, 1), (4, 2)):
            self.train(n, *save, degree(of), "--job.dump_folder=on%d" % n)
        self.assertEqual(self.saved("on1"), self.saved("on4"))

    def test_given_a_yaml_job_its_expert_parallel_size_spreads_the_experts(self):
        self.write("hf/config.json", json.dumps(QWEN))
        shutil.copy(self.path("tokenizer.json"), self.path("hf/tokenizer.json"))
        self.write("job.yaml", YAML % 2)
        result = self.run_ranks(2, ["train", "job.yaml"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Experts spread over teams of 2 processes, each expert sharded over 1", result.stdout)
        self.write("job.yaml", YAML % 3)
        self.refused(["plan", "job.yaml"], "job.yaml:4: parallel.expert_parallel_size:",
                     "divisor of the number of experts, 4", "got 3")

    def test_given_degrees_that_do_not_divide_plan_and_train_say_so(self):
        for words, n, args in ((("share one copy of the model, 4", "got 3"), 4, [degree(3)]),
                               (("share one copy of the model, 2", "got 4"), 2, [degree(4)]),
                               (("share one copy of the model, 2", "got 4"), 4,
                                [degree(4), "--parallelism.data_parallel_replicate_degree=2"]),
                               (("number of experts, 6", "got 4"), 4, [degree(4), "--model.args.num_experts=6",
                                                                       "--model.args.num_expert_groups=1",
                                                                       "--model.args.num_limited_groups=1"])):
            job = ["job.toml"] + BATCH + MOE + args
            self.refused(["plan", "--ranks", n] + job, "expert_parallel_degree", *words)
            result = self.run_ranks(n, ["train"] + job)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(len(self.errors(result)), 1, result.stderr)
            for word in words:
                self.assertIn(word, self.errors(result)[0])

    def test_given_a_dense_model_or_one_process_a_degree_is_refused(self):
        for command in (["plan", "job.toml"], ["plan", "job.toml", "--ranks", 2]):
            self.refused(command + [degree(2)], "the model has no experts", "expected 1; got 2")
        self.refused(["train", "job.toml", degree(2)] + MOE, "share one copy of the model, 1", "got 2")
        text = self.accepted(["plan", "job.toml", degree(2)] + BATCH + MOE).stdout
        self.assertIn("experts spread over teams of 2 processes", text)

    def test_given_a_killed_process_of_a_team_the_job_ends(self):
        self.kill_last(2, *MOE, degree(2))


if __name__ == "__main__":
    main()
