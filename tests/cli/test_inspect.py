"""`octet inspect` of a folder in which one layer was made bad, and its list taken by a job of either form."""
import json
import math
import random
import re

import safetensors_file
from program import main
from test_models import LLAMA, f32, shapes
from training import Training

BAD = "model.layers.1.mlp.down_proj.weight"


class Inspect(Training):
    def make_model(self, bad=None):
        draw = random.Random(5)
        tensors = {}
        for name, shape in shapes(LLAMA).items():
            values = [draw.gauss(0, 0.02) for _ in range(math.prod(shape))]
            for column in (3, 17) if name == bad else ():
                values[column::shape[1]] = [1000 * x for x in values[column::shape[1]]]
            tensors[name] = f32(shape, values)
        self.write("model/config.json", json.dumps(LLAMA))
        self.write("model/model.safetensors", safetensors_file.written(tensors))

    def test_given_a_layer_with_large_channels_it_is_first_and_in_both_lists(self):
        self.make_model(BAD)
        out = self.accepted(["inspect", "model", "--recipe", "hif8_15_224"]).stdout
        rows = [line for line in out.splitlines() if " layers." in line]
        self.assertRegex(rows[0], r"^\* layers\.1\.feed_forward\.w2 ")
        self.assertEqual([], [row for row in rows[1:] if row.startswith("*")])
        self.assertIn('filter_fqns = ["output", "layers.1.feed_forward.w2"]', out)
        self.assertIn('ignored_modules: ["lm_head", "gate", "model.layers.1.mlp.down_proj"]', out)

    def test_given_its_list_a_plan_keeps_the_module(self):
        self.make_model(BAD)
        out = self.accepted(["inspect", "model", "--recipe", "hif8_15_224"]).stdout
        names = json.loads(re.search(r"filter_fqns = (\[.*\])", out).group(1))
        plan = json.loads(self.accepted(["plan", "model", "--model.converters=quantize.linear.mx",
                                         "--quantize.linear.mx.filter_fqns=" + ",".join(names), "--json"]).stdout)
        kept = [row["name"] for row in plan["modules"] if not row["recipe"]]
        self.assertIn("layers.1.feed_forward.w2", kept)
        self.assertNotIn("layers.0.feed_forward.w2", kept)

    def test_given_json_each_module_is_there_worst_first(self):
        self.make_model(BAD)
        found = json.loads(self.accepted(["inspect", "model", "--json", "--recipe", "mxfp8"]).stdout)
        modules = found["modules"]
        self.assertEqual("layers.1.feed_forward.w2", modules[0]["module"])
        self.assertEqual(7 * LLAMA["num_hidden_layers"] + 1, len(modules))
        errors = [m["error"] for m in modules]
        self.assertEqual(sorted(errors, reverse=True), errors)
        self.assertTrue(all(6 == len(m["others_error"]) for m in modules))

    def test_given_what_it_does_not_know_it_refuses(self):
        self.make_model()
        self.refused(["inspect", "model", "--recipe", "mxfp9"], "--recipe: ", "mxfp8")
        self.refused(["inspect"], "MODEL")
        self.refused(["inspect", "nowhere"], "nowhere")


if __name__ == "__main__":
    main()
