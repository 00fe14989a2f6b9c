"""Names of variables and files that mean the model, or something that serves it."""

from __future__ import annotations

import re

TARGET = re.compile(r"^(\w*_)?(model|net|network|classifier|policy|agent|backbone|generator|netg|"
                     r"actor_critic|q_network|unet|transformer|student|"
                     r"detector|llm|lm|ac|pi)(_\w*)?\d*$", re.IGNORECASE)  # fmt: skip
AUXILIARY = re.compile(
    r"teacher|ema|target|discriminator|netd|critic|loss|criterion|tokenizer|vae|text_encoder|"
    r"reward|ref(erence)?_?model|ref_|head|emb(ed|_|$)|sampler|(?<!sym)metric|scheduler|extractor|vgg|lpips|averag|vocoder",
    re.IGNORECASE,
)
MEASURING = re.compile(
    r"(^|[/_])(fid|guidance|metrics?|eval\w*|lpips|inception|score|scoring|is_score)([/_.]|$)",
    re.IGNORECASE,
)
PLAIN_FILE = re.compile(
    r"__main__|models?|nets?|networks?|main|diffusion|train|pretrain|finetune|run|modules?|__init__|utils?",
    re.IGNORECASE,
)

NOT_MODEL = re.compile(
    r"(Registry|Config|ConfigDict|Cfg|Params|Args|Arguments|Options|Field|Factory|(?<!Model)Builder|Type|Enum|Space|Session|"
    r"Processor|Tokenizer|(Arg|Argument|Config)Parser|Loader|Saver|Writer|Logger|Timer|Meter|Evaluator|Client|Frontend|"
    r"Parallel|Buffer|(Replay|Rollout|Experience|Episode)Memory|(?<![Mm]etric)Metrics?|Sampler|Callback|Helper|"
    r"Visuali[sz]er|Optimi[sz]er)$"
)
"""Names of classes that hold, make, serve or measure a model, and are none."""

BACKBONES = ("backbone", "backbonename", "encoder", "encodername")
"""What a part of a network that has a name of its own is called, normalised."""

KIND_OF_PART = re.compile(
    r"transformer|(bi)?lstm|gru|c?rnn|cnn|mlp|attention|embedding|linear|identity", re.IGNORECASE
)
"""What a part of a network may be, in any network."""

BUILT_WITH = re.compile(r"_(pytorch|tensorflow|keras|torch|tf2?|jax|flax|paddle)$")
"""What a file's name says of the library it uses."""
