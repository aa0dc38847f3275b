"""Given PyTorch, a linear in 8 bits has the outputs and gradients of its quantized operands, and models that have it train.

usage: torch_layer_peers.py LIBRARY"""
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/cli")]
os.environ["OCTET_LIBRARY"] = os.path.abspath(sys.argv[1])
try:
    import torch
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import octet
import octet.torch
from program import Checked


def wide(q):
    return torch.from_numpy(q.dequantize().astype(np.float64))


class Layers(Checked):
    def near(self, got, expected, dtype):
        error = (got.double() - expected).abs().max() / expected.abs().max()
        self.assertLess(float(error), 2e-6 if dtype == torch.float32 else 5e-3)

    def test_given_any_recipe_outputs_and_gradients_are_those_of_the_quantized_operands(self):
        torch.manual_seed(1)
        for recipe, rules in (("mxfp8", "octet"), ("hif8", "mindspeed"), ("mxfp8-32x32", "torchtitan-npu"), ("e4m3:1x128", "transformer-engine"),
                              ("e5m2:channel", "torchao")):
            for dtype in (torch.float32, torch.bfloat16):
                x = torch.randn(3, 20, 96, dtype=dtype, requires_grad=True)
                layer = octet.torch.Linear(96, 50, recipe=recipe, rules=rules, mode="exact").to(dtype)
                y = layer(x)
                dy = torch.randn_like(y)
                y.backward(dy)
                rows, grads, w = x.detach().reshape(60, 96), dy.reshape(60, 50), layer.weight.detach()

                def q(array, axis, use):
                    return wide(octet.quantize(array, recipe, axis, rules, use))
                expected = q(rows, 1, "input") @ q(w, 1, "weight").T + layer.bias.detach().double()
                self.near(y.detach().reshape(60, 50), expected, dtype)
                self.near(x.grad.reshape(60, 96), q(grads, 1, "gradient") @ q(w, 0, "weight"), dtype)
                self.near(layer.weight.grad, q(grads, 0, "gradient").T @ q(rows, 0, "input"), dtype)
                self.near(layer.bias.grad, grads.double().sum(0), dtype)
                self.assertEqual((y.dtype, x.grad.dtype, layer.weight.grad.dtype), (dtype,) * 3)

    def test_given_a_model_two_lines_convert_it_and_it_trains_as_in_high_precision(self):
        def trained(recipe):
            torch.manual_seed(2)
            model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 64), torch.nn.GELU(),
                                        torch.nn.Linear(64, 1))
            if recipe:
                octet.torch.convert(model, recipe)
            optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
            losses = []
            for _ in range(150):
                x = torch.randn(128, 32)
                loss = ((model(x)[:, 0] - torch.sin(x.sum(1) / 3)) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return sum(losses[-20:]) / 20, sum(losses[:5]) / 5
        (high, first), (hif8, _), (mxfp8, _) = trained(None), trained("hif8"), trained("mxfp8")
        self.assertLess(high, first / 3)
        self.assertLess(abs(hif8 - high), 0.25 * high)
        self.assertLess(abs(mxfp8 - high), 0.25 * high)

    def test_given_names_that_are_filtered_or_unknown_recipes_nothing_of_those_changes(self):
        model = torch.nn.ModuleDict({"wq": torch.nn.Linear(32, 32, bias=False), "output": torch.nn.Linear(32, 8)})
        weight = model["wq"].weight
        with self.assertRaisesRegex(ValueError, "hif8"):
            octet.torch.convert(model, "hif9")
        self.assertIs(type(model["wq"]), torch.nn.Linear)
        octet.torch.convert(model, "hif8", rules="torchtitan-npu")
        self.assertEqual([type(module) for module in model.values()], [octet.torch.Linear, torch.nn.Linear])
        self.assertIs(model["wq"].weight, weight)
        self.assertIn("recipe=hif8", str(model))

    def test_given_tensors_their_memory_is_read_without_a_copy(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = torch.randn(4, 64).to(dtype)
            self.assertEqual(octet._arrays.view(x).address, x.data_ptr())
            expected = octet.quantize(x.float().numpy())
            self.assertTrue(np.array_equal(octet.quantize(x).codes, expected.codes))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
