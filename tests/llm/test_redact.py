"""Secrets do not leave, everything else does."""

from __future__ import annotations

import base64
import re
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schedmate.base.data import load
from schedmate.llm.redact import PLACEHOLDER, Redactor

HEX32 = "9f86d081884c7d659a2feaa0c55ad015"
HEX40 = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
RANDOM = "q7Rz2LxV9mKd4TnB8wYc1HsF6pJg3EaU0iOo"
PEM_BODY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 3)
HEADLESS_RSA = "MIIEpAIBAAKCAQEAw7Zt" + ("A1b2C3d4" * 6)[:44]
HEADLESS_PKCS8 = PEM_BODY.split("\n")[0]
HEADLESS_OPENSSH = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW"
PEM_OF_PEM = base64.b64encode(f"-----BEGIN PRIVATE KEY-----\n{PEM_BODY}".encode()).decode()
CERTIFICATE = base64.b64encode(b"-----BEGIN CERTIFICATE-----" + b"x" * 90).decode()

# rule, text with the secret marked by « and »
SECRETS = [
    ("aws_key", "AWS_ACCESS_KEY_ID=«AKIAIOSFODNN7EXAMPLE»"),
    ("password", "aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»"),
    ("password", '{"SecretAccessKey": "«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»"}'),
    ("gcp_key", "key=«AIza" + RANDOM[:35] + "»&x=1"),
    ("azure_key", "DefaultEndpointsProtocol=https;AccountKey=«" + RANDOM + RANDOM + "==»;"),
    ("hf_token", "login('«hf_" + RANDOM[:34] + "»')"),
    ("anthropic_key", "«sk-ant-api03-" + RANDOM + "-x_y»"),
    ("openai_key", "openai.api_key = '«sk-" + RANDOM + "»'"),
    ("openai_key", "«sk-proj-" + RANDOM + "_-z»"),
    ("github_token", "git clone https://x.org «ghp_" + RANDOM + "»"),
    ("github_token", "«github_pat_" + RANDOM[:22] + "_" + RANDOM + "»"),
    ("gitlab_token", "--header PRIVATE-TOKEN:«glpat-" + RANDOM[:20] + "»"),
    ("slack_token", "«xoxb-123456789012-1234567890123-" + RANDOM[:24] + "»"),
    ("slack_token", "https://hooks.slack.com/«services/T00000000/B00000000/" + RANDOM[:24] + "»"),
    ("wandb_key", "wandb login «" + HEX40 + "»"),
    ("wandb_key", "wandb login --relogin «" + HEX40 + "»"),
    ("password", "export WANDB_API_KEY=«" + HEX40 + "»"),
    ("password", 'os.environ["WANDB_API_KEY"] = "«' + HEX40 + '»"'),
    ("password", 'os.environ.setdefault("COMET_API_KEY", "«' + RANDOM[:25] + '»")'),
    ("npm_token", "//registry/:_authToken=«npm_" + RANDOM + "»"),
    ("pypi_token", "password: «pypi-AgEIcHlwaS5vcmc" + RANDOM * 3 + "»"),
    ("service_token", "NGC: «nvapi-" + RANDOM + RANDOM + "»"),
    ("service_token", "«dapi" + HEX32 + "»"),
    ("kaggle_key", '{"username":"bob","key":"«' + HEX32 + '»"}'),
    ("jwt", "x=«eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n»"),
    ("bearer_token", "Authorization: Bearer «" + RANDOM + "»"),
    ("bearer_token", "-H 'Authorization: Basic «dXNlcjpwYXNzd29yZDEyMw==»'"),
    ("url_password", "git+https://bob:«s3cr3t»@github.com/x/y"),
    ("url_password", "postgresql://u:«p%40ss»@db/x"),
    ("url_password", "redis://:«hunter2»@localhost:6379/0"),
    ("url_token", "https://«" + HEX32 + "»@o1.ingest.sentry.io/3"),
    ("netrc_password", "machine x.org\n  login bob\n  password «hunter3»"),
    ("command_password", "sshpass -p '«foo»' ssh gpu01"),
    ("command_password", "curl -s -u bob:«hunter2» https://x.org"),
    ("password", "password: «hunter2»"),
    ("password", "password: «correcthorse»  # prod"),
    ("password", "DB_PASSWORD=«correct.horse»"),
    ("password", "smtp_pass = '«a b c»'"),
    ("password", '"client_secret": "«abc»"'),
    ("password", "mysql_password='«O-h»'"),
    ("password", "def connect(password: str = '«hunter2»'):"),
    ("password", 'add_argument("--api_key", type=str, default="«qwerty12»")'),
    ("password", "python train.py --wandb-api-key «abcd1234» --lr 0.1"),
    ("password", "python train.py --password=«letmein»"),
    ("password", "export HF_TOKEN=«" + RANDOM[:20] + "»"),
    ("password", "python train.py --hub_token «1a2B3c4D5e6F7g8H9i»"),
    ("token", 'login(token="«' + RANDOM + '»")'),
    ("token", "FEED_KEY=«" + RANDOM + "»"),
    ("wandb_key", 'wandb.login(key="«' + HEX40 + '»")'),
    ("wandb_key", "wandb.login(relogin=True, key='«" + HEX40 + "»')"),
    ("password", 'wandb.api.api_key = "«' + HEX40 + '»"'),
    ("password", "API_TOKEN=«hunter2secret»"),
    ("password", "api_token: «abcdefgh»"),
    ("password", "export HF_TOKEN=«letmein»"),
    ("password", "python train.py --wandb_key «" + HEX40 + "»"),
    ("password", "python train.py --wandb_key=«abc123»"),
    ("password", "python train.py --hf-token «abcdef»"),
    ("password", "pwd=«hunter2»"),
    ("password", 'pwd: "«hunter2»"'),
    ("password", "Server=a;Uid=b;Pwd=«hunter2»;"),
    ("password", "PASS=«hunter2»"),
    ("token", "    token: «abcd1234efgh»"),
    ("token", "    user:\n      token: «kubeconfig-user-abcde:xyz12»"),
    ("private_key", "    client-key-data: «" + PEM_OF_PEM + "»"),
    ("password", "    client-key-data: «bm90IGEga2V5IGluIFBFTQ==»"),
    ("token", "python train.py --token «abcd1234»"),
    ("private_key", "data: «" + PEM_OF_PEM + "»"),
    ("docker_login", '{"auths": {"r.io": {"auth": "«dXNlcjpwYXNz»"}}}'),
    ("password", '"identitytoken": "«abc.def»"'),
    ("command_password", "mysql -u root -p«hunter2» -h db"),
    ("command_password", "mysqldump -uroot -p'«hunter2»' db"),
    ("command_password", "redis-cli -h db -a «hunter2»"),
    ("command_password", "docker login -u a -p «abc» registry.io"),
    ("command_password", "openssl rsa -in k -passin pass:«abc»"),
    ("command_password", "unzip -P «abc» data.zip"),
    ("command_password", "huggingface-cli login --token «abcdef»"),
    ("command_password", "aws configure set aws_secret_access_key «abc»"),
    ("command_password", "http --auth «bob:hunter2» x.org"),
    ("bearer_token", "curl -H 'Authorization: token «abc123»' x"),
    ("header_key", 'curl -H "X-Api-Key: «abc123»" x'),
    ("header_key", "headers = {'PRIVATE-TOKEN': '«abc123»'}"),
    ("cookie", "Cookie: «sessionid=abcdef0123456789; csrftoken=abcdef01»"),
    ("password", "requests.get(url, auth=('bob', '«hunter2»'))"),
    ("password", "HTTPBasicAuth('bob', '«hunter2»')"),
    ("password", "<password>«hunter2»</password>"),
    ("password", '<add key="ApiKey" value="«abc12345»"/>'),
    ("url_token", "https://x.org/a?token=«abc12345abc»"),
    ("telegram_token", "Bot('«123456789:AAFabcdefghijklmnopqrstuvwxyz012345»')"),
    ("service_key", "algolia_app = '«" + HEX32 + "»'"),
    ("kubernetes_secret", "kind: Secret\ntype: Opaque\ndata:\n«  a: aHVudGVy\n  b: YQ==\n»---\n"),
    ("private_key", "«" + "\n".join([HEADLESS_RSA, *["x9Y8" * 16] * 5, "QkFTRTY0Lg=="]) + "»\n"),
    ("private_key", "key = '«" + HEADLESS_PKCS8 + "»'\nmodel = 'resnet'"),
    ("private_key", "key: |\n  «" + HEADLESS_OPENSSH + "»\nmodel: x"),
    ("age_key", "«AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2 + "»"),
    ("private_key", f"«-----BEGIN PRIVATE KEY-----\n{PEM_BODY}\n-----END PRIVATE KEY-----»"),
    ("private_key", f"«-----BEGIN OPENSSH PRIVATE KEY-----\n{PEM_BODY}»\n[clipped]"),
    ("private_key", '"«-----BEGIN PRIVATE KEY-----\\nMIIEvQ\\n-----END PRIVATE KEY-----»\\n"'),
]  # fmt: skip

HARMLESS = """\
num_tokens=2048
max_tokens: 4096
pad_token="<pad>"
tokenizer.pad_token = tokenizer.eos_token
mask_token = "[MASK]"
image_token: "<|image_placeholder_0123|>"
eos_token_id=50256
bos_token: <s>
special_tokens: <|endoftext|>
tokenizer_name: bert-base-uncased
tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-2-7b-chat-hf", use_auth_token=True)
token = tokenizer.encode(text)
token_dropout: 0.1
cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
--max-token 5 --tokens-per-step 65536 --train-tokens 300000000000
train_tokens: 15_000_000_000_000
commit 860ca11abcdef0123456789abcdef0123456789a
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
run_id: 123e4567-e89b-12d3-a456-426614174000
data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
password = os.environ["PASSWORD"]
password: str
password: Optional[str] = None
api_key=${OPENAI_API_KEY}
api_key: $OPENAI_API_KEY
api_key="YOUR_API_KEY"
api_key = "<your key>"
secret = self.secret
def login(user, password, token=None): connect(password=password, api_key=args.api_key)
getpass.getpass("password: ")
sort_key = "loss_validation_epoch_best"
cache_key = f"{model}-{dataset}"
BATCH_KEY=train_batch_size_per_device
key = "value"
hf_model_name_or_path_for_the_trainer_long
sk-learn-based-pipeline-for-something
per_device_train_batch_size: 32
git+https://github.com/huggingface/transformers.git@8c9cc9e0
git@github.com:foo/bar.git
s3://bucket/path/to/c4/en/3.0.1
http://127.0.0.1:8000/v1
model_name: timm/vit_base_patch16_224.augreg_in21k_ft_in1k
model: t5-v1_1-xxl-enc-bf16
lr: 3e-4
docker run -u 1000:1000 --gpus all image
#SBATCH --time=24:00:00
-----BEGIN CERTIFICATE-----
the bearer of this message
eyJ is how base64 of a JSON object begins
wandb login
login as root
token: data/lang_char/train_unigram5000_units.txt
token: bpe
token: "<unk>"
--token bpe_unigram --tokens 3
pwd=/workspace/run1
pwd = os.getcwd()
PWD=$(pwd)
cd $PWD/exp1
auth: none
"auth": "basic"
use_auth_token=HF_TOKEN
hf_token=args.hf_token
export HF_TOKEN=hf_xxx
{"name": "GITHUB_TOKEN", "mode": "deny"}
docker run -p 8080:80 image
docker login -u a --password-stdin
python -m torch.distributed.run --nproc_per_node 4 -p 29500 train.py
mysql -u root -p
redis-cli -h db -a $PASS
image: gitlab-master.example.com:5005/dl/train/nemo_0.12:pipe.17669124-x86
github: huggingface/transformers-4.31.0-py310
openai: text-embedding-3-large
wandb: project_resnet50_v2_imagenet
twitter_dataset = "tweets_2019_2020_clean"
discord: 7.2.1
MIIDXTCCAkWgAwIBAgIJAKoK/heBjcOuMA0GCSqGSIb3DQEBBQUAMEUxCzAJBgNVBAYTAkFV
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePz
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGqR3m9mJd1
cookie: true
https://x.org/a?token=abc&page=2
https://x.org/search?key=value&model=resnet50
kind: Secret
bearer: false
"""
HARMLESS += f"certificate-authority-data: {CERTIFICATE}\n"


@pytest.mark.parametrize(("name", "marked"), SECRETS)
def test_a_secret_is_replaced(name: str, marked: str) -> None:
    before, secret, after = re.split("[«»]", marked)
    text = before + secret + after
    redactor = Redactor()
    lines = "\n" * secret.count("\n")
    assert redactor.redact(text) == f"{before}[secret:{name}:1]{lines}{after}"


@pytest.mark.parametrize("line", HARMLESS.splitlines())
def test_what_is_no_secret_stays(line: str) -> None:
    assert Redactor().redact(line) == line
    assert Redactor().redact(f"{line}\n") == f"{line}\n"


def test_the_same_secret_has_the_same_placeholder() -> None:
    redactor = Redactor()
    assert redactor.redact("password=hunter2 password=hunter3") == (
        "password=[secret:password:1] password=[secret:password:2]"
    )
    assert redactor.redact("password: 'hunter3'") == "password: '[secret:password:2]'"


def test_emails_only_when_asked() -> None:
    text = "contact: jane.doe+ml@mail.example.org, pip install a@b"
    assert Redactor().redact(text) == text
    assert Redactor(emails=True).redact(text) == "contact: [secret:email:1], pip install a@b"


def test_a_placeholder_in_the_text_asks_for_nothing() -> None:
    redactor = Redactor()
    text = "model: '[secret:password:1]'\npassword=hunter2"
    assert redactor.redact(text) == "model: '[secret:text:1]'\npassword=[secret:password:1]"


def test_threads_share_one_numbering() -> None:
    redactor = Redactor()
    found: list[tuple[int, str]] = []

    def work(start: int) -> None:
        numbers = range(start, start + 100)
        found.extend((n, redactor.redact(f"password=hunter{n:04}")) for n in numbers)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 50, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 300
    assert len(set(found)) == len({text for _, text in found}) == 200


# Pieces of which something that matters is likely to be made.
_PIECES = st.sampled_from(
    ["password", "=", ": ", '"', "'", "hunter2", "\n", "\r\n", "[secret:password:1]", "[secret:",
     "text:1]", "AKIAIOSFODNN7EXAMPLE", "https://", "bob:", "@x", " ", "token", RANDOM,
     "--api-key ", "-----BEGIN PRIVATE KEY-----", PEM_BODY, "-----END PRIVATE KEY-----",
     "login a ", "$", "<", "_KEY"]
)  # fmt: skip
_TEXT = st.one_of(st.text(), st.lists(_PIECES, max_size=12).map("".join))


@given(_TEXT)
@example("password='[secret:password:1]' password=hunter2")
def test_only_secrets_are_taken_out(text: str) -> None:
    redacted = Redactor(emails=True).redact(text)
    # a placeholder for a secret of several lines is followed by its line ends
    kept = re.split(rf"(?:{PLACEHOLDER.pattern}[\r\n]*)+", redacted)
    assert re.fullmatch(".*?".join(map(re.escape, kept)), text, re.DOTALL)
    assert len(re.split(r"\r\n|\r|\n", redacted)) == len(re.split(r"\r\n|\r|\n", text))


@given(_TEXT)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    redactor = Redactor(emails=True)
    once = redactor.redact(text)
    assert redactor.redact(once) == once


@given(_TEXT, _TEXT)
def test_a_key_is_found_wherever_it_stands(before: str, after: str) -> None:
    text = f"{before}\n ghp_{RANDOM} \n{after}"
    assert f"ghp_{RANDOM}" not in Redactor().redact(text)


# What makes each rule begin over and over; a quadratic pattern would need a minute.
_WORDS = sorted({str(word) for rule in load("llm/secrets.yaml")["rules"] for word in rule["words"]})
_BAIT = " ".join(["password secret token private key ://", *_WORDS]) + "\n"


@pytest.mark.parametrize(
    "unit",
    ["a", "-", "eyJaaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "secret=", "://a:", "curl ", "a@",
     "mysql ", "mysql -", "docker login a ", "openssl a ", "token: ", "Cookie: a=bbbbbbbb;", "aws ",
     "auth=('a',", "MIIEvQIBADAN", "MIIEvQIBADAN" + "A" * 20 + "\n", "LS0tLS1CRUdJTi", "github_",
     "kind: Secret\n", "kind: Secret\ndata:\n a: b\n", "Private-Lines: 9\naaaa\n", "?token=a1",
     "<password>", "pwd=", "--token ", "1" * 9 + ":A"],
)  # fmt: skip
def test_a_long_line_does_not_hang(unit: str) -> None:
    text = _BAIT + (unit * (200_000 // len(unit)))
    assert Redactor(emails=True).redact(text).count("\n") == text.count("\n")


_RULES = load("llm/secrets.yaml")["rules"]


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: rule["name"])
def test_the_words_of_a_rule_again_and_again_do_not_hang(rule: dict[str, Any]) -> None:
    words = list(map(str, rule["words"]))
    for unit in (*words[:3], " ".join(words) + " ", '="'.join(words) + '="'):
        Redactor(emails=True).redact((unit * 20_000)[:20_000])
