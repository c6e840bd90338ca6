"""A stack of transformer blocks, as language models are made of."""

import torch
from torch import nn
from torch.nn import functional as F

from recapture import workload

WIDTH, HEADS, DEPTH, TOKENS, BATCH, VOCABULARY = 512, 8, 6, 256, 16, 8192
LESSON = [("L1", ">=1.5", ">=1.5x")]


class Block(nn.Module):
    """Attention to what came before, then a perceptron, each added to what it was given."""

    def __init__(self):
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.merge = nn.Linear(WIDTH, WIDTH)
        self.before_perceptron = nn.LayerNorm(WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, _ = x.shape
        heads = self.project(self.before_attention(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.narrow(F.gelu(self.widen(self.before_perceptron(x))))


class LanguageModel(nn.Module):
    """Scores of the next token at every position."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.score = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        return self.score(self.blocks(self.embed(tokens)))


def next_token_loss(scores, tokens):
    return F.cross_entropy(scores.flatten(0, 1), tokens.flatten())


@workload(
    inputs=lambda: (torch.randint(VOCABULARY, (BATCH, TOKENS)),),
    targets=lambda: (torch.randint(VOCABULARY, (BATCH, TOKENS)),),
    loss=next_token_loss,
    optimizer=torch.optim.AdamW,
    dtype="amp",
    devices=["cuda"],
    claims={"compile": LESSON, "compile:reduce-overhead": LESSON, "compile:max-autotune": LESSON},
)
def transformer_train():
    """A training step of six blocks of width 512, 16 × 256 tokens: AdamW under bfloat16 autocast."""
    return LanguageModel()
