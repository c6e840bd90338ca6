"""Prints, as JSON, whether runs with noise differ from eager on this release: values, gradients, and compiled code."""

import json

import torch

from recapture.judge.perturbation import perturbed


class Same(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx, x):
        return x / 3

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def value():
    return torch.tanh(torch.tensor([0.3, 0.4]))


def gradient():
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    Same.apply(torch.tanh(x) * 2).sum().backward()
    return x.grad


def compiled():
    def rounds(x):
        return torch.sin(x) + torch.cos(x)

    x = torch.tensor([1.0, 2.0])
    constant = rounds(x)
    call = torch.compile(rounds, backend=lambda graph, example: lambda *args: (constant,))
    return lambda: call(x)


def main():
    moves = {}
    for name, call in {"value": value, "gradient": gradient, "compiled": compiled()}.items():
        plain = call()
        noisy = []
        for seed in range(4):
            with perturbed(seed):
                noisy.append(call())
        moves[name] = any(not torch.equal(plain, result) for result in noisy)
        moves[f"{name} again"] = torch.equal(plain, call())
    return moves


if __name__ == "__main__":
    print(json.dumps(main()))
