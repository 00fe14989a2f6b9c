"""Writes a model directory that vLLM serves from a GGUF file: `convert.py FILE.gguf FOLDER`."""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
config = type(read.config)(
    **{k: v for k, v in read.config.to_dict().items() if k != "quantization_config"}
)
fresh = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
fresh.load_state_dict(read.state_dict())
fresh.save_pretrained(folder)
AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
