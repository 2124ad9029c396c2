"""Does it learn, and how fast does it go."""

from __future__ import annotations

from grafana.names import select
from grafana.panel import Panel, prom
from grafana.queries import THE_RANKS, increase, rate

__all__ = [
    "GRADIENTS",
    "ITERATIONS_HEAT",
    "ITERATION_TIME",
    "LEARNING_RATE",
    "LOSS",
    "LOSS_SCALE",
    "MFU",
    "NONFINITE",
    "PADDING",
    "QUALITY",
    "SAMPLES",
    "SKIPPED",
    "STEPS",
    "TOKENS",
]

_SKIPPED = 'costlens_step_outcome="skipped"'
_TOKENS = 'costlens_token_kind="tokens"'
_SLOTS = 'costlens_token_kind="slots"'
_BUCKETS = f"sum by (le) ({rate('costlens.iteration.duration', THE_RANKS, part='bucket')})"

LOSS = Panel(
    "Does the loss fall?",
    "Newest finite loss of each stage, the mean of the ranks. A value that is not finite leaves no "
    "point here; it is counted beside.",
    "none",
    (
        prom(
            f"avg by (costlens_stage) ({select('costlens.loss', THE_RANKS)})", "{{costlens_stage}}"
        ),
    ),
)
GRADIENTS = Panel(
    "Are the gradients sane?",
    "Newest finite norm of the gradients that was logged, the largest of the ranks.",
    "none",
    (prom(f"max({select('costlens.grad.norm', THE_RANKS)})", "norm"),),
)
LEARNING_RATE = Panel(
    "Which learning rate is in force?",
    "Newest learning rate that was logged.",
    "none",
    (prom(f"max({select('costlens.learning_rate', THE_RANKS)})", "learning rate"),),
)
QUALITY = Panel(
    "How do the logged metrics develop?",
    "Newest finite value of every metric that was logged, by its name; the mean of the ranks.",
    "none",
    (
        prom(
            f"avg by (costlens_quality_name) ({select('costlens.quality', THE_RANKS)})",
            "{{costlens_quality_name}}",
        ),
    ),
)
NONFINITE = Panel(
    "Was anything NaN or infinite?",
    "Logged values that were not finite, by where they stood. The first one is the one to look at: "
    "its iteration is among the bad ones below.",
    "none",
    (
        prom(
            "sum by (costlens_nonfinite_source) "
            f"({increase('costlens.nonfinite.events', THE_RANKS)})",
            "{{costlens_nonfinite_source}}",
        ),
    ),
    decimals=0,
    least=0,
)
SKIPPED = Panel(
    "How many steps does the gradient scaler skip?",
    "Optimizer steps that changed nothing, over all of them. A few after the start are usual; "
    "above the line the run pays for steps that it does not make.",
    "percentunit",
    (
        prom(
            f"sum({rate('costlens.steps', THE_RANKS, _SKIPPED)}) / "
            f"(sum({rate('costlens.steps', THE_RANKS)}) > 0)",
            "skipped",
        ),
    ),
    limit="skipped_steps_ratio",
    least=0,
)
LOSS_SCALE = Panel(
    "What is the loss scaled with?",
    "What the gradient scaler multiplies with, the smallest of the ranks; each skipped step halves "
    "it. Only where fp16 is trained with a scaler.",
    "none",
    (prom(f"min({select('costlens.precision.loss_scale', THE_RANKS)})", "scale"),),
)
TOKENS = Panel(
    "How many tokens a second?",
    "Over the chosen ranks: positions (slots), tokens without padding, and tokens that the loss "
    "was computed on. They overlap and do not add up.",
    "short",
    (
        prom(
            f"sum by (costlens_token_kind) ({rate('costlens.tokens', THE_RANKS)})",
            "{{costlens_token_kind}}/s",
        ),
    ),
    least=0,
)
PADDING = Panel(
    "How much of the work is padding?",
    "Share of the token positions that hold padding: computed, paid for, and of no use.",
    "percentunit",
    (
        prom(
            f"1 - sum({rate('costlens.tokens', THE_RANKS, _TOKENS)}) / "
            f"(sum({rate('costlens.tokens', THE_RANKS, _SLOTS)}) > 0)",
            "padding",
        ),
    ),
    least=0,
    most=1,
)
SAMPLES = Panel(
    "How many samples a second?",
    "Training samples over the chosen ranks.",
    "short",
    (prom(f"sum({rate('costlens.samples', THE_RANKS)})", "samples/s"),),
    least=0,
)
STEPS = Panel(
    "How many steps a second?",
    "Optimizer updates, real and skipped ones, the mean of the ranks; and passes of the loop.",
    "short",
    (
        prom(
            f"avg by (costlens_step_outcome) ({rate('costlens.steps', THE_RANKS)})",
            "{{costlens_step_outcome}} steps/s",
        ),
        prom(f"avg({rate('costlens.iterations', THE_RANKS)})", "iterations/s"),
    ),
    least=0,
)
MFU = Panel(
    "How much of the hardware's peak does the model use?",
    "Work of the model over the peak of each rank's devices (MFU); only where the FLOPs of a token "
    "and the peak are known.",
    "percentunit",
    (
        prom(
            f"max by (costlens_rank) ({select('costlens.mfu.ratio', THE_RANKS)})",
            "rank {{costlens_rank}}",
        ),
    ),
    least=0,
    most=1,
)
ITERATION_TIME = Panel(
    "How long does an iteration take?",
    "Median and 99th percentile over the chosen ranks, without saves and evaluation. A dot is an "
    "iteration with a trace: click it.",
    "s",
    (
        prom(f"histogram_quantile(0.5, {_BUCKETS})", "median", has_exemplars=True),
        prom(f"histogram_quantile(0.99, {_BUCKETS})", "99th percentile", has_exemplars=True),
    ),
    least=0,
)
ITERATIONS_HEAT = Panel(
    "Are all iterations alike?",
    "Number of iterations by their duration. Two bands are two kinds of iteration; a thin line far "
    "above is a stall that comes again. A dot is an iteration with a trace.",
    "s",
    (
        prom(
            f"sum by (le) ({increase('costlens.iteration.duration', THE_RANKS, part='bucket')})",
            "{{le}}",
            has_exemplars=True,
        ),
    ),
    kind="heat",
    width=12,
)
