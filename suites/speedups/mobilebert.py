"""MobileBERT for question answering, its weights random: nothing is downloaded."""

import torch

from recapture import workload


def tokens(batch):
    return (torch.randint(30_000, (batch, 128)),)


def question_answering():
    from transformers import MobileBertConfig, MobileBertForQuestionAnswering

    return MobileBertForQuestionAnswering(MobileBertConfig(return_dict=False))


@workload(
    inputs=lambda: tokens(128),
    requires=["transformers"],
    claims={"compile": [("I6", ">1", "2.36x on 32 cores")]},
)
def mobilebert_qa():
    """Inference on a batch of 128 sequences of 128 tokens."""
    return question_answering()


@workload(
    inputs=lambda: tokens(4),
    requires=["transformers"],
    claims={"compile": [("I6", ">1", "2.36x on 32 cores, batch 128")]},
)
def mobilebert_qa_small():
    """The same on a batch of 4, for machines of a few cores."""
    return question_answering()
