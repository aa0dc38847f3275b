"""What `octet compare` leaves behind: checkpoints that know their recipe, in folders of their own."""
import json
import os

from program import main
from test_yaml import DENSE, JOB as YAML_JOB
from training import JOB, Training

RECIPES = ("bf16", "fp32", "mxfp8", "hif8")


class Compare(Training):
    def compare(self, *args, recipes=RECIPES, job="job.toml"):
        return self.accepted(["compare", job, "--recipes", ",".join(recipes), "--checkpoint.enable", *args])

    def losses(self, recipe):
        with open(self.path("out", "compare", recipe, "metrics.jsonl")) as file:
            return [json.loads(line) for line in file]

    def checkpoints(self, recipe):
        return sorted(os.listdir(self.path("out", "compare", recipe, "checkpoint")))

    def plan(self, recipe):
        rows = json.loads(self.accepted(["plan", "out/compare/" + recipe, "--json"]).stdout)["modules"]
        return {row["recipe"].split()[0] for row in rows if row["converted"]}

    def each_evaluates_to_what_compare_logged(self, recipes=RECIPES):
        logged = {recipe: self.losses(recipe)[-1]["validation_loss"] for recipe in recipes}
        self.assertEqual(len(set(logged.values())), len(recipes))  # no two recipes can be taken for each other
        for recipe in recipes:
            result = json.loads(self.accepted(["eval", "out/compare/" + recipe, "--json"]).stdout)
            self.assertAlmostEqual(result["loss"], logged[recipe], delta=1e-12 + 1e-9 * logged[recipe], msg=recipe)

    def test_given_a_compare_each_checkpoint_evaluates_to_the_loss_that_was_logged(self):
        # The job has a recipe of its own, which is none of theirs.
        self.write("own.toml", JOB.replace('flavor = "demo"', 'flavor = "demo"\nconverters = ["quantize.linear.mx"]')
                   + '[quantize.linear.mx]\nrecipe_name = "hif8_15_224"\n')
        self.compare(job="own.toml")
        self.each_evaluates_to_what_compare_logged()
        self.compare(recipes=("delayed_hif8_pertensor",))  # whose scales come from the steps before
        self.each_evaluates_to_what_compare_logged(("delayed_hif8_pertensor",))
        self.assertEqual([self.plan(recipe) for recipe in RECIPES], [set(), set(), {"mxfp8"}, {"hif8"}])

    def test_given_a_recipe_to_evaluate_by_it_takes_the_place_of_the_checkpoints_own(self):
        self.compare()
        def loss(recipe, *args):
            return json.loads(self.accepted(["eval", "out/compare/" + recipe, "--json", *args]).stdout)["loss"]
        for own in RECIPES:
            self.assertEqual(loss(own, "--recipe", own), loss(own))
        self.assertEqual(len({loss("fp32", "--recipe", recipe) for recipe in RECIPES}), len(RECIPES))
        # Activations are in the job's dtype, bf16, as in compare's own mxfp8, whatever the checkpoint's were.
        self.accepted(["train", "job.toml", "--checkpoint.enable", "--validation.enable", "--job.dump_folder=plain",
                       "--training.mixed_precision_param=float32"])
        self.assertEqual(json.loads(self.accepted(["eval", "plain", "--json"]).stdout)["loss"], loss("fp32"))
        wide = json.loads(self.accepted(["eval", "plain", "--json", "--recipe", "mxfp8"]).stdout)["loss"]
        self.assertNotEqual(loss("fp32", "--recipe", "mxfp8"), wide)

    def test_given_a_run_that_goes_on_from_a_recipes_checkpoint_another_recipe_is_told(self):
        self.compare(recipes=("hif8",))
        go_on = ["train", "job.toml", "--checkpoint.enable", "--validation.enable", "--job.dump_folder=out/compare/hif8",
                 "--training.steps=6", "--model.converters=quantize.linear.mx"]
        out = self.accepted(go_on + ["--quantize.linear.mx.recipe_name=mxfp8"]).stdout
        self.assertIn("resumed with another quantize.linear.mx.recipe_name: was \"hif8\", is \"mxfp8\"", out)
        self.assertEqual(self.plan("hif8"), {"mxfp8"})

    def test_given_folders_that_recipes_would_share_nothing_trains(self):
        real = ["train", "job.toml", "--checkpoint.enable", "--job.dump_folder=real"]
        self.accepted(real)
        before = self.accepted(["eval", "real", "text.txt", "--json"]).stdout
        os.makedirs(self.path("out", "compare", "hif8"))
        os.symlink(self.path("real"), self.path("out", "compare", "hif8", "linked"))
        command = ["compare", "job.toml", "--recipes", "bf16,hif8", "--checkpoint.enable", "--training.steps=2"]
        for folder in (self.path("real/checkpoint"), "../../../real/checkpoint", "..", "a/../../x", "linked/checkpoint",
                       "linked/new"):
            result = self.refused(command + ["--checkpoint.folder=" + folder], "command line: --checkpoint.folder: ",
                                  "out/compare/", "--checkpoint.folder=checkpoint", '"%s"' % folder)
            self.assertNotIn("Training with recipe", result.stderr)
        self.assertEqual(os.listdir(self.path("out", "compare")), ["hif8"])
        self.write("job.toml", JOB.replace("[checkpoint]", '[checkpoint]\nenable = true\nfolder = "../x"'))
        self.refused(["compare", "job.toml", "--recipes", "bf16"], "job.toml:", "checkpoint.folder")
        # What saves nothing harms nothing, and leaves alone what is there.
        self.accepted(["compare", "job.toml", "--recipes", "bf16", "--checkpoint.no-enable",
                       "--checkpoint.folder=" + self.path("real/checkpoint")])
        self.assertEqual(sorted(os.listdir(self.path("real", "checkpoint"))), ["step-2", "step-4"])
        self.assertEqual(self.accepted(["eval", "real", "text.txt", "--json"]).stdout, before)

    def test_given_checkpoints_of_a_longer_compare_the_next_one_sets_them_aside(self):
        self.compare("--training.steps=8", recipes=("bf16", "mxfp8"))
        with open(self.path("out", "compare", "mxfp8", "metrics.jsonl")) as file:
            metrics = file.read()
        old = self.checkpoints("mxfp8")
        self.refused(["compare", "job.toml", "--recipes", "mxfp8", "--training.dataset_path=none.txt"], "none.txt")
        self.assertEqual(self.checkpoints("mxfp8"), old)  # a job that is refused moves nothing
        out = self.compare(recipes=("bf16", "mxfp8")).stderr
        for recipe in ("bf16", "mxfp8"):
            folder = "out/compare/" + recipe
            self.assertIn("%s begins anew: 4 checkpoints of an earlier compare were moved to %s/checkpoint/aside-1"
                          % (folder, folder), out)
            self.assertEqual(self.checkpoints(recipe), ["aside-1", "step-2", "step-4"])
            self.assertIn("step-8", os.listdir(self.path(folder, "checkpoint", "aside-1")))
        self.assertEqual(self.text_of("out", "compare", "mxfp8", "checkpoint", "aside-1", "metrics.jsonl"), metrics)
        self.each_evaluates_to_what_compare_logged(("bf16", "mxfp8"))
        self.accepted(["eval", "out/compare/mxfp8/checkpoint/aside-1/step-8"])
        self.accepted(["compare", "job.toml", "--recipes", "bf16"])  # it saves none of its own
        self.assertEqual(self.checkpoints("bf16"), ["aside-1", "aside-2"])
        self.refused(["compare", "job.toml", "--recipes", "bf16,mxfp8",
                      "--checkpoint.initial_load_path=out/compare/mxfp8/checkpoint/step-4"],
                     "checkpoint.initial_load_path", "sets the checkpoints of out/compare/mxfp8/checkpoint aside")
        self.assertEqual(self.checkpoints("mxfp8"), ["aside-1", "step-2", "step-4"])

    def test_given_an_option_that_no_arm_uses_it_is_refused(self):
        self.write("hf/config.json", json.dumps(DENSE))
        self.write("hf/tokenizer.json", self.text_of("tokenizer.json"))
        self.write("job.yaml", YAML_JOB % {"model": "llama", "recipe": "mxfp8", "apply": "['model.layers.{*}']", "ignored": "['*lm_head']"})
        held = ["--data.val_dataset_param.basic_parameters.dataset=text.txt", "--training.train_iters=2"]
        section = "--quantize.linear.mx."
        for job, args in (("job.toml", ["--training.steps=2"]), ("job.yaml", held)):
            for recipes, option, used in (("bf16,mxfp8", "amax_history_len=8", False), ("bf16,hif8", "scale_mode=floor", False),
                                          ("bf16,fp32", "gemm=exact", False), ("bf16,mxfp8", "gemm=exact", True),
                                          ("bf16,hif8,mxfp8", "scale_mode=floor", True),
                                          ("bf16,delayed_hif8_pertensor", "amax_history_len=8", True)):
                command = ["compare", job, "--recipes", recipes, section + option, *args]
                if used:
                    self.accepted(command)
                else:
                    self.refused(command, "command line: " + section + option.partition("=")[0] + ": no recipe of --recipes uses it")
            for option in (section + "recipe_name=hif8", "--quantize.grouped_mm.mx.recipe_name=hif8"):
                self.refused(["compare", job, option, *args], option.partition("=")[0])

    def test_given_an_option_in_any_spelling_and_of_any_kind_arms_that_use_it_are_looked_for(self):
        self.write("hf/config.json", json.dumps(DENSE))
        self.write("hf/tokenizer.json", self.text_of("tokenizer.json"))
        self.write("job.yaml", YAML_JOB % {"model": "llama", "recipe": "mxfp8", "apply": "['model.layers.{*}']", "ignored": "['*lm_head']"})
        held = ["--data.val_dataset_param.basic_parameters.dataset=text.txt", "--training.train_iters=1"]
        plan, high = "--training.quantization_plan.", "bf16,fp32"
        for job, recipes, option, told in (
                ("job.toml", "bf16,hif8", "--quantize.linear.mx.scale-mode=floor", "no recipe of --recipes uses it"),
                ("job.toml", "bf16,hif8", "--quantize.linear.mx.scale_mode floor", "no recipe of --recipes uses it"),
                ("job.toml", "bf16,hif8", "--quantize.linear.mx.recipe-name=mxfp8", "each run's recipe is one of"),
                ("job.toml", "bf16,mxfp8", "--quantize.linear.mx.fsdp_low_precision_all_gather_mode=all", "no recipe of --recipes"),
                ("job.toml", high, "--training.mixed-precision-param=float32", "no recipe of --recipes uses it"),
                ("job.toml", "bf16,mxfp8", "--training.mixed-precision-param=float32", None),
                ("job.yaml", high, "--training.mixed_precision_param=float32", "no recipe of --recipes uses it"),
                ("job.yaml", high, "--parallel.fsdp_plan.param_dtype=fp32", "no recipe of --recipes uses it"),
                ("job.yaml", "bf16,mxfp8", "--parallel.fsdp_plan.param_dtype=fp32", None),
                ("job.yaml", high, plan + "ignored-modules=lm_head", "no recipe of --recipes uses it"),
                ("job.yaml", high, plan + "no-enable_fsdp_low_precision_all_gather", None),  # asks for nothing
                ("job.yaml", "bf16,mxfp8", plan + "ignored-modules=lm_head", None),
                ("job.yaml", "bf16,mxfp8", plan + "quant_recipe=hif8", "quant_recipe"),
                ("job.yaml", "bf16,mxfp8", "--training.lr=1e-3 --optimizer.lr=1e-4", "it is given as --optimizer.lr too")):
            args = held if job == "job.yaml" else ["--training.steps=1"]
            command = ["compare", job, "--recipes", recipes, *option.split(), *args]
            with self.subTest(option=option, recipes=recipes):
                if told:
                    self.refused(command, "command line: " + option.split()[0].partition("=")[0] + ": ", told)
                else:
                    self.accepted(command)

    def test_given_validation_turned_off_compare_says_that_it_needs_it(self):
        for off in ("--validation.no-enable", "--validation.enable=false"):
            result = self.refused(["compare", "job.toml", "--recipes", "bf16", off],
                                  "command line: --validation.enable: compare needs validation")
            self.assertNotIn("Training with recipe", result.stderr)
        told = "validation.enable = true is compare's (%s: false)"
        self.assertIn(told % "default", self.compare(recipes=("bf16",)).stderr)
        self.write("job.toml", JOB.replace("[validation]", "[validation]\nenable = false"))
        line = self.text_of("job.toml").splitlines().index("enable = false") + 1
        self.assertIn(told % ("job.toml:%d" % line), self.compare(recipes=("bf16",)).stderr)
        self.write("job.toml", JOB.replace("[validation]", "[validation]\nenable = true"))
        self.assertNotIn("is compare's", self.compare(recipes=("bf16",)).stderr)

    def test_given_a_recipe_that_the_job_cannot_have_nothing_trains(self):
        # The last recipe's conversion is refused, the first one's isn't.
        result = self.refused(["compare", "job.toml", "--recipes", "bf16,mxfp8", "--quantize.linear.mx.gemm=fast"],
                              "--quantize.linear.mx.gemm", "AVX512-VNNI", env=dict(os.environ, OCTET_CPU="avx2"))
        self.assertNotIn("Training with recipe", result.stderr)


main()
