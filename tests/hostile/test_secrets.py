"""Secrets with telling names do not reach a model: the name travels with its value."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from schedmate.llm.redact import Redactor

PROBES = Path(__file__).parents[2] / "benchmarks" / "redaction_probes.yaml"

FORMS = {
    "an argument's default": "p.add_argument('--token', help='(of the hub)',\n  default='{}')",
    "a dataclass field": "    api_key: str = field(default='{}', metadata={{'help': 'k'}})",
    "a field of pydantic's": "db_password: SecretStr = SecretStr('{}')",
    "an environment variable or": "token = os.environ.get('HF_TOKEN') or '{}'",
    "a bearer token in parts": "headers = {{'Authorization': 'Bearer ' + '{}'}}",
    "name and value in YAML": 'env:\n  - name: WANDB_API_KEY\n    value: "{}"\n',
    "value and name in YAML": "env:\n  - value: {}\n    name: DB_PASSWORD\n",
    "name and value in JSON": '{{"name": "HF_TOKEN", "value": "{}"}}',
    "a block scalar": "lr: 0.1\ntoken: |\n  {}\nepochs: 3\n",
    "a tagged scalar": "access_token: !!str {}\n",
    "the next line": '{{"password":\n    "{}"}}',
    "pw": "login:\n  user: ann\n  pw: {}\n",
    "Make": "TOKEN ?= {}\n",
    "fish": "set -x WANDB_API_KEY {}\n",
    "an option on its own line": "args:\n  - --api-key\n  - {}\n",
    "a column of CSV": "user,password,role\nann,{},admin\n",
    "a column of Markdown": "| user | password |\n|------|------|\n| ann | {} |\n",
    "prose": "The password is {}.\n",
    "prose with a variable": "Set HF_TOKEN to {} before you start.\n",
    "another language": "Das Passwort lautet {}\n",
    "no name at all": "run = start(project, '{}Zx81kQpL0vTn73mWcRdA92hYsBfEuGiO')",
    "a second place": "db_password = '{0}'\nconnect('ann', '{0}')\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_name_travels_with_its_value(form: str) -> None:
    text = FORMS[form].format("mK8nJ7bH6gQ2")
    redacted = Redactor().redact(text)
    assert "mK8nJ7bH6gQ2" not in redacted, redacted
    assert redacted.count("\n") == text.count("\n")


def test_nine_of_ten_probes_leave_nothing() -> None:
    probes = [one for group in yaml.safe_load(PROBES.read_text("utf-8")).values() for one in group]
    leaking = [one for one in probes if str(one["secret"]) in Redactor().redact(one["text"])]
    assert len(probes) > 150
    assert len(leaking) <= len(probes) / 10, leaking


HYPERPARAMETERS = """\
parser.add_argument('--lr', type=float, default=3e-4)
parser.add_argument('--max_tokens', type=int, default=4096, help='tokens of a batch')
parser.add_argument('--pad_token', default='<pad>')
parser.add_argument('--model', default='meta-llama/Llama-2-7b-chat-hf')
parser.add_argument('--sort_key', default='validation_loss')
batch_size: int = 256
weight_decay: float = 0.05
model_name = "vit_large_patch14_clip_336.laion2b_ft_in12k_in1k"
model: Qwen2-VL-7B-Instruct-AWQ-Int4
model = AutoModel.from_pretrained("microsoft/Phi-3.5-MoE-instruct", torch_dtype="bfloat16")
revision = "8c9cc9e0c2a7f1d5b3e4a6978c0d1e2f3a4b5c6d"
tokenizer = AutoTokenizer.from_pretrained('google/t5-v1_1-xxl') or 'bert-base-uncased'
dataset: HuggingFaceFW/fineweb-edu-score-2
num_train_tokens = 15_000_000_000_000
- name: LR
  value: "0.1"
- name: learning_rate_key
  value: cosine
token,label,count
the,DET,1000
The key is that training with 16 GPUs is twice as fast.
The token is masked with probability 0.15.
checkpoint = 's3://bucket/runs/2024-01-01/step_100000/model.safetensors'
optimizer: {name: adamw, lr: 1e-4, betas: [0.9, 0.95]}
wandb.init(project="llama3-8b-sft-v2", name="run_lr3e4_bs256_2024")
key = jax.random.PRNGKey(42)
cache_key: train_split_v2
"""


@pytest.mark.parametrize("line", HYPERPARAMETERS.splitlines())
def test_hyperparameters_stay(line: str) -> None:
    assert Redactor().redact(line) == line


def test_hyperparameters_stay_together() -> None:
    assert Redactor().redact(HYPERPARAMETERS) == HYPERPARAMETERS
