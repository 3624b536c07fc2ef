"""The GPU's part of an update: kernels in Triton, which comes with torch's CUDA builds. Imported on a GPU only.

What lies between the matrix products of a layer that learns is a launch each, forward and backward. Sums are taken in
float32. Forward they round where the lean layers round, since the sampler's log-probs are compared with these; backward
they round once, at the end.

How far apart tokens stand, heads or numbers belongs to the model and not to the batch: kernels are compiled for it, so
that they know what they may read at once, and a launch has less to say (`launch.py`).
"""

from jade.learn.layers.kernels.attention import attend
from jade.learn.layers.kernels.attention_back import attend_back
from jade.learn.layers.kernels.gate import gated, gated_back, gated_back_learning
from jade.learn.layers.kernels.low_rank import add_low_rank
from jade.learn.layers.kernels.norm import add_norm, norm_back
from jade.learn.layers.kernels.turning import collect, turn

__all__ = [
    "add_low_rank",
    "add_norm",
    "attend",
    "attend_back",
    "collect",
    "gated",
    "gated_back",
    "gated_back_learning",
    "norm_back",
    "turn",
]
