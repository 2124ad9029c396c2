"""A plain torch loop with five added lines, marked +: run it, then look at the report it prints.

python examples/plain_loop.py
"""

from pydoc_data.topics import topics

import torch
from torch import nn
from torch.utils.data import DataLoader

import costlens  # +

BLOCK = 32


def main() -> None:
    """Train for a hundred steps on the documentation of Python."""
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    data = torch.frombuffer(bytearray(text[:51_230]), dtype=torch.uint8).long()
    blocks = [data[at : at + BLOCK + 1] for at in range(0, len(data) - BLOCK - 1, BLOCK)]
    loader = DataLoader(blocks, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Embedding(256, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    run = costlens.start("next-byte")  # +
    run.watch(model, optimizer)  # +
    for batch in run.batches(loader):  # + (was: for batch in loader)
        inputs, labels = batch[:, :-1], batch[:, 1:]
        with run.iteration(tokens=labels.numel(), samples=len(batch)):  # +
            loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
