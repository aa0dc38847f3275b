"""Models with experts as a user drives them: what the log says, what a plan lists, what is refused."""
import json

from program import main
from training import Training

MOE = ["--model.name=deepseek_v3", "--model.args.moe_inter_dim=32", "--model.args.kv_lora_rank=32"]
GROUPED = "--model.converters=npu_gmm,quantize.linear.mx,quantize.grouped_mm.mx"


class Moe(Training):
    def test_given_the_keywords_of_check_lists_the_log_has_them(self):
        out = self.accepted(["train", "job.toml", GROUPED, "--metrics.log_freq=2"] + MOE).stdout
        for words in ("MX training active with recipe mxfp8", "Swapped to MXLinear_NPU layers: ",
                      "mxfp8 MoE training enabled",
                      "[MXFP8/Hif8 GMM] Replaced 1 NPU GMM methods/functions"):
            self.assertIn(words, out)
        for step in (1, 2, 4):
            self.assertRegex(out, r"step:  %d  expert load: largest [1-4]\.\d\d of the mean, "
                                  r"\d+\.\d%% idle\n" % step)
        with open(self.path("out", "metrics.jsonl")) as file:
            line = json.loads(file.readline())
        self.assertGreaterEqual(line["expert_largest_over_mean"], 1)
        self.assertLessEqual(line["expert_idle_share"], 1)

    def test_given_a_dense_model_the_log_has_no_load(self):
        out = self.accepted(["train", "job.toml"]).stdout
        self.assertNotIn("expert", out)

    def test_given_a_plan_experts_are_rows_and_a_converted_gate_is_warned_of(self):
        rows = json.loads(self.accepted(["plan", "job.toml", GROUPED, "--json"] + MOE).stdout)
        by_name = {row["name"]: row for row in rows["modules"]}
        experts = by_name["layers.1.moe.experts"]
        self.assertEqual(experts["shape"], [8, 32, 64])
        self.assertEqual((experts["type"], experts["recipe"]), ("MXGroupedExperts", "mxfp8"))
        self.assertEqual(by_name["layers.1.moe.router.gate"]["recipe"], "mxfp8")  # as torchtitan's default has it
        for args in (["--quantize.linear.mx.filter_fqns=output,router.gate"], ["--quantize.rules=octet"]):
            kept = json.loads(self.accepted(["plan", "job.toml", GROUPED, "--json"] + args + MOE).stdout)
            self.assertEqual([row["recipe"] for row in kept["modules"] if row["name"].endswith("router.gate")], [None])
            self.assertEqual([w for w in kept["warnings"] if "gate" in w], [])
        self.assertEqual(len([w for w in rows["warnings"] if 'write filter_fqns = ["output", "router.gate"]' in w]), 1)
        self.assertEqual(by_name["layers.1.moe.shared_experts.w1"]["recipe"], "mxfp8")
        self.assertEqual((rows["experts"], rows["experts_converted"]), (1, 1))
        out = self.accepted(["plan", "job.toml", "--model.converters=npu_gmm"] + MOE).stdout
        self.assertRegex(out, r"layers\.1\.moe\.experts +8x32x64 +GroupedExperts +kept")

    def test_given_fqns_only_those_experts_are_converted(self):
        more = MOE + ["--model.args.n_layers=3", "--quantize.grouped_mm.mx.fqns=layers.2.moe"]
        rows = json.loads(self.accepted(["plan", "job.toml", GROUPED, "--json"] + more).stdout)
        recipes = {row["name"]: row["recipe"] for row in rows["modules"]}
        self.assertEqual(recipes["layers.1.moe.experts"], None)
        self.assertEqual(recipes["layers.2.moe.experts"], "mxfp8")
        self.assertEqual((rows["experts"], rows["experts_converted"]), (2, 1))
        out = self.accepted(["train", "job.toml", GROUPED, "--training.steps=1"] + more).stdout
        self.assertIn("Replaced 1 NPU GMM", out)

    def test_given_many_processes_a_plan_is_as_quick_and_counts_or_refuses(self):
        low = [GROUPED, "--quantize.linear.mx.enable_fsdp_low_precision_all_gather",
               "--quantize.grouped_mm.mx.enable_fsdp_low_precision_all_gather"]
        few, many = [json.loads(self.accepted(["plan", "job.toml", "--json", "--ranks", n] + low + MOE,
                                              timeout=20).stdout)["wire"] for n in (2, 1 << 20)]
        for kind in ("bytes_gather_8bit", "bytes_gather_high", "bytes_reduce_scatter"):
            self.assertEqual(many[kind], few[kind] * ((1 << 20) - 1))
        self.refused(["plan", "job.toml", "--ranks", 1 << 20, "--training.local_batch_size=1",
                      "--training.global_batch_size=%d" % (2047 << 20), "--model.args.dim=65536",
                      "--model.args.n_layers=64"], "--training.global_batch_size", "64 bits")

    def test_given_a_wrong_order_of_converters_the_right_one_is_named(self):
        npu = "--job.custom_config_module=torchtitan_npu.config.custom_config"
        for converters in (["quantize.grouped_mm.mx,npu_gmm"], ["quantize.grouped_mm.mx", npu]):
            self.refused(["train", "job.toml", "--model.converters=" + converters[0]] + converters[1:] + MOE,
                         "needs \"npu_gmm\" before it", "\"npu_gmm\", ...")
        self.accepted(["plan", "job.toml", "--model.converters=grouped_mm,quantize.grouped_mm.mx"] + MOE)

    def test_given_torchtitans_converters_of_experts_they_mean_what_npu_gmm_before_them_does(self):
        plans = [self.accepted(["plan", "job.toml", "--json", "--model.converters=" + converters] + MOE).stdout
                 for converters in ("quantize.linear.mx,quantize.grouped_mm.mx",
                                    "npu_gmm,quantize.linear.mx,quantize.grouped_mm.mx")]
        self.assertEqual(plans[0], plans[1])
        self.assertIn("MXGroupedExperts", self.accepted(
            ["plan", "job.toml", "--model.converters=quantize.grouped_mm.mx"] + MOE).stdout)
        self.refused(["plan", "job.toml", "--model.converters=quantize.grouped_mm.mx"],
                     "\"quantize.grouped_mm.mx\" converts nothing")

    def test_given_a_dense_model_a_converter_of_experts_is_refused(self):
        self.refused(["train", "job.toml", "--model.converters=npu_gmm"],
                     "\"npu_gmm\" converts nothing", "the model has no expert module")

    def test_given_experts_that_cannot_be_one_line_says_why(self):
        for words, args in ((("top_k", "num_experts (8)", "got 9"), ["--model.args.top_k=9"]),
                            (("num_expert_groups", "divisor of 8", "got 3"),
                             ["--model.args.num_expert_groups=3"]),
                            (("--model.args.num_experts: no experts", "top_k is ", "0 for all three"),
                             ["--model.args.num_experts=0"]),
                            (("--model.args.top_k: ", "num_experts (4)", "got 5"),
                             ["--model.args.num_experts=4", "--model.args.top_k=5"]),
                            (("score_func", "\"softmax\"", "\"relu\""),
                             ["--model.args.score_func=relu"])):
            self.refused(["train", "job.toml"] + MOE + args, *words)

    def test_given_a_checkpoint_eval_and_generate_read_it(self):
        self.accepted(["train", "job.toml", "--checkpoint.enable", GROUPED] + MOE)
        mx = json.loads(self.accepted(["eval", "out", "text.txt", "--json"]).stdout)
        bf16 = json.loads(self.accepted(["eval", "out", "text.txt", "--json", "--recipe", "bf16"]).stdout)
        self.assertNotEqual(mx["loss"], bf16["loss"])
        self.assertLess(abs(mx["loss"] - bf16["loss"]), 0.1)
        sample = ["generate", "out", "--prompt", "the lord", "--max-new-tokens", 8]
        one = self.accepted(sample).stdout
        self.assertTrue(one.startswith("the lord"))
        self.assertEqual(one, self.accepted(sample).stdout)

    def test_given_recipes_compare_runs_experts_in_each(self):
        out = self.accepted(["compare", "job.toml", GROUPED, "--recipes", "bf16,mxfp8,hif8"] + MOE).stdout
        rows = [line.split() for line in out.splitlines()]
        self.assertEqual([row[0] for row in rows[1:4]], ["bf16", "mxfp8", "hif8"])


if __name__ == "__main__":
    main()
