"""A script whose processes keep a model: 64 layers of 1024 by 1024 numbers. An item is the seed of 256 vectors for each layer."""

import functools
import sys

LAYERS, WIDTH, VECTORS = 64, 1024, 256


@functools.cache
def layers():
    import torch

    torch.manual_seed(7)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.randn(LAYERS, WIDTH, WIDTH, device=device) / WIDTH**0.5, device


def main(seed):
    import torch

    weights, device = layers()
    numbers = torch.Generator(device=device).manual_seed(int(seed))
    # Each layer's product is one slice of a batch.
    given = torch.randn(LAYERS, VECTORS, WIDTH, device=device, generator=numbers)
    return round(float(torch.bmm(given, weights).tanh().mean()), 6)


if __name__ == "__main__":
    print(main(sys.argv[1]))
