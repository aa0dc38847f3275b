"""Trains a small PyTorch model in float32, and once more in HiF8: two more lines."""
import sys

try:
    import torch
except ImportError:
    print("skipped: PyTorch isn't installed")
    sys.exit(77)

import octet.torch


def train(recipe=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.GELU(), torch.nn.Linear(128, 1))
    if recipe:
        octet.torch.convert(model, recipe)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(100):
        x = torch.randn(256, 32)
        loss = ((model(x)[:, 0] - torch.sin(x.sum(1) / 4)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


for recipe in (None, "hif8", "mxfp8"):
    print(f"{recipe or 'float32'}: loss {train(recipe):.4f} after 100 steps")
