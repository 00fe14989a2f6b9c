"""Names of models read out of values and paths."""

from __future__ import annotations

import re

from schedmate.agent.fields.words import is_known, words

_PLAIN_PARTS = frozenset(
    ["model", "models", "net", "network", "base", "main", "default", "train", "finetune"]
)
"""Parts of an import path that name no model."""

_MODEL_FILE = re.compile(
    r"\.(pt|pth|ckpt|bin|safetensors|ya?ml|h5|hdf5|keras|tf|gguf|onnx|cfg|msgpack|pkl|tflite|caffemodel|"
    r"pdparams|nemo|t7)$"
)


_SHELF = re.compile(
    r"(checkpoints?|ckpts?|pre_?trained(_?models?)?|(saved_?)?models?|weights|(path|your)_\w+)/",
    re.IGNORECASE,
)
"""A folder of models, which is no owner of one."""

_FILLED_IN = re.compile(
    r"^/?((path|folder|dir)[-_/]to|path|your|some)[^/]*/([^/]*/)?(?=[^/]+$)", re.IGNORECASE
)
"""A folder that a reader is to replace by their own."""


_NO_NAME = re.compile(
    r"[A-Z]\w*_(PATH|DIR|FILE|FOLDER|NAME)|\d++(?:\.\d*+)?([kK]|[kK]?[hH]z|px)?|"
    r"(algo|arch|model|net|network|agent|method|backbone)_name|[\[<].*[\]>]|(\S++\s++){4,}\S+"
)
"""What is to be filled in, a size, a rate and a sentence: `MODEL_PATH`, `[model]`, `44k`."""


def model_name(text: str) -> str | None:
    """A model's name from a setting or argument; None when it does not say."""
    text = text.strip().strip("'\"")
    if _NO_NAME.fullmatch(text) or re.search(r"\$[^/]*/*$", text):
        return None  # `/models/$NAME` too
    called = re.fullmatch(r"([A-Za-z_][\w.]*)\(.*\)", text)
    if called:
        text = called[1].rsplit(".", 1)[-1]  # an expression that makes it
    if not text or len(text) > 200 or "\n" in text or text.lower() in words("not_models"):
        return None
    filled_in = _FILLED_IN.sub("", text)
    if filled_in != text and is_known(filled_in, "models"):
        text = filled_in  # `path_to/Llama-2-7b`: the name below a folder to be filled in
    if re.fullmatch(
        r"(best|last|final|latest|trained|saved|my)[-_]?(model|net|ckpt|checkpoint)s?",
        text,
        re.IGNORECASE,
    ):
        return None
    if re.search(r"\.(py|sh|txt|json)$", text):
        return None
    if (
        re.match(r"^(/|\./|\.\./|~|s3://|gs://)", text)
        or text.count("/") > 1
        or text.endswith("/")
        or _SHELF.match(text)
        or _MODEL_FILE.search(text)
    ):
        return _from_path(text)
    text = re.sub(r"[-_](test|debug|demo|experiment)$|([-_]0\.\d+){2,}$", "", text)
    if re.match(r"^(path|your|<|\$|\{)", text, re.IGNORECASE):
        return None
    if re.fullmatch(r"[a-z_]\w*(\.[A-Za-z_]\w*)+", text):
        # a module or class by its import path
        parts = [part for part in text.split(".") if part.lower() not in _PLAIN_PARTS]
        return parts[-1] if parts else text
    return text


def _from_path(text: str) -> str | None:
    """The model that a file or folder is named after: the last part that says something."""
    parts = [p for p in re.split(r"/", text) if p not in ("", ".", "..", "~")]
    if re.match(r"/?(path|your)\b", text):  # to be filled in, as with a hint of what
        parts = [p for p in parts if is_known(p, "models")]
    for part in reversed(parts):
        stem = _MODEL_FILE.sub("", part)
        cached = re.fullmatch(r"models--(.+?)--(.+)", stem)
        if cached:
            return f"{cached[1]}/{cached[2]}"  # Hugging Face's cache
        if re.match(r"(best|last|final|network)[-_]", stem) and not is_known(stem, "models"):
            continue
        if (
            stem.lower() in words("generic")
            or stem.lower() in words("not_models")
            or re.fullmatch(
                r"(checkpoint|ckpt|epoch|step|model|best|last|latest|weights?|pretrained|output|"
                r"models|checkpoints|saved|snapshots|[0-9a-f]{32,}|e\d+|v?\d+|results?|runs?|logs?|exp\d*|huggingface|hf|hub)"
                r"[-_]?(model|\d*)?",
                stem,
                re.IGNORECASE,
            )
        ):
            continue
        if re.fullmatch(r"\d+(\.\d+)?[bm]", stem, re.IGNORECASE) and len(parts) > 1:
            # a size below the folder of its family
            family = re.sub(r"[-_]hf$", "", parts[max(0, parts.index(part) - 1)])
            return f"{family}/{stem}"
        return stem
    return None
